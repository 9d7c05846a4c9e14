"""Which actors are started, called and replaced, and when: without Ray, with times as numbers."""

from __future__ import annotations

import pytest

from dgvf_agents.impala.duplicates import WINDOW, DuplicateFilter
from dgvf_agents.impala.settings import ActorSettings, back_off
from dgvf_agents.impala.supervision import ActorFailedError, Supervisor

SETTINGS = ActorSettings(calls_in_flight=2, timeout=10.0, start_timeout=30.0, max_failures=3, first_delay=2.0)


def _running(actors: int = 2, settings: ActorSettings = SETTINGS) -> Supervisor:
    supervisor = Supervisor(actors, settings)
    for actor in supervisor.due(0.0):
        assert supervisor.start(actor) == 0
        supervisor.placed(actor, 0.0)
        supervisor.prepared(actor, 0.0)
    return supervisor


def test_all_actors_start_at_once_and_are_called_up_to_the_cap() -> None:
    supervisor = Supervisor(2, SETTINGS)
    assert supervisor.due(0.0) == [0, 1]
    supervisor.start(0)
    assert supervisor.due(0.0) == [1]
    assert supervisor.callable_actors(0.0) == []  # there is no process yet
    assert supervisor.is_placing(0)
    supervisor.placed(0, 0.0)
    assert not supervisor.is_placing(0)
    assert supervisor.callable_actors(0.0) == []  # it makes its environments
    supervisor.prepared(0, 0.0)
    assert supervisor.callable_actors(0.0) == [0, 0]
    supervisor.called(0, 0.0)
    assert supervisor.callable_actors(0.0) == [0]
    supervisor.called(0, 0.0)
    assert supervisor.callable_actors(0.0) == []
    assert supervisor.answered(0, 0, 0, 1.0)
    assert supervisor.callable_actors(1.0) == [0]


def test_actors_without_calls_come_first() -> None:
    supervisor = _running(3)
    supervisor.called(0, 0.0)
    assert supervisor.callable_actors(0.0) == [1, 2, 0, 1, 2]


def test_waiting_for_resources_is_no_fault() -> None:
    supervisor = Supervisor(1, SETTINGS)
    supervisor.start(0)
    assert supervisor.overdue(1e9) == []
    assert supervisor.number("placing") == 1


def test_making_environments_may_take_longer_than_a_rollout() -> None:
    supervisor = Supervisor(1, SETTINGS)
    supervisor.start(0)
    supervisor.placed(0, 5.0)
    assert supervisor.overdue(34.9) == []
    assert supervisor.overdue(35.0) == [0]
    assert supervisor.next_event(34.5) == 0.5
    supervisor.prepared(0, 20.0)
    supervisor.called(0, 21.0)
    assert supervisor.overdue(30.9) == []
    assert supervisor.overdue(31.0) == [0]


def test_time_counts_from_the_answer_before_since_calls_run_in_turn() -> None:
    supervisor = _running(1)
    supervisor.called(0, 0.0)
    supervisor.called(0, 0.0)
    supervisor.answered(0, 0, 0, 5.0)
    assert supervisor.overdue(14.9) == []
    assert supervisor.overdue(15.0) == [0]


def test_an_actor_without_calls_is_never_overdue() -> None:
    supervisor = _running(1)
    assert supervisor.overdue(1e9) == []
    assert supervisor.next_event(5.0) == 1.0


def test_failures_in_a_row_double_the_delay_up_to_the_limit() -> None:
    supervisor = _running(1)
    assert supervisor.failed(0, "errors", "ValueError: boom", 100.0) == 2.0
    assert supervisor.due(101.9) == []
    assert supervisor.next_event(101.5) == 0.5
    assert supervisor.due(102.0) == [0]
    assert supervisor.start(0) == 1
    assert supervisor.failed(0, "timeouts", "slow", 110.0) == 4.0
    assert supervisor.start(0) == 2
    message = r"actor 0 failed 3 times in a row, and max_failures is 3; the last time: ValueError: boom"
    with pytest.raises(ActorFailedError, match=message):
        supervisor.failed(0, "errors", "ValueError: boom", 120.0)
    assert supervisor.counts == {"errors": 2, "timeouts": 1, "restarts": 2}


def test_a_rollout_ends_the_row() -> None:
    supervisor = _running(1)
    for turn in range(10):
        assert supervisor.failed(0, "deaths", "killed", 0.0) == 2.0
        incarnation = supervisor.start(0)
        assert incarnation == turn + 1
        supervisor.placed(0, 0.0)
        supervisor.prepared(0, 0.0)
        supervisor.called(0, 0.0)
        assert supervisor.answered(0, incarnation, 0, 0.0)
    assert supervisor.counts["restarts"] == supervisor.counts["deaths"] == 10


