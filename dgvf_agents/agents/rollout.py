"""A rollout: built from the steps of B environments, and shown as a Stable-Baselines3 rollout buffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple, cast, final

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from dgvf_agents.core.types import Observations, Params, Rollout
from dgvf_agents.execution.devices import CPU, image_layout, tensor_dtype, upload

Arrays = np.ndarray | dict[str, np.ndarray]
"""Observations; by name for a Dict space."""


class Step(NamedTuple):
    """A source's last step, or its whole rollout; fields are named as Stable-Baselines3's locals."""

    actions: np.ndarray | None
    """`[B, *action]`, as sampled; `None` if actors elsewhere chose them."""
    new_obs: Arrays | None
    """`[B, *obs]`: the next observations; `None` if actors elsewhere keep them."""
    rewards: np.ndarray | None
    """`[B]`."""
    dones: np.ndarray
    """`[B]` boolean, or one for each info."""
    infos: list[dict[str, Any]]
    news: list[tuple[list[dict[str, Any]], np.ndarray]]
    """The infos and `dones` of steps that ended episodes, in order."""


@final
class RolloutBuilder:
    """Collects T steps of B environments and returns them as tensors on a device.

    Observations are uploaded step by step, since the policy needs them to act. All other arrays are uploaded once per
    rollout.
    """

    def __init__(
        self,
        steps: int,
        num_envs: int,
        observation_space: gym.Space,
        action_shape: tuple[int, ...] = (),
        action_dtype: np.dtype[Any] | type = np.int64,
        device: torch.device = CPU,
        needs_final_observation: bool = True,
        off_policy: bool = False,
        index_terminated: bool = False,
    ) -> None:
        """
        Args:
            steps: T.
            num_envs: B.
            observation_space: observation space of one environment; observations keep its dtype.
            action_shape: shape of one action.
            action_dtype: dtype of the actions.
            device: device of the rollouts.
            needs_final_observation: whether the auxiliary task reads the final observation of terminated episodes.
            off_policy: whether rollouts hold `Rollout.behavior_log_probs`.
            index_terminated: whether `Rollout.bootstrap_index` includes final observations of terminated episodes.
        """
        self._steps, self._num_envs, self._observation_space = steps, num_envs, observation_space
        self._action_shape, self._action_dtype = action_shape, action_dtype
        self._device, self._needs_final_observation = device, needs_final_observation
        self._off_policy, self._index_terminated = off_policy, index_terminated
        self.clear()

    def clear(self) -> None:
        """Start a new rollout in new arrays; rollouts built before are not overwritten."""
        batch = (self._steps, self._num_envs)
        self._observed: list[Observations] = []
        self._ends: list[tuple[int, int, Any]] = []
        self._actions = np.empty((*batch, *self._action_shape), self._action_dtype)
        self._rewards = np.empty(batch, np.float32)
        self._terminated = np.zeros(batch, np.bool_)
        self._truncated = np.zeros(batch, np.bool_)
        self._log_probs: list[Tensor] = []
        self._t = 0

    def observe(self, observations: Arrays) -> Observations:
        """Upload the observations o_t of the next step.

        Args:
            observations: `[B, *obs]`; copied, so the environment may overwrite them.

        Returns:
            the observations `[B, *obs]` on the device.

        Raises:
            ValueError: an observation is not finite.
        """
        del self._observed[self._t :]
        self._observed.append(_uploaded(observations, self._observation_space, self._device))
        return self._observed[self._t]

    def add(self, step: Step, log_probs: Tensor | None = None) -> None:
        """Add a step from the latest observations, as a Stable-Baselines3 `VecEnv` returns it.

        Args:
            step: its infos hold `terminal_observation` and `TimeLimit.truncated` if `dones`. A missing
                `terminal_observation` that is not needed is replaced by the first observation of the next episode.
            log_probs: `[B]`: log μ of the actions, on the device; needed for an off-policy learner.

        Raises:
            ValueError: an observation is not finite, or a `terminal_observation` that is needed is missing.
        """
        actions, following, rewards, done, infos, _ = step
        assert following is not None
        t, self._t = self._t, self._t + 1
        self._actions[t], self._rewards[t] = actions, rewards
        if self._off_policy:
            assert log_probs is not None
            self._log_probs[t:] = [log_probs]
        for i in np.flatnonzero(done).tolist():
            last, truncated = infos[i].get("terminal_observation"), infos[i].get("TimeLimit.truncated", False)
            if last is not None:
                self._ends.append((t, i, deepcopy(last)))
            elif truncated or self._needs_final_observation:
                raise ValueError(_missing(truncated, i))
            self._truncated[t, i], self._terminated[t, i] = truncated, not truncated
        if self._t == self._steps:
            self.observe(following)

    def set_rollout(self, rollout: Rollout, following: np.ndarray) -> None:
        """Replace the steps by those of a whole rollout.

        Args:
            rollout: on this builder's device; without a Dict of observations.
            following: `[B, *obs]`: the observations after it.
        """
        assert isinstance(rollout.observations, Tensor)
        assert isinstance(rollout.next_observations, Tensor)
        self.clear()
        fields = (rollout.actions, rollout.rewards, rollout.terminated, rollout.truncated)
        self._actions, self._rewards, self._terminated, self._truncated = (x.numpy(force=True) for x in fields)
        last, ends = rollout.next_observations.numpy(force=True), self._terminated | self._truncated
        self._ends = [(t, i, last[t, i]) for t, i in np.argwhere(ends).tolist()]
        self._observed, self._t = list(rollout.observations.unbind()), self._steps
        self._log_probs = [] if rollout.behavior_log_probs is None else list(rollout.behavior_log_probs.unbind())
        self.observe(following)

    @property
    def steps(self) -> int:
        """Number of steps added so far."""
        return self._t

    def get_state(self) -> dict[str, Any]:
        """The t steps added so far: fields of `CollectionState`, copies."""
        t, ends = self._t, self._ends
        complete = t == self._steps and len(self._observed) > t
        return {
            "n_steps": self._steps,
            **{name: getattr(self, f"_{name}")[:t].copy() for name in _STEPS},
            "observations": _stacked(self._observed[:t]) if t else None,
            "following": self._observed[t] if complete else None,
            "end_steps": np.array([step for step, _, _ in ends], np.int64),
            "end_envs": np.array([env for _, env, _ in ends], np.int64),
            "end_observations": _joined([last for _, _, last in ends], self._observation_space) if ends else None,
            "log_probs": torch.stack(self._log_probs) if self._log_probs else None,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore the state of a builder of the same sizes; its tensors must be on this builder's device.

        Raises:
            ValueError: the state is not one of t ≤ T steps.
        """
        self.clear()
        t = self._t = len(state["rewards"])
        ends, off_policy = len(state["end_steps"]), self._off_policy
        parts = (
            (t <= self._steps and state["rewards"].shape[1:] == (self._num_envs,), "rewards"),
            ((state["observations"] is None) == (t == 0), "observations"),
            ((state["following"] is None) == (t < self._steps), "following"),
            ((state["end_observations"] is None) == (ends == 0), "end_observations"),
            ((state["log_probs"] is None) == (t == 0 or not off_policy), "log_probs"),
        )
        for fits, name in parts:
            if not fits:
                raise ValueError(f"{name} must be of {t} of {self._steps} steps of {self._num_envs} environments")
        for name in _STEPS:
            getattr(self, f"_{name}")[:t] = state[name]
        stored = [_at(state["observations"], i) for i in range(t)] + [state["following"]] * (t == self._steps)
        self._observed = [tree_map(image_layout, observations) for observations in stored]
        where = zip(state["end_steps"].tolist(), state["end_envs"].tolist(), strict=True)
        self._ends = [(*at, _at(state["end_observations"], i)) for i, at in enumerate(where)]
        self._log_probs = list(state["log_probs"]) if off_policy and t else []

    def build(self, statistics: Params | None = None) -> Rollout:
        """Build the rollout of the T steps.

        Args:
            statistics: `Rollout.statistics`.

        Raises:
            ValueError: a reward or an observation is not finite.
        """
        check_finite_steps("rewards", self._rewards)
        ends = self._truncated | self._terminated if self._index_terminated else self._truncated
        index, slot = bootstrap_positions(ends)
        actions, rewards, terminated, truncated = (
            upload(array, self._device) for array in (self._actions, self._rewards, self._terminated, self._truncated)
        )
        return Rollout(
            _stacked(self._observed[:-1]),
            actions,
            rewards,
            terminated,
            truncated,
            self._next_observations(),
            upload(index, self._device),
            upload(slot, self._device),
            statistics or {},
            behavior_log_probs=torch.stack(self._log_probs) if self._off_policy else None,
        )

    def _next_observations(self) -> Observations:
        """The observation after each step; the final observation of an episode if it ended."""
        following = _stacked(self._observed[1:])
        if not self._ends:
            return following
        steps, env_indices, last = zip(*self._ends, strict=True)
        index = tuple(upload(np.array(numbers), self._device) for numbers in (steps, env_indices))
        batch = _joined(last, self._observation_space)
        uploaded = _uploaded(batch, self._observation_space, self._device, env_indices)
        for whole, ends in zip(tree_leaves(following), tree_leaves(uploaded), strict=True):
            whole[index] = ends
        return following


