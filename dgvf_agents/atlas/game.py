"""One recorded game: what the agent saw, the same moments as frames for people, actions and rewards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.preprocessing import maybe_transpose

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.atlas.domain import Domain, Landmark, Wording
from dgvf_agents.core.returns import bootstrapped_returns
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import wrapped
from dgvf_envs.atari import make_atari


@final
@dataclass(eq=False)
class Game(Domain):
    """T steps of one game, and the T + 1 moments before, between and after them; those from `first` on count.

    If a lost life ends the agent's episode, the game continues within one `Game`. Landmarks are read from its frames.
    """

    wording = Wording(everywhere="throughout the game", number="+.3g", points="moments", landmarks="events")

    observations: np.ndarray
    """`[T + 1, C, H, W]` uint8: o_t, what the agent saw."""
    frames: np.ndarray
    """`[T + 1, height, width, 3]` uint8: the same moments for people, with the same field of view; no pixels if no
    pictures were recorded."""
    actions: np.ndarray
    """`[T]` integer: a_t, taken at o_t."""
    rewards: np.ndarray
    """`[T]`: R_{t+1}, unclipped."""
    terminated: np.ndarray
    """`[T]` boolean: the agent's episode ended at o_{t+1}, as where a life was lost."""
    truncated: np.ndarray
    """`[T]` boolean: a time limit ended it there."""
    over: bool
    """Whether the game ended with the last step; otherwise the recording did."""
    action_names: tuple[str, ...]
    """Of all actions."""
    seed: int = 0
    """Of the environment and the actions."""
    first: int = 1
    """The moment from 1 to T from which on the game counts: before, frames of the stack may still be black."""

    def __post_init__(self) -> None:
        self.moments = np.arange(self.steps + 1)
        self.acting = self.moments < self.steps
        if self.frames.size:
            self.landmarks = tuple(one for one in self._landmarks() if np.ptp(one.values[self.counted]) > 1e-6)

    @property
    def steps(self) -> int:
        """T."""
        return len(self.actions)

    @property
    def score(self) -> float:
        """Sum of the unclipped rewards."""
        return float(self.rewards.sum())

    @property
    def ends(self) -> list[int]:
        """The moments at which the agent's episodes ended."""
        return (np.flatnonzero(self.terminated) + 1).tolist()

    def name(self, point: int) -> str:
        return f"step {point}"

    @property
    def arriving(self) -> np.ndarray:
        return self.moments >= 1

    @property
    def counted(self) -> np.ndarray:
        return self.moments >= self.first

    def outcomes(self, cumulants: np.ndarray, discounts: np.ndarray, answers: np.ndarray) -> np.ndarray:
        """Discounted sums of the cumulants that followed, up to the end of the agent's episode; the last answer stands
        for the rest of a recording that stops first. NaN at the last moment.
        """
        continuing = discounts[1:] * ~self.terminated[:, None]
        segment_end = self.terminated | self.truncated | (self.moments[1:] == self.steps)
        parts = (cumulants[1:], continuing, answers[1:], segment_end)
        returns = bootstrapped_returns(*(torch.from_numpy(part[:, None]) for part in parts))[:, 0].numpy()
        return np.concatenate([returns, np.full((1, returns.shape[1]), np.nan)])

    def _landmarks(self) -> Iterator[Landmark]:
        latest = self.observations[:, -1].astype(np.float32) / 255.0
        change = np.abs(np.diff(latest, axis=0))
        events = [
            (self.rewards > 0, "score", "not score"),
            (self.rewards < 0, "lose points", "lose no points"),
            (self.terminated, "lose a life or the game", "stay alive"),
            (np.arange(self.steps), "be late in the game", "be early in the game"),
            (latest[1:].mean(axis=(1, 2)), "see a bright picture", "see a dark picture"),
            (change.mean(axis=(1, 2)), "see much move", "see little move"),
            (_center(change, axis=2), "see things move further right", "see things move further left"),
            (_center(change, axis=1), "see things move further down", "see things move further up"),
        ]
        for action, name in enumerate(self.action_names):
            events.append((self.actions == action, f"have chosen {name}", f"not have chosen {name}"))
        for values, more, less in events:
            yield Landmark(np.append(0.0, values), more, less)


