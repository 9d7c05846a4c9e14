"""What decides whether meta-gradients explode: the Jacobians of the inner updates they are pulled back through.

The meta-gradient of θ_k is multiplied by the transposed Jacobians of the updates before it, ∂(θ_k, s_k)/∂(θ_{k-1},
s_{k-1}) with s the optimizer's statistics. With RMSProp their part in θ is about I - α′ H / √(s + ε), H the Hessian of
the inner loss. As an agent fits its answers, gradients and with them √s shrink while H stays: eigenvalues then leave
the unit disc, and meta-gradients grow with every update they pass.

Jacobians are never formed; scipy's iterative methods need products with them, which automatic differentiation gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigs, svds
from torch import Tensor

_TOLERANCE = 1e-3
"""Relative accuracy of what is computed iteratively."""


def jacobian(update: Callable[[Tensor], Tensor], at: Tensor) -> LinearOperator:
    """∂update/∂x at a point, as products with vectors.

    Args:
        update: a differentiable function from vectors `[n]` to vectors `[n]`.
        at: `[n]`.
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
    """The largest absolute value among the eigenvalues of an operator `[n, n]`, n ≥ 3.

    Above 1 there is a direction that repeated application makes grow without bound.

    Args:
        operator: real.
        seed: of the vector that the iteration starts from.
    """
    start = np.random.default_rng(seed).standard_normal(operator.shape[0])
    return float(np.abs(eigs(operator, 1, which="LM", v0=start, tol=_TOLERANCE, return_eigenvectors=False)[0]))


def gain(operators: Sequence[LinearOperator], size: int, seed: int = 0) -> float:
    """The most that a chain of operators stretches a vector that differs from zero in its first `size` places only.

    It is measured in the same places, and is the spectral norm of that block of the product.

    Args:
        operators: each `[n, n]`, the first to be applied first.
        size: ≥ 2; how many places of the state are θ's.
        seed: of the vector that the iteration starts from.
    """
    n = operators[0].shape[0]
    only = LinearOperator(
        (n, size), matvec=lambda v: np.concatenate([v.reshape(-1), np.zeros(n - size)]), rmatvec=lambda v: v[:size]
    )
    chain = reduce(lambda so_far, following: following @ so_far, operators, only)
    start = np.random.default_rng(seed).standard_normal(size)
    return float(svds(only.H @ chain, 1, v0=start, tol=_TOLERANCE, return_singular_vectors=False)[0])
