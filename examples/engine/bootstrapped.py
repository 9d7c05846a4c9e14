"""Bootstrapped meta-gradients (Flennerhag et al., *Bootstrapped Meta-Learning*, ICLR 2022).

    python -m examples.engine.bootstrapped --seed 0 --output curve.csv

An actor-critic on a 5x5 grid with two objects. One gives reward 1, the other -1, and every now and then they swap. The
entropy bonus of the actor-critic is meta-learned: η is a network from the last ten mean rewards to its coefficient.

After K updates the agent has θ_K. It goes on for L - 1 updates and takes one more without entropy bonus: that is the
target. The outer loss is KL(π_target ‖ π_θK); the meta-gradient passes through the K updates, not through the target.
With `--method meta-gradient`, the outer loss is the actor-critic's own at θ_K; with `fixed`, nothing is meta-learned.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from dgvf_agents.core.returns import bootstrapped_returns
from dgvf_agents.engine import InnerLoop, MetaOptimizer, OptimizerState, RMSProp
from examples.engine.rooms import write_curve
from examples.engine.two_colors import Batch, Grid

Params = dict[str, Tensor]
RMS_PROP = RMSProp.pytorch()


@dataclass(frozen=True)
class Settings:
    seed: int = 0
    updates: int = 3_200  # batches; the learning curve goes to:
    output: Path | None = None  # CSV
    method: Literal["bootstrapped", "meta-gradient", "fixed"] = "bootstrapped"
    period: int = 400  # batches between swaps
    unroll_length: int = 7  # K
    target_length: int = 9  # L
    entropy_coef: float = 0.02  # at first
    max_entropy_coef: float = 0.2
    learning_rate: float = 2e-3  # of RMSProp on θ
    meta_learning_rate: float = 3e-3  # of Adam on η
    gamma: float = 0.95
    num_envs: int = 16  # B
    num_steps: int = 16  # T
    log_every: int = 40  # batches


class State(NamedTuple):
    theta: Params
    statistics: OptimizerState


def network(theta: Params, observations: Tensor) -> tuple[Tensor, Tensor]:
    """Logits `[..., 4]` and values `[...]`."""
    outputs = torch.tanh(observations @ theta["w1"] + theta["b1"]) @ theta["w2"] + theta["b2"]
    return outputs[..., :4], outputs[..., 4]


def initial_state() -> State:
    theta = {"w1": torch.randn(75, 64) / 3**0.5, "b1": torch.zeros(64), "w2": torch.zeros(64, 5), "b2": torch.zeros(5)}
    return State(theta, RMS_PROP.init(theta))


def initial_eta(settings: Settings) -> Params:
    bias = torch.logit(torch.tensor(settings.entropy_coef / settings.max_entropy_coef))
    return {"w1": torch.randn(10, 32), "b1": torch.zeros(32), "w2": torch.zeros(32), "b2": bias}


def entropy_coef(eta: Params, batch: Batch, settings: Settings) -> Tensor:
    hidden = torch.tanh(batch.history @ eta["w1"] + eta["b1"])
    return settings.max_entropy_coef * torch.sigmoid(hidden @ eta["w2"] + eta["b2"])


def rl_loss(theta: Params, held: Params, bonus: Tensor | float, batch: Batch, settings: Settings) -> Tensor:
    """The actor-critic's loss; returns and advantages are those of `held`."""
    _, held_values = network(held, batch.observations)
    end = torch.arange(settings.num_steps)[:, None].expand_as(batch.rewards) == settings.num_steps - 1
    returns = bootstrapped_returns(batch.rewards, torch.tensor(settings.gamma), held_values[1:], end)
    logits, values = network(theta, batch.observations[:-1])
    log_pi = F.log_softmax(logits, -1)
    entropy = -(log_pi.exp() * log_pi).sum(-1).mean()
    policy = -((returns - held_values[:-1]) * log_pi.gather(-1, batch.actions[..., None])[..., 0]).mean()
    return policy + 0.5 * ((returns - values) ** 2).mean() - bonus * entropy


def updated(state: State, bonus: Tensor | float, batch: Batch, settings: Settings) -> State:
    gradient = torch.func.grad(rl_loss)(state.theta, state.theta, bonus, batch, settings)
    return State(*RMS_PROP.step(state.theta, gradient, state.statistics, settings.learning_rate))


def step(state: State, eta: Params, batch: Batch, settings: Settings) -> State:
    """Inner step, with the entropy bonus of η."""
    return updated(state, entropy_coef(eta, batch, settings), batch, settings)


def log_policy(theta: Params, batch: Batch) -> Tensor:
    return F.log_softmax(network(theta, batch.observations[:-1])[0], -1)


def matching_loss(state: State, eta: Params, batch: Batch, target: Tensor) -> Tensor:
    """KL(π_target ‖ π_θ), the mean over a batch."""
    return (target.exp() * (target - log_policy(state.theta, batch))).sum(-1).mean()


def outer_loss(state: State, eta: Params, batch: Batch, settings: Settings) -> Tensor:
    return rl_loss(state.theta, {k: value.detach() for k, value in state.theta.items()}, 0.0, batch, settings)


def main(settings: Settings) -> list[tuple[float, ...]]:
    """Rows of environment steps, mean reward since the last row, and the coefficient of the entropy bonus."""
    torch.manual_seed(settings.seed)
    grid, rows, logged = Grid(settings.num_envs, settings.period, settings.seed), [], 0
    state, meta = initial_state(), MetaOptimizer(initial_eta(settings))

    def collect(state: State) -> Batch:
        return grid.collect(lambda observations: network(state.theta, observations)[0], settings.num_steps)

    batch = collect(state)
    while grid.batches < settings.updates:
        loop = InnerLoop(state, meta.eta)
        for _ in range(settings.unroll_length):
            loop.step(step, batch, settings)
            batch = collect(loop.state)
        state, first = loop.state, batch
        if settings.method == "bootstrapped":
            for _ in range(settings.target_length - 1):
                state = step(state, meta.eta, batch, settings)
                batch = collect(state)
            target = updated(state, 0.0, batch, settings)
            loop.add_loss(matching_loss, first, log_policy(target.theta, first))
        elif settings.method == "meta-gradient":
            loop.add_loss(outer_loss, first, settings)
        if loop.has_loss:
            meta.step(loop.gradient(), settings.meta_learning_rate, max_norm=1.0)
        if grid.batches >= logged + settings.log_every:
            mean, coefficient = float(np.mean(grid.mean_rewards[logged:])), entropy_coef(meta.eta, batch, settings)
            rows.append((grid.batches * batch.rewards.numel(), mean, float(coefficient)))
            logged = grid.batches
    if settings.output is not None:
        write_curve(settings.output, "steps,reward,entropy_coef", rows)
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)  # small tensors: more threads only wait for each other
    steps, reward, coefficient = main(tyro.cli(Settings))[-1]
    print(f"{steps:.0f} steps: mean reward {reward:.3f}, entropy coefficient {coefficient:.4f}")
