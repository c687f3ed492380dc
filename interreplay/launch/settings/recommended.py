"""What `--buffer bier` stands for, and what of it gives way to what else was said.

`--buffer bier` alone means the settings found best by measuring (`docs/bier-measured.md`):
`configs/recipes.json` has them under `bier`. `--gaussian_process` builds the process up from
scratch, flag by flag, as of old: `gaussian_process` in the same file.
"""

from typing import Any

# What a setting of this value leaves no room for. All else that contradicts is an error as ever.
_GIVES_WAY: tuple[tuple[str, bool, tuple[str, ...]], ...] = (
    # Lengthscales of each neighbourhood's radius: nothing is fitted, nothing shared.
    (
        "est_lengthscales",
        True,
        ("gpytorch", "global_hyperparams", "mc_hyper", "warmstart_global"),
    ),
    # One process for the whole buffer is fitted on rows of the whole buffer.
    ("single_model", True, ("global_hyperparams", "mc_hyper")),
    # Every row keeps hyperparameters of its own.
    ("update_hyperparams", True, ("global_hyperparams", "mc_hyper", "warmstart_global")),
    # A number of random rows to fit the shared set on, in place of neighbourhoods.
    ("train_size", True, ("mc_hyper",)),
    ("global_hyperparams", False, ("mc_hyper", "warmstart_global")),
)


def defaults_key(given: dict[str, Any], recipe: str) -> str:
    """Under which name `configs/recipes.json` has the recipe's defaults."""
    return "gaussian_process" if recipe == "bier" and given.get("gaussian_process") else recipe


def switches(given: dict[str, Any], defaults: dict[str, Any]) -> dict[str, bool]:
    """The recipe's switches that are on unless said otherwise, as if they had been given.

    Args:
        given: what was said, by file or flag; False switches a default off.
        defaults: of the recipe.
    """
    replaced: set[str] = set(given)
    for name, value, names in _GIVES_WAY:
        if given.get(name) is not None and bool(given[name]) == value:
            replaced.update(names)
    return {name: True for name, on in defaults.items() if on is True and name not in replaced}
