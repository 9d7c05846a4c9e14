"""What is watched while training: numbers that are not finite, and workers that die."""

from __future__ import annotations

import math
from multiprocessing import connection
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper
from torch.utils._pytree import tree_leaves

from dgvf_agents.core.inner_update import InnerMetrics

if TYPE_CHECKING:
    from dgvf_agents.a2c import DGVFA2C

_ADVICE = (
    "a smaller learning_rate or auxiliary_coefficient, max_grad_norm, or smaller rewards usually help; "
    "go on from a checkpoint before it"
)


class NotFiniteError(FloatingPointError):
    """Training has diverged: a loss or a parameter is infinite or not a number."""


def check_metrics(metrics: InnerMetrics, updates: int) -> None:
    """Raise unless the losses of an inner update are finite.

    Reading them waits for the device, so this is for where they are read anyway: when they are logged.

    Raises:
        NotFiniteError: one is not; the message names it.
    """
    for name in ("loss", "policy_loss", "value_loss", "answer_loss", "gradient_norm"):
        value = getattr(metrics, name).item()
        if not math.isfinite(value):
            raise NotFiniteError(f"{name} must be finite, got {value} in update {updates}: {_ADVICE}")


def check_parameters(model: DGVFA2C) -> None:
    """Raise unless all parameters and statistics are finite; for before they are written where good ones were.

    Raises:
        NotFiniteError: one is not; the message names it.
    """
    for name, state in model.get_parameters().items():
        for place, leaf in torch.utils._pytree.tree_flatten_with_path(state)[0]:
            if isinstance(leaf, torch.Tensor) and not bool(torch.isfinite(leaf).all()):
                path = torch.utils._pytree.keystr(place)
                raise NotFiniteError(f"{name}{path} must be finite after {model._n_updates} updates: {_ADVICE}")


def check_learned(model: DGVFA2C) -> None:
    """`check_parameters`, for one sum where all is well: a number that is not finite makes the sum so.

    Raises:
        NotFiniteError: a parameter or a statistic is not finite; the message names it.
    """
    state = model.learner_state
    vectors = tree_leaves([model._theta, state.optimizer, state.eta])
    if not bool(torch.isfinite(torch.stack([vector.sum() for vector in vectors])).all()):
        check_parameters(model)


def step(env: VecEnv, actions: np.ndarray) -> VecEnvStepReturn:
    """`env.step(actions)`, which says so when a worker of a `SubprocVecEnv` has died instead of waiting for ever.

    Raises:
        RuntimeError: a worker is dead; the message says which, and how it ended.
    """
    workers = _workers(env)
    if workers is None:
        return env.step(actions)
    try:
        env.step_async(actions)
        _wait_for(workers)
        return env.step_wait()
    except (EOFError, ConnectionError) as error:
        raise _death(workers) from error


def _workers(env: Any) -> SubprocVecEnv | None:
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    return env if isinstance(env, SubprocVecEnv) else None


def _wait_for(workers: SubprocVecEnv) -> None:
    """Until every worker has answered, or one is dead: a dead one's pipe need not say so, others may have a copy."""
    sentinels = [process.sentinel for process in workers.processes]
    waiting: list[Any] = list(workers.remotes)
    while waiting:
        ready = connection.wait([*waiting, *sentinels])
        if any(sentinel in ready for sentinel in sentinels):
            raise _death(workers)
        waiting = [remote for remote in waiting if remote not in ready]


def _death(workers: SubprocVecEnv) -> RuntimeError:
    workers.waiting = False  # nothing more comes, and close() is not to wait for it
    dying = connection.wait([process.sentinel for process in workers.processes], timeout=5.0)
    for process in workers.processes:
        if process.sentinel in dying:
            process.join(timeout=5.0)  # for its exit code
    ended = [f"worker {i} (exit code {p.exitcode})" for i, p in enumerate(workers.processes) if not p.is_alive()]
    return RuntimeError(
        f"{', '.join(ended) or 'a worker'} of the SubprocVecEnv died in the middle of a step; what it printed says "
        "why. The model is as it was after the last update: save it, or go on from a checkpoint with a new environment"
    )
