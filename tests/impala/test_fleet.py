"""What a fleet does about answers, faults and actors that it finds: with a stand-in for Ray, without processes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dgvf_agents.impala import distributed
from dgvf_agents.impala.distributed import ActorFleet
from dgvf_agents.impala.settings import ActorSettings
from dgvf_agents.impala.supervision import ActorFailedError
from dgvf_agents.impala.transport import Arrays, Message, PackedRollout, Parameters

SETTINGS = ActorSettings(namespace="run", first_delay=0.0, max_failures=3, timeout=10.0)
PARAMETERS = Parameters(7, np.zeros(2, np.float32), {})


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ObjectStoreFullError(RayError):
    pass


class OutOfDiskError(RayError):
    pass


class Reference:
    def __init__(self, answer: Callable[[], Any], handle: Handle) -> None:
        self.answer, self.handle = answer, handle


class Handle:
    """An actor; `script` says what its rollouts do, by their number: raise, or return another number."""

    def __init__(self, ray: FakeRay, name: str, namespace: str) -> None:
        self.ray, self.name, self.namespace, self.alive, self.calls = ray, name, namespace, True, 0
        self.ping = self.prepare = SimpleNamespace(remote=lambda: Reference(lambda: None, self))
        self.rollout = SimpleNamespace(remote=self._rollout)

    def _rollout(self, parameters: Parameters) -> Reference:
        actor, incarnation, _ = self.name.split(".")
        number, self.calls = self.calls, self.calls + 1

        def answer() -> Message:
            sequence = self.ray.script(int(actor), int(incarnation), number)
            if isinstance(sequence, Exception):
                raise sequence
            return Message(int(actor), int(incarnation), sequence, parameters.version - 2, _rollout())

        return Reference(answer, self)


class FakeRay:
    """Answers at once, unless the script says that an actor hangs."""

    exceptions = SimpleNamespace(
        RayError=RayError,
        RayTaskError=RayTaskError,
        ObjectStoreFullError=ObjectStoreFullError,
        OutOfDiskError=OutOfDiskError,
    )

    def __init__(self, script: Callable[[int, int, int], Any]) -> None:
        self.script, self.hangs, self.time = script, set[str](), 0.0
        self.actors: list[Handle] = []
        self.full = 0
        self.util = SimpleNamespace(list_named_actors=self._named)

    def remote(self, **options: Any) -> Any:
        assert (options["max_restarts"], options["max_task_retries"]) == (0, 0)
        return lambda kind: SimpleNamespace(options=self._options)

    def _options(self, name: str, namespace: str, lifetime: str) -> Any:
        assert lifetime == "detached"

        def start(*arguments: Any) -> Handle:
            self.actors.append(Handle(self, name, namespace))
            return self.actors[-1]

        return SimpleNamespace(remote=start)

    def _named(self, all_namespaces: bool) -> list[dict[str, str]]:
        return [{"name": one.name, "namespace": one.namespace} for one in self.actors if one.alive]

    def get_actor(self, name: str, namespace: str) -> Handle:
        return next(one for one in self.actors if one.alive and (one.name, one.namespace) == (name, namespace))

    def kill(self, handle: Handle) -> None:
        handle.alive = False

    def put(self, value: Any) -> Any:
        if self.full:
            self.full -= 1
            raise ObjectStoreFullError("no room")
        return value

    def get(self, reference: Reference) -> Any:
        if not reference.handle.alive:
            raise RayError("the actor died")
        return reference.answer()

    def wait(self, references: list[Reference], num_returns: int, timeout: float) -> Any:
        done = [one for one in references if one.handle.name not in self.hangs]
        if not done:
            self.time += timeout
        return done[:num_returns], None

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"object_store_memory": 10**9}}]


def _rollout() -> PackedRollout:
    batch = np.zeros((2, 1), np.float32)
    observed = {"": Arrays(np.zeros((3, 1, 4), np.float32), np.zeros((0, 4), np.float32))}
    return PackedRollout(observed, batch, batch, batch > 0, batch > 0, batch, batch[0] > 0, [])


def _fleet(
    monkeypatch: pytest.MonkeyPatch, ray: FakeRay, actors: int = 1, spec: str = "spec", settings: Any = SETTINGS
) -> ActorFleet:
    monkeypatch.setattr(distributed, "connect", lambda address, count: ray)
    monkeypatch.setattr(distributed, "pickled", lambda given: b"")
    return ActorFleet(SimpleNamespace(seed=0, what=spec), actors, settings, clock=lambda: ray.time)  # type: ignore[arg-type]


def test_rollouts_arrive_and_their_lag_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(lambda actor, incarnation, number: number)
    fleet = _fleet(monkeypatch, ray, actors=3)
    assert len(fleet.collect(10, PARAMETERS)) == 10
    logged: dict[str, Any] = {}
    fleet.record(SimpleNamespace(record=logged.__setitem__))  # type: ignore[arg-type]
    assert (logged["actors/policy_lag_mean"], logged["actors/policy_lag_max"]) == (2.0, 2)
    assert (logged["actors/running"], logged["actors/restarts"], logged["actors/duplicates"]) == (3, 0, 0)
    fleet.stop()
    assert not any(one.alive for one in ray.actors)


def test_a_rollout_that_arrives_twice_is_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = _fleet(monkeypatch, FakeRay(lambda actor, incarnation, number: max(0, number - 2)))
    assert len(fleet.collect(5, PARAMETERS)) == 5
    assert fleet.counts == {"duplicates": 2}


def test_an_actor_that_dies_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(lambda actor, incarnation, number: number)
    fleet = _fleet(monkeypatch, ray, actors=2)
    fleet.collect(4, PARAMETERS)
    ray.kill(fleet.handle(1))
    assert len(fleet.collect(20, PARAMETERS)) == 20
    assert fleet.counts["deaths"] == fleet.counts["restarts"] == 1
    assert sorted(one.name.rpartition(".")[0] for one in ray.actors if one.alive) == ["0.0", "1.1"]


def test_an_environment_that_always_raises_ends_training(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = _fleet(monkeypatch, FakeRay(lambda *call: RayTaskError(ValueError("the lamp is broken"))))
    message = r"actor 0 failed 3 times in a row, and max_failures is 3; the last time: its environment raised ValueErr"
    with pytest.raises(ActorFailedError, match=message):
        fleet.collect(1, PARAMETERS)
    assert fleet.counts["errors"] == 3


def test_an_environment_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(lambda actor, incarnation, number: number)
    fleet = _fleet(monkeypatch, ray)
    fleet.collect(1, PARAMETERS)
    ray.hangs.add(fleet.handle(0).name)
    fleet.collect(1, PARAMETERS)
    assert fleet.counts == {"timeouts": 1, "restarts": 1}
    assert 10.0 <= ray.time < 12.0


def test_a_learner_that_did_not_look_for_long_blames_no_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(lambda actor, incarnation, number: number)
    fleet = _fleet(monkeypatch, ray, actors=2)
    fleet.collect(1, PARAMETERS)
    for _ in range(5):
        ray.time += 1000.0
        fleet.collect(1, PARAMETERS)  # the other actor's answers are there too
    assert not fleet.counts


def test_a_full_store_pauses_actors_and_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    full = ObjectStoreFullError("no room")
    ray = FakeRay(lambda actor, incarnation, number: full if number == 1 else number)
    ray.full = 2
    fleet = _fleet(monkeypatch, ray)
    assert len(fleet.collect(4, PARAMETERS)) == 4
    assert fleet.counts == {"store_full": 3}
    assert len(ray.actors) == 1
    ray.full = 3
    with pytest.raises(ActorFailedError, match="no room for parameters 3 times"):
        fleet.collect(1, PARAMETERS._replace(version=8))


def test_a_learner_takes_over_actors_with_its_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = FakeRay(lambda actor, incarnation, number: number)
    _fleet(monkeypatch, ray, actors=3).collect(9, PARAMETERS)
    elsewhere = ActorSettings(namespace="another run")
    _fleet(monkeypatch, ray, settings=elsewhere).collect(1, PARAMETERS)
    before = list(ray.actors)
    resumed = _fleet(monkeypatch, ray, actors=2)  # fewer
    assert len(resumed.collect(9, PARAMETERS)) == 9
    assert ray.actors == before
    assert not resumed.counts
    names = [one.name[:3] for one in ray.actors if one.alive and one.namespace == "run"]
    assert sorted(names) == ["0.0", "1.0"]
    other = _fleet(monkeypatch, ray, actors=1, spec="another")
    other.collect(1, PARAMETERS)
    assert [one.namespace for one in ray.actors if one.alive] == ["another run", "run"]
    assert ray.actors[-1] not in before
