"""Says once, early, that a setting is slow: what it costs, how long it will take, what is faster.

Reads no clock: whoever trains brings the durations.
"""

from dataclasses import dataclass

from replay_buffers.assembly import ReplaySettings
from replay_buffers.catalog import Recipe

# An update is slow when making its batch takes so many seconds and so many times its learning ...
_SLOW_BATCH, _TIMES_LEARNING = 0.03, 3.0
# ... or when it takes so many seconds in all. A healthy one takes 0.005 to 0.03.
_SLOW_UPDATE = 0.25
# What is over sooner than this, in seconds, is not worth a line.
_SHORT = 60.0
# Calls between two looks: 2, then twice as many each time, up to this.
_MOST_CALLS = 1024
# Numbers in an observation from which neighbour searches are the likely cause.
_WIDE = 1000
# More neighbours than this make bier's batch more expensive than an update of SAC.
_MANY_NEIGHBORS = 30


@dataclass(frozen=True)
class Setting:
    """What a run is slow with.

    Attributes:
        recipe, replay: of its buffer.
        obs_dim: numbers in an observation.
    """

    recipe: Recipe
    replay: ReplaySettings
    obs_dim: int


class SlownessWatch:
    """Looks at what updates take; speaks at most once.

    The first look comes after two calls and takes the cheaper one, so that what happens only once
    (the first fit of hyperparameters, memory touched for the first time) is not taken for the rule;
    later looks take the median of the calls since the last, and see what grows with the buffer.

    Args:
        setting: of the run.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._said = False
        self._calls: list[tuple[float, float]] = []
        self._next_look = 2

    def line(self, batch: float, learning: float, updates: int, left: int | None) -> str | None:
        """What to say after a call of the learner, mostly nothing.

        Args:
            batch, learning: seconds that the call took to make its batch, and to learn from it.
            updates: how many updates it was, 1 or more.
            left: updates to come in this run; None when nobody knows.
        """
        if self._said:
            return None
        self._calls.append((batch / updates, learning / updates))
        if len(self._calls) < self._next_look:
            return None
        made, learned = sorted(self._calls, key=sum)[(len(self._calls) - 1) // 2]
        self._calls, self._next_look = [], min(2 * self._next_look, _MOST_CALLS)
        if not _slow(made, learned) or (left is not None and left * (made + learned) < _SHORT):
            return None
        self._said = True
        return _line(self._setting, made, learned, left)


def _slow(batch: float, learning: float) -> bool:
    by_batch = batch >= _SLOW_BATCH and batch >= _TIMES_LEARNING * learning
    return by_batch or batch + learning >= _SLOW_UPDATE


def _line(setting: Setting, batch: float, learning: float, left: int | None) -> str:
    total = batch + learning
    cost = (
        f"slow: an update takes {duration(total)} ({duration(batch)} to make its batch, "
        f"{duration(learning)} to learn from it)"
    )
    if left is None:
        rest = f"1,000 of them take {duration(1000 * total)}"
    else:
        rest = f"the {left:,} to come take {duration(left * total)}"
    # Whatever takes a quarter of the time or more is worth advice.
    advice = [*(_faster_batch(setting) if 4 * batch >= total else ())]
    if 4 * learning >= total:
        advice += _faster_learning(setting)
    advice.append("a smaller --replay_ratio or --train_batch_size")
    return f"{cost}, so {rest}; faster: {'; '.join(advice)}"


def _faster_learning(setting: Setting) -> list[str]:
    """What makes an update of the networks cheaper."""
    views = setting.replay.s4rl_num_views if setting.recipe.name == "s4rl" else 1
    advice = [f"fewer than {views} --s4rl_num_views"] if views > 1 else []
    return [*advice, "smaller --hidden_sizes, or a GPU (--num_gpus 1)"]


def _faster_batch(setting: Setting) -> list[str]:
    """The flags that make this recipe's batches cheaper."""
    recipe, replay = setting.recipe, setting.replay
    advice = []
    if recipe.augmentation == "gaussian_process":
        shared = replay.global_hyperparams or replay.single_model
        if not shared and not replay.est_lengthscales:
            advice.append(
                "--buffer bier without further flags (a process is fitted for each row of each "
                "batch; --gpytorch --global_hyperparams --mc_hyper share one fit)"
            )
        if shared and replay.per_output_hyperparams:
            advice.append("drop --per_output_hyperparams")
        if replay.single_model:
            advice.append(f"a --train_size below {replay.train_size:,}, or drop --single_model")
        if replay.kneighbors > _MANY_NEIGHBORS:
            advice.append(f"--kneighbors 20 in place of {replay.kneighbors}")
    if recipe.partner == "nearest" and setting.obs_dim >= _WIDE:
        advice.append(
            f"--buffer mixup or ct, which search no neighbours among observations of "
            f"{setting.obs_dim:,} numbers (it takes longer with every row stored), or an "
            "environment that shows fewer"
        )
    elif recipe.partner == "nearest" and not advice:
        advice.append(
            "a smaller --buffer_size, or --buffer mixup or ct, which search no neighbours"
        )
    return advice


def duration(seconds: float) -> str:
    """Seconds in the unit that people would use: `12 ms`, `4.7 s`, `8 min`, `3.2 h`, `5.1 days`."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    units = [(86400, "days"), (3600, "h"), (60, "min"), (1, "s")]
    size, unit = next(pair for pair in units if seconds >= pair[0])
    value = seconds / size
    return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
