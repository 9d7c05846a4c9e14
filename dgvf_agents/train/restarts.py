"""A supervised learner: training in a process of its own, which is resumed from its last checkpoint if it is killed."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess

from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.train_learners import LearnerDiedError

log = logging.getLogger("dgvf_agents.train")


def supervise(train: Callable[[bool], None], restarts: int, resume: bool) -> int:
    """Call `train` in another process, and again each time that process is killed.

    Only deaths by a signal are followed by a restart, as that of the out-of-memory killer: an exception would be raised
    again. SIGINT, SIGTERM and SIGHUP to this process go to the other one, which is in a session of its own, and end
    both.

    Args:
        train: `train(resume)`; picklable.
        restarts: maximum number of restarts ≥ 0.
        resume: whether the first call resumes; all others do.

    Returns:
        the exit status of the last process, 128 plus the signal if it was killed.
    """
    context = multiprocessing.get_context("spawn")
    for restart in range(restarts + 1):
        learner = context.Process(target=_in_own_session, args=(train, resume or restart > 0))
        with _signals_for(learner) as stopped:
            learner.start()
            learner.join()
        status = learner.exitcode or 0
        if status >= 0 or stopped:
            break
        if restart < restarts:
            log.warning("the learner was killed by %s; resumed, %d of %d", _name(-status), restart + 1, restarts)
    return status if status >= 0 else 128 - status


def _in_own_session(train: Callable[[bool], None], resume: bool) -> None:
    """Train where Ctrl-C in a terminal arrives once, from the supervisor."""
    os.setsid()
    train(resume)


@contextmanager
def _signals_for(learner: BaseProcess) -> Iterator[list[int]]:
    """Let signals end the learner and not this process; yields those that came. Ignored ones still are."""
    came: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        came.append(number)
        if learner.pid is not None and learner.is_alive():
            os.kill(learner.pid, number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in heeded}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def dying_with_learners() -> Iterator[None]:
    """Die by the signal that has killed one of several learners, so that `supervise` restarts this process."""
    try:
        yield
    except LearnerDiedError as error:
        if error.signal is None:
            raise
        log.warning("%s", error)
        with suppress(OSError):  # some signals cannot be handled
            signal.signal(error.signal, signal.SIG_DFL)
        os.kill(os.getpid(), error.signal)


def _name(number: int) -> str:
    return signal.Signals(number).name


@contextmanager
def lasting_cluster(config: TrainConfig) -> Iterator[None]:
    """A Ray on this machine that outlives learners, and their actors with it, if a run has actors and no cluster."""
    if not config.actors or config.address is not None or "RAY_ADDRESS" in os.environ:
        yield
        return
    from dgvf_agents.impala.cluster import connect

    ray = connect(None, config.actors * config.learners)
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    try:
        yield
    finally:
        del os.environ["RAY_ADDRESS"]
        ray.shutdown()
