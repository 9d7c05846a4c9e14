"""The state of a Stable-Baselines3 `VecEnv`: what it takes to go on from exactly here in another process.

An environment takes part by having `get_state()`, which gives a dict of numbers, strings, lists, dicts and arrays, and
`set_state(state)`, which raises a `ValueError` for the state of something else; those of this package do. Around them
this module knows Stable-Baselines3's own wrappers and those that `gymnasium.make` puts on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecCheckNan,
    VecEnv,
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
"""What the known wrappers remember between steps; settings, as whether `VecNormalize` is training, stay the user's."""


def get_env_state(env: VecEnv) -> dict[str, Any]:
    """The state of an environment, its wrappers and its copies, as a dict of plain values and new arrays.

    Raises:
        NotImplementedError: some part cannot give its state; the message names it.
    """
    return _get(env)


def set_env_state(env: VecEnv, state: dict[str, Any]) -> None:
    """Go on from where `get_env_state` was called, on an environment that was made in the same way.

    Raises:
        ValueError: the state is that of another environment; the message says where they differ.
    """
    _set(env, state)


def _get(env: Any) -> dict[str, Any]:
    name = type(env).__name__
    if type(env) is DummyVecEnv:
        return {"kind": name, "copies": [_get(copy) for copy in env.envs], **_pending(env)}
    if type(env) in _ATTRIBUTES:
        own = {attribute: _plain(getattr(env, attribute, None)) for attribute in _ATTRIBUTES[type(env)]}
        return {"kind": name, **own, **_more(env), "inner": _get(_inner(env))}
    if isinstance(env, VecEnvWrapper | gym.Wrapper) or not (hasattr(env, "get_state") and hasattr(env, "set_state")):
        raise NotImplementedError(f"{name} cannot give its state: it has no get_state() and set_state(state)")
    return {"kind": name, "own": env.get_state()}


def _set(env: Any, state: dict[str, Any]) -> None:
    name = type(env).__name__
    if state["kind"] != name:
        raise ValueError(f"state must be that of a {name}, got that of a {state['kind']}")
    if type(env) is DummyVecEnv:
        if len(state["copies"]) != env.num_envs:
            raise ValueError(f"state must be that of {env.num_envs} copies, got {len(state['copies'])}")
        for copy, part in zip(env.envs, state["copies"], strict=True):
            _set(copy, part)
        env._seeds, env._options = list(state["seeds"]), list(state["options"])
    elif type(env) in _ATTRIBUTES:
        _set(_inner(env), state["inner"])
        for attribute in _ATTRIBUTES[type(env)]:
            setattr(env, attribute, _plain(state[attribute]))
        _set_more(env, state)
    else:
        env.set_state(state["own"])


def _inner(wrapper: Any) -> Any:
    return wrapper.venv if isinstance(wrapper, VecEnvWrapper) else wrapper.env


def _pending(env: DummyVecEnv) -> dict[str, Any]:
    return {"seeds": list(env._seeds), "options": list(env._options)}


def _plain(value: Any) -> Any:
    """A copy that later steps do not change."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value.copy() if isinstance(value, np.ndarray | list) else value


def _more(env: Any) -> dict[str, Any]:
    """What these wrappers keep in objects of their own."""
    if type(env) is VecFrameStack:
        return {"stacked": _of_stack(env.stacked_obs, lambda stack: _plain(getattr(stack, "stacked_obs", None)))}
    if type(env) is VecNormalize:
        return {name: _of_statistics(getattr(env, name, None)) for name in ("obs_rms", "ret_rms")}
    return {}


def _set_more(env: Any, state: dict[str, Any]) -> None:
    if type(env) is PassiveEnvChecker:  # its checks begin with a reset, and this environment goes on without one
        env.checked_reset = env.checked_step = env.checked_data_reuse = True
    if type(env) is VecFrameStack:
        for stack, stacked in _pairs(env.stacked_obs, state["stacked"]):
            stack.stacked_obs = _plain(stacked)
    if type(env) is VecNormalize:
        for name in ("obs_rms", "ret_rms"):
            _set_statistics(getattr(env, name, None), state[name])


def _of_stack(stack: Any, read: Callable[[Any], Any]) -> Any:
    parts = getattr(stack, "sub_stacked_observations", None)
    return read(stack) if parts is None else {key: read(part) for key, part in parts.items()}


def _pairs(stack: Any, stacked: Any) -> list[tuple[Any, Any]]:
    parts = getattr(stack, "sub_stacked_observations", None)
    return [(stack, stacked)] if parts is None else [(part, stacked[key]) for key, part in parts.items()]


def _of_statistics(statistics: Any) -> Any:
    if isinstance(statistics, dict):
        return {key: _of_statistics(part) for key, part in statistics.items()}
    if not isinstance(statistics, RunningMeanStd):
        return None
    return {"mean": np.array(statistics.mean), "var": np.array(statistics.var), "count": float(statistics.count)}


def _set_statistics(statistics: Any, state: Any) -> None:
    if isinstance(statistics, dict):
        for key, part in statistics.items():
            _set_statistics(part, state[key])
    elif statistics is not None:
        statistics.mean, statistics.var, statistics.count = (
            np.array(state["mean"]),
            np.array(state["var"]),
            state["count"],
        )
