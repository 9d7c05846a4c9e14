"""The state of training beside the learner's, one field per quantity, and the templates that files must fit."""

from __future__ import annotations

import math
import random
from collections import deque
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from dgvf_agents.core.inner_update import InnerState
from dgvf_agents.core.metrics import InnerMetrics
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.execution.devices import tensor_dtype
from dgvf_agents.learner import Iteration, LearnerState, UnrollState
from dgvf_agents.storage.values import Each, Leaf, Maybe, fitted


class RandomStates(NamedTuple):
    """States of the global random number generators."""

    python: tuple[Any, ...]
    numpy: tuple[Any, ...]
    torch: Tensor
    cuda: list[Tensor]
    """One for each CUDA device if the model is on one."""


def get_random_states(device: torch.device) -> RandomStates:
    """The states, of CUDA devices too if `device` is one."""
    cuda = torch.cuda.get_rng_state_all() if device.type == "cuda" else []
    others: Any = np.random.get_state()  # noqa: NPY002, other people's code uses it
    return RandomStates(random.getstate(), others, torch.get_rng_state(), cuda)


def set_random_states(states: RandomStates, device: torch.device) -> None:
    """Restore the states; CUDA devices' only if there are as many."""
    random.setstate(states.python)
    np.random.set_state(states.numpy)  # noqa: NPY002
    torch.set_rng_state(states.torch.cpu())
    if device.type == "cuda" and len(states.cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([state.cpu() for state in states.cuda])


class CollectionState(NamedTuple):
    """A rollout in progress: t of its T steps in B environments, and e ends of episodes in them."""

    n_steps: int
    """T."""
    actions: np.ndarray
    """`[t, B, *action]`."""
    rewards: np.ndarray
    """`[t, B]`."""
    terminated: np.ndarray
    """`[t, B]` boolean."""
    truncated: np.ndarray
    """`[t, B]` boolean."""
    observations: Any
    """`[t, B, *obs]`, on the device; `None` before the first step."""
    following: Any
    """`[B, *obs]`, on the device: after the last step; `None` before it."""
    end_steps: np.ndarray
    """`[e]` integer: steps that episodes end with, if their final observation is known."""
    end_envs: np.ndarray
    """`[e]` integer: their environments."""
    end_observations: Any
    """`[e, *obs]`: their final observations; `None` without any."""
    log_probs: Tensor | None
    """`[t, B]`: log μ of the actions, on the device; `None` before the first step, and for on-policy learners."""
    starts: np.ndarray | None
    """`[B]` boolean: whether an episode starts with the rollout."""
    noise: np.ndarray
    """`[T, B, ...]`: what actions are sampled with."""
    exploration: Params
    """Exploration matrices of gSDE, by name."""


class TrainingState(NamedTuple):
    """Where training stands, apart from the learner."""

    device: str
    """Type of the device that the model is on."""
    environment: dict[str, Any] | None
    """State of the environment; `None` if it cannot be saved."""
    random: RandomStates
    generator: np.random.Generator
    """Draws the noise that actions are sampled with."""
    collection: CollectionState | None
    """`None` between rollouts."""
    rollout: Rollout | None
    """The last rollout."""
    log: dict[str, Any] | None
    """Values logged since the last row of metrics."""


def learner_template(model: Any) -> LearnerState:
    """The template of the state of a model's learner."""
    own = model.learner.get_state()
    scalar, nonnegative = Leaf((), torch.float32, finite=False), Leaf((), torch.float32, 0.0)
    optimizer: Any = {
        part: {key: Leaf(tuple(value.shape), value.dtype, *_RANGES.get(part, ())) for key, value in values.items()}
        for part, values in (own.statistics or {}).items()
    }
    vector = Leaf((sum(value.numel() for value in own.eta.values()),), torch.float32)
    moments = {"step": nonnegative._replace(low=1.0), "exp_avg": vector, "exp_avg_sq": vector._replace(low=0.0)}
    unroll = UnrollState(
        InnerState(own.theta, optimizer),
        [rollout_template(model)],
        [nonnegative],  # type: ignore[list-item]
        [_device_states],  # type: ignore[list-item]
        Maybe(Iteration(own.theta, [_indices], [float | None], float)),  # type: ignore[arg-type, list-item]
    )
    metrics: dict[str, Any] = {**dict.fromkeys(InnerMetrics._fields, scalar), "encoder_step": Maybe(scalar)}
    fields: dict[str, Any] = {
        "theta": own.theta,
        "statistics": Maybe(optimizer),
        "eta": own.eta,
        "meta_optimizer": Maybe({"moments": Maybe(moments), "learning_rate": float}),
        "unroll": Maybe(unroll),
        **dict.fromkeys(("updates", "meta_updates", "meta_skipped"), int),
        "metrics": Maybe(InnerMetrics(**metrics)),
        **dict.fromkeys(("meta_loss", "meta_gradient_norm"), Maybe(scalar)),
    }
    return LearnerState(**fields)


_NUMBER = bool | int | float | np.generic
_RANGES = {"second_moment": (0.0, math.inf), "corrections": (0.0, 1.0)}


def without_adam_settings(state: LearnerState) -> LearnerState:
    """The state with Adam's moments and learning rate alone: all other settings are the model's."""
    adam = state.meta_optimizer
    if not adam:
        return state._replace(meta_optimizer=None)
    kept = {"moments": adam["state"].get(0), "learning_rate": adam["param_groups"][0]["lr"]}
    return state._replace(meta_optimizer=kept)


def with_adam_settings(state: LearnerState, own: LearnerState) -> LearnerState:
    """The inverse of `without_adam_settings`, with the settings of another state of the learner."""
    kept, adam = state.meta_optimizer, own.meta_optimizer
    if kept is None or not adam:
        return state
    groups = [{**adam["param_groups"][0], "lr": kept["learning_rate"]}]
    moments = {} if kept["moments"] is None else {0: kept["moments"]}
    return state._replace(meta_optimizer={**adam, "state": moments, "param_groups": groups})


def rollout_template(model: Any) -> Rollout:
    """The template of a model's rollouts, T ≥ 1 steps from B ≥ 1 environments."""
    space, off_policy = model.observation_space, model.learner.functions.rule.targets.off_policy
    scalar, of_steps = Leaf((), torch.float32), ("T", "B")
    flags, log_probs = Leaf(of_steps, torch.bool), Leaf(of_steps, torch.float32)
    fields: dict[str, Any] = {
        "observations": _observations(space, "T", "B"),
        "actions": _actions(model, "T", "B", tensor=True),
        "rewards": Leaf(of_steps, torch.float32),
        "terminated": flags,
        "truncated": flags,
        "next_observations": _observations(space, "T", "B"),
        "bootstrap_index": Leaf(("K",), torch.int64, 0, of_steps),
        "bootstrap_slot": Leaf(of_steps, torch.int64, 0, ("K",)),
        "statistics": model._functions.statistics(),
        "entropy_weight": Maybe(scalar),
        "behavior_log_probs": log_probs if off_policy else None,
        "auxiliary_coefficient": Maybe(scalar),
    }
    return Rollout(**fields)


def training_template(model: Any) -> TrainingState:
    """The template of where a model's training stands."""
    of_steps, space, rollout = ("t", "B"), model.observation_space, rollout_template(model)
    noise = model._distribution.draw_noise(np.random.default_rng(0), 1, 1)
    ends = Leaf(("e",), np.dtype(np.int64), 0)
    exploration = {
        name: Leaf(("B", *matrix.shape[1:]) if matrix.ndim == 3 else tuple(matrix.shape), matrix.dtype)
        for name, matrix in model._collector.exploration.items()
    }
    collection: dict[str, Any] = {
        "n_steps": int,
        "actions": _actions(model, "t", "B", tensor=False),
        "rewards": Leaf(of_steps, np.dtype(np.float32)),
        **dict.fromkeys(("terminated", "truncated"), Leaf(of_steps, np.dtype(np.bool_))),
        "observations": Maybe(_observations(space, "t", "B")),
        "following": Maybe(_observations(space, "B")),
        "end_steps": ends._replace(high=("t",)),
        "end_envs": ends._replace(high=("B",)),
        "end_observations": Maybe(_observations(space, "e", tensor=False)),
        "log_probs": Maybe(Leaf(of_steps, torch.float32)) if rollout.behavior_log_probs else None,
        "starts": Maybe(Leaf(("B",), np.dtype(np.bool_))),
        "noise": Leaf(("T", "B", *noise.shape[2:]), noise.dtype),
        "exploration": exploration,
    }
    log = {"values": Each(bool | int | float | str), "counts": Each(int), "excluded": Each(str | tuple | None)}
    fields: dict[str, Any] = {
        "device": str,
        "environment": Maybe(dict),
        "random": RandomStates(_python_state, _numpy_state, _torch_state, [_cuda_state]),  # type: ignore[arg-type, list-item]
        "generator": np.random.Generator,
        "collection": Maybe(CollectionState(**collection)),
        "rollout": Maybe(rollout),
        "log": Maybe(log),
    }
    return TrainingState(**fields)


def progress_template(observation_space: gym.Space) -> dict[str, Any]:
    """Templates of Stable-Baselines3's attributes and ours that tell where training stands, by name."""
    counts = ("num_timesteps", "_n_updates", "_episode_num", "_total_timesteps", "_num_timesteps_at_start", "n_envs")
    observed = _observations(observation_space, "B", tensor=False, exact=False)
    return {
        **dict.fromkeys((*counts, "_stats_window_size", "verbose"), int),
        **dict.fromkeys(("seconds", "start_time", "_current_progress_remaining"), float),
        "_last_obs": Maybe(observed),
        "_last_original_obs": np.ndarray | dict | None,  # of another shape where a wrapper stacks frames
        "_last_episode_starts": Maybe(Leaf(("B",), np.dtype(np.bool_))),
        "ep_info_buffer": Maybe(deque([_episode])),
        "ep_success_buffer": Maybe(deque([_NUMBER])),
    }


def _observations(space: gym.Space, *batch: int | str, tensor: bool = True, exact: bool = True) -> Any:
    """The template of observations `[*batch, *obs]`: tensors or arrays, of the space's dtype or of any numbers."""
    if isinstance(space, gym.spaces.Dict):
        parts = space.spaces.items()
        return {name: _observations(inner, *batch, tensor=tensor, exact=exact) for name, inner in parts}
    dtype: Any = (
        (_torch_dtype(tensor_dtype(space)) if tensor else np.dtype(space.dtype or np.float32)) if exact else None
    )
    leaf = Leaf((*batch, *(space.shape or ())), dtype, *_choices(space))
    return leaf._replace(finite=exact)


def _actions(model: Any, *batch: str, tensor: bool) -> Leaf:
    dtype: Any = model._distribution.action_dtype
    shape: tuple[int | str, ...] = (*batch, *model._distribution.action_shape)
    return Leaf(shape, _torch_dtype(dtype) if tensor else np.dtype(dtype), *_choices(model.action_space))


def _choices(space: gym.Space) -> tuple[Any, ...]:
    """The range of a space of choices."""
    if isinstance(space, gym.spaces.Discrete):
        return 0, int(space.n) - 1
    return (0, space.nvec - 1) if isinstance(space, gym.spaces.MultiDiscrete) else ()


def _torch_dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _torch_state(value: Any) -> Tensor:
    torch.Generator().set_state(_bytes(value).cpu())
    return value


def _device_states(value: Any) -> list[Tensor]:
    """As `get_random_state` returns them."""
    cpu, *cuda = fitted("it", value, [_bytes])
    return [_torch_state(cpu), *map(_cuda_state, cuda)]


def _cuda_state(value: Any) -> Tensor:
    return fitted("a CUDA device's state", value, Leaf((16,), torch.uint8))  # its seed and offset


def _indices(value: Any) -> Tensor:
    return fitted("indices", value, Leaf(("N",), torch.int64, 0))


def _bytes(value: Any) -> Tensor:
    return fitted("a state", value, Leaf(("bytes",), torch.uint8))


def _python_state(value: Any) -> tuple[Any, ...]:
    random.Random().setstate(value)
    return value


def _numpy_state(value: Any) -> tuple[Any, ...]:
    kind, key, position, *_ = value
    if kind != "MT19937" or np.shape(key) != (624,) or not 0 <= position <= 624:  # NumPy reads past the end
        raise ValueError(f"{kind!r:.20} with a key {np.shape(key)} at {position!r:.20}")
    np.random.RandomState().set_state(value)
    return value


def _episode(value: Any) -> Any:
    if not (isinstance(value, dict) and all(isinstance(value.get(name), _NUMBER) for name in ("r", "l"))):
        raise ValueError(f"it must have numbers r and l, got {value!r:.80}")
    return value
