"""Saving and restoring the state of a Stable-Baselines3 `VecEnv`, for exact continuation in another process.

An environment must implement `get_state()`, which returns a dict of numbers, strings, lists, dicts and arrays, and
`set_state(state)`, which raises a `ValueError` if the state does not belong to it. All environments of this package do.
Stable-Baselines3's wrappers and those added by `gymnasium.make` are supported.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecCheckNan,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)
from stable_baselines3.common.vec_env.base_vec_env import VecEnvWrapper

_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    VecMonitor: ("episode_count", "episode_returns", "episode_lengths"),
    VecFrameStack: (),
    VecNormalize: ("returns", "old_obs", "old_reward"),
    VecTransposeImage: (),
    VecCheckNan: (),
    Monitor: ("rewards", "needs_reset", "total_steps", "current_reset_info"),
    TimeLimit: ("_elapsed_steps",),
    OrderEnforcing: ("_has_reset",),
    PassiveEnvChecker: (),
}
"""The state of the supported wrappers. Settings, such as `VecNormalize.training`, are not part of it."""


def get_env_state(env: Any) -> dict[str, Any]:
    """The state of an environment and its wrappers, as a dict of plain values and new arrays.

    Raises:
        NotImplementedError: an environment or wrapper does not support this; the message names it.
    """
    name = type(env).__name__
    if type(env) is DummyVecEnv:
        return {
            "kind": name,
            "copies": [get_env_state(inner) for inner in env.envs],
            "seeds": list(env._seeds),
            "options": list(env._options),
        }
    if type(env) in _ATTRIBUTES:
        own = {attribute: _copied(getattr(env, attribute, None)) for attribute in _ATTRIBUTES[type(env)]}
        return {"kind": name, **own, **_nested(env), "inner": get_env_state(_inner(env))}
    if isinstance(env, VecEnvWrapper | gym.Wrapper) or not (hasattr(env, "get_state") and hasattr(env, "set_state")):
        raise NotImplementedError(f"{name} cannot be saved: it has no get_state() and set_state(state)")
    return {"kind": name, "own": env.get_state()}


def set_env_state(env: Any, state: dict[str, Any]) -> None:
    """Restore a result of `get_env_state`, of this environment or of one made with the same arguments.

    Raises:
        ValueError: the state belongs to another kind of environment; the message names the difference.
        TypeError: the state is malformed. So are states that raise a `LookupError` or an `AttributeError`.
    """
    name = type(env).__name__
    if state["kind"] != name:
        raise ValueError(f"state must belong to a {name}, got one of a {state['kind']}")
    if type(env) is DummyVecEnv:
        if len(state["copies"]) != env.num_envs:
            raise ValueError(f"state must have {env.num_envs} environments, got {len(state['copies'])}")
        for inner, part in zip(env.envs, state["copies"], strict=True):
            set_env_state(inner, part)
        env._seeds, env._options = list(state["seeds"]), list(state["options"])
    elif type(env) in _ATTRIBUTES:
        set_env_state(_inner(env), state["inner"])
        for attribute in _ATTRIBUTES[type(env)]:
            given = state[attribute]
            if not _fits(env, getattr(env, attribute, None), given):
                raise TypeError(f"{attribute} of a {name} must be of its environments, got {given!r:.80}")
            setattr(env, attribute, _copied(given))
        _set_nested(env, state)
    else:
        env.set_state(state["own"])


def _fits(env: Any, own: Any, given: Any) -> bool:
    """Whether a wrapper can have the attribute `given` in place of `own`; arrays have a row for each environment."""
    if isinstance(given, dict) and given and isinstance(env, VecNormalize):
        return all(_fits(env, None, part) for part in given.values())
    if own is not None and not isinstance(own, np.ndarray):
        return isinstance(given, type(own))
    return given is None or not isinstance(env, VecEnvWrapper) or np.shape(given)[:1] == (env.num_envs,)


def _inner(wrapper: Any) -> Any:
    return wrapper.venv if isinstance(wrapper, VecEnvWrapper) else wrapper.env


def _copied(value: Any) -> Any:
    """A copy that later steps do not modify."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return value.copy() if isinstance(value, np.ndarray | list) else value


def _nested(env: Any) -> dict[str, Any]:
    """The state that these wrappers keep in nested objects."""
    if type(env) is VecFrameStack:
        return {"stacked": _stack_state(env.stacked_obs)}
    if type(env) is VecNormalize:
        return {name: _statistics_state(getattr(env, name, None)) for name in ("obs_rms", "ret_rms")}
    return {}


def _set_nested(env: Any, state: dict[str, Any]) -> None:
    if type(env) is PassiveEnvChecker:  # it would insist on a reset first
        env.checked_reset = env.checked_step = env.checked_data_reuse = True
    if type(env) is VecFrameStack:
        for stack, stacked in _pairs(env.stacked_obs, state["stacked"]):
            stack.stacked_obs = _copied(stacked)
    if type(env) is VecNormalize:
        for name in ("obs_rms", "ret_rms"):
            _set_statistics(getattr(env, name, None), state[name])


def _stack_state(stack: Any) -> Any:
    parts = getattr(stack, "sub_stacked_observations", None)  # of Dict observations only
    if parts is not None:
        return {key: _stack_state(part) for key, part in parts.items()}
    return _copied(getattr(stack, "stacked_obs", None))  # set by the first reset


def _pairs(stack: Any, stacked: Any) -> list[tuple[Any, Any]]:
    """The frame stacks, one per part of the observation, each with its state."""
    parts = getattr(stack, "sub_stacked_observations", None)
    return [(stack, stacked)] if parts is None else [(part, stacked[key]) for key, part in parts.items()]


def _statistics_state(statistics: Any) -> Any:
    if isinstance(statistics, dict):
        return {key: _statistics_state(part) for key, part in statistics.items()}
    if not isinstance(statistics, RunningMeanStd):
        return None
    return {"mean": np.array(statistics.mean), "var": np.array(statistics.var), "count": float(statistics.count)}


def _set_statistics(statistics: Any, state: Any) -> None:
    if isinstance(statistics, dict):
        for key, part in statistics.items():
            _set_statistics(part, state[key])
    elif statistics is not None:
        statistics.mean, statistics.var = np.array(state["mean"]), np.array(state["var"])
        statistics.count = state["count"]
