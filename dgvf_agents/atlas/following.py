"""Questions followed along one episode in a world with maps."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
from scipy.spatial.distance import cdist

from dgvf_agents.agents.synchronous import SynchronousAlgorithm
from dgvf_agents.atlas.domain import Domain
from dgvf_agents.atlas.episode import Episode, record, recorded_env
from dgvf_agents.atlas.games import Game
from dgvf_agents.atlas.probe import QuestionValues, question_values
from dgvf_agents.train.config import TrainConfig

STEPS = 200
"""Steps after which a recording stops."""


@final
class Followed(NamedTuple):
    """T steps of an agent, and its D questions along them."""

    episode: Episode
    values: QuestionValues
    """`[T + 1, D]` each."""
    points: np.ndarray
    """`[T + 1]` integer: the points of the domain where the agent was; the nearest ones, if observations are
    continuous."""


def follow(model: SynchronousAlgorithm, config: TrainConfig, domain: Domain, seed: int = 0) -> Followed:
    """Record an episode of an agent and evaluate its questions along it.

    Args:
        model: the agent.
        config: how it was trained.
        domain: points of its world.
        seed: of the environment and the actions, which are drawn from the policy.

    Raises:
        ValueError: actions are not discrete.
    """
    env = recorded_env(config)
    try:
        episode = record(model, env, seed, STEPS, pictures=False)
    finally:
        env.close()
    seen, known = (one.reshape(len(one), -1) for one in (episode.observations, domain.observations))
    return Followed(episode, question_values(model, Game(episode)), cdist(seen, known).argmin(axis=1))
