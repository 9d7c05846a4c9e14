"""A population of `DGVFA2C`: members that train at once, each as it would alone; Algorithm 1 for all of them.

The members' environments are simulated as one, and their updates run as one function with a leading axis of members,
so that the overhead of Python and of calling compiled functions is paid once for all. Members differ in seed, learning
rates, entropy coefficient, discount, coefficients, ε and maximum norms, and agree in everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from torch import Tensor

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.simulation import Simulation, ended_episodes, record_episode, simulated_world
from dgvf_agents.core.flat import builder, flatten, template
from dgvf_agents.core.meta_optimizer import MetaOptimizer
from dgvf_agents.core.metrics import InnerMetrics
from dgvf_agents.core.networks import Act
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.compiling import Compilation
from dgvf_agents.execution.devices import upload
from dgvf_agents.execution.fused import PopulationSteps
from dgvf_agents.execution.packing import KEY
from dgvf_agents.execution.update_functions import UpdateFunctions
from dgvf_agents.hyperparameters import differences
from dgvf_agents.learner import DiscoveryLearner, Learner, LearnerState, SingleLearner, UnrollState, meta_step
from dgvf_envs.functional.vector_env import DynamicsVectorEnv, joined, split

Tree = TypeVar("Tree")


def stacked(trees: Sequence[Tree]) -> Tree:
    """Equal trees as one; every tensor has a leading axis of members."""
    leaves = [torch.stack(parts) for parts in zip(*map(flatten, trees), strict=True)]
    result: Tree = builder(template(trees[0]))(leaves)
    return result


def member_of(tree: Tree, member: int) -> Tree:
    """The tree of one member, in new tensors."""
    result: Tree = builder(template(tree))([leaf[member].clone() for leaf in flatten(tree)])
    return result


def stacked_rollouts(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """The fields of the members' rollouts, stacked; `bootstrap_index` is filled up to the longest one."""
    longest = max(len(rollout.bootstrap_index) for rollout in rollouts)

    def filled(rollout: Rollout) -> Rollout:
        index = rollout.bootstrap_index
        return rollout._replace(bootstrap_index=torch.cat([index, index[:1].expand(longest - len(index))]))

    return stacked([filled(rollout).given() for rollout in rollouts])


