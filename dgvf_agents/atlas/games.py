"""A recorded game on images: its moments, and the scores, lives, actions and movements in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np
import torch

from dgvf_agents.atlas.domain import Domain, Landmark, Wording
from dgvf_agents.atlas.episode import Episode
from dgvf_agents.core.returns import bootstrapped_returns


@final
class Game(Domain):
    """The T + 1 moments of an episode; those from `Episode.first` on count. Landmarks are read from its frames."""

    wording = Wording(everywhere="throughout the game", number="+.3g", points="moments", landmarks="events")

    def __init__(self, episode: Episode) -> None:
        self.layout: Episode = episode
        self.observations = episode.observations
        self.moments = np.arange(episode.steps + 1)
        self.acting = self.moments < episode.steps
        if episode.frames.size:
            self.landmarks = tuple(one for one in self._landmarks() if np.ptp(one.values[self.counted]) > 1e-6)

    def name(self, point: int) -> str:
        return f"step {point}"

    @property
    def arriving(self) -> np.ndarray:
        return self.moments >= 1

    @property
    def counted(self) -> np.ndarray:
        return self.moments >= self.layout.first

    @property
    def evaluated(self) -> np.ndarray:
        return self.counted

    def outcomes(self, cumulants: np.ndarray, discounts: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """Discounted sums of the cumulants that followed, up to the end of the agent's episode; the last answer stands
        for the rest of a recording that stops first. NaN at the last moment.
        """
        game = self.layout
        continuing = discounts[1:] * ~game.terminated[:, None]
        told, factors, rest = (torch.from_numpy(part[:, None]) for part in (cumulants[1:], continuing, answers[1:]))
        returns = bootstrapped_returns(told, factors, rest, torch.from_numpy(game.segment_end[:, None]))[:, 0].numpy()
        return np.concatenate([returns, np.full((1, returns.shape[1]), np.nan)])

    def _landmarks(self) -> Iterator[Landmark]:
        game = self.layout
        latest = game.observations[:, -1].astype(np.float32) / 255.0
        change = np.abs(np.diff(latest, axis=0))
        events = [
            (game.rewards > 0, "score", "not score"),
            (game.rewards < 0, "lose points", "lose no points"),
            (game.terminated, "lose a life or the game", "stay alive"),
            (np.arange(game.steps), "be late in the game", "be early in the game"),
            (_mean(latest[1:]), "see a bright picture", "see a dark picture"),
            (_mean(change), "see much move", "see little move"),
            (_center(change, axis=2), "see things move further right", "see things move further left"),
            (_center(change, axis=1), "see things move further down", "see things move further up"),
        ]
        for action, name in enumerate(game.action_names):
            events.append((game.actions == action, f"have chosen {name}", f"not have chosen {name}"))
        for values, more, less in events:
            yield Landmark(np.append(0.0, values), more, less)


def _mean(pictures: np.ndarray) -> np.ndarray:
    return pictures.mean(axis=(1, 2)).astype(np.float64)


def _center(change: np.ndarray, axis: int) -> np.ndarray:
    """`[T]`: where along an axis of pictures `[T, H, W]` the change lies on average, in [0, 1]; 0.5 without any."""
    along = change.sum(axis=3 - axis).astype(np.float64)
    positions = np.linspace(0.0, 1.0, along.shape[1])
    total = along.sum(axis=1)
    return np.where(total > 1e-6, along @ positions / np.where(total > 1e-6, total, 1.0), 0.5)
