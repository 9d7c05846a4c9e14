"""What a fleet does about answers, faults and actors that it finds: with a stand-in for Ray, without processes."""

from __future__ import annotations

import dataclasses
import socket
import sys
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dgvf_agents.impala import fleet as fleet_module
from dgvf_agents.impala.fleet import ActorFailedError, ActorFleet
from dgvf_agents.impala.settings import ActorSettings
from dgvf_agents.impala.transport import Observed, PackedRollout, Parameters

SETTINGS = ActorSettings(namespace="run", first_delay=2.0, max_failures=3, timeout=10.0, start_timeout=30.0)
PARAMETERS = Parameters(7, np.zeros(2, np.float32), {})


class RayError(Exception):
    """What Ray raises."""


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ActorUnavailableError(RayError):
    """An actor cannot be reached at the moment."""


class ObjectStoreFullError(RayError):
    """There is no memory left for objects."""


class OutOfDiskError(RayError):
    """Nor is there room on the disk."""


class Reference:
    def __init__(self, answer: Callable[[], Any], handle: Handle, kind: str) -> None:
        self.answer, self.handle, self.kind, self.process = answer, handle, kind, handle.processes


class Handle:
    """An actor; `script` says what its calls do, by their number: raise, or nothing."""

    def __init__(self, ray: FakeRay, name: str, namespace: str) -> None:
        self.ray, self.name, self.namespace, self.alive, self.calls, self.processes = ray, name, namespace, True, 0, 1
        self.ping = SimpleNamespace(remote=lambda: Reference(lambda: None, self, "ping"))
        self.prepare = SimpleNamespace(remote=lambda *given: Reference(lambda: None, self, "prepare"))
        self.rollout = SimpleNamespace(remote=self._rollout)

    def _rollout(self, parameters: Parameters) -> Reference:
        number, self.calls = self.calls, self.calls + 1

        def answer() -> PackedRollout:
            error = self.ray.script(int(self.name.split(".")[0]), number)
            if error is not None:
                raise error
            return _rollout(parameters.version - 2)

        return Reference(answer, self, "rollout")


class FakeRay:
    """Answers at once, but for calls that hang."""

    exceptions = sys.modules[__name__]

    def __init__(self, script: Callable[[int, int], Any] = lambda actor, number: None) -> None:
        self.script, self.hangs, self.time = script, set[tuple[str, str]](), 0.0
        self.actors: list[Handle] = []
        self.store, self.got = 10**9, None
        self.util = SimpleNamespace(list_named_actors=self._named)
        self.head = socket.create_server(("127.0.0.1", 0), backlog=1000)
        self.address = f"127.0.0.1:{self.head.getsockname()[1]}"
        self.folder = TemporaryDirectory()
        self.raylet = socket.socket(socket.AF_UNIX)
        self.raylet.bind(f"{self.folder.name}/store")
        self.raylet.listen()

    def remote(self, **options: Any) -> Any:
        assert (options["max_restarts"], options["max_task_retries"]) == (-1, 0)
        return lambda kind: SimpleNamespace(options=self._options)

    def _options(self, name: str, namespace: str, lifetime: str, get_if_exists: bool) -> Any:
        assert lifetime == "detached"
        assert get_if_exists

        def start(*arguments: Any) -> Handle:
            for one in self.actors:
                if one.alive and (one.name, one.namespace) == (name, namespace):
                    return one
            self.actors.append(Handle(self, name, namespace))
            return self.actors[-1]

        return SimpleNamespace(remote=start)

    def _named(self, all_namespaces: bool) -> list[dict[str, str]]:
        return [{"name": one.name, "namespace": one.namespace} for one in self.actors if one.alive]

    def get_actor(self, name: str, namespace: str) -> Handle:
        return next(one for one in self.actors if one.alive and (one.name, one.namespace) == (name, namespace))

    def kill(self, handle: Handle, no_restart: bool = True) -> None:
        handle.alive, handle.processes = handle.alive and not no_restart, handle.processes + 1
        self.hangs.clear()

    def put(self, value: Any) -> Any:
        return value

    def get(self, reference: Reference) -> Any:
        if not reference.handle.alive or reference.process != reference.handle.processes:
            raise RayError("the actor died")
        self.got = reference.answer()
        return self.got

    def wait(self, references: list[Reference], num_returns: int, timeout: float) -> Any:
        done = [one for one in references if (one.handle.name[0], one.kind) not in self.hangs]
        if not done:
            self.time += timeout
        return done[:num_returns], None

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address=self.address, get_node_id=lambda: "own")

    def nodes(self) -> list[dict[str, Any]]:
        own = {"NodeID": "own", "ObjectStoreSocketName": f"{self.folder.name}/store", "Alive": True}
        return [{"NodeID": "other", "Alive": False}, {**own, "Resources": {"object_store_memory": self.store}}]


