"""The command line of `cluster_run.py`."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interreplay.errors import UsageError
from interreplay.launch.settings.reading import Parser, integer

BACKENDS = ("local", "slurm", "ray")
_OF_SLURM = ("partition", "time", "cpus", "mem", "sbatch")
_ABOUT = """\
Runs many training runs, or any commands: on this machine, through SLURM, or on a Ray cluster.
The same command again runs only what has not finished. Flags of custom_training.py for every run
stand behind --, as in: cluster_run.py --input_path inputs.txt --workers 4 -- --total_timesteps 1e5
"""


@dataclass(frozen=True)
class Options:
    """What was given.

    Attributes:
        input_path: `inputs.txt` or a JSON sweep.
        commands: a file of shell commands.
        backend: local, slurm or ray.
        workers: jobs at once; None for what the back end makes of it.
        address: of the Ray cluster.
        gpus: for each job.
        partition, time, cpus, mem, sbatch: of SLURM, for each job.
        logs: the launch's folder.
        dry_run, status: only print the commands; only show how far they are.
        extra: flags for every training run.
    """

    logs: Path
    input_path: str | None = None
    commands: str | None = None
    backend: str = "local"
    workers: int | None = None
    address: str | None = None
    gpus: int | None = None
    partition: str | None = None
    time: str | None = None
    cpus: int | None = None
    mem: str | None = None
    sbatch: tuple[str, ...] = ()
    dry_run: bool = False
    status: bool = False
    extra: tuple[str, ...] = ()

    @property
    def source(self) -> str | None:
        """The file that says what to run."""
        return self.input_path or self.commands


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="cluster_run.py",
        usage="cluster_run.py (--input_path FILE | --commands FILE) [flags] [-- flags of each run]",
        description=_ABOUT,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--input_path", metavar="FILE", help="inputs.txt, or a JSON sweep as --config takes it")
    add("--commands", metavar="FILE", help="any shell commands, one a line")
    add("--backend", choices=BACKENDS, help="where (default: local; ray when --address is given)")
    add(
        "--workers",
        metavar="N",
        type=integer,
        help="jobs at once (local: up to 4, as cores allow; otherwise as the cluster allows)",
    )
    add("--dry_run", action="store_true", help="print every command, and stop")
    add("--status", action="store_true", help="how far each job is, and stop")
    add(
        "--logs",
        metavar="DIR",
        help="folder of logs and records (default: logging/<name of the file>)",
    )
    add("--gpus", metavar="N", type=integer, help="GPUs for each job; local and slurm")
    add("--address", metavar="HOST:PORT", help="ray: the cluster to join")
    add("--partition", metavar="NAME", help="slurm: the partition (default: the cluster's)")
    add("--time", metavar="TIME", help="slurm: a job's time limit, 24:00:00; runs go on after it")
    add("--cpus", metavar="N", type=integer, help="slurm: cores for each job (default: 1)")
    add("--mem", metavar="SIZE", help="slurm: memory of each job, as in 8G")
    add("--sbatch", metavar="FLAGS", help="slurm: more flags of sbatch, in one word: '--qos=x'")
    return parser


def parse(argv: Sequence[str]) -> Options:
    """Read a command line.

    Raises:
        UsageError: what can't be used, or flags of another back end.
    """
    words = list(argv)
    extra: list[str] = []
    if "--" in words:
        cut = words.index("--")
        words, extra = words[:cut], words[cut + 1 :]
    given = {k: v for k, v in vars(_parser().parse_args(words)).items() if v is not None}
    given.setdefault("backend", "ray" if "address" in given else "local")
    _check(given, bool(extra))
    source = given.get("input_path") or given.get("commands")
    logs = given.pop("logs", None) or str(Path("logging") / Path(source or "").stem)
    if "sbatch" in given:
        given["sbatch"] = tuple(shlex.split(given["sbatch"]))
    return Options(logs=Path(logs).expanduser().absolute(), extra=tuple(extra), **given)


def _check(given: dict[str, object], extra: bool) -> None:
    backend = given["backend"]
    sources = {"input_path", "commands"} & set(given)
    if len(sources) == 2:
        raise UsageError("--input_path and --commands contradict each other; drop one of them")
    if not sources and not given["status"]:
        raise UsageError("nothing to run: give --input_path FILE or --commands FILE")
    for name in ("workers", "gpus", "cpus"):
        number = given.get(name)
        if isinstance(number, int) and number < 1:
            raise UsageError(f"--{name} is {number}; it must be 1 or more")
    for name in _OF_SLURM:
        if name in given and backend != "slurm":
            raise UsageError(f"--{name} is for SLURM; add --backend slurm, or drop it")
    if "gpus" in given and backend == "ray":
        raise UsageError("--gpus is not for --backend ray; give the runs --num_gpus, behind --")
    if ("address" in given) != (backend == "ray"):
        raise UsageError("--backend ray and --address HOST:PORT go together; give both or neither")
    if "commands" in given and backend == "ray":
        raise UsageError("--commands can't go to Ray, which takes training runs only")
    if extra and "input_path" not in given:
        raise UsageError("flags behind -- are for the training runs of --input_path")
