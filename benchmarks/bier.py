"""What bier's Gaussian processes cost and how well they predict, next to gpytorch and scikit-learn.

    python -m benchmarks.bier speed        # a batch of 256 predictions, against both
    python -m benchmarks.bier share        # of a run's time at k = 10, 20, 50, next to vanilla
    python -m benchmarks.bier accuracy     # on transitions of a half-trained HalfCheetah

HalfCheetah's dimensions: 23 features, 18 outputs, hyperparameters shared by all. In each round all
contenders take their turn, so that a machine whose speed drifts treats them alike; what counts are
the ratios.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.bier_truth import ACTION_DIM, OBS_DIM, accuracy
from interreplay.launch.settings.resolution import resolve
from interreplay.launch.settings.translation import replay_settings
from replay_buffers.gaussian_process.kernels import Hyperparameters, Kernel
from replay_buffers.gaussian_process.posterior import LocalProcesses
from replay_buffers.gaussian_process.regression import Normalization, Regression

BATCH, DIMS, OUTPUTS = 256, OBS_DIM + ACTION_DIM, 1 + OBS_DIM
# Turns of random steps before the first update.
_WARM_UP = 4
RESULTS = Path(__file__).parent / "results"


def problem(k: int, dtype: torch.dtype) -> tuple[Regression, torch.Tensor, Hyperparameters]:
    """Random neighbourhoods, queries inside them, and plausible hyperparameters."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    data = Regression(normal(BATCH, k + 1, DIMS), normal(BATCH, k + 1, OUTPUTS))
    start = Hyperparameters.start(Kernel("rbf"), 1, 1, OUTPUTS, data.x)
    # Neighbours correlate: with the default lengthscale these would all be strangers.
    h = replace(start, lengthscale=3 * torch.ones_like(start.lengthscale))
    return data, data.x[:, :1] + 0.3 * normal(BATCH, 1, DIMS), h


def of_ours(
    data: Regression, queries: torch.Tensor, h: Hyperparameters, normalization: Normalization
) -> Callable[[], torch.Tensor]:
    """What a bier batch asks for: the posterior mean."""
    local = LocalProcesses(Kernel("rbf"), normalization)
    return lambda: local.predict(h, data, queries).mean


def of_gpytorch(
    data: Regression, queries: torch.Tensor, h: Hyperparameters
) -> Callable[[], torch.Tensor]:
    """gpytorch's exact GP, one for each output and neighbourhood in a batch (Sander 2021)."""
    import gpytorch

    shape = torch.Size([OUTPUTS, BATCH])

    class Batched(gpytorch.models.ExactGP):
        def __init__(self, x: Any, y: Any, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean(batch_shape=shape)
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(batch_shape=shape, ard_num_dims=DIMS),
                batch_shape=shape,
            )

        def forward(self, x: Any) -> Any:
            covariance = self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), covariance)

    x = data.x.expand(OUTPUTS, *data.x.shape).contiguous()
    y = data.y.permute(2, 0, 1).contiguous()
    at = queries.expand(OUTPUTS, *queries.shape).contiguous()
    likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=shape)
    model = Batched(x, y, likelihood).to(x.dtype)
    model.covar_module.base_kernel.lengthscale = h.lengthscale[0, 0, 0]
    likelihood.noise = h.noise.expand(OUTPUTS, BATCH)[..., None]
    model.eval()

    def predict() -> torch.Tensor:
        model.set_train_data(x, y, strict=False)  # new neighbourhoods: nothing is remembered
        with torch.no_grad(), gpytorch.settings.fast_pred_var():
            return model(at).mean.permute(1, 2, 0)

    return predict


def of_sklearn(
    data: Regression, queries: torch.Tensor, h: Hyperparameters
) -> Callable[[], torch.Tensor]:
    """scikit-learn's, one neighbourhood after another, all outputs together."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel(float(h.outputscale[0, 0])) * RBF(h.lengthscale[0, 0].numpy())
    x, y, at = data.x.numpy(), data.y.numpy(), queries.numpy()

    def predict() -> torch.Tensor:
        found = []
        for group in range(BATCH):
            process = GaussianProcessRegressor(kernel, alpha=float(h.noise[0, 0]), optimizer=None)
            found.append(process.fit(x[group], y[group]).predict(at[group]))
        return torch.from_numpy(np.stack(found))

    return predict


def update_products() -> Callable[[], torch.Tensor]:
    """About what a SAC update multiplies: 17 products of 256 x 256 matrices, 570 MFLOP."""
    left, right, out = (torch.rand(256, 256) for _ in range(3))

    def multiply() -> torch.Tensor:
        for _ in range(17):
            torch.mm(left, right, out=out)
        return out

    return multiply


def _milliseconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - started)


def speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a batch, and how many times as long the others take."""
    rows = []
    for k in arguments.k:
        for dtype in (torch.float64, torch.float32):
            data, queries, h = problem(k, dtype)
            contenders: dict[str, Callable[[], Any]] = {
                "ours": of_ours(data, queries, h, Normalization()),
                "ours normalized": of_ours(data, queries, h, Normalization(True)),
                "gpytorch": of_gpytorch(data, queries, h),
                "scikit-learn": of_sklearn(data, queries, h),
                "SAC's products": update_products(),
            }
            error = (contenders["ours"]() - contenders["gpytorch"]()).abs().max()
            rounds = [
                {name: _milliseconds(call) for name, call in contenders.items()}
                for _ in range(arguments.repeats + 1)
            ][1:]
            medians = {n: statistics.median(r[n] for r in rounds) for n in contenders}
            ratios = {
                f"{name} / ours": statistics.median(r[name] / r["ours"] for r in rounds)
                for name in ("gpytorch", "scikit-learn")
            }
            precision = str(dtype).removeprefix("torch.")
            rows.append(
                {"k": k, "precision": precision, "milliseconds": medians, "ratios": ratios}
                | {"largest difference to gpytorch": float(error)}
            )
            shown = ", ".join(f"{name} {value:.2f}" for name, value in medians.items())
            ratio = ", ".join(f"{name} {value:.0f}" for name, value in ratios.items())
            print(f"k = {k}, {precision}: {shown} ms; {ratio}; differs by {error:.0e}", flush=True)
    return {"batch": BATCH, "threads": torch.get_num_threads(), "rows": rows}


