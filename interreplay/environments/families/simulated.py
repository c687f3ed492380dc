"""The one environment behind every family in MuJoCo, and how it writes a task into the model."""

from typing import Any

import mujoco
import numpy as np
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.spaces import Box

from interreplay.environments.families.bodies import Array, Motion, Rules
from interreplay.environments.families.rewards import Rewards
from interreplay.environments.mujoco_log import take_over_mujoco_warnings
from interreplay.errors import UsageError


class SimulatedEnv(MujocoEnv):
    """A body of Gymnasium's under a task's rules. One object knows one task, resets or not.

    Info holds the terms of the dense reward, and both rewards.

    Args:
        rules: see `bodies.Rules`.
        rewards: which reward `step` returns.
        render_mode: as Gymnasium's MuJoCo environments.

    Raises:
        UsageError: a render mode that doesn't exist.
    """

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}

    def __init__(self, rules: Rules, rewards: Rewards, render_mode: str | None = None) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            modes = ", ".join(self.metadata["render_modes"])
            raise UsageError(f"there is no render mode {render_mode!r}; choose one of {modes}")
        take_over_mujoco_warnings()
        self.rules = rules
        self.rewards = rewards
        body = rules.body
        super().__init__(
            body.xml,
            body.frame_skip,
            observation_space=None,
            render_mode=render_mode,
            default_camera_config=body.camera,
        )
        self.metadata = {**self.metadata, "render_fps": round(1 / self.dt)}
        size = len(rules.observe(self.data))
        self.observation_space = Box(-np.inf, np.inf, (size,), np.float64)

    def _initialize_simulation(self) -> tuple[Any, Any]:
        model, data = super()._initialize_simulation()
        if self.rules.body.timestep is not None:
            model.opt.timestep = self.rules.body.timestep
        for name, factors in self.rules.changes.items():
            getattr(model, name)[:] *= np.reshape(factors, getattr(model, name).shape)
        if self.rules.changes:
            # Subtree masses and inverse weights follow from the masses; MuJoCo recomputes them
            # only when told to, and moves `data` about for it.
            mujoco.mj_setConst(model, data)
            mujoco.mj_resetData(model, data)
        mujoco.mj_forward(model, data)
        return model, data

    def step(  # type: ignore[override]
        self, action: Any
    ) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """`body.frame_skip` simulator steps under one action."""
        before = self.rules.position(self.model, self.data)
        self.do_simulation(action, self.frame_skip)
        # MuJoCo leaves bodies where they stood before its last integration; move them along.
        mujoco.mj_kinematics(self.model, self.data)
        after = self.rules.position(self.model, self.data)
        velocity = (after - before) / self.dt
        terms = self.rules.terms(Motion(velocity, np.asarray(action, np.float64), self.data))
        reward, both = self.rewards(float(sum(terms.values())))
        ended = self.rules.ended(self.data)
        if self.render_mode == "human":
            self.render()
        return self.rules.observe(self.data), reward, ended, False, {**terms, **both}

    def reset_model(self) -> Array:
        """The model's own pose and rest, with noise."""
        body = self.rules.body
        qpos = self.np_random.uniform(-body.noise, body.noise, self.model.nq)
        if body.normal_velocities:
            qvel = body.noise * self.np_random.standard_normal(self.model.nv)
        else:
            qvel = self.np_random.uniform(-body.noise, body.noise, self.model.nv)
        self.set_state(self.init_qpos + qpos, self.init_qvel + qvel)
        return self.rules.observe(self.data)

    def render(self) -> Any:
        """As Gymnasium's.

        Raises:
            UsageError: no OpenGL that could draw.
        """
        try:
            return super().render()
        except (mujoco.FatalError, AttributeError, ImportError, RuntimeError) as error:
            raise UsageError(
                f"MuJoCo can't draw here ({error}); set MUJOCO_GL to egl or osmesa, or install one"
            ) from error
