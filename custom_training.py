#!/usr/bin/env python3
"""Train agents: `python3 custom_training.py --env HalfCheetah-v5 --buffer nmer --seeds 0 1 2`."""

import json
import sys
from collections.abc import Sequence

from interreplay.errors import UsageError
from interreplay.launch.resolution import Plan, plan


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 done, 1 a run of several failed, 130 for Ctrl-C.

    2 is for what the user can mend: one sentence on stderr.
    """
    debugging = "--local_mode" in argv
    try:
        planned = plan(argv)
        if planned.print_config:
            settings = [run.to_dict() for run in planned.runs]
            print(json.dumps(settings[0] if len(settings) == 1 else settings, indent=2))
            return 0
        return _run(planned)
    except UsageError as error:
        if debugging:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _run(planned: Plan) -> int:
    # ray and torch take seconds to import: only now, after the flags have proved right.
    if planned.dry_run:
        from interreplay.launch.run import describe
        from interreplay.launch.sweep import check

        for run, folder in zip(planned.runs, check(planned.runs), strict=True):
            print(describe(run, folder))
        return 0
    if len(planned.runs) == 1:
        from interreplay.launch.run import train

        train(planned.runs[0])
        return 0
    from interreplay.launch.sweep import report, run_many

    return report(run_many(planned.runs, planned.max_concurrent))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
