"""A grid whose rewards change: experience for the example of bootstrapped meta-gradients.

After the experiment in section 5.1 of Flennerhag et al. (2022): a 5x5 grid with two objects. One gives reward 1, the
other -1; every now and then they swap. Every step costs 0.04.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])


class Batch(NamedTuple):
    observations: Tensor  # [T + 1, B, 75]: o_t, one-hot cells of the agent and of both objects
    actions: Tensor  # [T, B] integer: a_t
    rewards: Tensor  # [T, B]: R_{t+1}
    history: Tensor  # [10]: mean rewards of the last batches, the latest last; zeros before the first


class Grid:
    """B grids. When the agent reaches an object, both appear in new cells; there are no episodes."""

    def __init__(self, num_envs: int, period: int, seed: int) -> None:
        self.period, self.random = period, np.random.default_rng(seed)  # batches between swaps
        self.agent = self.random.integers(25, size=num_envs)
        self.objects = np.zeros((num_envs, 2), dtype=int)
        self.place(np.full(num_envs, True))
        self.mean_rewards: list[float] = []  # of each batch

    @property
    def batches(self) -> int:
        return len(self.mean_rewards)

    def place(self, where: np.ndarray) -> None:
        """Put both objects into random cells without the agent."""
        order = self.random.random((len(self.agent), 25))
        order[np.arange(len(self.agent)), self.agent] = 2.0
        self.objects[where] = order.argsort(1)[where, :2]

    def observe(self) -> Tensor:
        one_hot = np.eye(25)[np.column_stack([self.agent, self.objects])]
        return torch.from_numpy(one_hot).flatten(1).to(torch.get_default_dtype())

    def collect(self, logits: Callable[[Tensor], Tensor], num_steps: int) -> Batch:
        """T steps of the policy whose logits are a function of observations."""
        history = torch.tensor(([0.0] * 10 + self.mean_rewards)[-10:])
        good = self.batches // self.period % 2
        observations, actions, rewards = zip(*(self.step(logits, good) for _ in range(num_steps)), strict=True)
        self.mean_rewards.append(float(np.mean(rewards)))
        taken, received = (torch.from_numpy(np.stack(column)) for column in (actions, rewards))
        return Batch(torch.stack([*observations, self.observe()]), taken, received.to(history.dtype), history)

    def step(self, logits: Callable[[Tensor], Tensor], good: int) -> tuple[Tensor, np.ndarray, np.ndarray]:
        before = self.observe()
        scores = logits(before).numpy()
        actions = (scores - np.log(self.random.exponential(size=scores.shape))).argmax(-1)  # samples of the softmax
        row, column = np.array(np.divmod(self.agent, 5)) + MOVES[actions].T
        self.agent = np.clip(row, 0, 4) * 5 + np.clip(column, 0, 4)
        reached = self.objects == self.agent[:, None]
        self.place(reached.any(-1))
        return before, actions, -0.04 + 1.0 * reached[:, good] - 1.0 * reached[:, 1 - good]
