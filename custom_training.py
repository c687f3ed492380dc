#!/usr/bin/env python3
"""Train one agent: `python3 custom_training.py --env HalfCheetah-v5 --buffer nmer`."""

import json
import sys
from collections.abc import Sequence

from interreplay.errors import UsageError
from interreplay.launch.resolution import parse


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 done, 2 for what the user can mend (one sentence on stderr), 130 for Ctrl-C."""
    debugging = "--local_mode" in argv
    try:
        settings, only_print = parse(argv)
        if only_print:
            print(json.dumps(settings.to_dict(), indent=2))
            return 0
        # ray and torch take seconds to import: only now, after the flags have proved right.
        from interreplay.launch.run import train

        train(settings)
    except UsageError as error:
        if debugging:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
