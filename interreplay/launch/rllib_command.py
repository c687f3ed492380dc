"""The command `rllib`: `rllib train --run SAC --env CartPole-v0` trains RLlib's own algorithm.

Needs neither ray nor torch until a run begins.
"""

import json
import sys
from collections.abc import Sequence

from interreplay.errors import UsageError
from interreplay.launch.command import answer
from interreplay.launch.settings.rllib_flags import EXAMPLE, parse

_EVALUATE = (
    "from ray.rllib.algorithms.algorithm import Algorithm; "
    "Algorithm.from_checkpoint(PATH).evaluate()"
)
# Subcommands of RLlib's command line before ray 2.60, and what does their work now.
_GONE = {
    "rollout": f"in Python: {_EVALUATE}",
    "evaluate": f"in Python: {_EVALUATE}",
    "example": f"for example {EXAMPLE}",
}
_ABOUT = f"""\
usage: {EXAMPLE} [flags]

Trains RLlib's own algorithm of that name with RLlib's own defaults, to be compared with the
recipes of custom_training.py: same run folder, same figures. `rllib train --help` lists the flags.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code, as `answer` has it."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_ABOUT, end="")
        return 0
    return answer(lambda: _command(words[0], words[1:]))


def _command(name: str, words: Sequence[str]) -> int:
    if name in _GONE:
        raise UsageError(f"RLlib has no `rllib {name}` any more; {_GONE[name]}")
    if name != "train":
        raise UsageError(f"unknown command `rllib {name}`; the one there is: {EXAMPLE}")
    if words and words[0] == "file":
        raise UsageError(f"experiment files are RLlib's no more; give flags, as in {EXAMPLE}")
    settings = parse(words)
    # ray and torch take seconds to import: only now, after the flags have proved right.
    from interreplay.launch.kinds.rllib import RllibRun
    from interreplay.launch.running.run import train

    if settings.print_config:
        run, _ = RllibRun(settings).checked()
        print(json.dumps(run.settings.to_dict(), indent=2))
    else:
        train(RllibRun(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
