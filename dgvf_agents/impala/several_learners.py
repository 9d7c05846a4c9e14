"""An algorithm that may train as one of several learners, each in a process of its own."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv
from torch.utils._pytree import tree_map_only

from dgvf_agents.agents.synchronous import SynchronousAlgorithm
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.execution.learner_group import LearnerGroup, check_group, rank
from dgvf_agents.storage.persistence import constructor_arguments

_MAY_DIFFER = (
    "actors",
    "compile",
    "device",
    "envs_per_actor",
    "seed",
    "stats_window_size",
    "tensorboard_log",
    "verbose",
)
"""Constructor arguments that need not be the same in all learners."""


class SeveralLearners(SynchronousAlgorithm, ABC):
    """Learners with equal θ and η. Updates average over their batches, so all of them stay equal.

    Learner 0 logs, and its state is where training starts from.
    """

    _common: tuple[Any, ...] = ()  # what all learners had when they last trained together

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Collect `n_rollout_steps` steps from every environment.

        Returns:
            false if a callback of any learner stopped training.
        """
        goes_on = self._collect(env, callback, rollout_buffer, n_rollout_steps)
        return goes_on if self.learners == 1 else self._group.all(goes_on)

    def _collect(self, *arguments: Any) -> bool:
        """`collect_rollouts` of this learner alone."""
        return super().collect_rollouts(*arguments)

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.learners > 1 and (statistics := sorted(self._functions.statistics())):
            raise ValueError(
                f"learners must be 1 for features extractors with running statistics, got {self.learners}: each "
                f"learner would have its own {', '.join(statistics)}"
            )

    def _new_compilation(self) -> Compilation:
        if self.learners > 1:
            return Compilation(False, self.device)  # collectives cannot be traced with their derivatives
        return super()._new_compilation()

    @property
    def _group(self) -> LearnerGroup:
        return LearnerGroup(self.learners, self.device)

    @property
    def _learner_index(self) -> int:
        return rank() if self.learners > 1 else 0

    @property
    def _actor_seed(self) -> int | None:
        """Seed of this learner's actors."""
        index = self._learner_index
        return self.seed if self.seed is None or index == 0 else _seed(self.seed, index)

    @contextmanager
    def _in_step(self, plan: Mapping[str, Any]) -> Iterator[None]:
        """Train in step with the other learners. They all start from the state of learner 0.

        Args:
            plan: arguments of `learn` that must be the same in all learners.

        Raises:
            LearnerGroupError: `torch.distributed` does not connect the learners.
            ValueError: learners have different settings.
        """
        if self.learners == 1:
            yield
            return
        check_group(self.learners)
        self._check_settings(plan)
        if self._learner_index and not self._custom_logger:
            self.set_logger(Logger(None, []))
        self._prepare_update()  # weights may have been written into the policy
        if not self._group.all(self._unchanged()):
            self._start_from_first()
        yield
        self._common = (self.learner.packed_state, self.learner.packed_eta)
        self._group.all(True)  # leave together: others may still use what learner 0 started

    def _check_settings(self, plan: Mapping[str, Any]) -> None:
        if self.get_vec_normalize_env() is not None:
            raise ValueError(
                f"env must not be a VecNormalize for learners = {self.learners}: each learner would have its own "
                "statistics"
            )
        names = [name for name in constructor_arguments(type(self)) if name not in _MAY_DIFFER]
        given = {name: vars(self)[name] for name in names if _is_plain(vars(self).get(name, self))}
        first, *others = self._group.of_each({**given, **plan})
        for index, other in enumerate(others, 1):
            for name in first:
                if first[name] != other.get(name):
                    raise ValueError(
                        f"{name} must be the same in all learners, got {first[name]!r} in learner 0 and "
                        f"{other.get(name)!r} in learner {index}"
                    )

    def _unchanged(self) -> bool:
        """Whether θ, the statistics and η are those of the last training. Updates create new tensors."""
        now = (self.learner.packed_state, self.learner.packed_eta)
        return bool(self._common) and all(one is other for one, other in zip(now, self._common, strict=True))

    def _start_from_first(self) -> None:
        """Take the state of learner 0. The unroll in progress restarts; learner 0 alone continues its episodes."""
        if self._collector.collecting:  # in the middle of a rollout, as a loaded model may be
            self.num_timesteps -= self._collector.steps * self.n_envs * self.learners
            self._collector.end()
        state = tree_map_only(torch.Tensor, torch.Tensor.cpu, self.learner.get_state()._replace(unroll=None))
        state, self.num_timesteps = self._group.from_first((state, self.num_timesteps))
        self.take_update(state, self._rollout)
        if index := self._learner_index:
            self.set_random_seed(_seed(self.seed, index, state.updates))
            self._last_obs = None


def _seed(seed: int | None, *where: int) -> int:
    """A seed that differs from the run's."""
    return int(np.random.SeedSequence(None if seed is None else [seed, *where]).generate_state(1)[0]) >> 1


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
