"""Bootstrapped meta-gradients (Flennerhag et al., *Bootstrapped Meta-Learning*, ICLR 2022).

    python -m examples.engine.bootstrapped --seed 0 --output curve.csv

A bandit whose best arm changes every now and then, in place of the paper's grid whose rewards do. A policy gradient
with an entropy bonus learns it; without a bonus, the policy becomes deterministic and misses the change. The bonus is
meta-learned: η is a network from the last ten mean rewards to its coefficient.

After K updates the agent has θ_K. L - 1 further updates and one without a bonus lead to the target.
The outer loss is KL(π_target ‖ π_θK). The meta-gradient passes through the K updates, not through the target. With
`--method meta-gradient`, the outer loss is the policy gradient's own at θ_K; with `fixed`, nothing is meta-learned.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
import tyro
from torch import Tensor

from dgvf_agents.engine import SGD, InnerLoop, MetaOptimizer
from examples.engine.rooms import write_curve

Params = dict[str, Tensor]


@dataclass(frozen=True)
class Settings:
    seed: int = 0
    updates: int = 8_000  # batches
    output: Path | None = None  # file of the learning curve, CSV
    method: Literal["bootstrapped", "meta-gradient", "fixed"] = "bootstrapped"
    period: int = 400  # batches between changes of the best arm
    unroll_length: int = 7  # K
    target_length: int = 9  # L
    entropy_coef: float = 0.05  # at first
    max_entropy_coef: float = 0.5
    learning_rate: float = 1.0  # of SGD on θ
    meta_learning_rate: float = 0.01  # of Adam on η
    num_arms: int = 10
    num_pulls: int = 16  # B
    noise: float = 0.5  # standard deviation of rewards
    log_every: int = 40


class Batch(NamedTuple):
    actions: Tensor  # [B] integer
    rewards: Tensor  # [B]
    history: Tensor  # [10]: mean rewards of the last batches, the latest last; zeros before the first


class Bandit:
    """The best arm has mean reward 1, all others 0."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.random = settings, torch.Generator().manual_seed(settings.seed)
        self.best, self.mean_rewards = 0, []

    @property
    def batches(self) -> int:
        return len(self.mean_rewards)

    def pull(self, theta: Params) -> Batch:
        """B pulls by the policy of θ."""
        if self.batches % self.settings.period == 0:  # another arm than before
            step = int(torch.randint(1, self.settings.num_arms, (), generator=self.random))
            self.best = (self.best + step) % self.settings.num_arms
        history = torch.tensor(([0.0] * 10 + self.mean_rewards)[-10:])
        number = self.settings.num_pulls
        actions = torch.multinomial(theta["logits"].softmax(-1), number, True, generator=self.random)
        noise = self.settings.noise * torch.randn(number, generator=self.random)
        self.mean_rewards.append(float((actions == self.best).to(noise.dtype).mean()))  # without the noise
        return Batch(actions, (actions == self.best) + noise, history)


def initial_eta(settings: Settings) -> Params:
    bias = torch.logit(torch.tensor(settings.entropy_coef / settings.max_entropy_coef))
    return {"w1": torch.randn(10, 32), "b1": torch.zeros(32), "w2": torch.zeros(32), "b2": bias}


def entropy_coef(eta: Params, batch: Batch, settings: Settings) -> Tensor:
    output = torch.tanh(batch.history @ eta["w1"] + eta["b1"]) @ eta["w2"] + eta["b2"]
    return settings.max_entropy_coef * torch.sigmoid(output)


def policy_loss(theta: Params, bonus: Tensor | float, batch: Batch) -> Tensor:
    """The policy gradient's pseudo-loss with an entropy bonus; the baseline is the mean reward."""
    log_pi = F.log_softmax(theta["logits"], -1)
    advantages = batch.rewards - batch.rewards.mean()
    return -(advantages * log_pi[batch.actions]).mean() + bonus * (log_pi.exp() * log_pi).sum()


def updated(theta: Params, bonus: Tensor | float, batch: Batch, settings: Settings) -> Params:
    gradient = torch.func.grad(policy_loss)(theta, bonus, batch)
    return SGD().step(theta, gradient, {}, settings.learning_rate)[0]


def step(theta: Params, eta: Params, batch: Batch, settings: Settings) -> Params:
    """Inner step, with the entropy bonus of η."""
    return updated(theta, entropy_coef(eta, batch, settings), batch, settings)


def matching_loss(theta: Params, eta: Params, target: Params) -> Tensor:
    """KL(π_target ‖ π_θ)."""
    log_target = F.log_softmax(target["logits"], -1)
    return (log_target.exp() * (log_target - F.log_softmax(theta["logits"], -1))).sum()


def outer_loss(theta: Params, eta: Params, batch: Batch) -> Tensor:
    return policy_loss(theta, 0.0, batch)


def main(settings: Settings) -> list[tuple[float, ...]]:
    """Rows of pulls, fraction of pulls of the best arm since the last row, and the coefficient of the bonus."""
    torch.manual_seed(settings.seed)
    bandit, rows, logged = Bandit(settings), [], 0
    theta, meta = {"logits": torch.zeros(settings.num_arms)}, MetaOptimizer(initial_eta(settings))
    batch = bandit.pull(theta)
    while bandit.batches < settings.updates:
        loop = InnerLoop(theta, meta.eta)
        for _ in range(settings.unroll_length):
            loop.step(step, batch, settings)
            batch = bandit.pull(loop.state)
        theta = loop.state
        if settings.method == "bootstrapped":
            for _ in range(settings.target_length - 1):
                theta = step(theta, meta.eta, batch, settings)
                batch = bandit.pull(theta)
            loop.add_loss(matching_loss, updated(theta, 0.0, batch, settings))
        elif settings.method == "meta-gradient":
            loop.add_loss(outer_loss, batch)
        if loop.has_loss:
            meta.step(loop.gradient(), settings.meta_learning_rate)
        if bandit.batches >= logged + settings.log_every:
            mean = sum(bandit.mean_rewards[logged:]) / (bandit.batches - logged)
            rows.append((bandit.batches * settings.num_pulls, mean, float(entropy_coef(meta.eta, batch, settings))))
            logged = bandit.batches
    if settings.output is not None:
        write_curve(settings.output, "steps,reward,entropy_coef", rows)
    return rows


if __name__ == "__main__":
    torch.set_num_threads(1)  # small tensors: more threads only wait for each other
    steps, reward, coefficient = main(tyro.cli(Settings))[-1]
    print(f"{steps:.0f} pulls: mean reward {reward:.3f}, entropy coefficient {coefficient:.4f}")
