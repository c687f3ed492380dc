"""Run folders, and the figures and tables made from them. Never imports ray."""

from interreplay.results.figures import learning_curve, seeds_curve
from interreplay.results.run_folder import RunFolder

__all__ = ["RunFolder", "learning_curve", "seeds_curve"]
