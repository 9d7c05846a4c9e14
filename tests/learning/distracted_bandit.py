"""A contextual bandit that a few random features cannot solve."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from scipy.stats import ortho_group

CONTEXTS, DISTRACTORS, ACTIONS = 12, 24, 4
JUMP = 0.1


class DistractedBandit(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Each context has one correct action, worth 1; a distractor that is irrelevant to the reward doubles the input.

    Contexts follow each other in a circle and distractors in a fixed permutation, so the next observation tells about
    the current one; either jumps to a uniformly random value with probability `JUMP`. Observations are both as one-hot
    vectors, side by side and rotated, so that every input depends on both. Episodes never end.

    A uniformly random policy earns 1 / `ACTIONS` a step, as does any other that ignores the context.
    """

    metadata: ClassVar[dict[str, Any]] = {"autoreset_mode": AutoresetMode.SAME_STEP}  # type: ignore[misc]

    def __init__(self, num_envs: int, seed: int) -> None:
        """
        Args:
            num_envs: B.
            seed: of the correct actions, the permutation and the rotation.
        """
        rng = np.random.default_rng(seed)
        size = CONTEXTS + DISTRACTORS
        self.num_envs = num_envs
        self._correct_action = rng.permutation(np.arange(CONTEXTS) % ACTIONS)
        self._next_distractor = rng.permutation(DISTRACTORS)
        self._rotation = np.sqrt(size / 2) * ortho_group.rvs(size, random_state=rng)  # inputs of variance about 1
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.single_action_space = gym.spaces.Discrete(ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | list[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed if seed is None else int(np.sum(seed)))
        self._context = self.np_random.integers(CONTEXTS, size=self.num_envs)
        self._distractor = self.np_random.integers(DISTRACTORS, size=self.num_envs)
        return self._observation(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        rewards = (actions == self._correct_action[self._context]).astype(np.float64)
        self._context = self._jumping((self._context + 1) % CONTEXTS, CONTEXTS)
        self._distractor = self._jumping(self._next_distractor[self._distractor], DISTRACTORS)
        never = np.zeros(self.num_envs, bool)
        return self._observation(), rewards, never, never.copy(), {}

    def _jumping(self, following: np.ndarray, count: int) -> np.ndarray:
        jumps = self.np_random.random(self.num_envs) < JUMP
        return np.where(jumps, self.np_random.integers(count, size=self.num_envs), following)

    def _observation(self) -> np.ndarray:
        one_hot = np.concatenate([np.eye(CONTEXTS)[self._context], np.eye(DISTRACTORS)[self._distractor]], axis=1)
        return (one_hot @ self._rotation).astype(np.float32)
