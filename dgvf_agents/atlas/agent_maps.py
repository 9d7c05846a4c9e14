"""What an agent's networks say about every state: cumulants, discounts, answers, features, policy and value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.atlas.states import WorldStates
from dgvf_agents.core.tasks import GVFTask


@final
class QuestionMaps(NamedTuple):
    """D questions over S states."""

    cumulants: np.ndarray
    """`[S, D]`: u for arriving in each state."""
    discounts: np.ndarray
    """`[S, D]`: γ for arriving in each state, before any episode's end is taken into account."""
    answers: np.ndarray
    """`[S, D]`: y(x), what the agent expects; NaN in terminal states, where it never answers."""


@final
class AgentMaps(NamedTuple):
    """The rest of the agent over S states."""

    features: np.ndarray
    """`[S, F]`: x."""
    log_policy: np.ndarray
    """`[S, A]`: log π(a|x)."""
    values: np.ndarray
    """`[S]`: v(x)."""
    heads: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    """log π `[..., A]` and v `[...]` of other features `[..., F]`."""


def question_maps(model: DGVFA2C, states: WorldStates) -> QuestionMaps:
    """Ask every question of every state.

    Raises:
        ValueError: the agent has no questions, or they are about more than one observation.
    """
    asked = questions_about(model, states.observations())
    return asked._replace(answers=np.where(states.terminal[:, None], np.nan, asked.answers))


def questions_about(model: DGVFA2C, observations: np.ndarray) -> QuestionMaps:
    """Ask every question of observations `[S, *obs]`, all of which are answered.

    Raises:
        ValueError: the agent has no questions, or they are about more than one observation.
    """
    task = question_task(model)
    eta = model.learner.eta

    def ask(observed: Tensor) -> tuple[np.ndarray, ...]:
        cumulants, discounts = task.network.ask(eta, observed[None])
        asked = _array(cumulants[0])
        factors = np.full_like(asked, task.discount) if discounts is None else _array(discounts[0])
        return asked, factors, _array(_answers(model, _features(model.policy, observed)))

    return QuestionMaps(*_in_batches(ask, observations))


def question_task(model: DGVFA2C) -> GVFTask:
    """The task that asks an agent's questions.

    Raises:
        ValueError: the agent has no questions, or they are about more than one observation.
    """
    task = model.task
    if not isinstance(task, GVFTask):
        raise ValueError(f"run must have questions (discovered or random), got the task {type(task).__name__}")
    if task.window != 1:
        raise ValueError(f"question_window must be 1 for values that are a function of one state, got {task.window!r}")
    return task


def agent_in(file: Path) -> DGVFA2C:
    """The agent in a checkpoint, to look at: on the CPU, in single precision whatever it was trained in."""
    return DGVFA2C.load(file, device="cpu", mixed_precision=False)


def agent_maps(model: DGVFA2C, states: WorldStates) -> AgentMaps:
    """Features, policy and value in every state."""
    return agent_on(model, states.observations())


def agent_on(model: DGVFA2C, observations: np.ndarray) -> AgentMaps:
    """Features, policy and value for observations `[S, *obs]`."""
    policy = model.policy

    def heads(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            of_policy, of_value = _parts(policy, torch.from_numpy(features).float())
            for_policy = policy.mlp_extractor.forward_actor(of_policy)
            for_value = policy.mlp_extractor.forward_critic(of_value)
            log_policy = torch.log_softmax(policy.action_net(for_policy).double(), -1)
            return log_policy.numpy(), _array(policy.value_net(for_value).squeeze(-1))

    (features,) = _in_batches(lambda observed: (_array(_features(policy, observed)),), observations)
    return AgentMaps(features, *heads(features), heads)


_BATCH = 256
"""Observations that networks see at once: images would fill the memory."""


def _in_batches(function: Callable[[Tensor], tuple[np.ndarray, ...]], observations: np.ndarray) -> list[np.ndarray]:
    """What `function` makes of all observations, joined."""
    with torch.no_grad():
        parts = [
            function(_tensor(observations[first : first + _BATCH])) for first in range(0, len(observations), _BATCH)
        ]
    return [np.concatenate(of_all) for of_all in zip(*parts, strict=True)]


def _features(policy: ActorCriticPolicy, observations: Tensor) -> Tensor:
    """What answers are linear in: the policy's features, then the value's where it has an encoder of its own."""
    policy.set_training_mode(False)
    features = policy.extract_features(observations)
    return features if isinstance(features, Tensor) else torch.cat(features, -1)


def _parts(policy: ActorCriticPolicy, features: Tensor) -> tuple[Tensor, Tensor]:
    """The features of the policy and those of the value, which may be the same."""
    if policy.share_features_extractor:
        return features, features
    of_policy, of_value = features.split(policy.features_dim, -1)
    return of_policy, of_value


def _answers(model: DGVFA2C, features: Tensor) -> Tensor:
    assert model.answer_net is not None
    return model.answer_net(features)


def _tensor(observations: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(observations))


def _array(values: Tensor) -> np.ndarray:
    return values.double().numpy()
