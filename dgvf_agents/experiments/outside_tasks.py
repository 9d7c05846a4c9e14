"""External tasks, and the configuration of `DGVFA2C` with its defaults on them.

Of the defaults, only `auxiliary_coefficient` was chosen on one of them, CartPole-v1.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from dataclasses import dataclass
from typing import Literal, final

from dgvf_agents.train.config import TrainConfig, own_config

OwnTaskMethod = Literal["sb3-a2c", "none", "discovered", "random", "reward-prediction"]

OWN_TASK_METHODS: tuple[OwnTaskMethod, ...] = ("sb3-a2c", "discovered", "none", "random", "reward-prediction")
"""Stable-Baselines3's A2C, and the auxiliary tasks of `DGVFA2C`."""

IMAGE_ONLY = "minigrid.wrappers:ImgObsWrapper"
"""MiniGrid's observation without its mission: a partial view of 7x7 cells."""


@final
@dataclass(frozen=True)
class OwnTask:
    """An external task."""

    env: str
    """Id of the environment, `module:Id` where the module registers it."""
    steps: int
    """Environment steps of training, over all environments."""
    random: float
    """Mean return of the uniformly random policy over 200 episodes, as the tests measure it."""
    solved: float
    """1 in normalized returns: Gymnasium's reward threshold, or the best known return."""
    wrapper: str | None = None
    """Import path of a wrapper, `module:Class`."""
    needs: str | None = None
    """Module that must be installed."""

    @property
    def is_installed(self) -> bool:
        """Whether the task's module is installed."""
        return self.needs is None or importlib.util.find_spec(self.needs) is not None


def _minigrid(name: str, random: float, solved: float) -> OwnTask:
    return OwnTask(f"minigrid:MiniGrid-{name}", 100_000, random, solved, IMAGE_ONLY, "minigrid")


OWN_TASKS: dict[str, OwnTask] = {
    task.env.rpartition(":")[2]: task
    for task in (
        OwnTask("CartPole-v1", 50_000, 22.0, 475.0),
        OwnTask("Acrobot-v1", 100_000, -499.0, -100.0),
        OwnTask("MountainCar-v0", 50_000, -200.0, -110.0),
        OwnTask("Pendulum-v1", 100_000, -1_230.0, -150.0),
        OwnTask("LunarLander-v3", 100_000, -180.0, 200.0, needs="Box2D"),
        _minigrid("Empty-8x8-v0", 0.08, 0.96),
        _minigrid("Empty-Random-6x6-v0", 0.28, 0.96),
        _minigrid("DistShift1-v0", 0.01, 0.96),
        _minigrid("LavaGapS5-v0", 0.05, 0.95),
        _minigrid("SimpleCrossingS9N1-v0", 0.02, 0.96),
        _minigrid("Dynamic-Obstacles-5x5-v0", -0.99, 0.9),
    )
}
"""By name, without the module."""
INSTALLED_TASKS: tuple[str, ...] = tuple(name for name, task in OWN_TASKS.items() if task.is_installed)


def own_task_config(name: str, method: OwnTaskMethod) -> TrainConfig:
    """The defaults of `DGVFA2C` on a task, as a configuration.

    For `"sb3-a2c"` the fields about the agent do not apply: Stable-Baselines3's A2C has its own defaults.

    Args:
        name: one of `OWN_TASKS`.
        method: the auxiliary task, or `"sb3-a2c"`.
    """
    task = OWN_TASKS[name]
    return dataclasses.replace(
        own_config(task.env, method, task.steps),
        env_wrapper=task.wrapper,
        checkpoint_every=task.steps,
        checkpoints_kept=1,
        evaluate_every=2 * task.steps,
        evaluation_episodes=1,
    )
