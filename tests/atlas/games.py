"""A tiny game on images, and runs on it, for the tests of the atlas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import build, train

SIDE, LENGTH = 10, 30
"""Of the picture, and of a game."""
QUESTIONS = 4


class DotGame(gym.Env[np.ndarray, int]):
    """A dot goes left or right along a line, and is worth 2 where it leaves it on the right; colors, channels last."""

    observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.column, self.row = SIDE // 2, int(self.np_random.integers(SIDE))
        return self.picture(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.column += 1 if action else -1
        out = not 0 <= self.column < SIDE
        return self.picture(), 2.0 * (self.column == SIDE), out, False, {}

    def picture(self) -> np.ndarray:
        shown = np.zeros((SIDE, SIDE, 3), np.uint8)
        shown[self.row, np.clip(self.column, 0, SIDE - 1)] = (250, 120, 40)
        return shown


class LowerHalf(gym.ObservationWrapper[np.ndarray, int, np.ndarray]):
    """Pictures without their upper half."""

    def __init__(self, env: gym.Env[np.ndarray, int]) -> None:
        super().__init__(env)
        rows, *others = env.observation_space.shape
        self.observation_space = gym.spaces.Box(0, 255, (rows - rows // 2, *others), np.uint8)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[len(observation) // 2 :]


def register() -> str:
    """The game's id."""
    if "DotGame-v0" not in gym.registry:
        gym.register("DotGame-v0", entry_point=DotGame, max_episode_steps=LENGTH)
    return "DotGame-v0"


def tiny_config(task: str = "discovered", **changes: Any) -> TrainConfig:
    """Two checkpoints of a moment's training, uncompiled."""
    small = {"questions": QUESTIONS, "n_envs": 4, "unroll_length": 2, "meta_learning_rate": 0.01, "compile": False}
    learning = {"question_discount": None, "steps": 80, **small}
    intervals = {"log_every": 80, "checkpoint_every": 40, "evaluate_every": 1000}
    return TrainConfig(**{"env": register(), "task": task, **learning, **intervals, **changes})


def trained_run(path: Path, config: TrainConfig) -> Path:
    """A run as `dgvf train` leaves it."""
    train(config, path, show_progress=False)
    return path


def untrained_run(path: Path, config: TrainConfig) -> Path:
    """A run whose only checkpoint is of an agent that was never trained."""
    folder = RunFolder(path)
    (path / "checkpoints").mkdir(parents=True)
    folder.write_config(config)
    build(config).save(folder.checkpoint_file(0))
    return path
