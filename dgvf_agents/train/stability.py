"""`dgvf probe`: stability of the inner updates at every checkpoint of a run, measured by their Jacobians.

Meta-gradients pass backward through the inner updates: the meta-gradient of θ_k is multiplied by the transposed
Jacobians ∂(θ_k, s_k)/∂(θ_{k-1}, s_{k-1}) of the updates before it, where s are the optimizer's statistics. For RMSProp,
the block of θ is about I - α′ H / √(s + ε), where H is the Hessian of the inner loss. As an agent fits its answers,
gradients and therefore √s shrink, but H does not. Eigenvalues then leave the unit disc, and meta-gradients explode.

Jacobians are never materialized: SciPy's iterative methods need only matrix-vector products, which automatic
differentiation provides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.sparse.linalg import LinearOperator, eigs, svds
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.execution.devices import evaluation_device
from dgvf_agents.learner import DiscoveryLearner
from dgvf_agents.storage.files import write_bytes
from dgvf_agents.train.checkpoint import complete_checkpoints, load_model
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import training_environments
from dgvf_agents.train.folder import RunFolder

_TOLERANCE = 1e-3
"""Relative tolerance of the iterative methods."""


def jacobian(update: Callable[[Tensor], Tensor], at: Tensor) -> LinearOperator:
    """The Jacobian ∂update/∂x as a linear operator.

    Args:
        update: a differentiable function from vectors `[n]` to vectors `[n]`.
        at: point `[n]`.
    """
    n = at.numel()
    pull_back = torch.func.vjp(update, at)[1]
    push_forward = torch.func.vjp(lambda weights: pull_back(weights)[0], torch.zeros_like(at))[1]  # it is linear

    def product(multiply: Callable[[Tensor], tuple[Tensor]]) -> Callable[[np.ndarray], np.ndarray]:
        return lambda vector: multiply(torch.from_numpy(vector.reshape(n)).to(at))[0].detach().cpu().numpy()

    return LinearOperator((n, n), matvec=product(push_forward), rmatvec=product(pull_back), dtype=np.float64)


def spectral_radius(operator: LinearOperator, seed: int = 0) -> float:
    """The largest absolute eigenvalue of a real operator `[n, n]`, n ≥ 3.

    If it exceeds 1, repeated application amplifies some direction without bound.

    Args:
        operator: `[n, n]`, real.
        seed: seed of the initial vector.
    """
    start = np.random.default_rng(seed).standard_normal(operator.shape[0])
    return float(np.abs(eigs(operator, 1, which="LM", v0=start, tol=_TOLERANCE, return_eigenvectors=False)[0]))


def gain(operators: Sequence[LinearOperator], size: int, seed: int = 0) -> float:
    """Maximum amplification of a perturbation of θ by a chain of operators, measured in θ.

    This is the spectral norm of the leading block `[size, size]` of the product of the operators.

    Args:
        operators: operators `[n, n]` in the order of application.
        size: size of θ ≥ 2, the leading entries of the state.
        seed: seed of the initial vector.
    """
    n = operators[0].shape[0]
    embed = LinearOperator(
        (n, size), matvec=lambda v: np.concatenate([v.reshape(-1), np.zeros(n - size)]), rmatvec=lambda v: v[:size]
    )
    chain = reduce(lambda so_far, following: following @ so_far, operators, embed)
    start = np.random.default_rng(seed).standard_normal(size)
    return float(svds(embed.H @ chain, 1, v0=start, tol=_TOLERANCE, return_singular_vectors=False)[0])


class Stability(NamedTuple):
    """Stability of L consecutive inner updates."""

    steps: int
    """Environment steps of training so far."""
    spectral_radius: float
    """Spectral radius of an update's Jacobian, averaged over the first three updates."""
    gain: float
    """Maximum factor by which the L updates together amplify a perturbation of θ."""


def probe(run: Path, seed: int = 20_000, device: str | None = None) -> list[Stability]:
    """Measure every complete checkpoint of a run and write `stability.csv` next to its metrics.

    Checkpoints that hold networks only are skipped: they lack the optimizer's statistics.

    Args:
        run: the run folder.
        seed: seed of the environments that provide the batches.
        device: device of the updates (default: the run's, or the CPU if that is unavailable).

    Raises:
        FileNotFoundError: there is no run, or it has no complete checkpoint.
        ValueError: `device` is unavailable.
    """
    folder = RunFolder.existing(run)
    config = folder.read_config()
    if not (files := complete_checkpoints(folder)):
        raise FileNotFoundError(f"run must have complete checkpoints (--checkpoints-kept), got {run} without one")
    torch.set_num_threads(config.threads)
    rows = [_measured(file, config, seed, evaluation_device(device, config.device)) for file in files]
    write_bytes(folder.path / "stability.csv", pd.DataFrame(rows).to_csv(index=False).encode())
    return rows


def _measured(file: Path, config: TrainConfig, seed: int, device: torch.device) -> Stability:
    """Stability at a checkpoint, without actors; several learners are measured as one with the environments of all."""
    alone = {"actors": 0, "learners": 1, "force_reset": config.actors > 0 or config.learners > 1 or None}
    together = dataclasses.replace(config, n_envs=config.n_envs * config.learners)
    with closing(training_environments(together, seed)) as env:
        return measure(load_model(config, file, env, device, compile=False, **alone), config.steps)


def measure(model: DiscoveryAlgorithm, total_steps: int) -> Stability:
    """Measure the next L updates of a model. This performs them, except for the last.

    Args:
        model: the model.
        total_steps: environment steps of the whole run, over which settings are annealed.
    """
    steps, recorder = model.num_timesteps, _JacobianRecorder(model.unroll_length)
    remaining = max(total_steps - steps, model.unroll_length * model.steps_per_update)
    model.learn(remaining, recorder, reset_num_timesteps=False)
    radii = [spectral_radius(jacobian) for jacobian in recorder.jacobians[:3]]
    return Stability(steps, float(np.mean(radii)), gain(recorder.jacobians, recorder.size))


def next_update(model: DiscoveryAlgorithm) -> tuple[Callable[[Tensor], Tensor], Tensor, int]:
    """The inner update that a model's last rollout leads to.

    Returns:
        the update as a function of one vector, that vector now, and how many of its entries, the first, are θ's; the
        others are the optimizer's statistics.
    """
    model._prepare_update()
    settings = model.annealed_settings()
    assert model._rollout is not None
    if not isinstance(model.learner, DiscoveryLearner):
        raise ValueError(f"run must be of A2C or IMPALA to be probed, got one of {type(model).__name__}")
    return model.learner.next_update(settings.batch(model._rollout), settings.learning_rate)


class _JacobianRecorder(BaseCallback):
    """Records the Jacobians of the next updates, then ends training."""

    def __init__(self, updates: int) -> None:
        super().__init__()
        self.jacobians: list[LinearOperator] = []
        self.size = 0
        self._updates = updates

    def _on_step(self) -> bool:
        return len(self.jacobians) < self._updates

    def _on_rollout_end(self) -> None:
        assert isinstance(self.model, DiscoveryAlgorithm)
        update, at, self.size = next_update(self.model)
        self.jacobians.append(jacobian(update, at))
