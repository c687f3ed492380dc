"""Side-by-side measurements against peers, run by hand: `python -m benchmarks.sac_vs_sb3`."""
