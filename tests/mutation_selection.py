"""What mutants of the inner update and of the learner are tried on: one case of each kind, a few seconds in all.

No part of the test suite, which has hundreds of cases of each; `make mutation` names this file.
"""

from __future__ import annotations

import pytest

from dgvf_agents.core.tasks import NoTask
from tests.agents.test_checks import test_a_nan_meta_gradient_is_skipped_and_counted  # noqa: F401
from tests.core.metagradient_problem import Case
from tests.core.test_inner_update import (  # noqa: F401
    test_a_single_step_of_a_single_environment,
    test_inner_updates_follow_the_transcription,
    test_metrics,
    test_tasks_without_meta_parameters_have_an_empty_meta_gradient,
    test_the_meta_loss_reaches_encoder_policy_and_value_but_not_the_answers,
)
from tests.core.test_metagradient import (  # noqa: F401
    test_a_batch_may_bring_its_own_coefficients,
    test_a_scored_update_equals_a_meta_loss_and_an_update,
    test_encoders_without_parameters_stay_out_of_gradients,
    test_equals_the_unrolled_transcription,
    test_explained_variance_of_constant_returns,
    test_myopic_is_the_sum_of_single_updates,
    test_networks_are_passed_statistics_stop_gradient_inputs_and_training_mode,
    test_options_of_the_rule,
    test_results_of_an_unroll_are_detached,
    test_the_gradient_of_the_meta_loss_is_of_first_order,
    test_updates_keep_the_precision_of_their_inputs,
)
from tests.core.test_vtrace import test_a_rollout_must_tell_the_behavior_policy  # noqa: F401
from tests.test_learner import (  # noqa: F401
    test_a_meta_gradient_that_is_too_large_is_skipped_and_counted,
    test_only_discovered_questions_change,
)
from tests.test_whole_runs import test_two_unrolls_are_those_of_the_transcription

whole_runs = test_two_unrolls_are_those_of_the_transcription
whole_unrolls, whole_updates = test_equals_the_unrolled_transcription, test_inner_updates_follow_the_transcription
without_eta = test_tasks_without_meta_parameters_have_an_empty_meta_gradient
del test_equals_the_unrolled_transcription, test_inner_updates_follow_the_transcription
del test_tasks_without_meta_parameters_have_an_empty_meta_gradient, test_two_unrolls_are_those_of_the_transcription

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize(
    ("convention", "encoder_mode", "objective", "horizon", "storage"),
    [
        ("exact", "auxiliary", "sum", "unrolled", "graph"),
        ("exact", "joint", "end", "unrolled", "recompute"),
        ("surrogate", "auxiliary", "end", "unrolled", "graph"),
        ("surrogate", "joint", "sum", "unrolled", "recompute"),
        ("exact", "auxiliary", "sum", "myopic", "recompute"),
    ],
)
def test_unrolls(convention: str, encoder_mode: str, objective: str, horizon: str, storage: str) -> None:
    whole_unrolls(Case("learned_discounts", convention, encoder_mode, "rmsprop", 3, objective, horizon, storage, 0.3))


@pytest.mark.parametrize("convention", ["exact", "surrogate"])
def test_unrolls_off_policy(convention: str) -> None:
    whole_unrolls(Case(convention=convention, bounds=(0.9, 0.8)))


@pytest.mark.parametrize("encoder_mode", ["auxiliary", "joint"])
def test_updates(encoder_mode: str) -> None:
    whole_updates(Case(encoder_mode=encoder_mode, optimizer="sgd"))


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_without_eta(storage: str) -> None:
    without_eta(NoTask(), "myopic", storage)


@pytest.mark.parametrize(
    ("objective", "horizon", "storage", "mode", "convention"),
    [
        ("sum", "unrolled", "graph", "auxiliary", "exact"),
        ("end", "unrolled", "recompute", "joint", "surrogate"),
        ("sum", "myopic", "graph", "joint", "exact"),
    ],
)
def test_learners(objective: str, horizon: str, storage: str, mode: str, convention: str) -> None:
    whole_runs(objective, horizon, storage, mode, convention)
