"""What the examples in the small four rooms share: experience of a table of states, an
actor-critic and the outer loss that judges it, and the learning curve."""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from gymnasium.vector import AutoresetMode
from torch import Tensor

from dgvf_agents.core.returns import lambda_returns

ENV = "dgvf_envs:CollectObjectsSmall-v0"
NUM_STATES, NUM_ACTIONS = 9 * 9 * 2, 4  # the agent's cell, and whether the first object is present


Params = dict[str, Tensor]


class Batch(NamedTuple):
    states: Tensor  # [T, B] integer: s_t
    actions: Tensor  # [T, B] integer: a_t
    rewards: Tensor  # [T, B]: R_{t+1}
    next_states: Tensor  # [T, B] integer: s_{t+1}; at the end of an episode its final state
    terminated: Tensor  # [T, B] boolean: no bootstrap from s_{t+1}
    segment_end: Tensor  # [T, B] boolean: the episode or the batch ends with s_{t+1}


@dataclass(frozen=True)
class ActorCritic:
    """Settings of an actor-critic and of what judges it."""

    seed: int = 0
    updates: int = 800  # updates of θ
    output: Path | None = None  # file of the learning curve, CSV
    outer_gamma: float = 0.98  # γ̄, of the outer loss
    outer_lambda: float = 1.0  # λ̄, of the outer loss
    learning_rate: float = 10.0  # of SGD on θ; large, since losses are means and θ is a table
    entropy_coef: float = 0.003
    num_envs: int = 32  # B
    num_steps: int = 16  # T
    unroll_length: int = 4  # L, updates of θ per update of η (paper: 1)
    log_every: int = 40  # updates


class Rooms:
    """B environments; the returns of finished episodes are in `returns`."""

    def __init__(self, num_envs: int, seed: int) -> None:
        self.envs = gym.make_vec(ENV, num_envs, observation="state", autoreset_mode=AutoresetMode.SAME_STEP)
        self.states = index(self.envs.reset(seed=seed)[0])
        self.random = np.random.default_rng(seed)
        self.steps, self.running, self.returns = 0, np.zeros(num_envs), []

    def collect(self, logits: Tensor, num_steps: int) -> Batch:
        """T steps of the policy of a table of logits `[states, actions]`."""
        cumulative = logits.softmax(-1).cumsum(-1).numpy()[:, :-1]
        rows = [self.step(cumulative) for _ in range(num_steps)]
        states, actions, rewards, next_states, terminated, ends = map(np.stack, zip(*rows, strict=True))
        ends[-1] = True
        self.steps += ends.size
        batch = Batch(*map(torch.from_numpy, (states, actions, rewards, next_states, terminated, ends)))
        return batch._replace(rewards=batch.rewards.to(logits.dtype))

    def step(self, cumulative: np.ndarray) -> tuple[np.ndarray, ...]:
        before = self.states
        actions = (self.random.random(len(before))[:, None] > cumulative[before]).sum(-1)
        observations, rewards, terminated, truncated, infos = self.envs.step(actions)
        self.states, done = index(observations), terminated | truncated
        after = self.states.copy()
        self.running += rewards
        if done.any():  # `observations` are already the first of the next episode
            after[done] = index(np.stack(list(infos["final_obs"][done])))
            self.returns.extend(self.running[done])
            self.running[done] = 0.0
        return before, actions, rewards, after, terminated, done

    def mean_return(self) -> float:
        """Of the episodes that finished since the last call."""
        finished, self.returns = self.returns, []
        return float(np.mean(finished)) if finished else float("nan")


def index(observations: np.ndarray) -> np.ndarray:
    """Indices [B] of states (row, column, first object present, second object present)."""
    row, column, first, _ = observations.T.astype(np.int64)
    return (row * 9 + column) * 2 + first


def returns_of(values: Tensor, rewards: Tensor, batch: Batch, gamma: float | Tensor, lambda_: float | Tensor) -> Tensor:
    """λ-returns `[T, B]` with a table of values."""
    discounts = gamma * (~batch.terminated).to(values.dtype)
    now, after = values[batch.states], values[batch.next_states]
    return lambda_returns(rewards, discounts, now, after, batch.segment_end, lambda_)


def policy_loss(policy: Tensor, advantages: Tensor, batch: Batch, entropy_coef: float = 0.0) -> Tensor:
    """The policy gradient's pseudo-loss, and an entropy bonus."""
    log_pi = F.log_softmax(policy, -1)[batch.states]
    entropy = -(log_pi.exp() * log_pi).sum(-1).mean()
    return -(advantages * log_pi.gather(-1, batch.actions[..., None])[..., 0]).mean() - entropy_coef * entropy


def initial_theta() -> Params:
    """Tables of the policy's logits, of values of the inner returns, and of values of the outer ones."""
    values = torch.zeros(NUM_STATES)
    return {"policy": torch.zeros(NUM_STATES, NUM_ACTIONS), "value": values, "outer_value": values.clone()}


def actor_critic_loss(theta: Params, held: Params, returns: Tensor, batch: Batch, settings: ActorCritic) -> Tensor:
    """Of inner returns `[T, B]`, and of outer returns for `outer_value`, with values that are not differentiated."""
    outer = returns_of(held["outer_value"], batch.rewards, batch, settings.outer_gamma, settings.outer_lambda)
    advantages = returns - held["value"][batch.states]
    errors = (returns - theta["value"][batch.states]) ** 2 + (outer - theta["outer_value"][batch.states]) ** 2
    return policy_loss(theta["policy"], advantages, batch, settings.entropy_coef) + 0.5 * errors.mean()


def outer_loss(theta: Params, eta: Params, batch: Batch, settings: ActorCritic) -> Tensor:
    """The policy gradient of θ′ for outer returns of the environment's reward; its advantages are constants."""
    baseline = theta["outer_value"].detach()
    returns = returns_of(baseline, batch.rewards, batch, settings.outer_gamma, settings.outer_lambda)
    return policy_loss(theta["policy"], returns - baseline[batch.states], batch)


def write_curve(file: Path, header: str, rows: list[tuple[float, ...]]) -> None:
    """A learning curve as CSV."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header.split(","))
        writer.writerows([f"{value:.6g}" for value in row] for row in rows)
