"""A task with meta-parameters: which numbers of an observation are worth predicting."""

import torch
from torch import Tensor

from dgvf_agents import DGVFA2C
from dgvf_agents.tasks import AuxiliaryTask
from dgvf_agents.types import Params, Rollout

NAMES = ("position", "velocity", "angle", "angular velocity")


class WeightedPrediction(AuxiliaryTask):
    """Predicts o_{t+1}; the meta-gradient finds the weights of the errors, of sum N."""

    discovers = True

    @property
    def num_answers(self) -> int:
        return len(NAMES)

    def initial_meta_params(self) -> Params:
        return {"logits": torch.zeros(len(NAMES))}

    def weights(self, eta: Params) -> Tensor:
        return len(NAMES) * torch.softmax(eta["logits"], dim=0)

    def loss(
        self,
        answers: Tensor,
        bootstraps: Tensor,
        eta: Params,
        rollout: Rollout,
    ) -> Tensor:
        after = rollout.next_observations
        assert isinstance(after, Tensor)  # a dictionary in a Dict space
        return (self.weights(eta) * (after - answers) ** 2).mean()


def main(steps: int = 50_000, compile: bool = True) -> list[float]:
    """Train on CartPole by the main task and this one together; returns the weights."""
    task = WeightedPrediction()
    model = DGVFA2C(
        "MlpPolicy",
        "CartPole-v1",
        n_envs=8,
        auxiliary_task=lambda model: task,
        meta_learning_rate=0.03,  # for a hundred meta-updates of the logits
        compile=compile,
        seed=0,
    )
    model.learn(steps, progress_bar=False)
    return task.weights(model.learner.eta).tolist()


if __name__ == "__main__":
    for name, weight in zip(NAMES, main(), strict=True):
        print(f"{name}: {weight:.2f}")
