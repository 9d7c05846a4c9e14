"""Environments of distributed actors, seen from the learner: how to make them, and what stands for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_envs.sb3_adapter import make_vec

EnvFactory = Callable[[int, "int | None"], "VecEnv | VectorEnv"]
"""`(num_envs, seed) -> environment`: makes a vector environment, in another process too."""


@final
@dataclass(frozen=True)
class EnvById:
    """Makes environments of a registered id."""

    env_id: str
    """`"module:Id-v0"` imports the module first."""

    def __call__(self, num_envs: int, seed: int | None) -> VecEnv:
        return make_vec(self.env_id, num_envs, seed)


def factory_of(env: Any, actors: int) -> EnvFactory:
    """The function that makes the environments of actors.

    Args:
        env: an environment id, or a factory.
        actors: number of actors, for the message.

    Raises:
        ValueError: `env` is a live environment, which cannot be sent to another process.
    """
    if isinstance(env, RemoteEnvs):
        return env.factory
    if isinstance(env, str):
        return EnvById(env)
    if callable(env) and not isinstance(env, gym.Env | VectorEnv | VecEnv):
        return env
    raise ValueError(
        f"env must be an environment id or a function (num_envs, seed) -> vector environment for actors = {actors}, "
        f"because actors make their environments themselves; got {env!r}"
    )


def wrapped(factory: EnvFactory, num_envs: int, seed: int | None) -> VecEnv:
    """An environment with the wrappers that an algorithm gives it.

    Raises:
        ValueError: `factory` returned something else than a vector environment of this size.
    """
    env = factory(num_envs, seed)
    if not isinstance(env, VecEnv | VectorEnv) or env.num_envs != num_envs:
        raise ValueError(f"env must return a vector environment of num_envs = {num_envs} environments, got {env!r}")
    made = DiscoveryAlgorithm._wrap_env(env)  # type: ignore[arg-type]
    if seed is not None:
        made.seed(seed)
    return made


@final
class RemoteEnvs(VecEnv):
    """Stands for the environments of a batch, which live in actors. It has their spaces, and cannot be stepped."""

    def __init__(self, factory: EnvFactory, num_envs: int) -> None:
        """
        Args:
            factory: makes environments; called once here, for their spaces.
            num_envs: trajectories of a batch.

        Raises:
            ValueError: see `wrapped`; or it is a `VecNormalize`, which does not share its statistics.
        """
        self.factory = factory
        env = wrapped(factory, 1, None)
        if unwrap_vec_normalize(env) is not None:
            env.close()
            raise ValueError(
                "env must not be a VecNormalize for actors: each would have its own statistics; normalize in a wrapper "
                "of each environment, with statistics that are fixed"
            )
        super().__init__(num_envs, env.observation_space, env.action_space)
        env.close()

    def reset(self) -> Any:
        """Zeros, for Stable-Baselines3."""
        space = self.observation_space
        if isinstance(space, gym.spaces.Dict):
            return {name: self._zeros(inner) for name, inner in space.spaces.items()}
        return self._zeros(space)

    def _zeros(self, space: gym.Space) -> np.ndarray:
        return np.zeros((self.num_envs, *(space.shape or ())), space.dtype)

    def step_async(self, actions: np.ndarray) -> None:
        raise RuntimeError("environments of actors cannot be stepped by the learner: call learn()")

    def step_wait(self) -> Any:
        raise RuntimeError("environments of actors cannot be stepped by the learner: call learn()")

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        if attr_name == "render_mode":
            return [None for _ in self._get_indices(indices)]
        raise AttributeError(f"{attr_name} is an attribute of environments in actors, which the learner does not see")

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise AttributeError(f"{attr_name} is an attribute of environments in actors, which the learner does not see")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        raise AttributeError(f"{method_name} is a method of environments in actors, which the learner cannot call")

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: Any = None) -> list[bool]:
        """They are monitored."""
        return [True for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        return [None] * self.num_envs

    def get_state(self) -> dict[str, Any]:
        """Nothing: actors keep their episodes, or start new ones."""
        return {}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what `get_state` returned."""
