"""A run's figures under the names of the old files: progress.csv and data_epoch_<k>.csv."""

from collections.abc import Iterable, Iterator
from typing import Any

from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import LEARNER_RESULTS

from interreplay.focal.data import TaskData

COUNTERS = (
    "Number of train steps total",
    "Number of env steps total",
    "Train Time (s)",
    "Epoch",
)


def progress_row(result: dict[str, Any]) -> dict[str, float]:
    """What `Focal.train()` returned as a row of progress.csv, evaluation's returns left out."""
    figures = result[LEARNER_RESULTS][DEFAULT_MODULE_ID]
    return {name: float(figures[name]) for name in sorted(figures)} | {
        name: float(result[name]) for name in COUNTERS
    }


def embedding_rows(
    algorithm: Any, tasks: Iterable[TaskData], contexts: int
) -> Iterator[dict[str, float]]:
    """Rows of data_epoch_<k>.csv: `contexts` embeddings of each task, from its own data.

    Columns: task_idx, z_means0, z_means1, ..., z_vars0, z_vars1, ...
    """
    for data in tasks:
        for seed in range(contexts):
            means, variances = algorithm.embed(data, seed)
            yield {
                "task_idx": data.task,
                **{f"z_means{i}": float(value) for i, value in enumerate(means)},
                **{f"z_vars{i}": float(value) for i, value in enumerate(variances)},
            }
