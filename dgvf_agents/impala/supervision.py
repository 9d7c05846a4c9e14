"""Supervision of actors: which to start, to call and to replace, and when. No Ray, no clock: times are arguments."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Literal, final

from dgvf_agents.impala.duplicates import DuplicateFilter
from dgvf_agents.impala.settings import ActorSettings, back_off

Fault = Literal["errors", "timeouts", "deaths"]
"""The environment raised; it did not answer in time; the process or its node died, or the rollout was lost."""

STORE_SHARE = 0.5
"""Share of the object store that rollouts may fill; the rest is for parameters and for what others store."""


class ActorFailedError(RuntimeError):
    """An actor failed too often in a row."""


State = Literal["absent", "placing", "preparing", "running"]
"""No process; waiting for one; making environments; called for rollouts."""


@final
@dataclass
class _Slot:
    """One actor."""

    state: State = "absent"
    next_start: float = 0.0
    """When it is due to start, if it is absent."""
    paused_until: float = 0.0
    """When it may be called again."""
    calls: deque[float] = field(default_factory=deque)
    """When each call in flight was made, oldest first."""
    progress: float = 0.0
    """When it was placed, was prepared, or answered last."""
    failures: int = 0
    """In a row."""
    received: DuplicateFilter = field(default_factory=DuplicateFilter)


@final
class Supervisor:
    """The state of all actors.

    An actor is absent, then placed by Ray when resources are free, then makes its environments, then is called for
    rollouts. Waiting for resources is no fault. An actor whose environment raises or does not answer, or which dies,
    becomes absent, and starts again after a delay that doubles with each failure. Failures count in a row: a rollout
    ends the row.
    """

    def __init__(self, actors: int, settings: ActorSettings, first_incarnation: int = 0) -> None:
        """
        Args:
            actors: number of actors ≥ 1.
            settings: limits and delays.
            first_incarnation: number of the first incarnation of each actor.
        """
        self.settings = settings
        self.counts: Counter[str] = Counter()
        """Faults by kind, and `restarts`, `duplicates`, `store_full`."""
        self.max_calls = actors * settings.calls_in_flight
        """Maximum number of calls in flight of all actors."""
        self._slots = [_Slot() for _ in range(actors)]
        for slot in self._slots:
            slot.received.expect(first_incarnation - 1)

    @property
    def size(self) -> int:
        """Number of actors."""
        return len(self._slots)

    def due(self, now: float) -> list[int]:
        """Actors to start now."""
        return [i for i, slot in enumerate(self._slots) if slot.state == "absent" and slot.next_start <= now]

    def start(self, actor: int) -> int:
        """An actor is being started; its incarnation."""
        slot = self._slots[actor]
        slot.state = "placing"
        slot.calls.clear()
        slot.received.expect(slot.received.incarnation + 1)
        if slot.failures:
            self.counts["restarts"] += 1
        return slot.received.incarnation

    def adopt(self, actor: int, incarnation: int, now: float) -> None:
        """An actor that an earlier learner left behind runs."""
        slot = self._slots[actor]
        slot.received.expect(incarnation)
        slot.state, slot.progress = "running", now

    def is_placing(self, actor: int) -> bool:
        """Whether an actor waits for its process."""
        return self._slots[actor].state == "placing"

    def placed(self, actor: int, now: float) -> None:
        """An actor's process is there, and is asked to make its environments."""
        slot = self._slots[actor]
        slot.state, slot.progress = "preparing", now

    def prepared(self, actor: int, now: float) -> None:
        """An actor has made its environments."""
        slot = self._slots[actor]
        slot.state, slot.progress = "running", now

    def callable_actors(self, now: float) -> list[int]:
        """Actors to call, once for each call to make."""
        room = self.max_calls - sum(len(slot.calls) for slot in self._slots)
        free = [
            (level, i)
            for i, slot in enumerate(self._slots)
            if slot.state == "running" and slot.paused_until <= now
            for level in range(len(slot.calls), self.settings.calls_in_flight)
        ]
        return [i for _, i in sorted(free)[: max(room, 0)]]  # those with the fewest calls first

    def called(self, actor: int, now: float) -> None:
        """A call was made."""
        self._slots[actor].calls.append(now)

    def answered(self, actor: int, incarnation: int, sequence: int, now: float) -> bool:
        """A call returned a rollout; whether to use it: not if it is a duplicate or of an earlier incarnation."""
        slot = self._slots[actor]
        self._finish_call(slot, now)
        if not slot.received.passes(incarnation, sequence):
            self.counts["duplicates"] += 1
            return False
        slot.failures = 0
        return True

    def failed(self, actor: int, fault: Fault, cause: str, now: float) -> float:
        """An actor failed and is to be replaced; after how many seconds.

        Raises:
            ActorFailedError: it has failed too often in a row.
        """
        slot = self._slots[actor]
        self.counts[fault] += 1
        delay = self._delay(actor, cause)
        slot.state, slot.next_start = "absent", now + delay
        slot.calls.clear()
        return delay

    def store_full(self, actor: int, cause: str, now: float) -> float:
        """The object store had no room for a rollout; how many seconds the actor pauses.

        Raises:
            ActorFailedError: this happened too often in a row.
        """
        slot = self._slots[actor]
        self.counts["store_full"] += 1
        self._finish_call(slot, now)
        delay = self._delay(actor, cause)
        slot.paused_until = now + delay
        return delay

    def overdue(self, now: float) -> list[int]:
        """Actors that should have answered by now."""
        return [i for i, slot in enumerate(self._slots) if self._deadline(slot) <= now]

    def next_event(self, now: float) -> float:
        """Seconds until an actor is due to start, may be called again, or is overdue; at most 1."""
        starts = [slot.next_start for slot in self._slots if slot.state == "absent"]
        pauses = [slot.paused_until for slot in self._slots if slot.state == "running" and slot.paused_until > now]
        times = [*starts, *pauses, *(self._deadline(slot) for slot in self._slots), now + 1.0]
        return max(0.0, min(times) - now)

    def number(self, state: State) -> int:
        """Number of actors in a state."""
        return sum(slot.state == state for slot in self._slots)

    def limit_calls(self, store_bytes: int, rollout_bytes: int) -> None:
        """Back-pressure: no more calls in flight than the object store has room for, but at least one."""
        fitting = int(STORE_SHARE * store_bytes / max(rollout_bytes, 1))
        self.max_calls = max(1, min(len(self._slots) * self.settings.calls_in_flight, fitting))

    def _finish_call(self, slot: _Slot, now: float) -> None:
        if slot.calls:
            slot.calls.popleft()
        slot.progress = now

    def _deadline(self, slot: _Slot) -> float:
        """When an answer is overdue; calls of an actor run one after the other."""
        if slot.state == "preparing":
            return slot.progress + self.settings.start_timeout
        if slot.state == "running" and slot.calls:
            return max(slot.progress, slot.calls[0]) + self.settings.timeout
        return float("inf")

    def _delay(self, actor: int, cause: str) -> float:
        slot, limit = self._slots[actor], self.settings.max_failures
        slot.failures += 1
        if slot.failures >= limit:
            raise ActorFailedError(
                f"actor {actor} failed {slot.failures} times in a row, and max_failures is {limit}; the last time: "
                f"{cause}"
            )
        return back_off(slot.failures, self.settings)
