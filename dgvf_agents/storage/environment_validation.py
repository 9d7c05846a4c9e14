"""Checks of the environment's state in a file, as far as it is one of `dgvf_envs`. Each raises a ValueError."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgvf_agents.storage.validation import check_array, check_count, check_type, described
from dgvf_envs.functional.random_streams import generator_at

_COUNTED = {"VecMonitor": ("episode_returns", "episode_lengths"), "VecNormalize": ("returns",)}
"""What wrappers keep for each environment, by their name."""


def check_environment(state: Any) -> int | None:
    """Check a state that `get_env_state` gave: that all its parts are of as many environments.

    Returns:
        of how many; `None` where the environment is of another kind, which checks its state itself.
    """
    check_type("environment", state, dict)
    own = state.get("own")
    if isinstance(own, dict) and isinstance(own.get("env"), dict) and "streams" in own["env"]:
        return _check_world(own["env"])
    if "inner" not in state:
        return None
    num_envs = check_environment(state["inner"])
    for name in _COUNTED.get(str(state.get("kind")), ()) if num_envs is not None else ():
        value = state[name]
        if value is not None and not (isinstance(value, np.ndarray) and value.shape == (num_envs,)):
            raise ValueError(f"{name} must be an array ({num_envs},), got {described(value)}")
    if "episode_count" in state:
        check_count("episode_count", state["episode_count"])
    return num_envs


def _check_world(state: dict[str, Any]) -> int:
    """Check the state of a vector environment of `dgvf_envs`."""
    num_envs = np.size(state["steps"])
    check_array("steps", state["steps"], (num_envs,), np.int64)
    check_array("done", state["done"], (num_envs,), np.bool_)
    if (state["steps"] < 0).any():
        raise ValueError("steps must be >= 0")
    check_type("seeds", state["seeds"], list)
    streams = state["streams"]
    if streams is not None:
        check_type("streams", streams, list)
        if len(streams) != num_envs:
            raise ValueError(f"streams must be {num_envs}, got {len(streams)}")
        for position in streams:
            generator_at(position)
    for name, axis in (("state", 0), ("expected", 1)):
        if state[name] is not None:
            check_type(name, state[name], list)
            _check_fields(name, state[name], axis, num_envs)
    return num_envs


def _check_fields(name: str, fields: list[Any], axis: int, num_envs: int) -> None:
    """Check arrays that have environments along an axis, and as many steps before it."""
    for field in fields:
        check_type(name, field, np.ndarray)
        if field.shape[axis : axis + 1] != (num_envs,) or field.shape[:axis] != fields[0].shape[:axis]:
            raise ValueError(f"{name} must have {num_envs} along axis {axis}, got {described(field)}")
        if 0 in field.shape or not np.isfinite(field).all():
            raise ValueError(f"{name} must be finite numbers, got {described(field)}")
