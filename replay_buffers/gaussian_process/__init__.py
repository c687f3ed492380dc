"""The Gaussian-process room: many small exact GPs at once (BIER, Sander 2021).

A neighbourhood of m rows is a regression problem: features (obs, action) `[m, D]`, targets (reward,
new_obs) `[m, P]`. A batch holds G of them, `[G, m, D]` and `[G, m, P]`, and all are factored
together. Where the outputs share their hyperparameters they share the factor, too.

    settings       what users choose, and what contradicts itself (needs no torch)
    kernels        covariances from hyperparameters
    regression     neighbourhoods as data: scaling, projection
    posterior      mean, variance, draws; what happens when a Cholesky factor doesn't exist
    fitting        hyperparameters: gpytorch, scikit-learn, or estimated
    holdout        how well it predicts rows that it has not seen
"""