_STEPS = ("actions", "rewards", "terminated", "truncated")
"""Names of the arrays `[T, B, ...]`."""


def _uploaded(
    observations: Arrays, space: gym.Space, device: torch.device, env_indices: Sequence[int] | None = None
) -> Observations:
    """Copy observations `[N, *obs]` to the device; `env_indices` are their environments (default: 0 … N - 1)."""
    if isinstance(space, gym.spaces.Dict):
        assert isinstance(observations, dict)
        parts = {
            name: _uploaded(observations[name], inner, device, env_indices) for name, inner in space.spaces.items()
        }
        return cast(dict[str, Tensor], parts)
    array = np.array(observations, tensor_dtype(space), order="C")
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        index = tuple(np.argwhere(~np.isfinite(array))[0])
        env_index = index[0] if env_indices is None else env_indices[index[0]]
        raise ValueError(_not_finite("observations", array[index], env_index))
    return image_layout(upload(array, device))


def _stacked(observed: list[Observations]) -> Observations:
    """Stack T observations `[B, *obs]` to `[T, B, *obs]`."""
    return tree_map(lambda *values: torch.stack(values), *observed)


def _joined(observed: Sequence[Any], space: gym.Space) -> Arrays:
    """Stack N observations `[*obs]` to `[N, *obs]`, with the space's dtype."""
    if isinstance(space, gym.spaces.Dict):
        return {name: np.stack([one[name] for one in observed]).astype(inner.dtype) for name, inner in space.items()}
    return np.stack(observed).astype(space.dtype)


