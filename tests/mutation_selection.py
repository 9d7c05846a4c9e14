"""What mutants of `metagradient.py` are tried on: one case of each kind, a few seconds in all.

No part of the test suite, which has hundreds of cases of each; `make mutation` names this file.
"""

from __future__ import annotations

import pytest

from tests.test_metagradient import (  # noqa: F401
    Case,
    crossed,
    test_a_gradient_needs_a_score,
    test_a_single_step_of_a_single_environment,
    test_equals_the_unrolled_transcription,
    test_inner_updates_follow_the_transcription,
    test_metrics,
    test_myopic_is_the_sum_of_single_updates,
    test_scoring_decides_what_the_meta_loss_is,
    test_tasks_without_meta_parameters_have_an_empty_meta_gradient,
    test_the_gradient_of_the_meta_loss_is_of_first_order,
    test_the_meta_loss_reaches_encoder_policy_and_value_but_not_the_answers,
    test_what_an_unroll_hands_out_hangs_on_no_graph,
)

whole_unrolls, whole_updates = test_equals_the_unrolled_transcription, test_inner_updates_follow_the_transcription
del test_equals_the_unrolled_transcription, test_inner_updates_follow_the_transcription

pytestmark = pytest.mark.usefixtures("double_precision")


@crossed(
    task=("learned_discounts",),
    convention=("exact", "surrogate"),
    encoder_mode=("auxiliary", "joint"),
    optimizer=("rmsprop",),
    updates=(3,),
    objective=("sum", "end"),
    horizon=("unrolled", "myopic"),
    storage=("graph", "recompute"),
    max_gradient_norm=(0.3,),
)
def test_unrolls(case: Case) -> None:
    whole_unrolls(case)


@crossed(
    task=("hand_set_discount", "pixel_control"),
    encoder_mode=("auxiliary", "joint"),
    optimizer=("sgd",),
    max_gradient_norm=(None,),
)
def test_updates(case: Case) -> None:
    whole_updates(case)
