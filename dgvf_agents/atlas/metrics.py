"""Numbers that describe questions and features: order and kinds, principal questions, ranks, linear decoding."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
import pandas as pd
from scipy.special import entr

SAME_KIND = 0.9
"""Two questions are of one kind if their cumulants correlate by at least this, up to sign."""
FOLDS = 5
"""Parts that groups are divided into for cross-validation."""
_PENALTIES = np.logspace(-6, 3, 19)
"""Ridge penalties to choose from, as multiples of the mean squared norm of the centered features."""


@final
class Kind(NamedTuple):
    """Questions whose cumulants are alike, up to sign, scale and shift."""

    leader: int
    """The one that ranks first."""
    members: tuple[int, ...]
    """All of them by rank, the leader first."""
    correlations: tuple[float, ...]
    """Of each member's cumulant with the leader's."""

    @property
    def mirrored(self) -> int:
        """How many members ask the opposite."""
        return sum(r < 0 for r in self.correlations)


@final
class Ranking(NamedTuple):
    """D questions in order."""

    variation: np.ndarray
    """`[D]`: standard deviation of each cumulant over the points."""
    score: np.ndarray
    """`[D]`: mean of the ranks by variation and by reliance, as a share of D; 1 is first by both."""
    order: np.ndarray
    """`[D]` integer: question numbers by score, best first."""
    kinds: tuple[Kind, ...]
    """The kinds, by the score of their leaders."""

    @property
    def kinds_first(self) -> list[int]:
        """All questions: one of each kind, then the others, both by score."""
        leaders = [kind.leader for kind in self.kinds]
        return leaders + [int(question) for question in self.order if question not in set(leaders)]

    def kind_of(self, question: int) -> int:
        """The number of a question's kind, from 1."""
        return next(i for i, kind in enumerate(self.kinds, start=1) if question in kind.members)


def rank(cumulants: np.ndarray, relied_on: np.ndarray) -> Ranking:
    """Order questions by how much cumulants `[N, D]` vary and by how much the main task relies on them, `[D]`."""
    variation = cumulants.std(axis=0)
    count = len(relied_on)
    ranks = pd.DataFrame({"variation": variation, "relied on": relied_on}).rank()
    score = (ranks.sum(axis=1).to_numpy() - 2) / (2 * max(count - 1, 1))
    order = np.argsort(-score, kind="stable")
    return Ranking(variation, score, order, tuple(kinds_of(cumulants, order)))


def kinds_of(cumulants: np.ndarray, order: np.ndarray) -> list[Kind]:
    """Group questions: in order `[D]`, each joins the first leader it correlates with, or leads a kind of its own."""
    correlation = correlations(cumulants)
    members: dict[int, list[int]] = {}
    for question in order.tolist():
        leader = next((known for known in members if abs(correlation[question, known]) >= SAME_KIND), question)
        members.setdefault(leader, []).append(question)
    return [Kind(leader, tuple(m), tuple(float(correlation[leader, i]) for i in m)) for leader, m in members.items()]


def correlations(maps: np.ndarray, others: np.ndarray | None = None) -> np.ndarray:
    """Pearson correlations `[D, E]` of maps `[N, D]` with others `[N, E]`; 0 where one is constant."""
    return _standardized(maps).T @ _standardized(maps if others is None else others)


def _standardized(maps: np.ndarray) -> np.ndarray:
    centered = maps - maps.mean(axis=0)
    norms = np.linalg.norm(centered, axis=0)
    return centered / np.where(norms < 1e-9, np.inf, norms)


def effective_rank(features: np.ndarray) -> float:
    """exp(-Σ p_i log p_i), p the singular values of `[N, F]` as shares of their sum (Roy & Vetterli 2007); or 0."""
    shares = _shares(features)
    return float(np.exp(entr(shares).sum())) if shares.any() else 0.0


def srank(features: np.ndarray, delta: float = 0.01) -> int:
    """The least k with Σ_{i≤k} σ_i / Σ_i σ_i ≥ 1 - δ, σ descending (Kumar et al. 2021, equation 3); 0 for zeros."""
    shares = _shares(features)
    return int(np.searchsorted(np.cumsum(shares), 1.0 - delta - 1e-12)) + 1 if shares.any() else 0