def _at(observations: Any, index: int) -> Any:
    """The observations at an index of the first axis."""
    return tree_map(lambda values: values[index], observations)


def check_finite_steps(name: str, values: np.ndarray) -> None:
    """
    Raises:
        ValueError: a value of `[T, B, ...]` is not finite.
    """
    if not np.isfinite(values).all():
        index = tuple(np.argwhere(~np.isfinite(values))[0])
        raise ValueError(_not_finite(name, values[index], index[1]))


def _not_finite(name: str, value: Any, index: int) -> str:
    return f"{name} must be finite, got {value} from environment {index}"


def _missing(truncated: bool, index: int) -> str:
    why = "returns of a truncated episode are bootstrapped from it" if truncated else "the auxiliary task reads it"
    return (
        f"infos must hold terminal_observation when an episode ends, got none from environment {index}: {why}. "
        "The VecEnv must store the episode's final observation there, as Stable-Baselines3's do"
    )


def bootstrap_positions(ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The steps that returns are bootstrapped from: the last step of every environment, and earlier ends of episodes.

    Args:
        ends: `[T, B]` boolean: truncated steps; terminated ones too, if features of all final observations are needed.
            Or `[P, T, B]`, of P members of a population.

    Returns:
        `Rollout.bootstrap_index` `[K]` and `Rollout.bootstrap_slot` `[T, B]`. K leaves room for B / 4 early ends, or 4,
        16, … times as many, so that compiled updates rarely see a new shape. Unused entries repeat the first one.
    """
    *members, steps, num_envs = ends.shape
    last, room = np.arange((steps - 1) * num_envs, steps * num_envs), -(-num_envs // 4)
    early = [np.flatnonzero(own[:-1]) for own in ends.reshape(-1, steps, num_envs)]
    while room < max(map(len, early)):
        room *= 4
    index = np.full((len(early), num_envs + room), last[0])
    slot = np.zeros((len(early), steps * num_envs), np.int64)
    index[:, :num_envs], slot[:, last] = last, np.arange(num_envs)
    for own_index, own_slot, own in zip(index, slot, early, strict=True):
        own_index[num_envs : num_envs + len(own)], own_slot[own] = own, num_envs + np.arange(len(own))
    return index.reshape(*members, -1), slot.reshape(ends.shape)


_KINDS = (RolloutBuffer, DictRolloutBuffer)


@final
class RolloutView:
    """Has every attribute of a rollout buffer, which is filled when the first one is asked for.

    Values, log-probabilities, advantages and returns belong to the policy that collected the rollout. Updates do not
    read them: changing them changes nothing.
    """

    def __init__(
        self,
        policy: ActorCriticPolicy,
        set_theta: Callable[[Tensor], None],
        kind: type[RolloutBuffer] | None,
        n_steps: int,
        num_envs: int,
        kwargs: dict[str, Any],
    ) -> None:
        """
        Args:
            policy: computes values.
            set_theta: copies packed θ to the policy.
            kind: class of the buffer; `None`: the one for the observation space.
            n_steps: T.
            num_envs: B.
            kwargs: of the buffer.
        """
        kind = kind or (DictRolloutBuffer if isinstance(policy.observation_space, gym.spaces.Dict) else RolloutBuffer)
        spaces = policy.observation_space, policy.action_space
        # γ and λ come with each rollout
        self._buffer = kind(n_steps, *spaces, policy.device, gae_lambda=1.0, gamma=1.0, n_envs=num_envs, **kwargs)
        self._policy, self._set_theta = policy, set_theta
        self._shown: tuple[Any, ...] | None = None

    def show(self, rollout: Rollout, starts: np.ndarray | None, theta: Tensor, gamma: float, gae_lambda: float) -> None:
        """Show another rollout.

        Args:
            rollout: the rollout.
            starts: `[B]` boolean: which first steps were the first of an episode; `None`: all.
            theta: packed θ of the policy that collected it.
            gamma: discount factor.
            gae_lambda: λ of the returns.
        """
        self._buffer.gamma, self._buffer.gae_lambda = gamma, gae_lambda
        first = np.ones(self._buffer.n_envs, bool) if starts is None else starts
        self._shown = rollout, first, theta

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_buffer" not in self.__dict__:  # while it is copied or unpickled
            raise AttributeError(name)
        shown, self._shown = self._shown, None
        if shown is not None:
            rollout, starts, theta = shown
            own = [parameter.detach().clone() for parameter in self._policy.parameters()]
            self._buffer.reset()
            self._set_theta(theta)
            try:
                fill_buffer(self._buffer, self._policy, rollout, starts)
            finally:
                for parameter, value in zip(self._policy.parameters(), own, strict=True):
                    parameter.data.copy_(value)
        return getattr(self._buffer, name)


def check_rollout_buffer_class(kind: type[RolloutBuffer] | None) -> None:
    """
    Raises:
        ValueError: a rollout buffer of this class would change nothing.
    """
    if kind is not None and kind not in _KINDS:
        names = " or ".join(known.__name__ for known in _KINDS)
        raise ValueError(
            f"rollout_buffer_class must be {names}, which show the last rollout: updates are computed from the rollout "
            f"itself, and a class of one's own would change nothing; got {getattr(kind, '__name__', kind)}"
        )


def fill_buffer(buffer: RolloutBuffer, policy: ActorCriticPolicy, rollout: Rollout, starts: np.ndarray) -> None:
    """Put a rollout into an empty buffer, as Stable-Baselines3 would while it collects.

    Args:
        buffer: of the rollout's size.
        policy: with the parameters that collected the rollout.
        rollout: the rollout.
        starts: `[B]` boolean: which first steps were the first of an episode.
    """
    done = rollout.terminated | rollout.truncated
    switches = isinstance(policy.action_space, gym.spaces.MultiBinary)
    actions = rollout.actions.float() if switches else rollout.actions  # its Bernoulli takes no integers
    with torch.no_grad(), torch.random.fork_rng():
        for t in range(len(rollout.rewards)):
            now, following = _at(rollout.observations, t), _at(rollout.next_observations, t)
            _, values, _ = policy(now)
            _, log_prob, _ = policy.evaluate_actions(now, actions[t])
            gained = policy.predict_values(following).flatten() * rollout.truncated[t]
            buffer.add(
                tree_map(lambda tensor: tensor.cpu().numpy(), now),
                rollout.actions[t].cpu().numpy(),
                (rollout.rewards[t] + buffer.gamma * gained).cpu().numpy(),
                starts if t == 0 else done[t - 1].cpu().numpy(),
                values,
                log_prob,
            )
        last_values = policy.predict_values(_at(rollout.next_observations, -1))
    buffer.compute_returns_and_advantage(last_values, done[-1].cpu().numpy())