def _rollout(version: int) -> PackedRollout:
    batch = np.zeros((2, 1), np.float32)
    observed = {"": Observed(np.zeros((3, 4), np.float32), np.arange(3)[:, None], np.arange(0))}
    return PackedRollout(observed, batch, batch, batch > 0, batch > 0, batch, batch[0] > 0, [], version)


Start = Callable[..., tuple[FakeRay, ActorFleet]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a fleet, on a Ray of its own unless one is given."""
    started = []

    def made(
        ray: FakeRay | None = None, actors: int = 1, spec: str = "spec", settings: ActorSettings = SETTINGS
    ) -> tuple[FakeRay, ActorFleet]:
        ray = ray or FakeRay()
        monkeypatch.setattr(fleet_module, "connect", lambda address, count: ray)
        monkeypatch.setattr(fleet_module, "pickled", lambda given: b"")
        monkeypatch.setattr(fleet_module.time, "sleep", lambda seconds: setattr(ray, "time", ray.time + seconds))
        given: Any = SimpleNamespace(seed=0, what=spec)
        fleet = ActorFleet(given, actors, settings, clock=lambda: ray.time)
        started.append((ray, fleet))
        return started[-1]

    yield made
    for ray, fleet in started:
        fleet.stop()
        ray.head.close()
        ray.raylet.close()
        ray.folder.cleanup()


def test_rollouts_arrive_and_their_lag_is_logged(start: Start) -> None:
    ray, fleet = start(actors=3)
    assert len(fleet.collect(10, PARAMETERS)) == 10
    assert max(one.calls for one in ray.actors) - min(one.calls for one in ray.actors) <= 2
    logged: dict[str, Any] = {}
    fleet.record(SimpleNamespace(record=logged.__setitem__))  # type: ignore[arg-type]
    assert (logged["actors/policy_lag_mean"], logged["actors/policy_lag_max"]) == (2.0, 2)
    assert (logged["actors/running"], logged["actors/restarts"]) == (3, 0)
    fleet.stop()
    assert not any(one.alive for one in ray.actors)


def test_a_process_that_dies_is_called_again_after_a_delay(start: Start) -> None:
    ray, fleet = start(FakeRay(lambda actor, number: ActorUnavailableError("died") if number == 2 else None))
    assert len(fleet.collect(9, PARAMETERS)) == 9
    assert fleet.counts == {"deaths": 1, "restarts": 1}
    assert 2.0 <= ray.time < 4.0
    assert (len(ray.actors), ray.actors[0].processes) == (1, 1)  # Ray restarts it by itself


def test_an_environment_that_always_raises_ends_training(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Delays double up to the maximum: 2, 3 and 3 seconds. The error's text is cut short."""
    ray = FakeRay(lambda *call: RayTaskError(ValueError("the lamp is broken" + 10**7 * "!")))
    _, fleet = start(ray, settings=dataclasses.replace(SETTINGS, max_failures=4, max_delay=3.0))
    message = r"actor 0 failed 4 times in a row, and max_failures is 4; .* raised ValueError\('the lamp is broken"
    with pytest.raises(ActorFailedError, match=message) as raised:
        fleet.collect(1, PARAMETERS)
    assert len(str(raised.value)) + len(caplog.text) < 10_000
    assert fleet.counts == {"errors": 4, "restarts": 3}
    assert 8.0 <= ray.time < 9.0


def test_the_death_of_rays_head_process_is_an_exception(start: Start) -> None:
    """Ray itself would end the learner's process a minute later, without one."""
    ray, fleet = start()
    fleet.collect(1, PARAMETERS)
    ray.head.close()
    ray.hangs.add(("0", "rollout"))
    with pytest.raises(ConnectionError, match=f"{ray.address} has ended"):
        fleet.collect(1, PARAMETERS)
    assert ray.time < 30.0


def test_nothing_is_put_or_got_after_the_death_of_the_raylet(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself would end the learner's process at once, without an exception."""
    ray, fleet = start()
    connection, _ = ray.raylet.accept()
    fleet.collect(1, PARAMETERS)

    def wait(references: list[Reference], num_returns: int, timeout: float) -> Any:
        connection.close()
        return references[:num_returns], None

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", lambda reference: pytest.fail("used the object store"))
    for new in (1, 2):  # it dies while it is waited for; it is dead
        with pytest.raises(ConnectionError, match="raylet on this machine has ended"):
            fleet.collect(1, PARAMETERS._replace(version=PARAMETERS.version + new))
        monkeypatch.setattr(ray, "put", lambda value: pytest.fail("used the object store"))


def test_rollouts_are_copied_out_of_the_object_store(start: Start) -> None:
    """Ray ends a process that frees memory of the store after the raylet's death."""
    ray, fleet = start()
    [rollout] = fleet.collect(1, PARAMETERS)
    assert rollout.rewards is not ray.got.rewards
    assert rollout.observed[""].parts is not ray.got.observed[""].parts


def test_a_rollout_ends_the_row_of_failures(start: Start) -> None:
    """Every second call fails, and the other call in flight with it."""
    error = RayTaskError(ValueError("once"))
    _, fleet = start(FakeRay(lambda actor, number: error if number % 3 == 1 else None))
    assert len(fleet.collect(10, PARAMETERS)) == 10
    assert fleet.counts["errors"] >= 5


@pytest.mark.parametrize(("kind", "limit"), [("prepare", 30.0), ("rollout", 10.0)])
def test_an_environment_that_hangs_is_restarted(kind: str, limit: float, start: Start) -> None:
    ray, fleet = start()
    ray.hangs.add(("0", kind))
    fleet.collect(1, PARAMETERS)
    assert fleet.counts == {"timeouts": 1, "restarts": 1}
    assert limit + 2.0 <= ray.time < limit + 4.0
    assert ray.actors[0].processes == 2


def test_waiting_for_resources_is_no_fault(start: Start) -> None:
    """Actor 1 gets its process after an hour; before that, Ray may say that it is unavailable."""
    ray, fleet = start(actors=2, settings=dataclasses.replace(SETTINGS, timeout=1e9))
    ray.hangs |= {("1", "ping"), ("0", "rollout")}
    wait, unavailable = ray.wait, [ActorUnavailableError()]

    def placed_late(*arguments: Any, **options: Any) -> Any:
        if ray.time > 3600.0:
            ray.hangs.discard(("1", "ping"))
        return wait(*arguments, **options)

    def ping() -> None:
        if unavailable:
            raise unavailable.pop()

    ray.wait = placed_late  # type: ignore[method-assign]
    ray.actors[1].ping = SimpleNamespace(remote=lambda: Reference(ping, ray.actors[1], "ping"))
    assert len(fleet.collect(9, PARAMETERS)) == 9
    assert ray.actors[0].calls == 2  # which hang
    assert not fleet.counts


def test_a_learner_that_did_not_look_for_long_blames_no_actor(start: Start) -> None:
    ray, fleet = start(actors=2)
    fleet.collect(1, PARAMETERS)
    for _ in range(5):
        ray.time += 1000.0
        fleet.collect(1, PARAMETERS)  # the other actor's answers are there too
    assert not fleet.counts


def test_a_full_store_pauses_actors(start: Start) -> None:
    full = ObjectStoreFullError("no room")
    ray, fleet = start(FakeRay(lambda actor, number: full if number == 1 else None))
    assert len(fleet.collect(4, PARAMETERS)) == 4
    assert fleet.counts == {"store_full": 1}
    assert (len(ray.actors), ray.actors[0].processes) == (1, 1)


def test_no_more_calls_are_made_than_the_store_has_room_for(start: Start) -> None:
    ray, fleet = start(actors=4)
    ray.store = 9 * _rollout(0).nbytes  # half of it has room for four
    fleet.collect(1, PARAMETERS)  # its size is known
    in_flight, wait = [], ray.wait

    def counted(references: list[Reference], num_returns: int, timeout: float) -> Any:
        in_flight.append(len(references))
        return wait(references, num_returns, timeout)

    fleet.collect(8, PARAMETERS)  # calls made before
    ray.wait = counted  # type: ignore[method-assign]
    fleet.collect(20, PARAMETERS)
    assert max(in_flight) == 4


def test_a_learner_takes_over_actors_with_its_specification(start: Start) -> None:
    ray, fleet = start(actors=3)
    fleet.collect(9, PARAMETERS)
    start(ray, settings=ActorSettings(namespace="another run"))[1].collect(1, PARAMETERS)
    before = list(ray.actors)
    _, resumed = start(ray, actors=2)  # fewer
    assert len(resumed.collect(9, PARAMETERS)) == 9
    assert ray.actors == before
    assert not resumed.counts
    assert sorted(one.name[0] for one in ray.actors if one.alive and one.namespace == "run") == ["0", "1"]
    start(ray, spec="another")[1].collect(1, PARAMETERS)
    assert [one.namespace for one in ray.actors if one.alive] == ["another run", "run"]
    assert ray.actors[-1] not in before
