"""What an encoder's features are like: how many directions they use, and what can be read off them linearly."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from dgvf_agents.atlas.states import WorldStates

FOLDS = 5
"""Parts that the places of the world are divided into for cross-validation."""
_PENALTIES = np.logspace(-6, 3, 19)
"""Ridge penalties to choose from, as multiples of the mean squared norm of the centered features."""


@final
class Representation(NamedTuple):
    """Numbers that describe an encoder over the states where its agent acts."""

    effective_rank: float
    """`effective_rank` of the features."""
    srank: int
    """`srank` of the features."""
    position: float
    """Cross-validated R² of the position, mean over its two coordinates."""
    distance: float
    """Cross-validated R² of the distance to the goal."""
    holds_first: float | None
    """Cross-validated balanced accuracy of whether the first object is taken; `None` where there are no objects."""


def describe(features: np.ndarray, states: WorldStates) -> Representation:
    """The numbers of `Representation` for features `[S, F]`."""
    acting = states.acting
    x, places = features[acting], states.place[acting]
    holds_first = None
    if states.holds_first is not None:
        holds_first = decoded_accuracy(x, states.holds_first[acting], places)
    return Representation(
        effective_rank(x),
        srank(x),
        decoded_r2(x, states.position[acting], places),
        decoded_r2(x, states.distance[acting, None], places),
        holds_first,
    )


def effective_rank(features: np.ndarray) -> float:
    """exp(-Σ p_i log p_i) with p_i = σ_i / Σ σ_j, σ the singular values (Roy & Vetterli 2007); 0 for zeros.

    Args:
        features: `[N, F]`.
    """
    shares = _shares(features)
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum())) if len(shares) else 0.0


def srank(features: np.ndarray, delta: float = 0.01) -> int:
    """The least k with Σ_{i≤k} σ_i / Σ_i σ_i ≥ 1 - δ, σ descending (Kumar et al. 2021, equation 3); 0 for zeros.

    Args:
        features: `[N, F]`.
        delta: δ in (0, 1).
    """
    shares = _shares(features)
    return int(np.searchsorted(np.cumsum(shares), 1.0 - delta - 1e-12)) + 1 if shares.any() else 0


def _shares(features: np.ndarray) -> np.ndarray:
    """Singular values as shares of their sum, descending."""
    values = np.linalg.svd(features, compute_uv=False)
    return values / values.sum() if values.sum() > 0 else values


def decoded_r2(features: np.ndarray, targets: np.ndarray, places: np.ndarray) -> float:
    """How well ridge regression reads targets off features of places it has not seen: 1 - Σ error² / Σ deviation².

    Args:
        features: `[N, F]`.
        targets: `[N, K]`; the result is the mean over K. A target that does not vary counts as 0.
        places: `[N]` integer: states at one place are left out together.
    """
    predicted = _out_of_fold(features, targets, places)
    error = np.square(targets - predicted).sum(axis=0)
    spread = np.square(targets - targets.mean(axis=0)).sum(axis=0)
    return float(np.where(spread > 0, 1.0 - error / np.where(spread > 0, spread, 1.0), 0.0).mean())


def decoded_accuracy(features: np.ndarray, labels: np.ndarray, places: np.ndarray) -> float:
    """Balanced accuracy of the sign of ridge regression on ±1: 0.5 is chance.

    Args:
        features: `[N, F]`.
        labels: `[N]` boolean, both of them present.
        places: `[N]` integer: states at one place are left out together.
    """
    positive = _out_of_fold(features, np.where(labels, 1.0, -1.0)[:, None], places)[:, 0] > 0
    return float((positive[labels].mean() + (~positive[~labels]).mean()) / 2)


def _out_of_fold(features: np.ndarray, targets: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Predictions `[N, K]`, each by a ridge regression that has not seen the place."""
    seen = np.unique(places)
    fold_of = dict(zip(np.random.default_rng(0).permutation(seen).tolist(), range(len(seen)), strict=True))
    fold = np.array([fold_of[place] % FOLDS for place in places.tolist()])
    predicted = np.empty(targets.shape)
    for held_out in range(FOLDS):
        test = fold == held_out
        if test.any():
            predicted[test] = _ridge(features[~test], targets[~test], features[test])
    return predicted


def _ridge(features: np.ndarray, targets: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Ridge regression; the penalty is the one with the least leave-one-out error, in closed form."""
    center, mean = features.mean(axis=0), targets.mean(axis=0)
    u, sigma, vt = np.linalg.svd(features - center, full_matrices=False)
    scale = np.square(sigma).sum() / len(features)
    if scale < 1e-12:
        return np.tile(mean, (len(queries), 1))
    projected = u.T @ (targets - mean)
    best, weights = np.inf, np.zeros((features.shape[1], targets.shape[1]))
    for penalty in _PENALTIES * scale:
        shrunk = np.square(sigma) / (np.square(sigma) + penalty)
        leverage = np.square(u) @ shrunk + 1.0 / len(features)
        residual = targets - mean - u @ (shrunk[:, None] * projected)
        error = np.square(residual / np.maximum(1.0 - leverage, 1e-9)[:, None]).sum()
        if error < best:
            best, weights = error, vt.T @ ((sigma / (np.square(sigma) + penalty))[:, None] * projected)
    return mean + (queries - center) @ weights