@final
class PopulationLearner(Learner):
    """The learners of P members as one. Every tensor of its state has a leading axis of members."""

    def __init__(self, learners: Sequence[SingleLearner], compilation: Compilation) -> None:
        """
        Args:
            learners: of the members. They agree in shapes, in the number of updates, and in all settings but
                numbers, learning rates and maximum norms. They are not changed.
            compilation: which updates run compiled.
        """
        first = learners[0]
        self._packed = first.functions.packed
        functions = UpdateFunctions(first.functions.rule, first.eta, compilation, _numbers_of(learners))
        state = stacked([learner.packed_state for learner in learners])
        super().__init__(functions, state, first.discovers, first.settings, first.updates)
        states = [learner.get_state() for learner in learners]
        self._members = [learner.settings for learner in learners]
        self._optimizers = [MetaOptimizer(learner.packed_eta, epsilon=learner.meta_epsilon) for learner in learners]
        for optimizer, own in zip(self._optimizers, states, strict=True):
            optimizer.load_state_dict(own.meta_optimizer or {})
        self._eta = stacked([optimizer.eta for optimizer in self._optimizers])
        self._meta_updates = [state.meta_updates for state in states]
        self._meta_skipped = [state.meta_skipped for state in states]
        metrics = [None if state.metrics is None else state.metrics._asdict() for state in states]
        self.metrics: dict[str, Tensor] | None = _stacked_or_none(metrics)
        self.meta_loss = _stacked_or_none([state.meta_loss for state in states])
        self.meta_gradient_norm = _stacked_or_none([state.meta_gradient_norm for state in states])
        if first.discovers and states[0].unroll is not None:
            self._stored_unroll = self._stacked([state.unroll for state in states if state.unroll is not None])
            self._rebuild_unroll()

    @property
    def packed_eta(self) -> Params:
        return self._eta

    @property
    def theta(self) -> Params:
        """Packed θ `[P, n]`."""
        return self._state.theta

    def _stacked(self, unrolls: Sequence[UnrollState]) -> UnrollState:
        """The members' unrolls in progress as one."""
        rates = [torch.stack(own) for own in zip(*(unroll.learning_rates for unroll in unrolls), strict=True)]
        batches: Any = [stacked_rollouts(own) for own in zip(*(unroll.rollouts for unroll in unrolls), strict=True)]
        start = stacked([self._packed.packed(unroll.start) for unroll in unrolls])
        return UnrollState(start, batches, rates, unrolls[0].random_states)

    def _meta_update(self, gradient: Params, learning_rate: Sequence[float]) -> None:
        for p, (optimizer, own) in enumerate(zip(self._optimizers, self._members, strict=True)):
            taken = meta_step(optimizer, member_of(gradient, p), learning_rate[p], own, self._packed.eta)
            self._meta_updates[p] += taken
            self._meta_skipped[p] += not taken
        self._eta = stacked([optimizer.eta for optimizer in self._optimizers])
        self.meta_gradient_norm = stacked([optimizer.norm for optimizer in self._optimizers])

    def state_of(self, member: int) -> LearnerState:
        """The state of one member's `DiscoveryLearner`, as if it had learned alone."""
        packed, state, eta = (
            self._packed,
            self._packed.named(member_of(self._state, member)),
            member_of(self._eta, member),
        )
        return LearnerState(
            theta=state.theta,
            statistics=state.optimizer,
            eta=packed.eta.unpack(eta),
            meta_optimizer=self._optimizers[member].state_dict(),
            unroll=self._unroll_of(member),
            updates=self.updates,
            meta_updates=self._meta_updates[member],
            meta_skipped=self._meta_skipped[member],
            metrics=None if self.metrics is None else InnerMetrics(**member_of(self.metrics, member)),
            meta_loss=None if self.meta_loss is None else self.meta_loss[member].clone(),
            meta_gradient_norm=None if self.meta_gradient_norm is None else self.meta_gradient_norm[member].clone(),
        )

    def _unroll_of(self, member: int) -> UnrollState | None:
        if self._unroll is None:
            return None
        start, batches = self._unroll.loop.history
        rollouts = [Rollout(**member_of(batch, member)) for batch, _ in batches]
        rates = [rate[member].clone() for _, rate in batches]
        return UnrollState(
            self._packed.named(member_of(start, member)), rollouts, rates, list(self._unroll.random_states)
        )


def _numbers_of(learners: Sequence[SingleLearner]) -> dict[str, Tensor]:
    """The members' numbers by name, each `[P]`; `None` for all members or for none."""
    given = [learner.functions.rule.numbers.given() for learner in learners]
    new = learners[0].packed_state.theta[KEY].new_tensor
    return {name: new([own[name] for own in given]) for name in given[0]}


def _stacked_or_none(trees: Sequence[Tree | None]) -> Tree | None:
    found = [tree for tree in trees if tree is not None]
    return stacked(found) if len(found) == len(trees) else None


