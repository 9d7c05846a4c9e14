"""A task of your own for the encoder: predict the distance to the next observation."""

import torch
from torch import Tensor

from dgvf_agents import DGVFA2C
from dgvf_agents.losses import regression_loss
from dgvf_agents.tasks import AuxiliaryTask
from dgvf_agents.types import Params, Rollout


class DistanceTask(AuxiliaryTask):
    """One answer: the Euclidean distance between o_t and o_{t+1}."""

    @property
    def num_answers(self) -> int:
        return 1

    def loss(
        self,
        answers: Tensor,
        bootstraps: Tensor,
        eta: Params,
        rollout: Rollout,
    ) -> Tensor:
        before, after = rollout.observations, rollout.next_observations
        assert isinstance(before, Tensor)  # a dictionary in a Dict space
        assert isinstance(after, Tensor)
        moved = (after - before).to(torch.float32)
        return regression_loss(answers, moved.flatten(2).norm(dim=-1, keepdim=True))


def main(steps: int = 100_000, compile: bool = True) -> float:
    """Train the encoder on PuddleWorld by that task alone; returns the answer loss."""
    model = DGVFA2C(
        "PaperMlpPolicy",
        "PuddleWorld-v0",
        n_envs=16,
        auxiliary_task=lambda model: DistanceTask(),
        encoder_mode="auxiliary",
        compile=compile,
        seed=0,
    )
    model.learn(steps, progress_bar=False)
    assert model.metrics is not None
    return float(model.metrics.answer_loss)


if __name__ == "__main__":
    print(f"answer loss {main():.2e}")
