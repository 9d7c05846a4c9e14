"""A question drawn over the map while the agent acts, chosen by keys."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.atlas.domain import Domain, check_domain
from dgvf_agents.atlas.maps import Maps, scale_of
from dgvf_agents.atlas.report import Questions, agent_values, evaluated_world, question_values, questions_of
from dgvf_agents.train.config import TrainConfig
from dgvf_envs.rendering import LiveOverlay, Overlay

QUANTITIES = ("cumulant", "answer", "discount")
"""Quantities of a question that may be drawn."""
_KEYS = "Keys: left and right for the question, up and down for cumulant, answer and discount."


def live_questions(
    model: DiscoveryAlgorithm, config: TrainConfig, first: int | None = None, keys: bool = True
) -> LiveQuestions:
    """The overlay of an agent's questions.

    Args:
        model: the agent.
        config: how it was trained.
        first: number of the first question drawn; the first in the atlas's order if `None`.
        keys: whether the panel lists the keys; a video has none.

    Raises:
        ValueError: the agent has no questions or not so many, or its world has no map.
    """
    domain, horizon = evaluated_world(config)
    if domain is None or not isinstance(domain.layout, Maps):
        raise ValueError(
            f"run must be on a world whose domain has maps, got {config.env}: "
            "dgvf_agents.atlas.domain.register(World, Domain) registers one"
        )
    check_domain(domain, model.observation_space)
    values, agent = question_values(model, domain), agent_values(model, domain.observations)
    questions = questions_of(values, domain, agent, horizon)
    return LiveQuestions(domain, questions, first, keys)


@final
class LiveQuestions(LiveOverlay[Any]):
    """One quantity of one question over the map; the left and right keys go through the questions, up and down
    through the quantities. Questions come in the atlas's order: one of each kind first.
    """

    def __init__(self, domain: Domain, questions: Questions, first: int | None = None, keys: bool = True) -> None:
        self._domain, self._questions, self._keys = domain, questions, f"{_KEYS}\n" if keys else ""
        self._order = questions.ranking.kinds_first
        self._index = self._quantity = 0
        if first is not None:
            if not 0 <= first < len(self._order):
                raise ValueError(f"question must be from 0 to {len(self._order) - 1}, got {first}")
            self._index = self._order.index(first)

    @property
    def question(self) -> int:
        """The number of the question drawn."""
        return self._order[self._index]

    @property
    def quantity(self) -> str:
        """One of `QUANTITIES`."""
        return QUANTITIES[self._quantity]

    @property
    def caption(self) -> str:
        return f"{self.quantity} of question {self.question} ({self._index + 1} of {len(self._order)})"

    def values(self, state: Any) -> Overlay:
        values: np.ndarray = getattr(self._questions.values, f"{self.quantity}s")
        shown = values[:, self.question]
        scale = scale_of(self.quantity, shown)
        headline = self._questions.captions[self.question].headline
        label = f"{self.caption}: {headline}\n{self._keys}{self.quantity}"
        on_map = self._domain.panel_of(state).spread(shown)
        return Overlay(on_map, label, scale.low, scale.high, scale=scale.colors)

    def on_key(self, key: int) -> None:
        import pygame

        along = {pygame.K_RIGHT: 1, pygame.K_LEFT: -1}.get(key, 0)
        across = {pygame.K_DOWN: 1, pygame.K_UP: -1}.get(key, 0)
        self._index = (self._index + along) % len(self._order)
        self._quantity = (self._quantity + across) % len(QUANTITIES)