def _shares(matrix: np.ndarray) -> np.ndarray:
    """Singular values as shares of their sum, descending."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return values / values.sum() if values.sum() > 0 else values


@final
class Principal(NamedTuple):
    """The first K principal components of D questions: what their cumulants have in common."""

    shares: np.ndarray
    """`[K]`: of the variance of all cumulants, descending."""
    values: np.ndarray
    """`[N, K]`: each component at the points; mean 0, standard deviation 1."""
    nearest: np.ndarray
    """`[K]` integer: the question whose cumulant correlates most with the component; positively, by choice of sign."""
    correlations: np.ndarray
    """`[K]`: of that question with the component."""


def principal_questions(cumulants: np.ndarray, count: int = 4, least: float = 0.01) -> Principal:
    """At most `count` principal components of cumulants `[N, D]`, those with at least the share `least`."""
    u, sigma, _ = np.linalg.svd(cumulants - cumulants.mean(axis=0), full_matrices=False)
    shares = np.square(sigma) / max(float(np.square(sigma).sum()), 1e-30)
    kept = int((shares[:count] >= least).sum())
    values = u[:, :kept] * np.sqrt(len(u))
    correlation = correlations(cumulants, values)
    nearest = np.abs(correlation).argmax(axis=0)
    signed = correlation[nearest, np.arange(kept)]
    return Principal(shares[:kept], values * np.sign(signed), nearest, np.abs(signed))


def effective_number(cumulants: np.ndarray) -> float:
    """As how many questions cumulants `[N, D]` vary: exp(-Σ p_i log p_i) for the variances of principal components."""
    deviation = cumulants - cumulants.mean(axis=0)
    return effective_rank(deviation.T @ deviation)  # its singular values are variances


def likeness(cumulants: np.ndarray, last: np.ndarray) -> float:
    """Mean correlation of each question's cumulant `[N, D]` with what it becomes."""
    return float(np.diag(correlations(cumulants, last)).mean())


def explained(predicted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """`[K]`: R² = 1 - Σ error² / Σ deviation² of predictions `[N, K]`; NaN if a target does not vary."""
    if not len(targets):
        return np.full(targets.shape[1], np.nan)
    spread = np.square(targets - targets.mean(axis=0)).sum(axis=0)
    error = np.square(targets - predicted).sum(axis=0)
    return 1.0 - error / np.where(spread > 1e-9, spread, np.nan)


def decoded(features: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
    """How well ridge regression decodes targets at held-out points.

    Args:
        features: `[N, F]`.
        targets: `[N]` boolean, both present: balanced accuracy of the sign of a regression on ±1, 0.5 is chance; or
            numbers `[N]` or `[N, K]`: mean R², a target that does not vary counts as 0.
        groups: `[N]` integer: points of one group are held out together.
    """
    if targets.dtype == bool:
        positive = _out_of_fold(features, np.where(targets, 1.0, -1.0)[:, None], groups)[:, 0] > 0
        return float((positive[targets].mean() + (~positive[~targets]).mean()) / 2)
    targets = targets.reshape(len(targets), -1)
    return float(np.nan_to_num(explained(_out_of_fold(features, targets, groups), targets)).mean())


def _out_of_fold(features: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Predictions `[N, K]`, each by a ridge regression that has not seen the group."""
    seen, group = np.unique(groups, return_inverse=True)
    fold = np.argsort(np.random.default_rng(0).permutation(len(seen)))[group] % FOLDS
    predicted = np.empty(targets.shape)
    for test in (fold == held_out for held_out in np.unique(fold)):
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

    def error(penalty: float) -> float:
        shrunk = np.square(sigma) / (np.square(sigma) + penalty)
        leverage = np.square(u) @ shrunk + 1.0 / len(features)
        residual = targets - mean - u @ (shrunk[:, None] * projected)
        return float(np.square(residual / np.maximum(1.0 - leverage, 1e-9)[:, None]).sum())

    penalty = min(_PENALTIES * scale, key=error)
    weights = vt.T @ ((sigma / (np.square(sigma) + penalty))[:, None] * projected)
    return mean + (queries - center) @ weights
