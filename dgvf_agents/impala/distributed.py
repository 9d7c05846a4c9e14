"""Distributed actors on Ray: calls, answers, and what supervision decides about them."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, final

from stable_baselines3.common.logger import Logger

from dgvf_agents.impala.actor_process import ActorSpec
from dgvf_agents.impala.cluster import connect, pickled, remote_class
from dgvf_agents.impala.settings import ActorSettings, back_off
from dgvf_agents.impala.supervision import ActorFailedError, Fault, Supervisor
from dgvf_agents.impala.transport import Message, PackedRollout, Parameters, size_of

log = logging.getLogger("dgvf_agents.impala")

_TELL_EVERY = 60.0
"""Seconds between messages that all actors wait for resources."""


@final
@dataclass
class _Worker:
    """An actor's process."""

    handle: Any
    setup: Any = None
    """Reference to the answer of `ping` or `prepare`, before it is called for rollouts."""
    calls: list[Any] = field(default_factory=list)
    """References to the rollouts in flight."""


@final
@dataclass
class PolicyLag:
    """Updates between the parameters that a rollout was collected with and those that learn from it."""

    total: int = 0
    rollouts: int = 0
    maximum: int = 0

    def add(self, lag: int) -> None:
        """Count a rollout."""
        self.total, self.rollouts, self.maximum = self.total + lag, self.rollouts + 1, max(self.maximum, lag)