def test_calls_of_a_failed_actor_are_forgotten() -> None:
    supervisor = _running(1)
    supervisor.called(0, 0.0)
    supervisor.failed(0, "deaths", "killed", 0.0)
    assert supervisor.callable_actors(5.0) == []
    supervisor.start(0)
    supervisor.placed(0, 5.0)
    supervisor.prepared(0, 5.0)
    assert supervisor.callable_actors(5.0) == [0, 0]
    assert supervisor.overdue(1e9) == []


def test_duplicates_and_earlier_incarnations_are_counted_and_not_used() -> None:
    supervisor = _running(2)
    assert supervisor.answered(0, 0, 0, 0.0)
    assert not supervisor.answered(0, 0, 0, 0.0)
    assert supervisor.answered(1, 0, 0, 0.0)  # another actor's
    supervisor.failed(0, "deaths", "killed", 0.0)
    supervisor.start(0)
    assert not supervisor.answered(0, 0, 1, 0.0)
    assert supervisor.answered(0, 1, 0, 0.0)
    assert supervisor.counts["duplicates"] == 2


def test_an_adopted_actor_keeps_its_incarnation() -> None:
    supervisor = Supervisor(2, SETTINGS)
    supervisor.adopt(1, 7, 0.0)
    assert supervisor.due(0.0) == [0]
    assert supervisor.callable_actors(0.0) == [1, 1]
    assert supervisor.answered(1, 7, 123, 1.0)
    assert not supervisor.answered(1, 6, 124, 1.0)
    supervisor.failed(1, "deaths", "killed", 1.0)
    assert supervisor.start(1) == 8


def test_incarnations_of_a_resumed_run_are_new_ones() -> None:
    supervisor = Supervisor(1, SETTINGS, first_incarnation=100)
    assert supervisor.start(0) == 100
    supervisor.failed(0, "deaths", "killed", 0.0)
    assert supervisor.start(0) == 101


def test_back_pressure_before_the_store_is_full() -> None:
    supervisor = _running(4)
    supervisor.limit_calls(store_bytes=80_000_000, rollout_bytes=10_000_000)
    assert supervisor.callable_actors(0.0) == [0, 1, 2, 3]  # half of the store
    supervisor.called(2, 0.0)
    assert supervisor.callable_actors(0.0) == [0, 1, 3]
    supervisor.limit_calls(store_bytes=80_000_000, rollout_bytes=1_000)
    assert len(supervisor.callable_actors(0.0)) == 7
    supervisor.limit_calls(store_bytes=80_000_000, rollout_bytes=10**9)
    assert supervisor.max_calls == 1  # or training would never go on


def test_a_full_store_pauses_the_actor_and_keeps_it() -> None:
    supervisor = _running(1)
    supervisor.called(0, 0.0)
    assert supervisor.store_full(0, "no room", 10.0) == 2.0
    assert supervisor.callable_actors(11.9) == []
    assert supervisor.next_event(11.5) == 0.5
    assert supervisor.callable_actors(12.0) == [0, 0]
    assert supervisor.counts == {"store_full": 1}
    supervisor.store_full(0, "no room", 12.0)
    with pytest.raises(ActorFailedError, match="no room"):
        supervisor.store_full(0, "no room", 16.0)


def test_delays() -> None:
    assert [back_off(n, ActorSettings(first_delay=1.0, max_delay=5.0)) for n in (1, 2, 3, 4, 5)] == [1, 2, 4, 5, 5]
    assert back_off(10_000, ActorSettings()) == 60.0


def test_the_filter_takes_answers_in_any_order() -> None:
    received = DuplicateFilter()
    received.expect(3)
    assert [received.passes(3, n) for n in (1, 0, 2, 1, 0, 5, 3)] == [True, True, True, False, False, True, True]
    assert not received.passes(2, 9)
    received.expect(4)
    assert received.passes(4, 0)


def test_the_filter_forgets_what_is_long_ago() -> None:
    received = DuplicateFilter()
    received.expect(0)
    count = 5 * WINDOW
    assert all(received.passes(0, n) for n in range(count))
    assert not any(received.passes(0, n) for n in range(count))
    assert len(received._seen) <= 2 * WINDOW


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"calls_in_flight": 0}, "calls_in_flight must be >= 1"),
        ({"max_failures": 0}, "max_failures must be >= 1"),
        ({"timeout": 0.0}, "timeout must be > 0"),
        ({"first_delay": -1.0}, "first_delay must be >= 0"),
        ({"cpus_per_actor": -1.0}, "cpus_per_actor must be >= 0"),
    ],
)
def test_settings_are_checked(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ActorSettings(**changes)
