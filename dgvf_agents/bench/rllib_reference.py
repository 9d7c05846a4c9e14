"""The optional reference of IMPALA's training speed: RLlib's IMPALA with the same network, environments and batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, final

import gymnasium as gym
import torch
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune.registry import register_env
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from dgvf_agents.core.resnet import ResNetEncoder
from dgvf_envs.atari.scalar_env import make_atari

_NAME = "dgvf-bench"


@final
class PlainResNet(BaseFeaturesExtractor):
    """The residual network as a sequence of PyTorch's modules, as users of RLlib would write it."""

    def __init__(self, observation_space: gym.Space) -> None:
        encoder = ResNetEncoder(observation_space.shape or ())
        super().__init__(observation_space, encoder.features)
        self.layers = encoder.layers

    def forward(self, observations: Tensor) -> Tensor:
        return self.layers(observations)


@final
class EncoderModule(TorchRLModule, ValueFunctionAPI):
    """An encoder, and policy and value that are linear in its features."""

    def setup(self) -> None:
        given: Any = self.model_config
        actions: Any = self.action_space
        self.encoder: BaseFeaturesExtractor = given["encoder"](self.observation_space)
        self.logits = nn.Linear(self.encoder.features_dim, int(actions.n))
        self.values = nn.Linear(self.encoder.features_dim, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        features = self._features(batch)
        return {Columns.ACTION_DIST_INPUTS: self.logits(features), Columns.EMBEDDINGS: features}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        return self.values(self._features(batch) if embeddings is None else embeddings).squeeze(-1)

    def _features(self, batch: dict[str, Any]) -> Tensor:
        observations: Tensor = batch[Columns.OBS]
        scale = 255.0 if observations.dtype == torch.uint8 else 1.0
        return self.encoder(observations.float() / scale)


@final
class RLlibImpala:
    """RLlib's IMPALA. Its processes exist from the construction to `stop`, and rest between measurements."""

    def __init__(
        self,
        world: str,
        encoder: Callable[[gym.Space], BaseFeaturesExtractor],
        actors: int,
        n_envs: int,
        n_steps: int,
        learners: int,
    ) -> None:
        """
        Args:
            world: id of a gridworld, or name of a game.
            encoder: makes the network's encoder.
            actors: number of environment runners, which share the environments.
            n_envs: number of environments, and of trajectories of a batch.
            n_steps: T.
            learners: 1: a learner in a process of its own; 0: in this one.
        """
        on_grid = world in gym.registry
        register_env(_NAME, partial(_environment, world))
        mode = gym.VectorizeMode.VECTOR_ENTRY_POINT if on_grid else gym.VectorizeMode.SYNC
        config = (
            IMPALAConfig()
            .environment(env=_NAME)
            .env_runners(
                num_env_runners=actors,
                num_envs_per_env_runner=n_envs // actors,
                rollout_fragment_length=n_steps,
                gym_env_vectorize_mode=mode,
            )
            .learners(num_learners=learners)
            .rl_module(rl_module_spec=RLModuleSpec(module_class=EncoderModule, model_config={"encoder": encoder}))
            .training(train_batch_size_per_learner=n_envs * n_steps, lr=6e-4, grad_clip=40.0, entropy_coeff=0.01)
            .reporting(min_time_s_per_iteration=0.5)
        )
        self._algorithm, self._per_step = config.build_algo(), n_steps / (n_steps + 1)
        while not self._trained():
            self._algorithm.train()

    def rate(self, seconds: float) -> float:
        """Environment steps per second that its learner is trained on, over at least that long.

        RLlib also counts the observation after each trajectory as a trained step; this does not.
        """
        self._algorithm.train()  # what was collected while it rested
        before, start = self._trained(), time.perf_counter()
        while time.perf_counter() - start < seconds:
            self._algorithm.train()
        return self._per_step * (self._trained() - before) / (time.perf_counter() - start)

    def stop(self) -> None:
        """End its processes."""
        self._algorithm.stop()

    def _trained(self) -> float:
        path = ("learners", "__all_modules__", "num_env_steps_trained_lifetime")
        metrics: Any = self._algorithm.metrics
        return metrics.peek(path, default=0)


def _environment(world: str, context: dict[str, Any]) -> Any:
    import dgvf_envs  # noqa: F401 - registers them in RLlib's processes

    if world not in gym.registry:
        return make_atari(world)
    count = context.get("num_envs")
    return gym.make(world) if count is None else gym.make_vec(world, count, "vector_entry_point")
