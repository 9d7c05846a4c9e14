"""Optimizer classes of PyTorch stand for differentiable ones that take the same steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

from dgvf_agents import DGVFA2C
from dgvf_agents.agents.arguments import inner_optimizer_for
from dgvf_agents.core.optimizers import SGD

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [
        (RMSpropTFLike, {"alpha": 0.9, "eps": 1e-3}),
        (RMSpropTFLike, {}),
        (torch.optim.RMSprop, {"alpha": 0.9, "eps": 1e-12, "weight_decay": 0.0}),
        (torch.optim.Adam, {"betas": (0.8, 0.9), "eps": 1e-12, "foreach": False}),
        (torch.optim.AdamW, {"eps": 1e-12, "weight_decay": 0.2}),
        (torch.optim.AdamW, {"eps": 1e-12}),
        (torch.optim.SGD, {"momentum": 0.0}),
    ],
)
def test_steps_are_those_of_pytorch(kind: type[torch.optim.Optimizer], kwargs: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(0)
    theta = {"a": torch.randn(3, 2, generator=generator), "b": torch.randn(4, generator=generator)}
    parameters = {name: torch.nn.Parameter(value.clone()) for name, value in theta.items()}
    theirs, ours = kind(parameters.values(), lr=0.1, **kwargs), inner_optimizer_for(kind, kwargs)
    state = ours.init(theta)
    for _ in range(5):
        gradients = {name: torch.randn(value.shape, generator=generator) for name, value in theta.items()}
        for name, parameter in parameters.items():
            parameter.grad = gradients[name]
        theirs.step()
        theta, state = ours.step(theta, gradients, state, 0.1)
    for name, parameter in parameters.items():
        torch.testing.assert_close(theta[name], parameter.detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "kwargs", "message"),
    [
        (torch.optim.Adagrad, {}, "optimizer_class must be RMSpropTFLike, .* got Adagrad. Pass inner_optimizer="),
        (torch.optim.SGD, {"momentum": 0.9}, "optimizer_kwargs must have momentum=0, got 0.9"),
        (torch.optim.Adam, {"weight_decay": 0.1}, "optimizer_kwargs must have weight_decay=0, got 0.1"),
        (torch.optim.Adam, {"amsgrad": True}, "optimizer_kwargs must have amsgrad=False, got True"),
        (torch.optim.Adam, {"alpha": 0.9}, "optimizer_kwargs must be arguments of Adam, got 'alpha'"),
    ],
)
def test_what_has_no_counterpart_is_refused(kind: Any, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        inner_optimizer_for(kind, kwargs)


def test_an_inner_optimizer_needs_no_counterpart_of_the_policys() -> None:
    kwargs = {"optimizer_kwargs": {"momentum": 0.9}}  # of PyTorch's RMSprop, which no update uses
    model = DGVFA2C("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, inner_optimizer=SGD(), compile=False)
    assert model.learner.functions.rule.optimizer == SGD()
