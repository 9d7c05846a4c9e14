"""Outputs of an agent's networks at every point: cumulants, discounts, answers, features, policy and value."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.functional_policy import encoder_widths
from dgvf_agents.atlas.domain import Domain
from dgvf_agents.core.tasks import GVFTask
from dgvf_envs.planning import TransitionTable

_BATCH = 256
"""Observations at once; all images together would not fit into memory."""


@final
class QuestionValues(NamedTuple):
    """D questions at N points."""

    cumulants: np.ndarray
    """`[N, D]`: u for arriving at each point; NaN where no step arrives."""
    discounts: np.ndarray
    """`[N, D]`: γ for arriving there, before any episode's end is taken into account; NaN where no step arrives."""
    answers: np.ndarray
    """`[N, D]`: y(x); NaN where the agent does not act."""
    outcomes: np.ndarray | None
    """`[N, D]`: the returns G that answers predict, if the points are a sample of experience."""


def lines_of(values: QuestionValues, question: int) -> list[np.ndarray]:
    """Cumulant, discount, answer and outcome (if there is one) of a question, `[N]` each."""
    return [part[:, question] for part in values if part is not None]


@final
class AgentValues(NamedTuple):
    """The rest of the agent at N points."""

    features: np.ndarray
    """`[N, F]`: x."""
    log_policy: np.ndarray
    """`[N, A]`: log π(a|x)."""
    values: np.ndarray
    """`[N]`: v(x)."""
    heads: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    """log π `[..., A]` and v `[...]` of other features `[..., F]`."""


def question_task(model: DiscoveryAlgorithm) -> GVFTask:
    """The task that asks an agent's questions.

    Raises:
        ValueError: the agent has no questions, or they are about more than one observation.
    """
    task = model.task
    if not isinstance(task, GVFTask):
        raise ValueError(f"run must have questions (discovered or random), got the task {type(task).__name__}")
    if task.window != 1:
        raise ValueError(f"question_window must be 1 for values that are a function of one state, got {task.window!r}")
    if task.reads_features:
        raise ValueError("question_encoder must be 'independent' for questions about observations, got 'shared'")
    return task


def question_values(model: DiscoveryAlgorithm, domain: Domain) -> QuestionValues:
    """Evaluate every question at every point."""
    task, answer_net = question_task(model), model.answer_net
    assert answer_net is not None
    eta = model.learner.eta

    def ask(observed: Tensor) -> tuple[np.ndarray, ...]:
        cumulants, discounts = task.network.ask(eta, observed[None])
        asked = _array(cumulants[0])
        factors = np.full_like(asked, task.discount) if discounts is None else _array(discounts[0])
        return asked, factors, _array(answer_net(_features(model.policy, observed)))

    cumulants, discounts, answers = _in_batches(ask, domain.observations)
    outcomes = domain.outcomes(cumulants, discounts, answers)
    arriving, acting = domain.arriving[:, None], domain.acting[:, None]
    return QuestionValues(
        np.where(arriving, cumulants, np.nan),
        np.where(arriving, discounts, np.nan),
        np.where(acting, answers, np.nan),
        outcomes,
    )