@final
class ActorFleet:
    """The actors of a run.

    Actors are detached Ray actors, named in a namespace: they are not the learner's, and outlive it if it is killed.
    A learner that finds actors with the same specification in its namespace takes them over, and stops all others.
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
            resumed: whether the run had actors before. New ones then have other incarnations, and so other seeds.
            clock: seconds.
        """
        self._ray = connect(settings.address, actors)
        self._spec, self._settings, self._clock = pickled(spec), settings, clock
        self._namespace = settings.namespace or f"dgvf-{uuid.uuid4().hex}"
        self._fingerprint = fingerprint_of(spec)
        self._class = remote_class(self._ray, settings)
        self._supervisor = Supervisor(actors, settings, int(time.time()) if resumed else 0)
        self._workers: dict[int, _Worker] = {}
        self._shuffle = random.Random(0 if spec.seed is None else spec.seed)
        self._parameters: tuple[int, Any] = (-1, None)
        self._lag, self._told, self._rollout_bytes = PolicyLag(), clock(), 0
        self._adopt_or_stop_others()

    @property
    def counts(self) -> Counter[str]:
        """Faults by kind, `restarts`, `duplicates`, `store_full`."""
        return self._supervisor.counts

    def collect(self, rollouts: int, parameters: Parameters) -> list[PackedRollout]:
        """The next rollouts that arrive.

        Args:
            rollouts: number of rollouts.
            parameters: the learner's; calls from now on are made with them.

        Raises:
            ActorFailedError: an actor failed too often in a row.
        """
        self._publish(parameters)
        collected: list[PackedRollout] = []
        while len(collected) < rollouts:
            self._start_due()
            self._call()
            for actor, reference in self._arrived(rollouts - len(collected)):
                message = self._receive(actor, reference)
                if message is not None:
                    self._lag.add(parameters.version - message.version)
                    collected.append(message.rollout)
            self._replace_overdue()
        return collected

    def record(self, logger: Logger) -> None:
        """Log the actors' state, faults since the start, and policy lag since it was logged last."""
        lag, self._lag = self._lag, PolicyLag()
        if lag.rollouts:
            logger.record("actors/policy_lag_mean", lag.total / lag.rollouts)
            logger.record("actors/policy_lag_max", lag.maximum)
        logger.record("actors/running", self._supervisor.number("running"))
        logger.record("actors/rollout_bytes", self._rollout_bytes)
        for name in ("restarts", "errors", "timeouts", "deaths", "duplicates", "store_full"):
            logger.record(f"actors/{name}", self.counts[name])

    def stop(self) -> None:
        """Stop all actors."""
        for actor in list(self._workers):
            self._kill(actor)

    def handle(self, actor: int) -> Any:
        """Ray's handle of an actor's current process; `None` while there is none."""
        worker = self._workers.get(actor)
        return None if worker is None else worker.handle

    # --- starting -----------------------------------------------------------------------------------------------------

    def _adopt_or_stop_others(self) -> None:
        """Take over what an earlier learner of this run left behind."""
        for name in self._names():
            handle = self._named(name)
            actor, incarnation, fingerprint = _parsed(name)
            if handle is None:
                continue
            if fingerprint == self._fingerprint and actor not in self._workers and actor < self._supervisor.size:
                self._workers[actor] = _Worker(handle)
                self._supervisor.adopt(actor, incarnation, self._clock())
            else:
                self._ray.kill(handle)
        if self._workers:
            log.warning("took over %d actors of an earlier learner", len(self._workers))

    def _names(self) -> list[str]:
        """Names of the actors in the namespace, latest incarnations first."""
        found = self._ray.util.list_named_actors(all_namespaces=True)
        names = [one["name"] for one in found if one["namespace"] == self._namespace]
        return sorted(names, key=lambda name: -_parsed(name)[1])

    def _named(self, name: str) -> Any:
        try:
            return self._ray.get_actor(name, namespace=self._namespace)
        except ValueError:  # it died in between
            return None

    def _start_due(self) -> None:
        for actor in self._supervisor.due(self._clock()):
            incarnation = self._supervisor.start(actor)
            name = f"{actor}.{incarnation}.{self._fingerprint}"
            where = {"name": name, "namespace": self._namespace, "lifetime": "detached"}
            handle = self._class.options(**where).remote(self._spec, actor, incarnation, self._settings.idle_exit)
            self._workers[actor] = _Worker(handle, handle.ping.remote())

    def _tell_of_waiting(self) -> None:
        now = self._clock()
        if now - self._told > _TELL_EVERY:
            self._told = now
            if waiting := self._supervisor.number("placing"):
                log.warning("%d actors wait for resources of the Ray cluster", waiting)

    # --- calling ------------------------------------------------------------------------------------------------------

    def _publish(self, parameters: Parameters) -> None:
        """Put the parameters into the object store, once for all actors."""
        if self._parameters[0] == parameters.version:
            return
        self._parameters = parameters.version, self._put(parameters)

    def _put(self, value: Any) -> Any:
        """A reference to a value in the object store; waits if that is full.

        Raises:
            ActorFailedError: it stays full.
        """
        for failures in range(1, self._settings.max_failures + 1):
            with suppress(*self._store_errors):
                return self._ray.put(value)
            self.counts["store_full"] += 1
            log.warning("the object store has no room for parameters")
            time.sleep(back_off(failures, self._settings))
        raise ActorFailedError(f"the object store had no room for parameters {self._settings.max_failures} times")

    def _call(self) -> None:
        actors = self._supervisor.callable_actors(self._clock())
        for actor in actors:
            worker = self._workers[actor]
            worker.calls.append(worker.handle.rollout.remote(self._parameters[1]))
            self._supervisor.called(actor, self._clock())

    def _arrived(self, rollouts: int) -> list[tuple[int, Any]]:
        """Answers that have arrived, at most so many; waits for one, or until something else is to be done."""
        owners = {call: actor for actor, worker in self._workers.items() for call in worker.calls}
        owners |= {worker.setup: actor for actor, worker in self._workers.items() if worker.setup is not None}
        wait = self._supervisor.next_event(self._clock())
        if not owners:
            time.sleep(wait)
            return []
        references = list(owners)
        self._shuffle.shuffle(references)  # `ray.wait` prefers the first ones
        arrived, _ = self._ray.wait(references, num_returns=1, timeout=wait)
        if arrived and rollouts > 1:
            arrived, _ = self._ray.wait(references, num_returns=min(rollouts, len(references)), timeout=0)
        self._tell_of_waiting()
        return [(owners[reference], reference) for reference in arrived]

    def _receive(self, actor: int, reference: Any) -> Message | None:
        """The answer's rollout, unless there is none or it is not to be used."""
        worker = self._workers.get(actor)
        if worker is None or (reference != worker.setup and reference not in worker.calls):
            return None  # the actor was replaced after this answer arrived
        try:
            message = self._ray.get(reference)
        except self._store_errors as error:  # the actor had no room for its rollout
            worker.calls.remove(reference)
            delay = self._supervisor.store_full(actor, _first_line(error), self._clock())
            log.warning("actor %d: the object store is full; pauses for %.1f s", actor, delay)
            return None
        except self._ray.exceptions.RayError as error:
            self._failed(actor, *self._diagnosed(error))
            return None
        if reference == worker.setup:
            self._set_up(actor, worker)
            return None
        worker.calls.remove(reference)
        return message if self._is_new(message) else None

    def _set_up(self, actor: int, worker: _Worker) -> None:
        if self._supervisor.is_placing(actor):
            worker.setup = worker.handle.prepare.remote()
            self._supervisor.placed(actor, self._clock())
        else:
            worker.setup = None
            self._supervisor.prepared(actor, self._clock())

    def _is_new(self, message: Message) -> bool:
        if not self._supervisor.answered(message.actor, message.incarnation, message.sequence, self._clock()):
            log.warning("actor %d sent a rollout that was used before, which is dropped", message.actor)
            return False
        size = size_of(message.rollout)
        if size > self._rollout_bytes:
            self._rollout_bytes = size
            self._supervisor.limit_calls(self._store_bytes(), size)
        return True

    def _store_bytes(self) -> int:
        """Size of the smallest object store of the cluster."""
        sizes = [node["Resources"].get("object_store_memory", 0) for node in self._ray.nodes() if node["Alive"]]
        return int(min(filter(None, sizes), default=0))

    # --- faults -------------------------------------------------------------------------------------------------------

    @property
    def _store_errors(self) -> tuple[type[Exception], ...]:
        return (self._ray.exceptions.ObjectStoreFullError, self._ray.exceptions.OutOfDiskError)

    def _diagnosed(self, error: Exception) -> tuple[Fault, str]:
        if isinstance(error, self._ray.exceptions.RayTaskError):
            return "errors", f"its environment raised {error.cause!r}"
        return "deaths", f"its process died: {type(error).__name__}: {_first_line(error)}"

    def _replace_overdue(self) -> None:
        for actor in self._supervisor.overdue(self._clock()):
            worker = self._workers[actor]
            awaited = worker.calls if worker.setup is None else [worker.setup]
            if not self._ray.wait(awaited, num_returns=1, timeout=0)[0]:  # the learner may not have looked for long
                self._failed(actor, "timeouts", "its environment did not answer in time")

    def _failed(self, actor: int, fault: Fault, cause: str) -> None:
        self._kill(actor)
        delay = self._supervisor.failed(actor, fault, cause, self._clock())
        log.warning("actor %d: %s; it is replaced in %.1f s", actor, cause, delay)

    def _kill(self, actor: int) -> None:
        self._ray.kill(self._workers.pop(actor).handle)


def fingerprint_of(spec: ActorSpec) -> str:
    """Equal for equal specifications, in other processes too. Functions and objects with the default `repr` are equal
    in one process only. (Pickles differ if parts are identical in one process and merely equal in another.)
    """
    return sha256(repr(spec).encode()).hexdigest()[:16]


def _parsed(name: str) -> tuple[int, int, str]:
    """Actor, incarnation and fingerprint of a Ray actor's name."""
    actor, incarnation, fingerprint = name.split(".")
    return int(actor), int(incarnation), fingerprint


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
