"""Draw the evaluation curves of several seeds of one recipe into one picture.

python -m benchmarks.seeds_figure results/interreplay/InvertedPendulum-v5/SAC-nmer docs/x.png
"""

import sys
from pathlib import Path

from interreplay.results import seeds_curve

if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m benchmarks.seeds_figure RECIPE_FOLDER PICTURE.png")
    print(seeds_curve(Path(sys.argv[1]), Path(sys.argv[2])) or "no run there has an evaluation yet")
