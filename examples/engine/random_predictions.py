"""Random deep action-conditional predictions (Zheng et al., *Learning State Representations from Random Deep
Action-conditional Predictions*, NeurIPS 2021), a stronger baseline of random questions.

    python -m examples.engine.random_predictions --seed 0 --output curve.csv

An auxiliary task for `DGVFA2C`; it needs no meta-gradient. Each of F random features f_i of observations has a chain of
predictions. The first predicts f_i of the next observation if the agent takes action a_i1. The d-th predicts what the
one before it will say at the next observation if the agent takes action a_id: f_i after a_id, …, a_i1. In the paper,
questions form random graphs; these are its chains.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from gymnasium.spaces.utils import flatdim
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from dgvf_agents import DGVFA2C
from dgvf_agents.tasks import AuxiliaryTask
from dgvf_agents.types import Params, Rollout
from examples.engine.rooms import write_curve


@dataclass(frozen=True)
class Settings:
    seed: int = 0
    steps: int = 100_000  # environment steps
    output: Path | None = None  # file of the learning curve, CSV
    task: Literal["predictions", "random", "none"] = "predictions"  # these; random GVFs; joint training without a task
    env: str = "CollectObjectsSmall-v0"
    num_features: int = 16  # F
    depth: int = 8  # predictions per feature
    coefficient: float = 0.1  # weight of the auxiliary loss
    learning_rate: float = 1e-3
    log_every: int = 4_000  # environment steps


class RandomPredictions(AuxiliaryTask):
    """F chains of n predictions each, so D = F · n answers."""

    def __init__(self, observation_size: int, num_actions: int, num_features: int, depth: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.shape = (num_features, depth)
        self.weights = torch.randn(observation_size, num_features, generator=generator)
        self.actions = torch.randint(num_actions, self.shape, generator=generator)

    @property
    def num_answers(self) -> int:
        return self.shape[0] * self.shape[1]

    def features(self, observations: Tensor) -> Tensor:
        """f `[T, B, F]` of observations `[T, B, ...]`."""
        return torch.tanh(observations.flatten(2).to(self.weights.dtype) @ self.weights)

    def targets(self, answers: Tensor, bootstraps: Tensor, rollout: Rollout) -> Tensor:
        """`[T, B, F, n]`: f of o_{t+1}, then the answers of predictions 1 … n - 1 at o_{t+1}."""
        ends = rollout.segment_end[..., None]
        following = torch.where(ends, bootstraps, torch.cat([answers[1:], answers[-1:]])).detach()
        following = following * (~rollout.terminated[..., None]).to(following.dtype)
        assert isinstance(rollout.next_observations, Tensor)
        first = self.features(rollout.next_observations)[..., None]
        return torch.cat([first, following.unflatten(-1, self.shape)[..., :-1]], -1)

    def loss(self, answers: Tensor, bootstraps: Tensor, eta: Params, rollout: Rollout) -> Tensor:
        """½ (target - answer)² of the predictions whose action was taken, summed over predictions."""
        errors = self.targets(answers, bootstraps, rollout) - answers.unflatten(-1, self.shape)
        taken = (rollout.actions[..., None, None] == self.actions).to(answers.dtype)
        return 0.5 * (taken * errors**2).sum((-1, -2)).mean()


class Curve(BaseCallback):
    """Mean return of the last hundred episodes, every `log_every` steps."""

    def __init__(self, log_every: int) -> None:
        super().__init__()
        self.log_every, self.rows = log_every, []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if self.num_timesteps >= (len(self.rows) + 1) * self.log_every:
            episodes = self.model.ep_info_buffer
            mean = sum(episode["r"] for episode in episodes) / len(episodes) if episodes else float("nan")
            self.rows.append((float(self.num_timesteps), mean))


def build(settings: Settings) -> DGVFA2C:
    """`DGVFA2C` whose encoder learns from the task alone, or from the main task if there is none."""

    def predictions(model: DGVFA2C) -> RandomPredictions:
        size, actions = flatdim(model.observation_space), int(model.action_space.n)
        return RandomPredictions(size, actions, settings.num_features, settings.depth, settings.seed)

    return DGVFA2C(
        "PaperMlpPolicy",
        settings.env,
        learning_rate=settings.learning_rate,
        ent_coef=0.01,
        n_envs=16,
        auxiliary_task=predictions if settings.task == "predictions" else settings.task,
        questions=settings.num_features * settings.depth,
        auxiliary_weighting="fixed",
        auxiliary_coefficient=settings.coefficient,
        encoder_mode="joint" if settings.task == "none" else "auxiliary",
        compile=False,
        seed=settings.seed,
    )


def main(settings: Settings) -> list[tuple[float, ...]]:
    """Rows of environment steps and the mean return of the last hundred episodes."""
    curve = Curve(settings.log_every)
    build(settings).learn(settings.steps, callback=curve)
    if settings.output is not None:
        write_curve(settings.output, "steps,return", curve.rows)
    return curve.rows


if __name__ == "__main__":
    torch.set_num_threads(1)  # small networks: more threads only wait for each other
    steps, mean = main(tyro.cli(Settings))[-1]
    print(f"{steps:.0f} steps: return {mean:.2f}")
