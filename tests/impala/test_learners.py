"""Several learners: each has a batch of its own, and together they are one learner with all batches side by side."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from dgvf_agents import DGVFImpala
from dgvf_agents.execution.learner_group import LearnerGroupError
from dgvf_agents.impala.settings import ActorSettings
from tests.core.metagradient_problem import Case
from tests.impala.learner_models import N_ENVS, STEPS, Watcher, model_of, scenarios, state_of
from tests.impala.learner_oracles import ALL, QUICK, Outcome, learned_alone, learned_together
from tests.impala.learner_processes import together
from tests.random_rollouts import side_by_side

pytestmark = pytest.mark.usefixtures("double_precision")


def name(case: Case) -> str:
    values = {field.name: getattr(case, field.name) for field in fields(case)}
    usual = {field.name: field.default for field in fields(case)}
    return "-".join(str(value) for key, value in values.items() if value != usual[key] and isinstance(value, str))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> list[list[Outcome]]:
    """The quick cases by learner, learned by two processes."""
    return together(learned_together, tmp_path_factory.mktemp("quick"), QUICK)


def assert_equal(one: Any, other: Any) -> None:
    """Bitwise."""
    for a, b in zip(tree_leaves(one), tree_leaves(other), strict=True):
        assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


def assert_one_learner(case: Case, first: Outcome, second: Outcome, whole: Outcome) -> None:
    own, expected = first.state, whole.state
    assert (own.updates, own.meta_updates, own.meta_skipped) == (expected.updates, 3, 0)
    for part in ("theta", "statistics", "eta"):
        # Rounding, which the weights of tiny gradients magnify: up to 2e-9 on one of the processors tried.
        torch.testing.assert_close(getattr(own, part), getattr(expected, part), rtol=1e-8, atol=1e-11)
    torch.testing.assert_close(first.moments, whole.moments, rtol=1e-8, atol=1e-13)
    torch.testing.assert_close(own.meta_loss, expected.meta_loss)
    torch.testing.assert_close(own.meta_gradient_norm, expected.meta_gradient_norm)
    metrics: dict[str, Any] = own.metrics._asdict()  # type: ignore[union-attr]
    for key, value in expected.metrics._asdict().items():  # type: ignore[union-attr]
        if key != "explained_variance":
            torch.testing.assert_close(metrics[key], value, msg=lambda text, key=key: f"{key}: {text}")
    assert_equal(first, second)


@pytest.mark.parametrize("index", range(len(QUICK)), ids=[name(case) for case in QUICK])
def test_two_learners_are_one_with_both_batches(quick: list[list[Outcome]], index: int) -> None:
    first, second = (outcomes[index] for outcomes in quick)
    assert_one_learner(QUICK[index], first, second, learned_alone(QUICK[index]))


@pytest.mark.slow
def test_all_options_with_three_learners(tmp_path: Path) -> None:
    outcomes = together(learned_together, tmp_path, ALL, 3, learners=3)
    for case, first, second, third in zip(ALL, *outcomes, strict=True):
        assert_equal(second, third)
        assert_one_learner(case, first, second, learned_alone(case, 3))


# --- DGVFImpala -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two processes found in `scenarios`."""
    folder = tmp_path_factory.mktemp("models")
    return together(scenarios, folder, folder)


def test_models_learn_as_one_model_with_both_batches(found: list[dict[str, Any]]) -> None:
    """Settings for summed losses refer to both batches too."""
    first, second = found
    whole = model_of(1, n_envs=2 * N_ENVS)
    whole.learner.set_state(first["start"])
    settings = whole.annealed_settings()
    for rollouts in zip(first["rollouts"], second["rollouts"], strict=True):
        batch = settings.batch(side_by_side(rollouts, True))
        whole.learner.step(batch, settings.learning_rate, settings.meta_learning_rate)
    assert whole.meta_updates == first["trained"].meta_updates == 2
    for part in ("theta", "statistics", "eta", "meta_optimizer"):
        expected, actual = getattr(whole.learner.get_state(), part), getattr(first["trained"], part)
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-9)


