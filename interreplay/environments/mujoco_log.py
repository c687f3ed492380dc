"""MuJoCo's warnings go to the log."""

import logging

import mujoco

logger = logging.getLogger(__name__)


def _log_mujoco_warning(message: str) -> None:
    # Gymnasium's own HalfCheetah model says this at every construction; nobody here can mend it.
    if "settotalmass" not in message:
        logger.warning("MuJoCo: %s", message)


def take_over_mujoco_warnings() -> None:
    """Send MuJoCo's warnings to the log; by default it drops a MUJOCO_LOG.TXT where it stands.

    dm_control, once imported, prints them through a handler of its own.
    """
    handler = mujoco.get_mju_user_warning()
    if handler is None or hasattr(handler, "argtypes"):  # dm_control's is ctypes'
        mujoco.set_mju_user_warning(_log_mujoco_warning)
