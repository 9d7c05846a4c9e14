"""Several learners of one model, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, final

import numpy as np
import torch
from stable_baselines3.common.logger import Logger
from torch.utils._pytree import tree_map_only

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.persistence import constructor_arguments
from dgvf_agents.execution.learner_group import LearnerGroup, check_group, rank

Value = TypeVar("Value")

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


@final
class SeveralLearners:
    """One of the learners that train a model together, each in a process of its own, with equal θ and η.

    Updates average over their batches, so all of them stay equal. Learner 0 logs, and its state is where training
    starts from.
    """

    def __init__(self, model: DiscoveryAlgorithm) -> None:
        """
        Args:
            model: this learner's.
        """
        self._model, self._group = model, LearnerGroup(model.learners, model.device)
        self._common: tuple[Any, ...] = ()  # what all learners had when they last trained together

    @property
    def index(self) -> int:
        """0 … P - 1."""
        return rank() if self._group.learners > 1 else 0

    @property
    def seed(self) -> int | None:
        """Seed of this learner's actors."""
        seed, index = self._model.seed, self.index
        return seed if seed is None or index == 0 else _seed(seed, index)

    def from_first(self, value: Value) -> Value:
        """The value of learner 0."""
        return self._group.from_first(value) if self._group.learners > 1 else value

    @contextmanager
    def in_step(self, plan: Mapping[str, Any]) -> Iterator[None]:
        """Train in step with the other learners. They all start from the state of learner 0.

        Args:
            plan: arguments of `learn` that must be the same in all learners.

        Raises:
            LearnerGroupError: `torch.distributed` does not connect the learners.
            ValueError: learners have different settings.
        """
        if self._group.learners == 1:
            yield
            return
        check_group(self._group.learners)
        self._check_settings(plan)
        model = self._model
        if self.index and not model._custom_logger:
            model.set_logger(Logger(None, []))
        model._prepare_update()  # weights may have been written into the policy
        if not self._group.all(self._unchanged()):
            self._start_from_first()
        yield
        self._common = (model.learner.packed_state, model.learner.packed_eta)
        self._group.all(True)  # leave together: others may still use what learner 0 started

    def _check_settings(self, plan: Mapping[str, Any]) -> None:
        if self._model.get_vec_normalize_env() is not None:
            raise ValueError(
                f"env must not be a VecNormalize for learners = {self._group.learners}: each learner would have its "
                "own statistics"
            )
        own = vars(self._model)
        names = [name for name in constructor_arguments(type(self._model)) if name not in _MAY_DIFFER]
        given = {name: own[name] for name in names if _is_plain(own.get(name, self))}
        first, *others = self._group.of_each({**given, **plan})
        for index, other in enumerate(others, 1):
            for name in first:
                if first[name] != other.get(name):
                    raise ValueError(
                        f"{name} must be the same in all learners, got {first[name]!r} in learner 0 and "
                        f"{other.get(name)!r} in learner {index}"
                    )

    def _unchanged(self) -> bool:
        """Whether θ, the statistics and η are unchanged since the last training. Updates create new tensors."""
        now = (self._model.learner.packed_state, self._model.learner.packed_eta)
        return bool(self._common) and all(one is other for one, other in zip(now, self._common, strict=True))

    def _start_from_first(self) -> None:
        """Take the state of learner 0. The unroll in progress restarts; learner 0 alone continues its episodes."""
        model, collector = self._model, self._model._collector
        if collector.collecting:  # in the middle of a rollout, as a loaded model may be
            model.num_timesteps -= collector.steps * model.n_envs * model.learners
            collector.end()
        state = tree_map_only(torch.Tensor, torch.Tensor.cpu, model.learner.get_state()._replace(unroll=None))
        state, model.num_timesteps = self._group.from_first((state, model.num_timesteps))
        model.set_state(state, model._rollout)
        if index := self.index:
            model.set_random_seed(_seed(model.seed, index, state.updates))
            model._last_obs = None


def _seed(seed: int | None, *where: int) -> int:
    """A seed that differs from the run's."""
    return int(np.random.SeedSequence(None if seed is None else [seed, *where]).generate_state(1)[0]) >> 1


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
