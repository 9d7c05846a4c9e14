"""Which pixels a question looks at: the gradient of its cumulant with respect to the observation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.atlas.agent_maps import question_task

_BATCH = 64
"""Observations at once."""


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


def cumulant_saliency(model: DGVFA2C, observations: np.ndarray, question: int) -> np.ndarray:
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
