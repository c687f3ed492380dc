"""Offline meta-reinforcement learning: FOCAL and the baselines of its paper (ICLR 2021).

A task's transitions become its embedding z (`encoder`, trained by `metric_loss` alone); policy and
critics see (state, z) and stay near the data (`divergences`). `settings` needs neither torch nor
ray.
"""
