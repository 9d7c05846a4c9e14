"""A population of `DGVFA2C`: members that train at once, each as it would alone.

The members' environments are simulated as one, and their updates run as one function with a leading axis of members,
so that the overhead of Python and of calling compiled functions is paid once for all. Members differ in seed, learning
rates, entropy coefficient, discount, coefficients, ε and maximum norms, and agree in everything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import torch

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.core.optimizers import Adam, Optimizer, RMSProp
from dgvf_agents.core.types import Rollout
from dgvf_agents.hyperparameters import differences
from dgvf_agents.population.collector import PopulationCollector
from dgvf_agents.population.learner import PopulationLearner
from dgvf_agents.population.stacking import member_of


def _without_epsilon(optimizer: Optimizer) -> Optimizer:
    return dataclasses.replace(optimizer, epsilon=1.0) if isinstance(optimizer, RMSProp | Adam) else optimizer


_EQUAL: dict[str, Callable[[DiscoveryAlgorithm], Any]] = {
    "algorithm": lambda model: type(model).__name__,
    "policy": lambda model: model.policy_class,
    "policy_kwargs": lambda model: repr(model.policy_kwargs),
    "observation_space": lambda model: model.observation_space,
    "action_space": lambda model: model.action_space,
    "n_envs": lambda model: model.n_envs,
    "auxiliary_task": lambda model: model.auxiliary_task,
    "inner_optimizer apart from ε": lambda model: _without_epsilon(model.learner.functions.rule.optimizer),
    "compile": lambda model: model.compile,
    "device": lambda model: model.device,
    "the number of updates": lambda model: model.learner.updates,
    "the number of updates in the unroll": lambda model: model.learner.unroll_updates,
}
"""What members agree in besides the structure of `dgvf_agents.hyperparameters`, by name."""


@final
class Population:
    """Trains members at once. They must be ready to train: `DGVFA2C._setup_learn` was called.

    Between `synchronize` and the next iteration, a member is as if it had trained alone, up to rounding: it can be
    logged, evaluated, saved, and trained further by itself.
    """

    def __init__(self, members: Sequence[DiscoveryAlgorithm]) -> None:
        """
        Args:
            members: at least one, between two iterations.

        Raises:
            ValueError: they cannot be trained at once; the message says in what they differ.
        """
        check_members(members)
        self.members = list(members)
        first = members[0]
        self._compilation = first.compilation
        self._learner = PopulationLearner([member.learner for member in members], first.compilation)
        envs = [member.get_env() for member in members]
        observations = [member._last_obs for member in members]
        act = first.learner.functions.packed.act
        self._collector = PopulationCollector(act, envs, observations, first.n_steps, first.compilation)  # type: ignore[arg-type]
        self._fields: dict[str, Any] | None = None

    def collect(self) -> None:
        """Collect the next rollout of every member."""
        noise = [member._collector.actor.draw_noise(member.n_envs) for member in self.members]
        updates = self._learner.updates
        compiled = updates > 0 and self._compilation.active_at(updates)
        self._fields = self._collector.collect(self._learner.theta, noise, compiled)
        for p, member in enumerate(self.members):
            member.num_timesteps += member.n_envs * member.n_steps
            for episode, success in self._collector.episodes(p):
                member.ep_info_buffer.append(episode)  # type: ignore[union-attr]
                member.ep_success_buffer.append(success)  # type: ignore[union-attr]

    def update(self) -> None:
        """Perform one step of Algorithm 1 on the last rollouts."""
        assert self._fields is not None
        for member in self.members:
            member._update_current_progress_remaining(member.num_timesteps, member._total_timesteps)
        settings = [member.annealed_settings() for member in self.members]
        new = self._fields["rewards"].new_tensor
        annealed = {"entropy_weight": new([own.entropy_weight for own in settings])}
        if settings[0].auxiliary_coefficient is not None:
            annealed["auxiliary_coefficient"] = new([own.auxiliary_coefficient for own in settings])
        rates, meta_rates = [own.learning_rate for own in settings], [own.meta_learning_rate for own in settings]
        self._learner.step({**self._fields, **annealed}, rates, meta_rates)

    def synchronize(self, p: int) -> DiscoveryAlgorithm:
        """Let member p be as if it had trained alone, apart from its environment; see `restore_environment`."""
        member = self.members[p]
        rollout = None if self._fields is None else Rollout(**member_of(self._fields, p))
        member.set_state(self._learner.state_of(p), rollout)
        member._last_obs, member._last_episode_starts = self._collector.latest(p)
        return member

    def restore_environment(self, p: int) -> None:
        """Let member p's environment be as if it had trained alone."""
        self._collector.restore(p)


def check_members(members: Sequence[DiscoveryAlgorithm]) -> None:
    """Check that members can be trained at once.

    Raises:
        ValueError: there are none, they differ in something that they must agree in, or updates of theirs use random
            numbers or exploration matrices.
    """
    if not members:
        raise ValueError("members must be at least one, got none")
    for name, value in _EQUAL.items():
        values = [value(member) for member in members]
        others = [other for other in values if other != values[0]]
        if others:
            raise ValueError(f"members must agree in {name}, got {values[0]} and {others[0]}")
    first = members[0]
    for other in members[1:]:
        for name in differences(vars(first), vars(other)):
            raise ValueError(f"members must agree in {name}, got {vars(first)[name]} and {vars(other)[name]}")
    if first.use_sde or first._functions.random_in_training or first._functions.statistics():
        raise ValueError("members must have no gSDE, dropout or batch normalization")
    if first.learner.functions.rule.targets.off_policy or first.task.reads_features:
        raise ValueError("members must learn on-policy, with a question network of its own encoder")
    if any(not torch.equal(a._policy_theta["packed"], a.learner.packed_state.theta["packed"]) for a in members):
        raise ValueError("members must be as their last update left them, got one whose weights were changed")
