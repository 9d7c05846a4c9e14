"""Whole runs of `DGVFImpala`, two unrolls long, against the literal transcription with summed losses.

The transcription has V-trace, sums over time and batch, and IMPALA's RMSProp; the model's losses are means.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest
import torch
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor

from dgvf_agents import DGVFImpala
from dgvf_agents.core.types import Params, Rollout
from tests.core_oracles import Rule, StopGradientInputs, VTraceAlgorithm, encode, gvf_loss, head
from tests.test_whole_runs import (
    COPIES,
    HIDDEN,
    META_EPSILON,
    META_NORM,
    META_RATE,
    QUESTIONS,
    STEPS,
    UPDATES,
    Agent,
    Noise,
    Recorder,
    assert_moved_alike,
    state_of,
    transcribed,
)

pytestmark = pytest.mark.usefixtures("double_precision")

SAMPLES = STEPS * COPIES


@dataclass(frozen=True)
class Summed(VTraceAlgorithm):
    """Losses are sums over time and batch."""

    def inner_loss(self, theta: Params, stopped: StopGradientInputs, eta: Params, rollout: Rollout) -> Tensor:
        return SAMPLES * super().inner_loss(theta, stopped, eta, rollout)

    def meta_loss(self, theta: Params, rollout: Rollout) -> Tensor:
        return SAMPLES * super().meta_loss(theta, rollout)


def acted(theta: Params, rollout: Rollout) -> Rollout:
    """The batch with log π(a|x) of θ."""
    log_pi = torch.log_softmax(head(theta, "policy", encode(theta, rollout.observations)), -1)
    log_probs = torch.gather(log_pi, -1, rollout.actions[..., None])[..., 0]
    return rollout._replace(behavior_log_probs=log_probs.detach())


def in_sums(agent: Agent) -> Agent:
    """Statistics of gradients as they are of summed losses."""
    theta, eta, second, first_of_eta, second_of_eta = agent
    return Agent(
        theta,
        eta,
        {name: SAMPLES**2 * value for name, value in second.items()},
        {name: SAMPLES * value for name, value in first_of_eta.items()},
        {name: SAMPLES**2 * value for name, value in second_of_eta.items()},
    )


CASES = list(product(("joint", "auxiliary"), ("shared", "independent"), ("exact", "surrogate")))


@pytest.mark.parametrize(("mode", "questions", "convention"), CASES)
@pytest.mark.parametrize("rms_prop", ["tensorflow", "pytorch"])
def test_two_unrolls_are_those_of_the_transcription(mode: str, questions: str, convention: str, rms_prop: str) -> None:
    env = Recorder(DummyVecEnv([Noise] * COPIES))
    storage = "graph" if mode == "joint" else "recompute"
    model = DGVFImpala(
        "PaperMlpPolicy", env, learning_rate=7e-3, n_steps=STEPS, unroll_length=UPDATES, questions=QUESTIONS,
        max_grad_norm=2.0, auxiliary_coefficient=0.1, question_encoder=questions, rms_prop=rms_prop,
        meta_learning_rate=META_RATE, meta_epsilon=META_EPSILON, meta_max_grad_norm=META_NORM,
        meta_max_discount_grad_norm=None,
        storage=storage, encoder_mode=mode, convention=convention, seed=0, device="cpu", compile=False,
        policy_kwargs={"features_extractor_kwargs": {"hidden": HIDDEN}},
    )  # fmt: skip
    epsilon, initial = (0.1, 1.0) if rms_prop == "tensorflow" else (0.1**2, 0.0)
    start = in_sums(state_of(model))
    for value in start.second_moments.values():
        torch.testing.assert_close(value, torch.full_like(value, initial))
    slow = Summed(
        gvf_loss(None), Rule("rmsprop", 7e-3, epsilon=epsilon, decay=0.99, outside=initial == 0.0),
        convention=convention, encoder_mode=mode,
        max_gradient_norm=2.0, discount=0.99, value_weight=0.25, entropy_weight=0.01, auxiliary_coefficient=0.1,
        shared_questions=questions == "shared",
    )  # fmt: skip
    model.learn((2 * UPDATES + 1) * SAMPLES)
    expected, actual = transcribed(slow, start, env.rollouts(), "sum", acted), in_sums(state_of(model))
    assert model.meta_updates == 2
    assert_moved_alike(actual, expected, start)


def test_rollouts_hold_the_log_probabilities_of_the_policy_that_acted() -> None:
    env = Recorder(DummyVecEnv([Noise] * COPIES))
    model = DGVFImpala("PaperMlpPolicy", env, n_steps=STEPS, seed=0, device="cpu", compile=False, learning_rate=0.1)
    theta = state_of(model).theta
    model.learn(SAMPLES)
    expected = acted(theta, env.rollouts()[0]).behavior_log_probs
    torch.testing.assert_close(model._rollout.behavior_log_probs, expected)
    later = acted(state_of(model).theta, env.rollouts()[0]).behavior_log_probs
    assert not torch.allclose(later, expected)
