"""Steps along the gradient of a mean, with hyperparameters meant for that of a sum."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dgvf_agents.core.optimizers import RMSProp, clip_by_global_norm
from dgvf_agents.core.summed_losses import norm_for_means, rms_prop_for_means
from dgvf_agents.runs.config import TrainConfig
from dgvf_agents.runs.train import build

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize("samples", [1, 7, 640])
def test_steps_along_means_are_those_along_sums(samples: int) -> None:
    """Many steps, with gradients on either side of ε and of the norm that they are scaled down to."""
    torch.manual_seed(1)
    of_sums = RMSProp(epsilon=0.1)
    of_means = rms_prop_for_means(of_sums, samples)
    states = [(params := {"w": torch.zeros(5)}, of_sums.init(params)), (params, of_means.init(params))]
    for k in range(50):
        mean = {"w": torch.randn(5) * 10.0 ** ((k % 5) - 4)}
        total = {"w": samples * mean["w"]}
        clipped = clip_by_global_norm(total, 40.0), clip_by_global_norm(mean, norm_for_means(40.0, samples))
        states = [
            optimizer.step(params, gradient, state, 6e-4)
            for optimizer, gradient, (params, state) in zip((of_sums, of_means), clipped, states, strict=True)
        ]
    assert states[0][0]["w"].abs().min() > 0
    torch.testing.assert_close(states[0][0], states[1][0], rtol=1e-10, atol=0)


@pytest.mark.parametrize("samples", [7, 640])
def test_adam_along_means_is_that_along_sums(samples: int) -> None:
    """With gradients about as large as ε."""
    torch.manual_seed(2)
    parameters = [torch.zeros(5, requires_grad=True) for _ in range(2)]
    epsilons = (1e-8, norm_for_means(1e-8, samples))
    optimizers = [torch.optim.Adam([p], lr=6e-4, eps=e) for p, e in zip(parameters, epsilons, strict=True)]
    for _ in range(30):
        mean = torch.randn(5) * 1e-8 / samples
        parameters[0].grad, parameters[1].grad = samples * mean, mean
        for optimizer in optimizers:
            optimizer.step()
    assert parameters[0].abs().min() > 0
    torch.testing.assert_close(*parameters, rtol=1e-10, atol=0)


def test_agents_for_summed_losses_have_an_epsilon_for_means() -> None:
    config = TrainConfig(n_envs=4, n_steps=3, questions=2, compile=False)
    for reduction, epsilon in (("mean", 1e-8), ("sum", 1e-8 / 12)):
        model = build(dataclasses.replace(config, loss_reduction=reduction))
        adam = model.learner._meta_optimizer
        assert adam is not None
        assert [group["eps"] for group in adam.param_groups] == [pytest.approx(epsilon)]
        model.env.close()