def agent_values(model: DiscoveryAlgorithm, observations: np.ndarray) -> AgentValues:
    """Features, policy and value for observations `[N, *obs]`."""
    policy = model.policy

    def heads(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            parts = torch.from_numpy(features).float().split(encoder_widths(policy), -1)
            for_policy, for_value = parts[0], parts[-1]
            log_policy = torch.log_softmax(policy.action_net(for_policy).double(), -1)
            return log_policy.numpy(), _array(policy.value_net(for_value).squeeze(-1))

    (features,) = _in_batches(lambda observed: (_array(_features(policy, observed)),), observations)
    return AgentValues(features, *heads(features), heads)


def _in_batches(function: Callable[[Tensor], tuple[np.ndarray, ...]], observations: np.ndarray) -> list[np.ndarray]:
    """The results of `function` for all observations, concatenated."""
    with torch.no_grad():
        parts = [function(batch) for batch in torch.from_numpy(np.ascontiguousarray(observations)).split(_BATCH)]
    return [np.concatenate(of_all) for of_all in zip(*parts, strict=True)]


def _features(policy: ActorCriticPolicy, observations: Tensor) -> Tensor:
    """Input of the answer head: the policy's features, then the value's if they are others."""
    policy.set_training_mode(False)
    extracted = policy.extract_features(observations)
    of_policy, of_value = (extracted, extracted) if isinstance(extracted, Tensor) else extracted
    latent = [policy.mlp_extractor.forward_actor(of_policy), policy.mlp_extractor.forward_critic(of_value)]
    return torch.cat(latent[: len(encoder_widths(policy))], -1)


def _array(values: Tensor) -> np.ndarray:
    return values.double().numpy()


@final
class Reliance(NamedTuple):
    """The effect of erasing each of D answers on the main task."""

    policy: np.ndarray
    """`[D]`: Σ_s KL(π(·|x(s)) ‖ π(·|x'(s))) / N over points where the agent acts, in nats."""
    value: np.ndarray
    """`[D]`: Σ_s (v(x) - v(x'))² / Σ_s (v(x) - v̄)² over the same states."""
    return_lost: np.ndarray | None
    """`[D]`: expected return under π(·|x) less that under π(·|x'); `None` if the world is not finite."""


def reliance(
    agent: AgentValues,
    answers: np.ndarray,
    acting: np.ndarray,
    table: TransitionTable | None = None,
    horizon: int = 0,
) -> Reliance:
    """The main task's reliance on each answer.

    Args:
        agent: the agent at N points.
        answers: `[N, D]`; read only where the agent acts.
        acting: `[N]` boolean: where the agent acts.
        table: transitions among the points, if they are the states of a finite world.
        horizon: the time limit of an episode there.
    """
    log_policy, values = agent.log_policy[acting], agent.values[acting]
    spread = max(float(np.square(values - values.mean()).sum()), 1e-12)
    own_return = None if table is None else policy_return(table, np.exp(agent.log_policy), horizon)
    policy, value, lost = [], [], []
    for answer in answers.T:
        changed_policy, changed_values = agent.heads(erased(agent.features, answer, acting))
        kept, changed = changed_policy[acting], changed_values[acting]
        policy.append((np.exp(log_policy) * (log_policy - kept)).sum(axis=1).mean())
        value.append(np.square(values - changed).sum() / spread)
        if table is not None and own_return is not None:
            lost.append(own_return - policy_return(table, np.exp(changed_policy), horizon))
    return Reliance(np.array(policy), np.array(value), None if own_return is None else np.array(lost))


def erased(features: np.ndarray, answer: np.ndarray, acting: np.ndarray) -> np.ndarray:
    """Features x' `[N, F]` without what is linear in the answer; unchanged where the agent does not act.

    Args:
        features: x `[N, F]`.
        answer: y `[N]`.
        acting: `[N]` boolean.
    """
    centered = np.where(acting, answer - answer[acting].mean(), 0.0)
    variance = np.square(centered[acting]).mean()
    if variance < 1e-12:
        return features
    covariance = (features[acting] - features[acting].mean(axis=0)).T @ centered[acting] / acting.sum()
    return features - np.outer(centered, covariance / variance)


def policy_return(table: TransitionTable, policy: np.ndarray, horizon: int) -> float:
    """The exact undiscounted return of a policy from the start distribution, by backward induction.

    Args:
        table: the world.
        policy: `[N, A]`: probabilities.
        horizon: the time limit.
    """
    values = np.zeros(len(table.start))
    for _ in range(horizon):
        values = (policy * (table.reward + ~table.terminated * values[table.next_state])).sum(axis=1)
    return float(table.start @ values)
