"""Several vector environments of equal dynamics as one, so that one step steps them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dgvf_envs.functional.vector_env import DynamicsVectorEnv


def joined(envs: Sequence[DynamicsVectorEnv[Any]]) -> DynamicsVectorEnv[Any]:
    """One vector environment with all environments of several, in order, in their current states.

    It has no rendering, and shares nothing with them that changes. `split` lets them continue where it is.

    Args:
        envs: at least one, each with N_i environments; all were reset, and have no simulated steps left.

    Raises:
        ValueError: they differ in dynamics, time limit or autoreset mode, or one was not reset or has simulated steps.
    """
    first = envs[0]
    kinds = [(repr(env.dynamics), env.max_episode_steps, env.autoreset_mode) for env in envs]
    if any(kind != kinds[0] for kind in kinds):
        raise ValueError(f"envs must have equal dynamics, time limits and autoreset modes, got {sorted(set(kinds))}")
    states = [env.get_state() for env in envs]
    if any(state["state"] is None or state["streams"] is None for state in states):
        raise ValueError("envs must have been reset, got one that was not")
    if any(env.has_lookahead for env in envs):
        raise ValueError("envs must have no simulated steps left, got one in the middle of a simulated rollout")
    env = first.like(sum(other.num_envs for other in envs))
    env.set_state(
        {
            "world": env.get_state()["world"],
            "state": [np.concatenate(fields) for fields in zip(*(state["state"] for state in states), strict=True)],
            "steps": np.concatenate([state["steps"] for state in states]),
            "done": np.concatenate([state["done"] for state in states]),
            "streams": [position for state in states for position in state["streams"]],
            "seeds": [seed for state in states for seed in state["seeds"]],
            "expected": None,
        }
    )
    return env


def split(env: DynamicsVectorEnv[Any], start: int, part: DynamicsVectorEnv[Any]) -> None:
    """Let a vector environment continue where some environments of a joined one are.

    Args:
        env: as `joined` returned it, with no simulated steps left.
        start: index of the first of these environments.
        part: one of the environments that were joined; set to the state of `part.num_envs` environments from `start`.
    """
    state, rows = env.get_state(), slice(start, start + part.num_envs)
    part.set_state(
        {
            "world": part.get_state()["world"],
            "state": [field[rows] for field in state["state"]],
            "steps": state["steps"][rows],
            "done": state["done"][rows],
            "streams": state["streams"][rows],
            "seeds": state["seeds"][rows],
            "expected": None,
        }
    )
