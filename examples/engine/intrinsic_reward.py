"""Learned intrinsic rewards (Zheng, Oh & Singh, *On Learning Intrinsic Rewards for Policy Gradient Methods*, 2018).

    python -m examples.engine.intrinsic_reward --seed 0 --output curve.csv

An actor-critic in the small four rooms. Its policy maximizes the environment's reward plus an intrinsic reward
r_η(s, a), a table of meta-parameters. The outer loss is the policy gradient of the updated policy on the next batch,
for the environment's reward alone: η learns which rewards make the policy improve at the task.
"""

from dataclasses import dataclass

import torch
import tyro
from torch import Tensor

from dgvf_agents.engine import SGD, InnerLoop, MetaOptimizer
from examples.engine.rooms import (
    NUM_ACTIONS,
    NUM_STATES,
    ActorCritic,
    Batch,
    Params,
    Rooms,
    actor_critic_loss,
    initial_theta,
    outer_loss,
    returns_of,
    write_curve,
)


@dataclass(frozen=True)
class Settings(ActorCritic):
    scale: float = 0.1  # largest intrinsic reward; 0: the plain actor-critic
    meta_learning_rate: float = 0.01  # of Adam on η
    gamma: float = 0.6  # of the agent, which is short-sighted
    lambda_: float = 0.6


def initial_eta() -> Params:
    return {"reward": torch.zeros(NUM_STATES, NUM_ACTIONS)}


def intrinsic_rewards(eta: Params, batch: Batch, settings: Settings) -> Tensor:
    """r_η(s_t, a_t) `[T, B]`."""
    return settings.scale * torch.tanh(eta["reward"])[batch.states, batch.actions]


def inner_loss(theta: Params, held: Params, eta: Params, batch: Batch, settings: Settings) -> Tensor:
    """The actor-critic's loss for both rewards. Returns depend on η, and on `held`, which is not differentiated in."""
    rewards = batch.rewards + intrinsic_rewards(eta, batch, settings)
    returns = returns_of(held["value"], rewards, batch, settings.gamma, settings.lambda_)
    return actor_critic_loss(theta, held, returns, batch, settings)


def step(theta: Params, eta: Params, batch: Batch, settings: Settings) -> Params:
    """Inner step: θ′ = θ - α ∇_θ loss."""
    gradient = torch.func.grad(inner_loss)(theta, theta, eta, batch, settings)
    return SGD().step(theta, gradient, {}, settings.learning_rate)[0]


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
