"""How much the main task relies on what each answer says, by erasing it from the features.

For answer y_i with mean ȳ_i and variance σ_i² over the points where the agent acts, the features become

    x'(s) = x(s) - Cov(x, y_i) / σ_i² · (y_i(s) - ȳ_i)

the least change in mean square after which no linear function of the features is correlated with what the answer was
(the oracle form of least-squares concept erasure, Belrose et al. 2023, with the answer as the concept). The agent's
own heads then act on x'. Everything is exact: there are no samples, and in finite worlds the return is that of backward
induction.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np

from dgvf_agents.atlas.probe import AgentValues
from dgvf_envs.planning import TransitionTable


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
