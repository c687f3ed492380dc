#!/usr/bin/env python3
"""Many runs: `python3 cluster_run.py --input_path inputs.txt --workers 4` (here, SLURM, or Ray)."""

import sys
from collections.abc import Sequence

from interreplay.cluster.command import command
from interreplay.launch.command import answer


def main(argv: Sequence[str]) -> int:
    """The exit code: 0 when all have finished, 1 when not, 2 for a mistake, 128 + a signal."""
    return answer(lambda: command(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
