"""Learned intrinsic rewards (Zheng, Oh & Singh, *On Learning Intrinsic Rewards for Policy Gradient Methods*, 2018).

    python -m examples.engine.intrinsic_reward --seed 0 --output curve.csv

An actor-critic in the small four rooms. Its policy maximizes the environment's reward plus an intrinsic reward
r_η(s, a), a table of meta-parameters. The outer loss is the policy gradient of the updated policy on the next batch,
for the environment's reward alone: η learns which rewards make the policy improve at the task.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from torch import Tensor

from dgvf_agents.engine import SGD, InnerLoop, MetaOptimizer
from examples.engine.rooms import NUM_ACTIONS, NUM_STATES, Batch, Rooms, policy_loss, returns_of, write_curve

Params = dict[str, Tensor]


@dataclass(frozen=True)
class Settings:
    seed: int = 0
    updates: int = 800  # updates of θ
    output: Path | None = None  # file of the learning curve, CSV
    scale: float = 0.1  # largest intrinsic reward; 0: the plain actor-critic
    meta_learning_rate: float = 0.01  # of Adam on η
    gamma: float = 0.6  # of the agent, which is short-sighted
    lambda_: float = 0.6
    outer_gamma: float = 0.98  # of the outer loss
    outer_lambda: float = 1.0
    learning_rate: float = 10.0  # of SGD on θ; large, since losses are means and θ is a table
    entropy_coef: float = 0.003
    num_envs: int = 32  # B
    num_steps: int = 16  # T
    unroll_length: int = 4  # L, updates of θ per update of η (paper: 1)
    log_every: int = 40  # updates


def initial_theta() -> Params:
    """Tables of the policy's logits, of values of both rewards together, and of values of the environment's reward."""
    values = torch.zeros(NUM_STATES)
    return {"policy": torch.zeros(NUM_STATES, NUM_ACTIONS), "value": values, "outer_value": values.clone()}


def initial_eta() -> Params:
    return {"reward": torch.zeros(NUM_STATES, NUM_ACTIONS)}


def intrinsic_rewards(eta: Params, batch: Batch, settings: Settings) -> Tensor:
    """r_η(s_t, a_t) `[T, B]`."""
    return settings.scale * torch.tanh(eta["reward"])[batch.states, batch.actions]


def inner_loss(theta: Params, held: Params, eta: Params, batch: Batch, settings: Settings) -> Tensor:
    """The actor-critic's loss for both rewards. Returns depend on η, and on `held`, which is not differentiated in."""
    rewards = batch.rewards + intrinsic_rewards(eta, batch, settings)
    returns = returns_of(held["value"], rewards, batch, settings.gamma, settings.lambda_)
    outer = returns_of(held["outer_value"], batch.rewards, batch, settings.outer_gamma, settings.outer_lambda)
    advantages = returns - held["value"][batch.states]
    errors = (returns - theta["value"][batch.states]) ** 2 + (outer - theta["outer_value"][batch.states]) ** 2
    return policy_loss(theta["policy"], advantages, batch, settings.entropy_coef) + 0.5 * errors.mean()


def step(theta: Params, eta: Params, batch: Batch, settings: Settings) -> Params:
    """Inner step: θ′ = θ - α ∇_θ loss."""
    gradient = torch.func.grad(inner_loss)(theta, theta, eta, batch, settings)
    return SGD().step(theta, gradient, {}, settings.learning_rate)[0]


def outer_loss(theta: Params, eta: Params, batch: Batch, settings: Settings) -> Tensor:
    """The policy gradient of θ′ for the environment's reward; its advantages are constants."""
    baseline = theta["outer_value"].detach()
    returns = returns_of(baseline, batch.rewards, batch, settings.outer_gamma, settings.outer_lambda)
    return policy_loss(theta["policy"], returns - baseline[batch.states], batch)


def main(settings: Settings) -> list[tuple[float, ...]]:
    """Rows of environment steps, mean return of the episodes since the last row, and the mean of |r_η|."""
    rooms, rows = Rooms(settings.num_envs, settings.seed), []
    theta, meta = initial_theta(), MetaOptimizer(initial_eta())
    batch = rooms.collect(theta["policy"], settings.num_steps)
    for update in range(0, settings.updates, settings.unroll_length):
        loop = InnerLoop(theta, meta.eta)
        for _ in range(settings.unroll_length):
            loop.step(step, batch, settings)
            batch = rooms.collect(loop.state["policy"], settings.num_steps)
            loop.add_loss(outer_loss, batch, settings)
        theta = loop.state
        meta.step(loop.gradient(), settings.meta_learning_rate)
        if (update + settings.unroll_length) % settings.log_every == 0:
            size = float(intrinsic_rewards(meta.eta, batch, settings).abs().mean())
            rows.append((rooms.steps, rooms.mean_return(), size))
    if settings.output is not None:
        write_curve(settings.output, "steps,return,intrinsic_reward", rows)
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)  # small tensors: more threads only wait for each other
    steps, mean, size = main(tyro.cli(Settings))[-1]
    print(f"{steps:.0f} steps: return {mean:.2f}, mean intrinsic reward {size:.3f}")
