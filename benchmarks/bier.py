"""What bier's Gaussian processes cost and how well they predict, next to gpytorch and scikit-learn.

    python -m benchmarks.bier speed        # a batch of 256 predictions, against both
    python -m benchmarks.bier share        # of a run's time at k = 10, 20, 50
    python -m benchmarks.bier accuracy     # on held-out transitions of a half-trained HalfCheetah

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

from replay_buffers import ReplayBuffer
from replay_buffers.gaussian_process.kernels import Hyperparameters, Kernel
from replay_buffers.gaussian_process.posterior import LocalProcesses
from replay_buffers.gaussian_process.regression import Normalization, Regression

ENV, OBS, ACTION = "HalfCheetah-v5", 17, 6
BATCH, DIMS, OUTPUTS = 256, OBS + ACTION, 1 + OBS
RESULTS = Path(__file__).parent / "results"
# The README's command.
FLAGS: dict[str, Any] = {
    "gpytorch": True,
    "mc_hyper": True,
    "kernel": "rbf",
    "use_ard": True,
    "use_delta": True,
    "normalize": True,
    "global_hyperparams": True,
}


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
    """The part of a run's time that the processes and their fits take, at replay ratio 1."""
    from interreplay.algorithms.sac import SACConfig
    from interreplay.launch.running.private_ray import private_ray

    rows = []
    warm_up = arguments.steps // 2
    with private_ray(0):
        for k in arguments.k:
            config = SACConfig().environment(ENV).debugging(seed=0)
            config.replay(
                recipe="bier",
                buffer_size=100_000,
                learning_starts=warm_up,
                timesteps_per_iteration=warm_up,
                kneighbors=k,
                **FLAGS,
            )
            config.evaluate_episodes(interval=10**9, episodes=1)
            algorithm = config.build_algo()
            algorithm.train()
            report = algorithm.train()
            seconds = warm_up / report["env_steps_per_s"]
            row = {
                "k": k,
                "seconds": seconds,
                "predictions": report["replay/gp_seconds"] / seconds,
                "fits": report["replay/gp_fit_seconds"] / seconds,
                "longest fit, s": report["replay/gp_longest_fit_seconds"],
                "updates_per_s": report["updates_per_s"],
            }
            algorithm.stop()
            rows.append(row)
            print(
                f"k = {k}: {row['predictions']:.0%} of the time in predictions, "
                f"{row['fits']:.0%} in fits (the longest {row['longest fit, s']:.1f} s), "
                f"{row['updates_per_s']:.0f} updates/s",
                flush=True,
            )
    return {"steps": warm_up, "threads": torch.get_num_threads(), "rows": rows}


def accuracy(arguments: argparse.Namespace) -> dict[str, Any]:
    """Held-out errors on the transitions that a SAC run has seen."""
    from interreplay.algorithms.sac import SACConfig
    from interreplay.launch.running.private_ray import private_ray

    config = SACConfig().environment(ENV).debugging(seed=0)
    config.replay(
        learning_starts=min(1000, arguments.steps // 2),
        timesteps_per_iteration=arguments.steps,
        buffer_size=arguments.steps,
    )
    config.evaluate_episodes(interval=1, episodes=5)
    with private_ray(0):
        algorithm = config.build_algo()
        report = algorithm.train()
        returns = report["evaluation"]["env_runners"]["episode_returns"]
        storage = algorithm.buffer.storage.get_state()
        algorithm.stop()
    rows = []
    for k in arguments.k:
        buffer = ReplayBuffer.from_catalog(
            "bier",
            obs_dim=OBS,
            action_dim=ACTION,
            capacity=arguments.steps,
            seed=0,
            kneighbors=k,
            perform_holdout_eval=True,
            **FLAGS,
        )
        buffer.storage.set_state(storage)
        buffer.sample(BATCH)
        figures = {n: v for n, v in buffer.stats().items() if n.startswith("holdout")}
        rows.append({"k": k, "figures": figures})
        whole = {m: figures[f"holdout_{m}_rmse"] for m in ("gp", "linear", "nearest")}
        print(
            f"k = {k}, error in standard deviations: "
            + ", ".join(f"{method} {value:.3f}" for method, value in whole.items())
            + f"; {figures['holdout_gp_coverage']:.0%} inside the process's 95 % interval",
            flush=True,
        )
    mean = statistics.fmean(map(float, returns))
    return {"steps": arguments.steps, "return_mean": mean, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=("speed", "share", "accuracy"))
    parser.add_argument("--k", type=int, nargs="+", default=[10, 20, 50])
    parser.add_argument("--repeats", type=int, default=20, help="rounds of the speed test")
    parser.add_argument("--steps", type=int, default=20_000, help="env steps of a run")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    measured = {"speed": speed, "share": share, "accuracy": accuracy}[arguments.what](arguments)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"bier_{arguments.what}.json"
    command = f"python -m benchmarks.bier {' '.join(sys.argv[1:])}"
    path.write_text(json.dumps({"command": command, **measured}, indent=1) + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    main()