def share(arguments: argparse.Namespace) -> dict[str, Any]:
    """What bier takes of a run's time, and its updates per second against vanilla's.

    All runs live side by side in one process and take turns of `--steps` updates at replay ratio 1,
    short enough that a machine whose speed drifts treats them alike.
    """
    from interreplay.algorithms.sac import SACConfig
    from interreplay.launch.running.private_ray import private_ray

    recommended = replay_settings(resolve({"buffer": "bier"}))
    settings: dict[str, dict[str, Any] | None] = {"vanilla": None}
    for k in arguments.k:
        settings[f"bier, k = {k}"] = recommended | {"kneighbors": k}
    runs: dict[str, Any] = {}
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in settings}
    with private_ray(0):
        for name, of_bier in settings.items():
            config = SACConfig().environment(arguments.env).debugging(seed=0)
            config.replay(
                recipe="vanilla" if of_bier is None else "bier",
                buffer_size=100_000,
                learning_starts=_WARM_UP * arguments.steps,
                timesteps_per_iteration=arguments.steps,
                **(of_bier or {}),
            )
            config.evaluate_episodes(interval=10**9, episodes=1)
            runs[name] = config.build_algo()
            for _ in range(_WARM_UP + 1):
                runs[name].train()  # random steps, then the first updates, fit and neighbours
        for _ in range(arguments.rounds):
            for name, run in runs.items():
                turns[name].append(_turn(run))
        for run in runs.values():
            run.stop()
    rows = [{"run": name} | _total(turns[name], turns["vanilla"]) for name in runs]
    for row in rows:
        print(
            f"{row['run']}: {row['updates_per_s']:.0f} updates/s, {row['of vanilla']:.2f} of "
            f"vanilla's; {row['cpu_ms_per_update']:.1f} ms of CPU an update; "
            f"{row['predictions']:.0%} of the time in predictions, {row['fits']:.1%} in fits "
            f"(the longest {row['longest_fit_s']:.1f} s)",
            flush=True,
        )
    sizes = {"env": arguments.env, "steps": arguments.steps, "rounds": arguments.rounds}
    return {**sizes, "threads": torch.get_num_threads(), "rows": rows}


def _turn(run: Any) -> dict[str, float]:
    """Seconds of one turn: in all, of the CPU, in predictions, in fits."""
    cpu, before = time.process_time(), run.updates
    report = run.train()
    updates = run.updates - before
    return {
        "updates": updates,
        "seconds": updates / report["updates_per_s"],
        "cpu": time.process_time() - cpu,
        "predictions": report.get("replay/gp_seconds", 0.0),
        "fits": report.get("replay/gp_fit_seconds", 0.0),
        "longest": report.get("replay/gp_longest_fit_seconds", 0.0),
    }


def _total(turns: list[dict[str, float]], vanilla: list[dict[str, float]]) -> dict[str, Any]:
    """Rates and shares over all turns, next to vanilla's in the same rounds."""
    whole, other = ({n: sum(t[n] for t in part) for n in part[0]} for part in (turns, vanilla))
    rate = whole["updates"] / whole["seconds"]
    return {
        "updates_per_s": float(rate),
        "of vanilla": float(rate / (other["updates"] / other["seconds"])),
        "cpu_ms_per_update": float(1000 * whole["cpu"] / whole["updates"]),
        "predictions": float(whole["predictions"] / whole["seconds"]),
        "fits": float(whole["fits"] / whole["seconds"]),
        "longest_fit_s": float(max(t["longest"] for t in turns)),
    }


def of_accuracy(arguments: argparse.Namespace) -> dict[str, Any]:
    return accuracy(arguments.steps, arguments.k, arguments.fits, arguments.use_ard)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("speed", "share", "accuracy"))
    parser.add_argument("--k", type=int, nargs="+", default=[10, 20, 50])
    parser.add_argument("--repeats", type=int, default=20, help="rounds of the speed test")
    parser.add_argument(
        "--steps",
        type=int,
        help="env steps of the run that is judged (60,000), or of a turn of the runs side by side "
        "(250)",
    )
    parser.add_argument("--rounds", type=int, default=12, help="turns of each run that count")
    parser.add_argument("--fits", type=int, default=5, help="fits before accuracy is judged")
    parser.add_argument("--use_ard", action="store_true", help="judge accuracy with ARD")
    parser.add_argument("--env", default="HalfCheetah-v5", help="of the runs whose time is shared")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.steps = arguments.steps or (250 if arguments.what == "share" else 60_000)
    measured = {"speed": speed, "share": share, "accuracy": of_accuracy}[arguments.what](arguments)
    RESULTS.mkdir(exist_ok=True)
    ard = "_ard" if arguments.use_ard else ""
    of_what = {"share": f"_{arguments.env}", "accuracy": f"_{arguments.fits}_fits{ard}"}
    path = RESULTS / f"bier_{arguments.what}{of_what.get(arguments.what, '')}.json"
    command = f"python -m benchmarks.bier {' '.join(sys.argv[1:])}"
    path.write_text(json.dumps({"command": command, **measured}, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