@final
class PopulationCollector:
    """The environments of P members, as one of P · B."""

    def __init__(
        self,
        act: Act,
        envs: Sequence[VecEnv],
        observations: Sequence[np.ndarray],
        n_steps: int,
        compilation: Compilation,
    ) -> None:
        """
        Args:
            act: samples the actions of one member.
            envs: the members' environments, each with one `VecMonitor`; changed by `restore` only.
            observations: the latest observations `[B, *obs]` of every member.
            n_steps: T.
            compilation: which rollouts are compiled, and the device.

        Raises:
            ValueError: an environment cannot be simulated, or they differ.
        """
        self._worlds, self._monitors = map(list, zip(*map(_world_and_monitor, envs), strict=True))
        self.num_envs, self._n_steps, self._device = self._worlds[0].num_envs, n_steps, compilation.device
        env = joined(self._worlds)
        fused = PopulationSteps(act, env.dynamics, env.max_episode_steps, self._device, len(envs))
        self._simulation = Simulation(fused, env, n_steps, compilation)
        self._observations = np.concatenate(observations)
        self._returns = np.concatenate([monitor.episode_returns for monitor in self._monitors])
        self._lengths = np.concatenate([monitor.episode_lengths for monitor in self._monitors])
        self._dones = np.zeros(len(self._returns), bool)

    def collect(
        self, theta: Params, noise: Sequence[np.ndarray], compiled: bool
    ) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
        """Collect one rollout of every member.

        Args:
            theta: packed θ `[P, n]`.
            noise: the policies' noise `[T, B, ...]` of every member.
            compiled: whether the steps run compiled.

        Returns:
            the fields of `Rollout` that experience decides, each with a leading axis of members; and the episodes that
            ended: their member, and the info of their last step, as a `VecMonitor` gives it.

        Raises:
            ValueError: an observation or a reward is not finite.
        """
        episodes = []
        for simulated in self._simulation.take(theta, upload(np.concatenate(noise, axis=1), self._device), compiled):
            for t, i, gained, length in ended_episodes(simulated, self._returns, self._lengths):
                member, info = i // self.num_envs, {"is_success": bool(simulated.success[t, i])}
                record_episode(self._monitors[member], gained, length, info)
                episodes.append((member, info))
        self._observations, self._dones = simulated.observations[-1], simulated.terminated[-1] | simulated.truncated[-1]
        return {**self._simulation.experience(), "statistics": {}}, episodes

    def latest(self, member: int) -> tuple[np.ndarray, np.ndarray]:
        """The member's latest observations `[B, *obs]`, and whether an episode starts with each `[B]`."""
        rows = self._rows(member)
        return self._observations[rows].copy(), self._dones[rows].copy()

    def restore(self, member: int) -> None:
        """Let the member's own environment continue where it is here."""
        rows, monitor = self._rows(member), self._monitors[member]
        split(self._simulation.env, rows.start, self._worlds[member])
        monitor.episode_returns[:], monitor.episode_lengths[:] = self._returns[rows], self._lengths[rows]

    def _rows(self, member: int) -> slice:
        return slice(member * self.num_envs, (member + 1) * self.num_envs)


def _world_and_monitor(env: VecEnv) -> tuple[DynamicsVectorEnv[Any], VecMonitor]:
    found = simulated_world(env)
    if found is None or len(found[1]) != 1 or found[1][0].info_keywords:
        raise ValueError(
            "env must be an environment of dgvf_envs under one VecMonitor without info_keywords, as make_vec returns, "
            f"got {env}"
        )
    world, (monitor,), _ = found
    return world, monitor


_EQUAL: dict[str, Callable[[DiscoveryAlgorithm], Any]] = {
    "algorithm": lambda model: type(model).__name__,
    "policy": lambda model: model.policy_class,
    "policy_kwargs": lambda model: repr(model.policy_kwargs),
    "observation_space": lambda model: model.observation_space,
    "action_space": lambda model: model.action_space,
    "n_envs": lambda model: model.n_envs,
    "auxiliary_task": lambda model: model.auxiliary_task,
    "inner_optimizer apart from ε": lambda model: model.learner.functions.rule.structure.optimizer,
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
        noise = [member._collector.draw_noise(member.n_envs) for member in self.members]
        updates = self._learner.updates
        compiled = updates > 0 and self._compilation.active_at(updates)
        self._fields, episodes = self._collector.collect(self._learner.theta, noise, compiled)
        for p, info in episodes:
            self.members[p]._update_info_buffer([info], np.ones(1, bool))
        for member in self.members:
            member.num_timesteps += member.n_envs * member.n_steps

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
    if not isinstance(first.learner, DiscoveryLearner):
        raise ValueError(f"members must be of A2C, got {type(first).__name__}")
    if first.use_sde or first._functions.random_in_training or first._functions.statistics():
        raise ValueError("members must have no gSDE, dropout or batch normalization")
    if first.learner.functions.rule.targets.off_policy or first.task.reads_features:
        raise ValueError("members must learn on-policy, with a question network of its own encoder")
    if any(not torch.equal(a._policy_theta["packed"], a.learner.packed_state.theta["packed"]) for a in members):
        raise ValueError("members must be as their last update left them, got one whose weights were changed")
