"""Distributed actors on Ray: a fleet of processes that collect rollouts, and the source of experience that it is."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Literal, final

import cloudpickle
import numpy as np
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents.agents.collecting import ExperienceSource
from dgvf_agents.agents.rollout import Step
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.impala.actors import ActorSpec, EnvironmentActor
from dgvf_agents.impala.cluster import ClusterWatch, connect
from dgvf_agents.impala.settings import ActorSettings
from dgvf_agents.impala.transport import PackedRollout, Parameters

log = logging.getLogger("dgvf_agents.impala")

STORE_SHARE = 0.5
"""Share of the object store that rollouts may fill; the rest is for parameters and for what others store."""


class ActorFailedError(RuntimeError):
    """An actor failed too often in a row."""


@final
class HostedActor:
    """An `EnvironmentActor` in a process of Ray, which restarts the process if it dies.

    After an exception of an environment, the process ends with the next call, and starts anew.
    """

    def __init__(self, idle_exit: float) -> None:
        """
        Args:
            idle_exit: seconds without a call after which the actor ends.
        """
        self._actor: EnvironmentActor | None = None
        self._failed = False
        self._idle_since: float | None = time.monotonic()
        threading.Thread(target=self._end_when_idle, args=(idle_exit,), daemon=True).start()

    def ping(self) -> None:
        """Return once there is a process that has not failed."""
        if self._failed:
            os._exit(1)

    def prepare(self, spec: bytes, actor: int, incarnation: int) -> None:
        """Make the environments, unless they were made for an earlier learner.

        Large arguments of the constructor would be lost with the learner that passed them, and restarts with them.

        Args:
            spec: a pickled `ActorSpec`.
            actor: index of the actor.
            incarnation: for other seeds than earlier processes of this index had.

        Raises:
            Exception: whatever an environment raises.
        """
        with self._busy():
            if self._actor is None:
                torch.set_num_threads(1)
                self._actor = EnvironmentActor(cloudpickle.loads(spec), actor, incarnation)

    def rollout(self, parameters: Parameters) -> PackedRollout:
        """See `EnvironmentActor.rollout`; `prepare` comes first."""
        assert self._actor is not None
        with self._busy():
            return self._actor.rollout(parameters)

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self.ping()
        self._idle_since = None
        try:
            yield
        except Exception:
            self._failed = True
            raise
        finally:
            self._idle_since = time.monotonic()

    def _end_when_idle(self, limit: float) -> None:
        import ray

        while True:
            time.sleep(min(limit / 4, 60.0))
            idle_since = self._idle_since
            if idle_since is not None and time.monotonic() - idle_since > limit:
                ray.kill(ray.get_runtime_context().current_actor)  # Ray would restart a process that exits


@final
@dataclass
class _Actor:
    """An actor as the learner knows it."""

    handle: Any
    incarnation: int
    """Of its process, if it is new."""
    stage: Literal["placing", "preparing", "running"] = "placing"
    """Waiting for a process; making environments; called for rollouts."""
    calls: list[Any] = field(default_factory=list)
    """References to the answers that are due, oldest first."""
    progress: float = 0.0
    """When it answered last, or was called while it had nothing to do."""
    failures: int = 0
    """In a row: a rollout ends the row."""
    paused_until: float = 0.0
    """When it may be called again."""

    def deadline(self, settings: ActorSettings) -> float:
        """When an answer is overdue. Calls run one after the other. Waiting for resources is no fault."""
        if not self.calls or self.stage == "placing":
            return float("inf")
        return self.progress + (settings.timeout if self.stage == "running" else settings.start_timeout)


@final
class ActorFleet:
    """The actors of a run.

    Actors are detached Ray actors, named in a namespace: they are not the learner's, and outlive it if it is killed.
    A learner that finds actors with the same specification in its namespace takes them over, and stops all others.

    Ray restarts processes that die, and repeats no call, so no rollout arrives twice. An actor that failed is called
    again after a delay that doubles with each failure in a row.
    """

    def __init__(
        self,
        spec: ActorSpec,
        actors: int,
        settings: ActorSettings,
        resumed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connect to Ray and start the actors.

        Args:
            spec: what actors are made of.
            actors: number of actors ≥ 1.
            settings: see `ActorSettings`.
            resumed: whether the run had actors before. New ones then have other seeds.
            clock: seconds.
        """
        self._ray = connect(settings.address, actors)
        self._watch = ClusterWatch(self._ray, clock)
        self._spec, self._settings, self._clock = self._ray.put(pickled(spec)), settings, clock
        self._namespace = settings.namespace or f"dgvf-{uuid.uuid4().hex}"
        self._fingerprint = fingerprint_of(spec)
        remote = self._ray.remote(num_cpus=settings.cpus_per_actor, max_restarts=-1, max_task_retries=0)
        self._class = remote(HostedActor)
        self.counts: Counter[str] = Counter()
        """Faults (`errors`, `timeouts`, `deaths`), `restarts` after them, and `store_full`."""
        self._shuffle = random.Random(0 if spec.seed is None else spec.seed)
        self._parameters: tuple[int, Any] = (-1, None)
        self._lags: list[int] = []
        self._rollout_bytes, self._max_calls = 0, actors * settings.calls_in_flight
        self._stop_others({self._name(i) for i in range(actors)})
        self._actors = [_Actor(self._started(i), time.time_ns() if resumed else 0) for i in range(actors)]

    def collect(self, rollouts: int, parameters: Parameters) -> list[PackedRollout]:
        """The next rollouts that arrive.

        Args:
            rollouts: number of rollouts.
            parameters: the learner's; calls from now on are made with them.

        Raises:
            ActorFailedError: an actor failed too often in a row.
            ConnectionError: see `ClusterWatch.check`.
        """
        collected: list[PackedRollout] = []
        while len(collected) < rollouts:
            self._watch.check()
            if self._parameters[0] != parameters.version:  # once for all actors
                self._parameters = parameters.version, self._ray.put(parameters)
            self._call()
            for index, reference in self._arrived(rollouts - len(collected)):
                if (rollout := self._receive(index, reference)) is not None:
                    self._lags.append(parameters.version - rollout.version)
                    collected.append(rollout)
            self._restart_overdue()
        return collected

    def record(self, logger: Logger) -> None:
        """Log the actors' state, faults since the start, and policy lag since it was logged last."""
        lags, self._lags = self._lags, []
        if lags:
            logger.record("actors/policy_lag_mean", sum(lags) / len(lags))
            logger.record("actors/policy_lag_max", max(lags))
        logger.record("actors/running", sum(actor.stage == "running" for actor in self._actors))
        logger.record("actors/rollout_bytes", self._rollout_bytes)
        for name in ("restarts", "errors", "timeouts", "deaths", "store_full"):
            logger.record(f"actors/{name}", self.counts[name])

    def stop(self) -> None:
        """End all actors."""
        for actor in self._actors:
            self._ray.kill(actor.handle)
        self._watch.close()

    # --- starting -----------------------------------------------------------------------------------------------------

    def _name(self, index: int) -> str:
        return f"{index}.{self._fingerprint}"

    def _started(self, index: int) -> Any:
        """Ray's handle of an actor, new unless an earlier learner of this run left it or Ray restarts it."""
        where = {"name": self._name(index), "namespace": self._namespace, "lifetime": "detached"}
        return self._class.options(**where, get_if_exists=True).remote(self._settings.idle_exit)

    def _stop_others(self, names: set[str]) -> None:
        """End actors of this namespace with other names."""
        for one in self._ray.util.list_named_actors(all_namespaces=True):
            if one["namespace"] == self._namespace and one["name"] not in names:
                with suppress(ValueError):  # it died in between
                    self._ray.kill(self._ray.get_actor(one["name"], namespace=self._namespace))

    # --- calling ------------------------------------------------------------------------------------------------------

    def _call(self) -> None:
        """Call actors that are ready, those with the fewest calls first, no more than the store has room for."""
        now = self._clock()
        for index, actor in enumerate(self._actors):
            if actor.paused_until <= now and actor.stage == "placing" and not actor.calls:
                actor.handle = self._started(index)  # only now: the name of one that ended is free after a while
                actor.calls = [actor.handle.ping.remote()]
        running = [one for one in self._actors if one.stage == "running" and one.paused_until <= now]
        room = self._max_calls - sum(len(actor.calls) for actor in self._actors if actor.stage == "running")
        for level in range(self._settings.calls_in_flight):
            for actor in running:
                if len(actor.calls) == level and room > 0:
                    if not actor.calls:
                        actor.progress = now
                    actor.calls.append(actor.handle.rollout.remote(self._parameters[1]))
                    room -= 1

    def _arrived(self, rollouts: int) -> list[tuple[int, Any]]:
        """Answers that have arrived, at most so many; waits for one, or until something else is to be done."""
        owners = {call: index for index, actor in enumerate(self._actors) for call in actor.calls}
        wait = self._next_event()
        if not owners:
            time.sleep(wait)
            return []
        references = list(owners)
        self._shuffle.shuffle(references)  # `ray.wait` prefers the first ones
        arrived, _ = self._ray.wait(references, num_returns=1, timeout=wait)
        if arrived and rollouts > 1:
            arrived, _ = self._ray.wait(references, num_returns=min(rollouts, len(references)), timeout=0)
        return [(owners[reference], reference) for reference in arrived]

    def _next_event(self) -> float:
        """Seconds until an actor may be called again, or is overdue; at most 1."""
        now = self._clock()
        times = [actor.deadline(self._settings) for actor in self._actors]
        times += [actor.paused_until for actor in self._actors if actor.paused_until > now]
        return max(0.0, min([*times, now + 1.0]) - now)

    # --- answers ------------------------------------------------------------------------------------------------------

    def _receive(self, index: int, reference: Any) -> PackedRollout | None:
        """The answer's rollout, if it has one."""
        actor, exceptions = self._actors[index], self._ray.exceptions
        if reference not in actor.calls:
            return None  # the actor failed after this answer arrived
        self._watch.check()
        actor.calls.remove(reference)
        actor.progress = self._clock()
        try:
            answer = deepcopy(self._ray.get(reference))  # nothing of the store is held, see `ClusterWatch`
        except (exceptions.ObjectStoreFullError, exceptions.OutOfDiskError) as error:  # no room for the rollout
            self._fail(index, "store_full", f"the object store is full: {_first_line(error)}")
        except exceptions.RayTaskError as error:
            self._restart(index, "errors", f"its environment raised {error.cause!r}")
        except exceptions.RayError as error:
            if actor.stage == "placing" and isinstance(error, exceptions.ActorUnavailableError):
                actor.paused_until = self._clock() + 1.0  # Ray has not restarted it yet
            else:
                self._restart(index, "deaths", f"its process died: {type(error).__name__}: {_first_line(error)}")
        else:
            if actor.stage == "running":
                actor.failures = 0
                self._limit_calls(answer.nbytes)
                return answer
            if actor.stage == "preparing":
                actor.stage = "running"
            else:
                actor.stage = "preparing"
                actor.calls = [actor.handle.prepare.remote(self._spec, index, actor.incarnation)]
                if actor.failures:
                    self.counts["restarts"] += 1
        return None

    def _limit_calls(self, rollout_bytes: int) -> None:
        """Back-pressure: no more calls in flight than the object store has room for, but at least one."""
        if rollout_bytes > self._rollout_bytes:
            self._rollout_bytes = rollout_bytes
            nodes = [node["Resources"].get("object_store_memory", 0) for node in self._ray.nodes() if node["Alive"]]
            fitting = STORE_SHARE * min(filter(None, nodes), default=0) / rollout_bytes
            self._max_calls = max(1, min(len(self._actors) * self._settings.calls_in_flight, int(fitting)))

    # --- faults -------------------------------------------------------------------------------------------------------

    def _restart_overdue(self) -> None:
        for index, actor in enumerate(self._actors):
            overdue = actor.deadline(self._settings) <= self._clock()  # or the learner has not looked for long
            if overdue and not self._ray.wait(actor.calls, num_returns=1, timeout=0)[0]:
                self._restart(index, "timeouts", "its environment did not answer in time")

    def _restart(self, index: int, fault: Literal["errors", "timeouts", "deaths"], cause: str) -> None:
        """Let Ray restart an actor's process, and forget its calls: nothing that they return is used."""
        actor = self._actors[index]
        if fault == "timeouts":
            self._ray.kill(actor.handle, no_restart=False)
        self._fail(index, fault, f"{cause:.500}")  # an error may hold an observation
        actor.incarnation, actor.stage, actor.calls = time.time_ns(), "placing", []

    def _fail(self, index: int, fault: str, cause: str) -> None:
        """Count a fault, and pause the actor.

        Raises:
            ActorFailedError: it has failed too often in a row.
        """
        actor, limit = self._actors[index], self._settings.max_failures
        self.counts[fault] += 1
        actor.failures += 1
        if actor.failures >= limit:
            raise ActorFailedError(
                f"actor {index} failed {actor.failures} times in a row, and max_failures is {limit}; the last time: "
                f"{cause}"
            )
        delay = min(self._settings.max_delay, self._settings.first_delay * 2.0 ** min(actor.failures - 1, 60))
        actor.paused_until = self._clock() + delay
        log.warning("actor %d: %s; it is called again in %.1f s", index, cause, delay)


