"""Step environments whose worker processes may die."""

from __future__ import annotations

from multiprocessing import connection
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvStepReturn, VecEnvWrapper


def step(env: VecEnv, actions: np.ndarray) -> VecEnvStepReturn:
    """`env.step(actions)`, but raise if a worker of a `SubprocVecEnv` died instead of waiting forever.

    Raises:
        RuntimeError: a worker died; the message names the worker and its exit code.
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
    """Wait until every worker has answered or one has died.

    The pipe of a dead worker may stay open, since other workers may have inherited it. Sentinels always report a death.
    """
    sentinels = [process.sentinel for process in workers.processes]
    waiting: list[Any] = list(workers.remotes)
    while waiting:
        ready = connection.wait([*waiting, *sentinels])
        if any(sentinel in ready for sentinel in sentinels):
            raise _death(workers)
        waiting = [remote for remote in waiting if remote not in ready]


def _death(workers: SubprocVecEnv) -> RuntimeError:
    workers.waiting = False  # close() must not wait for an answer
    dying = connection.wait([process.sentinel for process in workers.processes], timeout=5.0)
    for process in workers.processes:
        if process.sentinel in dying:
            process.join(timeout=5.0)  # for its exit code
    ended = [f"worker {i} (exit code {p.exitcode})" for i, p in enumerate(workers.processes) if not p.is_alive()]
    return RuntimeError(
        f"{', '.join(ended) or 'a worker'} of the SubprocVecEnv died during a step; see its output for the cause. "
        "The model is in its state after the last update: save it, or continue from a checkpoint with a new environment"
    )
