"""Meta-learned discount and λ (Xu, van Hasselt & Silver, *Meta-Gradient Reinforcement Learning*, NeurIPS 2018).

    python -m examples.engine.meta_discount --seed 0 --output curve.csv

An actor-critic in the small four rooms. The discount γ and the λ of its returns are meta-parameters, η = (γ, λ). An
update from θ to θ′ follows the returns of η. The policy of θ′ generates the next batch, and the outer loss is the
policy gradient of θ′ there, with fixed γ̄ and λ̄. The meta-gradient through the update tells how γ and λ should change.
"""

from dataclasses import dataclass

import torch
import tyro
from torch import Tensor

from dgvf_agents.engine import SGD, InnerLoop, MetaOptimizer
from examples.engine.rooms import (
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
    gamma: float = 0.6  # γ at first
    lambda_: float = 0.6  # λ at first
    meta_learning_rate: float = 0.02  # of Adam on η; 0: γ and λ stay as they are


def initial_eta(settings: Settings) -> Params:
    """Logits of γ and λ."""
    return {name: torch.logit(torch.tensor(getattr(settings, name))) for name in ("gamma", "lambda_")}


def inner_loss(theta: Params, held: Params, eta: Params, batch: Batch, settings: Settings) -> Tensor:
    """The actor-critic's loss. Returns and advantages depend on η, and on `held`, which is not differentiated in."""
    gamma, lambda_ = torch.sigmoid(eta["gamma"]), torch.sigmoid(eta["lambda_"])
    returns = returns_of(held["value"], batch.rewards, batch, gamma, lambda_)
    return actor_critic_loss(theta, held, returns, batch, settings)


def step(theta: Params, eta: Params, batch: Batch, settings: Settings) -> Params:
    """Inner step: θ′ = θ - α ∇_θ loss. `held` is θ too, so the meta-gradient is exact."""
    gradient = torch.func.grad(inner_loss)(theta, theta, eta, batch, settings)
    return SGD().step(theta, gradient, {}, settings.learning_rate)[0]


def main(settings: Settings) -> list[tuple[float, ...]]:
    """Rows of environment steps, mean return of the episodes since the last row, γ and λ."""
    rooms, rows = Rooms(settings.num_envs, settings.seed), []
    theta, meta = initial_theta(), MetaOptimizer(initial_eta(settings))
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
            gamma, lambda_ = (float(torch.sigmoid(value)) for value in meta.eta.values())
            rows.append((rooms.steps, rooms.mean_return(), gamma, lambda_))
    if settings.output is not None:
        write_curve(settings.output, "steps,return,gamma,lambda", rows)
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)  # small tensors: more threads only wait for each other
    steps, mean, gamma, lambda_ = main(tyro.cli(Settings))[-1]
    print(f"{steps:.0f} steps: return {mean:.2f}, γ {gamma:.3f}, λ {lambda_:.3f}")
