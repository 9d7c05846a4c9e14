"""Distributed actors in processes of their own. Needs Ray."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cloudpickle import register_pickle_by_value

pytest.importorskip("ray")

from dgvf_agents import DGVFImpala
from dgvf_agents.agents.collecting import RolloutCallback
from dgvf_agents.impala.cluster import connect
from dgvf_agents.impala.fleet import ActorFleet
from dgvf_agents.impala.settings import ActorSettings
from tests.helpers import run_python
from tests.impala import faulty_worlds
from tests.impala.faulty_worlds import Faulty, Numbered, small_rooms, world_of
from tests.impala.models import small_model
from tests.small_agents import BATCH, STEPS

register_pickle_by_value(faulty_worlds)  # actors need not find the tests
QUICK = ActorSettings(timeout=60.0, first_delay=0.0, cpus_per_actor=0.1)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    module = connect(None, 2)
    yield module
    module.shutdown()


def _model(env: Any = small_rooms, policy: str = "PaperCnnPolicy", **changes: Any) -> DGVFImpala:
    return small_model(env, policy, **{"actors": 2, "actor_settings": QUICK, **changes})


class Watch(RolloutCallback):
    """Keeps the fleet; does something before the rollout after some updates."""

    def __init__(self, actions: dict[int, Any] | None = None) -> None:
        super().__init__()
        self.actions = actions or {}

    def _on_training_start(self) -> None:
        self.fleet: ActorFleet = self.model._fleet  # type: ignore[attr-defined]

    def _on_rollout_start(self) -> None:
        action = self.actions.pop(self.model._n_updates, None)  # type: ignore[attr-defined]
        if action is not None:
            action(self.fleet)


def _named(ray: Any, namespace: str) -> list[str]:
    found = ray.util.list_named_actors(all_namespaces=True)
    return sorted(one["name"] for one in found if one["namespace"] == namespace)


def test_ray_is_started_on_the_loopback_interface_without_a_dashboard(ray: Any) -> None:
    context = ray.get_runtime_context()
    assert context.gcs_address.startswith("127.0.0.1:")
    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}


def test_each_rollout_is_used_once_although_actors_die_after_they_answered(ray: Any, tmp_path: Path) -> None:
    """Every environment step has a number of its own, which is its reward. Processes are killed at random."""
    model = _model(world_of(Numbered, tmp_path / "numbers"), "MlpPolicy")
    fleet, rng = ActorFleet(model._actor_spec(), 2, QUICK), random.Random(0)
    numbers: list[float] = []
    try:
        for i in range(20):
            rollouts = fleet.collect(2, model._parameters())
            numbers += [number for rollout in rollouts for number in rollout.rewards.flatten().tolist()]
            if i in (3, 9):
                process = int(rng.choice(rollouts).observed[""].parts[0, 0])
                with suppress(ProcessLookupError):  # it died before
                    os.kill(process, signal.SIGKILL)
    finally:
        fleet.stop()
    assert len(numbers) == len(set(numbers)) == 20 * 2 * STEPS * 2
    assert fleet.counts["deaths"] >= 2
    assert fleet.counts["restarts"] >= 1  # the last one may still be due


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("exit", "deaths"), ("error", "errors"), ("hang", "timeouts")])
def test_an_environment_that_fails_is_replaced(ray: Any, tmp_path: Path, kind: str, count: str) -> None:
    settings = ActorSettings(timeout=8.0, first_delay=0.0)
    watch = Watch()
    env = world_of(Faulty, kind, 12, tmp_path / "failed")
    model = _model(env, "MlpPolicy", actors=1, actor_settings=settings).learn(30 * BATCH, watch)
    assert model._n_updates == 30
    assert watch.fleet.counts[count] >= 1
    assert watch.fleet.counts["restarts"] >= 1


def test_an_actor_without_calls_ends_for_good(ray: Any) -> None:
    spec = _model(world_of(Faulty, "none"), "MlpPolicy", actors=1)._actor_spec()
    fleet = ActorFleet(spec, 1, replace(QUICK, namespace="idle", idle_exit=2.0))
    ray.get(fleet._actors[0].handle.ping.remote())
    deadline = time.monotonic() + 60.0
    while _named(ray, "idle"):
        assert time.monotonic() < deadline
        time.sleep(0.2)


# --- longer ones ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_node_leaves_and_another_comes() -> None:
    code = """
import ray
from ray.cluster_utils import Cluster
from tests.impala.test_actors_on_ray import _model, Watch, ActorSettings
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
ray.init(address=cluster.address)
def leave(fleet):
    cluster.remove_node(nodes.pop())
def come(fleet):
    nodes.append(cluster.add_node(num_cpus=1))
watch = Watch({20: leave, 60: come})
model = _model(actor_settings=ActorSettings(first_delay=0.5)).learn(400 * 20, watch)
print(model._n_updates, watch.fleet.counts["deaths"])
ray.shutdown()
cluster.shutdown()
"""
    result = run_python("-c", code, timeout=500)
    updates, deaths = map(int, result.stdout.split()[-2:])
    assert updates == 400, result.stderr
    assert deaths >= 1


@pytest.mark.slow
def test_the_death_of_the_raylet_is_an_exception(tmp_path: Path) -> None:
    """Large rollouts and parameters, which go through its object store."""
    code = f"""
import psutil
from tests.impala.test_actors_on_ray import _model, Watch
def kill(fleet):
    raylet = next(one for one in psutil.Process().children() if one.name() == "raylet")
    raylet.kill()
    raylet.wait()
model = _model("CartPole-v1", "MlpPolicy", n_steps=2000, policy_kwargs={{"net_arch": [500, 500]}})
try:
    model.learn(10**9, Watch({{3: kill}}))
except ConnectionError as error:
    print(error)
model.save("{tmp_path}/model")
"""
    result = run_python("-c", code, timeout=500)
    assert "raylet on this machine has ended" in result.stdout, result.stderr
    assert result.returncode == 0
    assert DGVFImpala.load(tmp_path / "model")._n_updates >= 3


@pytest.mark.slow
def test_learners_and_actors_are_killed_at_random_moments(tmp_path: Path) -> None:
    """See `fault_harness`; a soak test kills more of them."""
    arguments = [str(tmp_path / "run"), "--actor-kills", "4", "--learner-kills", "2"]
    result = run_python("-m", "tests.impala.fault_harness", *arguments, timeout=580)
    assert result.returncode == 0, result.stdout + result.stderr
