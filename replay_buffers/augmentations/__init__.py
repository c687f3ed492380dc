"""Turned into what? What happens to sampled rows before the learner sees them."""

from replay_buffers.augmentations.base import Augmentation, Context, Identity, Sample
from replay_buffers.augmentations.continuous_transition import AdaptiveMixture
from replay_buffers.augmentations.gaussian_noise import GaussianNoise
from replay_buffers.augmentations.gaussian_process import GaussianProcess
from replay_buffers.augmentations.mixture import Mixture
from replay_buffers.augmentations.state_views import StateViews

__all__ = [
    "AdaptiveMixture",
    "Augmentation",
    "Context",
    "GaussianNoise",
    "GaussianProcess",
    "Identity",
    "Mixture",
    "Sample",
    "StateViews",
]
