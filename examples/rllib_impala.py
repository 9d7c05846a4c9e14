"""RLlib's IMPALA with our network, environments and batch: `python examples/rllib_impala.py --world Pong`.

Prints as JSON how many environment steps per second its learner is trained on; `dgvf bench impala` compares this with
`DGVFImpala`. Needs RLlib: `pip install 'dgvf[rllib]'`.
"""

import json
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium as gym
import torch
import tyro
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune.registry import register_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

import dgvf_envs  # noqa: F401 - registers the gridworlds
from dgvf_agents.agents.policies import GridCNNExtractor, MLPExtractor, ResNetExtractor
from dgvf_agents.core.resnet import ResNetEncoder
from dgvf_agents.impala.cluster import connect
from dgvf_envs.atari import make_atari


@dataclass(frozen=True)
class Settings:
    world: str = "PuddleWorld-v0"  # id of a gridworld, or an Atari game
    actors: int = 2  # environment runners, which share the environments
    n_envs: int = 32  # environments, and trajectories of a batch
    n_steps: int = 20  # T
    learners: int = 0  # 1: the learner has a process of its own
    network: Literal["ours", "plain"] = "ours"  # plain: the residual network as a sequence of PyTorch's modules
    seconds: float = 10.0  # time to train for
    threads: int = 1  # PyTorch's threads in this process


class PlainResNet(BaseFeaturesExtractor):
    """The residual network as users of RLlib would write it."""

    def __init__(self, observation_space: gym.Space) -> None:
        encoder = ResNetEncoder(observation_space.shape or ())
        super().__init__(observation_space, encoder.features)
        self.layers = encoder.layers

    def forward(self, observations: Tensor) -> Tensor:
        return self.layers(observations)


class EncoderModule(TorchRLModule, ValueFunctionAPI):
    """An encoder; policy and value are linear in its features."""

    def setup(self) -> None:
        config: Any = self.model_config
        actions: Any = self.action_space
        self.encoder: BaseFeaturesExtractor = config["encoder"](self.observation_space)
        self.logits = nn.Linear(self.encoder.features_dim, int(actions.n))
        self.values = nn.Linear(self.encoder.features_dim, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        features = self._features(batch)
        return {Columns.ACTION_DIST_INPUTS: self.logits(features), Columns.EMBEDDINGS: features}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        return self.values(self._features(batch) if embeddings is None else embeddings).squeeze(-1)

    def _features(self, batch: dict[str, Any]) -> Tensor:
        observations: Tensor = batch[Columns.OBS]
        return self.encoder(observations.float() / (255.0 if observations.dtype == torch.uint8 else 1.0))


def environment(world: str, context: dict[str, Any]) -> Any:
    if world not in gym.registry:
        return make_atari(world)
    count = context.get("num_envs")
    return gym.make(world) if count is None else gym.make_vec(world, count, "vector_entry_point")


def main(s: Settings) -> dict[str, float]:
    torch.set_num_threads(s.threads)
    connect(None, s.actors + 2)  # Ray on this machine, with enough CPUs for all, whether or not there are so many
    register_env("world", partial(environment, s.world))
    encoders = {"PuddleWorld-v0": MLPExtractor, "CollectObjects-v0": GridCNNExtractor}
    encoder = encoders.get(s.world, PlainResNet if s.network == "plain" else ResNetExtractor)
    vectorized = gym.VectorizeMode.VECTOR_ENTRY_POINT if s.world in gym.registry else gym.VectorizeMode.SYNC
    config = (
        IMPALAConfig()
        .environment(env="world")
        .env_runners(
            num_env_runners=s.actors,
            num_envs_per_env_runner=s.n_envs // s.actors,
            rollout_fragment_length=s.n_steps,
            gym_env_vectorize_mode=vectorized,
        )
        .learners(num_learners=s.learners)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=EncoderModule, model_config={"encoder": encoder}))
        .training(train_batch_size_per_learner=s.n_envs * s.n_steps, lr=6e-4, grad_clip=40.0, entropy_coeff=0.01)
        .reporting(min_time_s_per_iteration=0.5)
    )
    algorithm = config.build_algo()
    metrics: Any = algorithm.metrics
    trained = partial(metrics.peek, ("learners", "__all_modules__", "num_env_steps_trained_lifetime"), default=0)
    while not trained():
        algorithm.train()
    algorithm.train()
    before, start = trained(), time.perf_counter()
    while (seconds := time.perf_counter() - start) < s.seconds:
        algorithm.train()
    # RLlib also counts the observation after each trajectory as a trained step
    steps = (trained() - before) * s.n_steps / (s.n_steps + 1)
    algorithm.stop()
    return {"steps": steps, "seconds": seconds, "steps_per_s": steps / seconds}


if __name__ == "__main__":
    print(json.dumps(main(tyro.cli(Settings))))
