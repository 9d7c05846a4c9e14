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
from stable_baselines3.common.vec_env.stacked_observations import StackedObservations

_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    VecMonitor: ("episode_count", "episode_returns", "episode_lengths"),
    VecFrameStack: ("stacked_obs",),
    VecNormalize: ("returns", "old_obs", "old_reward", "obs_rms", "ret_rms"),
    VecTransposeImage: (),
    VecCheckNan: (),
    Monitor: ("rewards", "needs_reset", "total_steps", "current_reset_info"),
    TimeLimit: ("_elapsed_steps",),
    OrderEnforcing: ("_has_reset",),
    PassiveEnvChecker: (),  # what it compares is not saved: it has checked enough
}
"""The state of the supported wrappers. Settings, such as `VecNormalize.training`, are not part of it."""

_PARTS: dict[type, tuple[str, ...]] = {
    StackedObservations: ("stacked_obs", "sub_stacked_observations"),  # the latter of Dict observations only
    RunningMeanStd: ("mean", "var", "count"),
}
"""The state of the objects, alone or by key, that wrappers keep."""


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
        own = {attribute: _state_of(getattr(env, attribute, None)) for attribute in _ATTRIBUTES[type(env)]}
        return {"kind": name, **own, "inner": get_env_state(_inner(env))}
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
            own, given = getattr(env, attribute, None), state[attribute]
            if not (_has_parts(own) or _fits(env, own, given)):
                raise TypeError(f"{attribute} of a {name} must be of its environments, got {given!r:.80}")
            setattr(env, attribute, _restored(own, given))
        if isinstance(env, PassiveEnvChecker):
            env.checked_reset = env.checked_step = env.checked_data_reuse = True
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


def _has_parts(value: Any) -> bool:
    return type(value) in _PARTS or (isinstance(value, dict) and any(map(_has_parts, value.values())))


def _state_of(value: Any) -> Any:
    """The state of a value, which later steps do not modify."""
    if isinstance(value, dict):
        return {key: _state_of(part) for key, part in value.items()}
    if type(value) in _PARTS:
        return {name: _state_of(getattr(value, name, None)) for name in _PARTS[type(value)]}
    if isinstance(value, np.generic):
        return np.array(value)
    return value.copy() if isinstance(value, np.ndarray | list) else value


def _restored(own: Any, given: Any) -> Any:
    """What stands for a value after its state is restored: itself if it is one of `_PARTS`, otherwise a copy."""
    if type(own) in _PARTS:
        for name in _PARTS[type(own)]:
            setattr(own, name, _restored(getattr(own, name, None), given[name]))
        return own
    if _has_parts(own):
        return {key: _restored(part, given[key]) for key, part in own.items()}
    return _state_of(given)
