"""Draw the evaluation curves of several seeds of one recipe into one picture.

python -m benchmarks.seeds_figure results/interreplay/InvertedPendulum-v5/SAC-nmer docs/x.png
"""

import argparse
from pathlib import Path

from interreplay.results import seeds_curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="of a recipe, with a folder for each seed")
    parser.add_argument("picture", type=Path, help="a .png file to write")
    given = parser.parse_args()
    print(seeds_curve(given.folder, given.picture) or "no run there has an evaluation yet")


if __name__ == "__main__":
    main()
