"""Where a question looks: the gradient of its cumulant with respect to the pixels, along an episode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from dgvf_agents.agents.synchronous import SynchronousAlgorithm
from dgvf_agents.atlas.domain import Domain
from dgvf_agents.atlas.probe import question_task

GRADIENT_MOMENTS = 240
"""Moments of a game at even distances at which gradients are drawn."""
HEAT_LEVELS = 16
"""Steps of brightness: more cannot be told apart and take more room."""
_BATCH = 64
"""Observations at once."""
_FINE = 64
"""Pixels along a side from which on gradients are averaged over cells of 2 x 2."""


@final
class Gradients(NamedTuple):
    """Where one question looks at K moments."""

    moments: tuple[int, ...]
    """In order."""
    heat: tuple[np.ndarray, ...]
    """`[K]` of `[H, W]` uint8 in [0, `HEAT_LEVELS`): brightness in proportion to |∂u/∂o|, summed over the channels and
    averaged over small cells if pictures are large."""
    share: np.ndarray
    """`[C]`: of the gradient in each channel, the oldest frame of a stack first."""


def gradients_of(model: SynchronousAlgorithm, domain: Domain, cumulant: np.ndarray, question: int) -> Gradients:
    """Where a question with this cumulant `[T + 1]` looks along an episode: all over it, and at the extremes."""
    moments = key_moments(len(cumulant) - 1, GRADIENT_MOMENTS, domain.extremes(cumulant))
    each = cumulant_saliency(model, domain.observations[moments], question)
    summed = cells(each.sum(axis=1))
    counted = domain.counted[moments]
    peak = peak_of(summed[counted])
    of_channels = each[counted].sum(axis=(0, 2, 3), dtype=np.float64)
    heat = tuple(heat_levels(one, peak) for one in summed)
    return Gradients(tuple(moments), heat, of_channels / max(of_channels.sum(), 1e-30))


def key_moments(steps: int, even: int, besides: Sequence[int]) -> list[int]:
    """At most `even` moments of 1 … T at even distances, the last one among them, and others besides, in order."""
    return sorted({*np.linspace(steps, 1, min(even, steps)).round().astype(int).tolist(), *besides})


def saliency(ask: Callable[[Tensor], Tensor], observations: Tensor, question: int) -> Tensor:
    """|∂u_i / ∂o| of every pixel in every channel, `[N, C, H, W]`.

    It says by how much the cumulant would change with a small change of one pixel, all others kept; not which pixels
    make it what it is, nor what happens when an object is gone (Simonyan et al. 2014).

    Args:
        ask: cumulants `[N, D]` of observations `[N, C, H, W]`, each of its own observation alone.
        observations: o, floating-point.
        question: i.
    """
    seen = observations.detach().requires_grad_(True)
    (gradient,) = torch.autograd.grad(ask(seen)[:, question].sum(), seen)
    return gradient.abs()


def cumulant_saliency(model: SynchronousAlgorithm, observations: np.ndarray, question: int) -> np.ndarray:
    """`saliency` of an agent's own question, per full range of a pixel (black to white), `[N, C, H, W]`.

    Args:
        model: the agent.
        observations: `[N, C, H, W]` uint8.
        question: its number.

    Raises:
        ValueError: the agent has no questions, they are about more than one observation, or there is none of that
            number.
    """
    task, eta = question_task(model), model.learner.eta
    if not 0 <= question < task.num_answers:
        raise ValueError(f"question must lie in [0, {task.num_answers - 1}], got {question!r}")

    def ask(seen: Tensor) -> Tensor:
        return task.network.ask(eta, seen[None])[0][0]

    pixels = torch.from_numpy(np.ascontiguousarray(observations)).float()
    parts = [saliency(ask, part, question) for part in pixels.split(_BATCH)]
    return 255.0 * torch.cat(parts).numpy()


def cells(saliency: np.ndarray) -> np.ndarray:
    """Means of `[..., H, W]` over 2 x 2 pixels if pictures are large: neighbors differ by the strides of a network."""
    height, width = saliency.shape[-2:]
    if min(height, width) < _FINE or height % 2 or width % 2:
        return saliency
    return saliency.reshape(*saliency.shape[:-2], height // 2, 2, width // 2, 2).mean(axis=(-3, -1))


def peak_of(saliency: np.ndarray) -> float:
    """The gradient of full brightness: the 99.8th percentile over moments and pixels, robust to single ones."""
    return max(float(np.percentile(saliency, 99.8)), 1e-30)


def heat_levels(saliency: np.ndarray, peak: float) -> np.ndarray:
    """Brightness `[H, W]` uint8 in [0, `HEAT_LEVELS`), in proportion to the gradient; full at `peak` and above."""
    return np.round(np.clip(saliency / peak, 0.0, 1.0) * (HEAT_LEVELS - 1)).astype(np.uint8)
