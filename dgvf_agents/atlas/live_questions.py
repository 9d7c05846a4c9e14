"""A question drawn over the map while the agent acts, chosen by keys."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.atlas.agent_atlas import Questions, questions_of, world_of
from dgvf_agents.atlas.agent_maps import agent_maps
from dgvf_agents.atlas.pictures import limits_of
from dgvf_agents.atlas.states import WorldStates, enumerate_states
from dgvf_agents.runs.config import TrainConfig
from dgvf_envs.rendering import LiveOverlay, Overlay

QUANTITIES = ("cumulant", "answer", "discount")
"""What may be drawn of a question."""


def live_questions(model: DGVFA2C, config: TrainConfig) -> LiveQuestions:
    """The overlay of an agent's questions.

    Raises:
        ValueError: the agent has none, or its world has no map.
    """
    world, limit = world_of(config)
    states = enumerate_states(world)
    return LiveQuestions(states, questions_of(model, states, agent_maps(model, states), limit))


@final
class LiveQuestions(LiveOverlay[Any]):
    """One quantity of one question over the map; the left and right keys go through the questions, up and down
    through the quantities.

    Questions come in the atlas's order: one of each kind first.
    """

    def __init__(self, states: WorldStates, questions: Questions) -> None:
        """
        Args:
            states: the states of the world.
            questions: the agent's, over these states.
        """
        self._states, self._questions = states, questions
        self._order = questions.ranking.kinds_first
        self._place = self._quantity = 0

    @property
    def question(self) -> int:
        """The number of the question drawn."""
        return self._order[self._place]

    @property
    def quantity(self) -> str:
        """One of `QUANTITIES`."""
        return QUANTITIES[self._quantity]

    @property
    def caption(self) -> str:
        headline = self._questions.captions[self.question].headline
        place = f"{self._place + 1} of {len(self._order)}"
        return f"{self.quantity} of question {self.question} ({place}): {headline}  [left, right, up, down]"

    def values(self, state: Any) -> Overlay:
        maps = self._questions.maps
        every = {"cumulant": maps.cumulants, "answer": maps.answers, "discount": maps.discounts}[self.quantity]
        shown: np.ndarray = every[:, self.question]
        low, high = limits_of(shown)
        label = f"question {self.question}\n{self.quantity}"
        return Overlay(self._states.panel_of(state).spread(shown), label, low, high)

    def on_key(self, key: int) -> None:
        import pygame

        along = {pygame.K_RIGHT: 1, pygame.K_LEFT: -1}.get(key, 0)
        across = {pygame.K_DOWN: 1, pygame.K_UP: -1}.get(key, 0)
        self._place = (self._place + along) % len(self._order)
        self._quantity = (self._quantity + across) % len(QUANTITIES)
