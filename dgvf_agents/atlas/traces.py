"""What an agent asked, expected and was told along a recorded game."""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
import torch

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.atlas.agent_maps import AgentMaps, agent_on, questions_about
from dgvf_agents.atlas.episode import Episode
from dgvf_agents.core.returns import bootstrapped_returns


@final
class Traces(NamedTuple):
    """D questions over the T + 1 moments of a game; NaN where there is nothing."""

    cumulants: np.ndarray
    """`[T + 1, D]`: u for arriving at each moment; NaN at the first, where nothing arrives."""
    discounts: np.ndarray
    """`[T + 1, D]`: γ for arriving at each moment, before any episode's end is taken into account; NaN at the first."""
    answers: np.ndarray
    """`[T + 1, D]`: y, what the agent expects; NaN at the last, where it does not act."""
    outcomes: np.ndarray
    """`[T + 1, D]`: G, the discounted sum of the cumulants that came in fact, up to the end of the agent's episode;
    where the recording stops first, the answer there stands for the rest. NaN at the last."""
    agent: AgentMaps
    """Features, policy and value at all moments."""
    first: int
    """The moment from which on the game is looked at (`Episode.first`); what follows counts from there."""

    @property
    def values(self) -> np.ndarray:
        """`[T + 1]`: v, what the agent expects of the main task; NaN at the last moment."""
        return np.append(self.agent.values[:-1], np.nan)

    def extremes(self, question: int) -> tuple[int, int]:
        """The moments where a question's cumulant is greatest and least."""
        cumulant = self.cumulants[self.first :, question]
        return self.first + int(cumulant.argmax()), self.first + int(cumulant.argmin())

    @property
    def truth(self) -> np.ndarray:
        """`[D]`: 1 - Σ (G - y)² / Σ (G - Ḡ)², how well the answers tell the outcomes; NaN where these do not vary."""
        answers, outcomes = self.answers[self.first : -1], self.outcomes[self.first : -1]
        if not len(outcomes):
            return np.full(self.cumulants.shape[1], np.nan)
        spread = np.square(outcomes - outcomes.mean(axis=0)).sum(axis=0)
        error = np.square(outcomes - answers).sum(axis=0)
        return 1.0 - error / np.where(spread > 1e-9, spread, np.nan)


def trace(model: DGVFA2C, episode: Episode) -> Traces:
    """Ask every question at every moment.

    Raises:
        ValueError: the agent has no questions, or they are about more than one observation.
    """
    asked = questions_about(model, episode.observations)
    cumulants, discounts, answers = (np.array(values) for values in asked)
    going_on = discounts[1:] * ~episode.terminated[:, None]
    told, factors, rest = (torch.from_numpy(values[:, None]) for values in (cumulants[1:], going_on, answers[1:]))
    returns = bootstrapped_returns(told, factors, rest, torch.from_numpy(episode.segment_end[:, None]))
    nothing = np.full((1, cumulants.shape[1]), np.nan)
    cumulants[0] = discounts[0] = answers[-1] = np.nan
    outcomes = np.concatenate([returns[:, 0].numpy(), nothing])
    agent = agent_on(model, episode.observations)
    return Traces(cumulants, discounts, answers, outcomes, agent, episode.first)
