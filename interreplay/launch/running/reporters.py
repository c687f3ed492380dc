"""Where a run's figures go besides result.json: TensorBoard always, Weights & Biases if asked."""

import os
from typing import Any, Protocol

from interreplay.errors import UsageError
from interreplay.launch.running.kind import Asked
from interreplay.results import RunFolder


class Reporter(Protocol):
    """Takes the scalars of one report."""

    def report(self, scalars: dict[str, float], env_steps: int) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's folder, flushed with every report."""

    def __init__(self, folder: RunFolder, begin: int) -> None:
        from tensorboardX import SummaryWriter

        # What an interrupted run wrote after its last checkpoint is not shown twice.
        self._writer = SummaryWriter(str(folder.path), purge_step=begin or None)

    def report(self, scalars: dict[str, float], env_steps: int) -> None:
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, env_steps)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A run of Weights & Biases: project agent_name, group env and recipe, name with the seed.

    `WANDB_MODE=offline` keeps it in the run's folder, under `wandb/`.
    """

    def __init__(self, folder: RunFolder, settings: Asked) -> None:
        wandb = import_wandb()
        agent_name, env, trainer, recipe, _ = settings.place
        self._run = wandb.init(
            project=agent_name,
            group=f"{env} {trainer}-{recipe}",
            name=settings.name,
            config=settings.to_dict(),
            dir=str(folder.path),
            settings=wandb.Settings(console="off", silent=True),
        )

    def report(self, scalars: dict[str, float], env_steps: int) -> None:
        self._run.log(scalars, step=env_steps)

    def close(self) -> None:
        self._run.finish()


def import_wandb() -> Any:
    """The package, imported only by those who ask for it.

    Raises:
        UsageError: it is not installed, or nobody is logged in while it should go online.
    """
    try:
        import wandb
    except ImportError as error:
        raise UsageError(
            "--wandb needs the package wandb: pip install 'interreplay[wandb]' (pip install -e "
            "'.[wandb]' in a checkout)"
        ) from error
    online = os.environ.get("WANDB_MODE", "online") in ("online", "run")
    if online and not wandb.login(prompt=False):
        raise UsageError(
            "--wandb: nobody is logged in to Weights & Biases; run `wandb login`, or set "
            "WANDB_MODE=offline to keep the run in its folder"
        )
    return wandb


class Reporters:
    """All of them at once."""

    def __init__(self, *members: Reporter) -> None:
        self._members = members

    @classmethod
    def of(cls, folder: RunFolder, settings: Asked, begin: int = 0) -> "Reporters":
        """`begin`: the first env step that is reported, where a run goes on."""
        extra: list[Reporter] = [WandB(folder, settings)] if settings.wandb else []
        return cls(TensorBoard(folder, begin), *extra)

    def report(self, scalars: dict[str, float], env_steps: int) -> None:
        for member in self._members:
            member.report(scalars, env_steps)

    def close(self) -> None:
        for member in self._members:
            member.close()
