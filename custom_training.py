#!/usr/bin/env python3
"""Train agents: `python3 custom_training.py --env HalfCheetah-v5 --buffer nmer --seeds 0 1 2`."""

import json
import sys
from collections.abc import Sequence

from interreplay.launch.command import answer
from interreplay.launch.settings.resolution import Plan, plan


def main(argv: Sequence[str]) -> int:
    """The exit code, as `answer` has it."""
    return answer(lambda: _run(plan(argv)), debugging="--local_mode" in argv)


def _run(planned: Plan) -> int:
    if planned.print_config:
        settings = [run.to_dict() for run in planned.runs]
        print(json.dumps(settings[0] if len(settings) == 1 else settings, indent=2))
        return 0
    # ray and torch take seconds to import: only now, after the flags have proved right.
    from interreplay.launch.kinds.replay import ReplayRun

    runs = [ReplayRun(settings) for settings in planned.runs]
    if planned.dry_run:
        from interreplay.launch.running.run import describe
        from interreplay.launch.running.sweep import check

        for one in check(runs):
            print(describe(one.run, one.folder))
        return 0
    if len(runs) == 1:
        from interreplay.launch.running.run import train

        train(runs[0])
        return 0
    from interreplay.launch.running.sweep import report, run_many

    return report(run_many(runs, planned.max_concurrent))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