@final
@dataclass
class FleetSource(ExperienceSource):
    """The next rollouts that arrive from distributed actors, as one batch."""

    fleet: ActorFleet
    n_steps: int
    """T."""
    rollouts: int
    """Number of actors' rollouts in a batch."""
    parameters: Callable[[], Parameters]
    """Returns the learner's parameters."""
    batch: Callable[[Sequence[PackedRollout], Params], Rollout]
    """Makes the batch of rollouts and running statistics."""
    _arrived: list[PackedRollout] = field(default_factory=list)

    @property
    def steps(self) -> int:
        return self.n_steps if self._arrived else 0

    def start(self, env: VecEnv, episode_starts: np.ndarray | None, stepwise: bool = True) -> None:
        self._arrived = []

    def advance(self, theta: Params, observations: Any, env: VecEnv) -> Step:
        """Infos are kept only for finished episodes."""
        self._arrived = self.fleet.collect(self.rollouts, self.parameters())
        self.starts = np.concatenate([one.starts for one in self._arrived])
        infos = [info for one in self._arrived for info in one.infos]
        dones = np.ones(len(infos), bool)
        return Step(None, None, None, dones, infos, [(infos, dones)])

    def finish(self, statistics: Params) -> Rollout:
        rollouts, self._arrived = self._arrived, []
        return self.batch(rollouts, statistics)


def pickled(spec: ActorSpec) -> bytes:
    """
    Raises:
        ValueError: a part of it cannot be sent to other processes.
    """
    try:
        return cloudpickle.dumps(spec)
    except Exception as error:
        raise ValueError(f"env and policy_kwargs must be picklable for actors, got an error: {error!r}") from error


def fingerprint_of(spec: ActorSpec) -> str:
    """Equal for equal specifications, in other processes too. Functions and objects with the default `repr` are equal
    in one process only. (Pickles differ if parts are identical in one process and merely equal in another.)
    """
    return sha256(repr(spec).encode()).hexdigest()[:16]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
