"""Policies as pure functions: what they compute is the policy's own, and the meta-gradient through them is exact."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_flattened_obs_dim
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from dgvf_agents import DGVFA2C
from dgvf_agents.agents.extractors import MLPExtractor, MultiInputExtractor, PreprocessedEncoder
from dgvf_agents.core.inner_update import InnerState, inner_update, meta_loss_gradient
from dgvf_agents.core.types import Params, Rollout
from tests.core.metagradient_problem import meta_gradient, moved
from tests.small_agents import BOX, Samples, small_model

pytestmark = pytest.mark.usefixtures("double_precision")

ACTIONS = spaces.Box(-5.0, 5.0, (2,), np.float32)


class Normalizing(BaseFeaturesExtractor):
    """Batch normalization between two layers."""

    def __init__(self, observation_space: spaces.Space, hidden: tuple[int, ...] = (6,)) -> None:
        super().__init__(observation_space, hidden[-1])
        size = get_flattened_obs_dim(observation_space)
        first, norm, second = nn.Linear(size, 5), nn.BatchNorm1d(5), nn.Linear(5, hidden[-1])
        self.layers = nn.Sequential(first, norm, nn.Tanh(), second, nn.Tanh())

    def forward(self, observations: Tensor) -> Tensor:
        return self.layers(observations.flatten(1).to(torch.float64))


CASES: dict[str, tuple[spaces.Space, spaces.Space, dict[str, Any], dict[str, Any]]] = {
    "continuous": (BOX, ACTIONS, {}, {}),
    "multi-discrete": (BOX, spaces.MultiDiscrete([2, 3]), {}, {}),
    "multi-binary": (BOX, spaces.MultiBinary(3), {}, {}),
    "gsde": (BOX, ACTIONS, {"use_sde": True}, {"net_arch": [4]}),
    "gsde, joint": (BOX, ACTIONS, {"use_sde": True, "encoder_mode": "joint"}, {"net_arch": [4]}),
    "gsde, squashed, expln": (BOX, ACTIONS, {"use_sde": True}, {"squash_output": True, "use_expln": True}),
    "lambda-returns": (BOX, spaces.Discrete(3), {"gae_lambda": 0.6}, {}),
    "normalized advantages": (BOX, spaces.Discrete(3), {"normalize_advantage": True, "gae_lambda": 0.9}, {}),
    "two encoders": (BOX, spaces.Discrete(3), {}, {"share_features_extractor": False, "net_arch": [4]}),
    "two encoders of different widths": (
        BOX,
        spaces.Discrete(3),
        {},
        {"features_extractor_kwargs": {}, "share_features_extractor": False, "net_arch": {"pi": [4], "vf": [6, 5]}},
    ),
    "batch normalization": (BOX, spaces.Discrete(3), {}, {"features_extractor_class": Normalizing}),
    "dict": (
        spaces.Dict({"a": BOX, "b": spaces.Discrete(3)}),
        spaces.Discrete(3),
        {"question_window": 2, "question_discount": None},
        {},
    ),
    "adamw": (BOX, ACTIONS, {}, {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"eps": 1e-3}}),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())

STEP = 1e-6


def _model(case: tuple[spaces.Space, spaces.Space, dict[str, Any], dict[str, Any]]) -> DGVFA2C:
    observed, actions, arguments, of_policy = case
    several = isinstance(observed, spaces.Dict)
    network: dict[str, Any] = {"features_extractor_kwargs": {"hidden": (6,)}}
    if several:
        network["features_extractor_class"] = MultiInputExtractor
    elif "features_extractor_class" not in of_policy:
        network["activation_fn"] = nn.Tanh
    policy = "MultiInputPolicy" if several else "PaperMlpPolicy"
    given = {"n_steps": 6, "questions": 3, "auxiliary_coefficient": 1.0, "ent_coef": 0.1, **arguments}
    return small_model(Samples(observed, actions), policy, policy_kwargs={**network, **of_policy}, **given)


def _rollouts(model: DGVFA2C, count: int) -> list[Rollout]:
    _, callback = model._setup_learn(10**6)
    rollouts = []
    for _ in range(count):
        model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
        rollout = model._rollout
        actions = rollout.actions.double() if rollout.actions.is_floating_point() else rollout.actions
        rollouts.append(rollout._replace(rewards=rollout.rewards.double(), actions=actions))
        model._functions.update_statistics(rollout.observations)
    return rollouts


@each_case
def test_the_meta_gradient_equals_central_differences(case: Any) -> None:
    """η ± h d → θ_k, dotted with the meta-loss's gradient at θ_k, for k = 1, 2."""
    model = _model(case)
    batches, learner, rate = _rollouts(model, 3), model.learner.functions.rule, torch.tensor(0.05)
    generator = torch.Generator().manual_seed(7)
    start = {k: v + 0.2 * torch.randn(v.shape, generator=generator) for k, v in model._functions.params().items()}
    eta = {k: v + 0.2 * torch.randn(v.shape, generator=generator) for k, v in model.task.initial_meta_params().items()}
    state = InnerState(start, model._optimizer.init(start))

    def thetas(eta: Params) -> list[Params]:
        now, reached = state, []
        for batch in batches[:2]:
            now, _ = inner_update(learner, now, eta, batch, rate)
            reached.append(now.theta)
        return reached

    update, meta_loss = partial(inner_update, learner), partial(meta_loss_gradient, learner)
    gradient = meta_gradient(update, meta_loss, state, eta, batches, rate)
    gradients = [meta_loss(theta, batch)[0] for theta, batch in zip(thetas(eta), batches[1:], strict=True)]
    for _ in range(2):
        direction = {k: torch.randn(v.shape, generator=generator) for k, v in eta.items()}
        ahead, behind = (thetas(moved(eta, direction, by)) for by in (STEP, -STEP))
        expected = sum(
            ((up[k] - down[k]) * of_theta[k]).sum() / (2 * STEP)
            for up, down, of_theta in zip(ahead, behind, gradients, strict=True)
            for k in of_theta
        )
        actual = sum((gradient[k] * direction[k]).sum() for k in eta)
        assert abs(float(expected)) > 1e-7
        assert float(actual) == pytest.approx(float(expected), rel=2e-5, abs=1e-9)


def test_the_state_s_share_in_exploration_trains_no_features() -> None:
    """As in Stable-Baselines3, the noise of gSDE depends on the features, which are not shaped for its sake."""
    model = _model(CASES["gsde, joint"])
    functions, rollout = model._functions, _rollouts(model, 1)[0]
    params = functions.params()
    features = functions.encode(params, rollout.observations).detach().requires_grad_()

    def shaped(held: tuple[Params, Tensor] | None) -> Tensor:
        log_std = functions.policy_outputs(params, features, held)[..., 2:]
        return torch.autograd.grad(log_std.sum(), features, allow_unused=True, materialize_grads=True)[0]

    assert shaped(None).any()
    assert not shaped((params, features.detach())).any()


def test_one_hot_inputs_are_told_apart_from_the_start() -> None:
    """Spread biases, which points of a Box need, would drown the one input that differs."""
    space = spaces.Discrete(10)
    encoder = PreprocessedEncoder(MLPExtractor(space), space, normalize_images=True)
    features = encoder(torch.arange(10))
    centered = features - features.mean(0)
    assert centered.norm() > 0.5 * features.norm()
