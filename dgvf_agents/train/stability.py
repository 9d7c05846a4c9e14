"""Stability of inner updates, measured by their Jacobians.

Meta-gradients pass backward through the inner updates: the meta-gradient of θ_k is multiplied by the transposed
Jacobians ∂(θ_k, s_k)/∂(θ_{k-1}, s_{k-1}) of the updates before it, where s are the optimizer's statistics. For RMSProp,
the block of θ is about I - α′ H / √(s + ε), where H is the Hessian of the inner loss. As an agent fits its answers,
gradients and therefore √s shrink, but H does not. Eigenvalues then leave the unit disc, and meta-gradients explode.

Jacobians are never materialized: SciPy's iterative methods need only matrix-vector products, which automatic
differentiation provides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigs, svds
from torch import Tensor

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

    def tensor(vector: np.ndarray) -> Tensor:
        return torch.from_numpy(vector.reshape(n)).to(at)

    def forward(vector: np.ndarray) -> np.ndarray:
        return push_forward(tensor(vector))[0].detach().cpu().numpy()

    def backward(vector: np.ndarray) -> np.ndarray:
        return pull_back(tensor(vector))[0].detach().cpu().numpy()

    return LinearOperator((n, n), matvec=forward, rmatvec=backward, dtype=np.float64)


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
