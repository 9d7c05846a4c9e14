"""Sampling actions from the policy."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from dgvf_agents.core.distributions import ActionDistribution
from dgvf_agents.core.networks import FunctionalAgent
from dgvf_agents.core.types import Observations, Params, SampledActions

Act = Callable[[Params, Observations, Tensor], SampledActions]
"""`(θ, observations, noise) -> actions`: samples actions `[B, ...]` for observations `[B, *obs]`."""


def sample_actions(
    network: FunctionalAgent,
    distribution: ActionDistribution,
    theta: Params,
    observations: Observations,
    drawn: Tensor,
    with_log_probs: bool,
) -> SampledActions:
    """Sample actions `[B, ...]` from π(·|x; θ).

    Args:
        network: the agent's architecture.
        distribution: distribution of the actions.
        theta: θ by name.
        observations: `[B, *obs]`.
        drawn: noise `[B, ...]` of `ActionDistribution.draw_noise`, one step of it.
        with_log_probs: whether to return log π(a|x) too.
    """
    features = network.encode(theta, observations, batch_dims=1)
    noise = network.noise(theta, features, drawn)
    outputs = network.policy_outputs(theta, features)
    actions = distribution.sample(outputs, noise)
    return SampledActions(actions, distribution.log_prob(outputs, actions) if with_log_probs else None)
