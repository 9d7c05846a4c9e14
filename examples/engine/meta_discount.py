"""Meta-learned discount and λ (Xu, van Hasselt & Silver, *Meta-Gradient Reinforcement Learning*, NeurIPS 2018).

    python -m examples.engine.meta_discount --seed 0 --output curve.csv

An actor-critic in the small four rooms. The discount γ and the λ of its returns are meta-parameters, η = (γ, λ). An
update from θ to θ′ follows the returns of η. The policy of θ′ generates the next batch, and the outer loss is the
policy gradient of θ′ there, with fixed γ̄ and λ̄. The meta-gradient through the update tells how γ and λ should change.
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
    gamma: float = 0.6  # γ at first
    lambda_: float = 0.6  # λ at first
    meta_learning_rate: float = 0.02  # of Adam on η; 0: γ and λ stay as they are
    outer_gamma: float = 0.98  # γ̄
    outer_lambda: float = 1.0  # λ̄
    learning_rate: float = 10.0  # of SGD on θ; large, since losses are means and θ is a table
    entropy_coef: float = 0.003
    num_envs: int = 32  # B
    num_steps: int = 16  # T
    unroll_length: int = 4  # L, updates of θ per update of η (paper: 1)
    log_every: int = 40  # updates


def initial_theta() -> Params:
    """Tables of the policy's logits, of values under η, and of values under γ̄ and λ̄, the outer loss's baseline."""
    values = torch.zeros(NUM_STATES)
    return {"policy": torch.zeros(NUM_STATES, NUM_ACTIONS), "value": values, "outer_value": values.clone()}


def initial_eta(settings: Settings) -> Params:
    """Logits of γ and λ."""
    return {name: torch.logit(torch.tensor(getattr(settings, name))) for name in ("gamma", "lambda_")}


def inner_loss(theta: Params, held: Params, eta: Params, batch: Batch, settings: Settings) -> Tensor:
    """The actor-critic's loss. Returns and advantages depend on η, and on `held`, which is not differentiated in."""
    gamma, lambda_ = torch.sigmoid(eta["gamma"]), torch.sigmoid(eta["lambda_"])
    returns = returns_of(held["value"], batch.rewards, batch, gamma, lambda_)
    outer = returns_of(held["outer_value"], batch.rewards, batch, settings.outer_gamma, settings.outer_lambda)
    advantages = returns - held["value"][batch.states]
    errors = (returns - theta["value"][batch.states]) ** 2 + (outer - theta["outer_value"][batch.states]) ** 2
    return policy_loss(theta["policy"], advantages, batch, settings.entropy_coef) + 0.5 * errors.mean()


def step(theta: Params, eta: Params, batch: Batch, settings: Settings) -> Params:
    """Inner step: θ′ = θ - α ∇_θ loss. What is held is θ too, so the meta-gradient is that of the whole procedure."""
    gradient = torch.func.grad(inner_loss)(theta, theta, eta, batch, settings)
    return SGD().step(theta, gradient, {}, settings.learning_rate)[0]


def outer_loss(theta: Params, eta: Params, batch: Batch, settings: Settings) -> Tensor:
    """The policy gradient of θ′ with γ̄ and λ̄; its advantages are constants."""
    baseline = theta["outer_value"].detach()
    returns = returns_of(baseline, batch.rewards, batch, settings.outer_gamma, settings.outer_lambda)
    return policy_loss(theta["policy"], returns - baseline[batch.states], batch)


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