def test_learners_stay_equal(found: list[dict[str, Any]]) -> None:
    first, second = found
    for key in ("trained", "thetas", "resumed", "after middle", "written", "steps", "resumed steps", "stopped"):
        assert_equal(first[key], second[key])
    assert not torch.equal(first["start"].theta["action_net.weight"], second["start"].theta["action_net.weight"])


def test_steps_of_all_learners_count(found: list[dict[str, Any]]) -> None:
    for one in found:
        assert (one["steps"], one["updates"], one["after three"]) == (5 * STEPS, 5, 1)
        assert one["trained"].updates == 5  # the second call of `learn` continued the unroll
        assert one["resumed steps"] == 8 * STEPS
        assert one["stopped"] == 1


def test_learner_0_logs(found: list[dict[str, Any]]) -> None:
    assert [one["outputs of the log"] for one in found] == [1, 0]


def test_learners_have_experience_of_their_own(found: list[dict[str, Any]]) -> None:
    first, second = found
    for key in ("rollouts", "earlier rollouts", "resumed rollouts"):
        for one, other in zip(first[key], second[key], strict=True):
            assert not torch.isclose(one.observations, other.observations).any()
    earlier, later = second["earlier rollouts"][0], second["resumed rollouts"][0]
    assert not torch.isclose(earlier.observations, later.observations).any()  # new episodes, not the same again


def test_learner_0_continues_its_episodes(found: list[dict[str, Any]]) -> None:
    first, _ = found
    last, following = first["earlier rollouts"][-1], first["resumed rollouts"][0]
    goes_on = ~(last.terminated | last.truncated)[-1]
    assert goes_on.any()
    assert torch.equal(last.next_observations[-1][goes_on], following.observations[0][goes_on])


def test_a_rollout_in_progress_is_dropped(found: list[dict[str, Any]]) -> None:
    first, second = found
    assert first["middle steps"] == 6 * STEPS + 2 * N_ENVS
    for one in (first, second):
        assert one["after middle steps"] == 8 * STEPS


def test_what_learners_do_not_share_is_refused(found: list[dict[str, Any]]) -> None:
    for one in found:
        n_envs, steps, number, normalized = one["errors"]
        assert n_envs == "ValueError: n_envs must be the same in all learners, got 2 in learner 0 and 3 in learner 1"
        assert f"total_timesteps must be the same in all learners, got {STEPS} in learner 0" in steps
        assert "LearnerGroupError: learners = 3 needs a process group" in number
        assert "env must not be a VecNormalize for learners = 2" in normalized


def test_one_process_is_told_how_to_connect_several() -> None:
    with pytest.raises(LearnerGroupError, match=r"learners = 2 needs .* none is initialized: call torch.distributed"):
        model_of().learn(STEPS)


def test_updates_of_several_learners_on_the_cpu_run_eagerly() -> None:
    assert model_of(compile=True).compilation.mode is False
    assert model_of(1, compile=True).compilation.mode is True


def test_a_model_of_several_learners_predicts_alone(tmp_path: Path) -> None:
    model = model_of()
    model.save(tmp_path / "model.zip")
    loaded = DGVFImpala.load(tmp_path / "model.zip", device="cpu")
    assert loaded.learners == 2
    assert loaded.predict(np.zeros(4, np.float32), deterministic=True)[0] in range(3)


# --- with distributed actors ------------------------------------------------------------------------------------------


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
    pytest.importorskip("ray")
    first, second = together(learned_with_actors, tmp_path)
    assert first["address"] == second["address"]  # of the Ray that learner 0 started
    assert first["steps"] == second["steps"] == 3 * STEPS
    assert_equal(first["theta"], second["theta"])
    for one, other in zip(first["rollouts"], second["rollouts"], strict=True):
        assert not torch.equal(one.observations, other.observations)