def record(
    model: DiscoveryAlgorithm, config: TrainConfig, seed: int = 0, max_steps: int = 1000, pictures: bool = True
) -> Game:
    """Record an agent playing one game, at most its first `max_steps` steps, where its run is evaluated.

    An Atari game is played under the run's own rules: lost lives end episodes if they did in training.
    Actions are drawn from the policy, as in training. The same seed gives the same game.

    Args:
        model: the agent.
        config: the configuration of its run.
        seed: of the environment and the actions.
        max_steps: steps after which the recording stops ≥ 1.
        pictures: whether frames are recorded, for which observations must be images.

    Raises:
        ValueError: observations are no images of bytes though pictures are asked for, or actions are not discrete.
    """
    space = model.observation_space
    images = isinstance(space, gym.spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8
    if pictures and not images:
        raise ValueError(
            "run must be on a world with a registered domain or on images (channels, height, width) of bytes, "
            f"got observations of {space}: dgvf_agents.atlas.domain.register(World, Domain) registers one"
        )
    if not isinstance(model.action_space, gym.spaces.Discrete):
        raise ValueError(f"run must have actions of a Discrete space, got {model.action_space}")
    # a `Monitor` below whatever changes rewards or ends episodes within a game knows whole games, unclipped
    env: gym.Env[Any, Any] = (
        wrapped(config, Monitor(gym.make(config.env, **config.evaluation_kwargs)))
        if config.atari is None
        else make_atari(config.env, config.atari, render_mode="rgb_array")
    )
    first = 1 if config.atari is None else max(1, config.atari.stack - 1)  # no frame of the stack is black any longer
    seen: list[np.ndarray] = []
    shown: list[np.ndarray] = []
    steps: list[tuple[int, float, bool, bool]] = []

    def look(observation: np.ndarray) -> None:
        seen.append(np.array(maybe_transpose(np.asarray(observation), space)))
        shown.append(_frame(env, seen[-1]) if pictures else np.zeros((0, 0, 3), np.uint8))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        observation, info = env.reset(seed=seed)
        look(observation)
        while len(steps) < max_steps and "episode" not in info:
            action = int(model.predict(observation)[0])
            observation, _, terminated, truncated, info = env.step(action)
            steps.append((action, float(env.get_wrapper_attr("rewards")[-1]), bool(terminated), bool(truncated)))
            look(observation)
            if (terminated or truncated) and "episode" not in info:
                observation, _ = env.reset()  # a life was lost: the same frame, and the game continues
    env.close()
    actions, rewards, ends, cuts = map(np.array, zip(*steps, strict=True))
    over, names = "episode" in info, _action_names(env, int(model.action_space.n))
    first = min(first, len(steps))
    return Game(np.stack(seen), np.stack(shown), actions, rewards, ends, cuts, over, names, seed, first)


def _frame(env: gym.Env[Any, Any], observation: np.ndarray) -> np.ndarray:
    """The console's screen of an Atari game, which is all that the observation `[C, H, W]` is made of; else the
    observation for the eye, `[H, W, 3]`: its colors where C is 3, else its last channel in grey.
    """
    if hasattr(env.unwrapped, "ale"):
        return np.asarray(env.render(), dtype=np.uint8)
    colors = observation if len(observation) == 3 else np.repeat(observation[-1:], 3, axis=0)
    return np.ascontiguousarray(colors.transpose(1, 2, 0))


def _action_names(env: gym.Env[Any, Any], count: int) -> tuple[str, ...]:
    meanings: Any = getattr(env.unwrapped, "get_action_meanings", None)
    names: Sequence[str] = meanings() if callable(meanings) else ()
    return tuple(names) if len(names) == count else tuple(f"action {i}" for i in range(count))


def _center(change: np.ndarray, axis: int) -> np.ndarray:
    """`[T]`: where along an axis of pictures `[T, H, W]` the change lies on average, in [0, 1]; 0.5 without any."""
    along = change.sum(axis=3 - axis).astype(np.float64)
    positions = np.linspace(0.0, 1.0, along.shape[1])
    total = along.sum(axis=1)
    return np.where(total > 1e-6, along @ positions / np.where(total > 1e-6, total, 1.0), 0.5)
