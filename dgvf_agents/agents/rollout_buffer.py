"""The last rollout as a Stable-Baselines3 rollout buffer, for callbacks that look into `model.rollout_buffer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy

from dgvf_agents.core.types import Observations, Rollout, map_observations

_KINDS = (RolloutBuffer, DictRolloutBuffer)


@final
class RolloutView:
    """Has every attribute of a rollout buffer, which is filled when the first one is asked for.

    Values, log-probabilities, advantages and returns belong to the policy that collected the rollout. Updates do not
    read them: changing them changes nothing.
    """

    def __init__(self, buffer: RolloutBuffer) -> None:
        """
        Args:
            buffer: an empty buffer.
        """
        self._buffer = buffer
        self._fill: Callable[[RolloutBuffer], None] | None = None

    def show(self, fill: Callable[[RolloutBuffer], None]) -> None:
        """Show another rollout, which `fill` puts into the buffer when it is looked at."""
        self._fill = fill

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_buffer" not in self.__dict__:  # while it is copied or unpickled
            raise AttributeError(name)
        fill, self._fill = self._fill, None
        if fill is not None:
            self._buffer.reset()
            fill(self._buffer)
        return getattr(self._buffer, name)


def check_rollout_buffer_class(kind: type[RolloutBuffer] | None) -> None:
    """
    Raises:
        ValueError: a rollout buffer of this class would change nothing.
    """
    if kind is not None and kind not in _KINDS:
        names = " or ".join(known.__name__ for known in _KINDS)
        raise ValueError(
            f"rollout_buffer_class must be {names}, which show the last rollout: updates are computed from the rollout "
            f"itself, and a class of one's own would change nothing; got {getattr(kind, '__name__', kind)}"
        )


def fill_buffer(buffer: RolloutBuffer, policy: ActorCriticPolicy, rollout: Rollout, starts: np.ndarray) -> None:
    """Put a rollout into an empty buffer, as Stable-Baselines3 would while it collects.

    Args:
        buffer: of the rollout's size.
        policy: with the parameters that collected the rollout.
        rollout: the rollout.
        starts: `[B]` boolean: which first steps were the first of an episode.
    """
    done = rollout.terminated | rollout.truncated
    switches = isinstance(policy.action_space, gym.spaces.MultiBinary)
    actions = rollout.actions.float() if switches else rollout.actions  # its Bernoulli takes no integers
    with torch.no_grad(), torch.random.fork_rng():
        for t in range(len(rollout.rewards)):
            now, following = _at(rollout.observations, t), _at(rollout.next_observations, t)
            _, values, _ = policy(now)
            _, log_prob, _ = policy.evaluate_actions(now, actions[t])
            gained = policy.predict_values(following).flatten() * rollout.truncated[t]
            buffer.add(
                _numpy(now),
                rollout.actions[t].cpu().numpy(),
                (rollout.rewards[t] + buffer.gamma * gained).cpu().numpy(),
                starts if t == 0 else done[t - 1].cpu().numpy(),
                values,
                log_prob,
            )
        last_values = policy.predict_values(_at(rollout.next_observations, -1))
    buffer.compute_returns_and_advantage(last_values, done[-1].cpu().numpy())


def _at(observations: Observations, t: int) -> Any:
    return map_observations(lambda tensor: tensor[t], observations)


def _numpy(observations: Any) -> Any:
    if isinstance(observations, dict):
        return {name: tensor.cpu().numpy() for name, tensor in observations.items()}
    return observations.cpu().numpy()
