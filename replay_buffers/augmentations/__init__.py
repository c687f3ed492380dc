"""Turned into what? What happens to sampled rows before the learner sees them."""

from replay_buffers.augmentations.base import Augmentation, Identity, Sample
from replay_buffers.augmentations.gaussian_noise import GaussianNoise
from replay_buffers.augmentations.mixture import Mixture

__all__ = ["Augmentation", "GaussianNoise", "Identity", "Mixture", "Sample"]
