"""The research programme as data: which rows, with whom, turned into what."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """One line of the catalog.

    `sampler`, `partner` and `augmentation` are words that `replay_buffers.assembly` looks up; the
    numbers a recipe needs (how many neighbours, which Beta) stand in `configs/recipes.json`.
    """

    name: str
    sampler: str
    partner: str | None
    augmentation: str
    source: str

    @property
    def mixes(self) -> bool:
        """Whether its rows have two parents, which may share a row's weight and TD error.

        Not so for S4RL's views: their action and reward are the sampled row's own.
        """
        return self.augmentation in ("mixture", "adaptive_mixture", "gaussian_process")


CATALOG: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("vanilla", "uniform", None, "identity", "Lin 1992"),
        Recipe("per", "prioritized", None, "identity", "Schaul et al. 2016"),
        Recipe("gaussian", "uniform", None, "gaussian_noise", "baseline of the NMER paper"),
        Recipe("s4rl", "uniform", "following", "state_views", "Sinha et al. 2021"),
        Recipe("mixup", "uniform", "random", "mixture", "Zhang et al. 2018, naive"),
        Recipe("ct", "uniform", "following", "adaptive_mixture", "Lin et al. 2021"),
        Recipe("nmer", "uniform", "nearest", "mixture", "Sander et al. 2022"),
        Recipe("bier", "uniform", "nearest", "gaussian_process", "Sander 2021 (MIT thesis)"),
    )
}
