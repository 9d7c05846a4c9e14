"""Several learners with distributed actors. Needs Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ray")

from dgvf_agents.impala.settings import ActorSettings
from tests.impala.learner_models import STEPS, Watcher, model_of, state_of
from tests.impala.learner_processes import together


def learned_with_actors() -> dict[str, Any]:
    settings = ActorSettings(namespace="several-learners", cpus_per_actor=0.1)
    model, watcher = model_of(env="CartPole-v1", actors=1, actor_settings=settings), Watcher()
    model.learn(3 * STEPS, watcher)
    import ray

    return {
        "theta": state_of(model).theta,
        "steps": model.num_timesteps,
        "rollouts": watcher.rollouts,
        "address": ray.get_runtime_context().gcs_address,
    }


@pytest.mark.slow
def test_each_learner_has_a_fleet_of_its_own(tmp_path: Path) -> None:
    first, second = together(learned_with_actors, tmp_path)
    assert first["address"] == second["address"]  # of the Ray that learner 0 started
    assert first["steps"] == second["steps"] == 3 * STEPS
    for name, value in first["theta"].items():
        assert torch.equal(value, second["theta"][name])
    for one, other in zip(first["rollouts"], second["rollouts"], strict=True):
        assert not torch.equal(one.observations, other.observations)
