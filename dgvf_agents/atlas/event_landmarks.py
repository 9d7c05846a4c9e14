"""What a person might name to describe values over the moments of a game: scores, lives, actions, movement."""

from __future__ import annotations

import numpy as np

from dgvf_agents.atlas.episode import Episode
from dgvf_agents.atlas.landmarks import Landmark


def landmarks_of_game(episode: Episode) -> tuple[Landmark, ...]:
    """Rewards, ends of episodes, actions, time, brightness, and where in the picture things move.

    Args:
        episode: the game.

    Returns:
        landmarks over the moments from `episode.first` to T; those that do not vary are left out.
    """
    latest = episode.observations[:, -1].astype(np.float32) / 255.0
    change = np.abs(np.diff(latest, axis=0))
    found = [
        Landmark((episode.rewards > 0).astype(float), "score", "not score"),
        Landmark((episode.rewards < 0).astype(float), "lose points", "lose no points"),
        Landmark((episode.terminated).astype(float), "lose a life or the game", "stay alive"),
        Landmark(np.arange(episode.steps, dtype=float), "be late in the game", "be early in the game"),
        Landmark(_mean(latest[1:]), "see a bright picture", "see a dark picture"),
        Landmark(_mean(change), "see much move", "see little move"),
        Landmark(_center(change, axis=2), "see things move further right", "see things move further left"),
        Landmark(_center(change, axis=1), "see things move further down", "see things move further up"),
    ]
    for action, name in enumerate(episode.action_names):
        taken = (episode.actions == action).astype(float)
        found.append(Landmark(taken, f"have chosen {name}", f"not have chosen {name}"))
    looked_at = [landmark._replace(values=landmark.values[episode.first - 1 :]) for landmark in found]
    return tuple(landmark for landmark in looked_at if np.ptp(landmark.values) > 1e-6)


def _mean(pictures: np.ndarray) -> np.ndarray:
    return pictures.mean(axis=(1, 2)).astype(np.float64)


def _center(change: np.ndarray, axis: int) -> np.ndarray:
    """`[T]`: where along an axis of pictures `[T, H, W]` the change lies on average, in [0, 1]; 0.5 without any."""
    along = change.sum(axis=3 - axis).astype(np.float64)
    places = np.linspace(0.0, 1.0, along.shape[1])
    total = along.sum(axis=1)
    return np.where(total > 1e-6, along @ places / np.where(total > 1e-6, total, 1.0), 0.5)
