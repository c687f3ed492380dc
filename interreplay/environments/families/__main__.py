"""`python -m interreplay.environments.families`: the families, their picture, their tasks."""

import argparse
import sys
from collections.abc import Sequence

from interreplay.environments.families.registry import FAMILIES, find_family
from interreplay.environments.families.task import save_tasks
from interreplay.errors import UsageError

_COLUMNS = ("family", "task", "start", "reward", "ends", "steps", "observation", "sparse from")


def table() -> str:
    """Every family as a row of a Markdown table."""
    rows = [_COLUMNS, ("---",) * len(_COLUMNS)]
    for family in FAMILIES.values():
        rows.append(
            (
                *(family.name, family.task, family.start, family.reward, family.ends),
                *(str(family.horizon), family.observation, f"{family.threshold:g}"),
            )
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m interreplay.environments.families",
        description="Print the task families, draw them, or write the tasks of one.",
    )
    parser.add_argument("--picture", metavar="PNG", help="draw the families into this file")
    parser.add_argument("--tasks", metavar="FAMILY", help="write this family's tasks as JSON")
    parser.add_argument("--count", type=int, help="how many (default: its experiment's number)")
    parser.add_argument("--seed", type=int, default=0, help="what they are drawn with")
    parser.add_argument("--out", metavar="JSON", default="tasks.json", help="where to")
    given = parser.parse_args(argv)
    try:
        if given.seed < 0:
            raise UsageError(f"--seed is {given.seed}; it must be 0 or more")
        if given.tasks is not None:
            save_tasks(given.out, find_family(given.tasks).tasks(given.count, given.seed))
            print(f"tasks: {given.out}")
        if given.picture is not None:
            from interreplay.environments.families.picture import draw

            draw(given.picture, given.seed)
            print(f"picture: {given.picture}")
        if given.tasks is None and given.picture is None:
            print(table())
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
