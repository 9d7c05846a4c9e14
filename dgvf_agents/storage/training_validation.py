"""Checks of where training stands, in a file: attributes, the unfinished rollout, logs. Each raises a ValueError."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import Tensor

from dgvf_agents.core.argument_checks import check_counts, is_finite_number
from dgvf_agents.learner_state import like
from dgvf_agents.rollout.builder import LOG_PROBS, STEPS
from dgvf_agents.storage.random_states import check_random_states
from dgvf_agents.storage.validation import (
    Spaces,
    check_array,
    check_choices,
    check_count,
    check_finite,
    check_names,
    check_rollout,
    check_type,
    described,
    observations_like,
    tensor_like,
)

_COUNTS = ("num_timesteps", "_n_updates", "_episode_num", "_total_timesteps", "_num_timesteps_at_start")
_NUMBERS = ("seconds", "start_time", "_current_progress_remaining")
_TRAINING = (
    "device",
    "environment",
    "random",
    "actor",
    "collecting",
    "steps",
    "starts",
    "exploration",
    "rollout",
    "log",
)


def check_attributes(attributes: dict[str, Any]) -> None:
    """Check attributes that no constructor argument stands for, and those that a model is built from first."""
    for name in ("observation_space", "action_space"):
        check_type(name, attributes[name], gym.Space)
    policy = attributes["policy_class"]
    if not isinstance(policy, str) and not (isinstance(policy, type) and issubclass(policy, ActorCriticPolicy)):
        raise ValueError(f"policy_class must be an ActorCriticPolicy, got {described(policy)}")
    check_type("policy_kwargs", attributes["policy_kwargs"], dict)
    for name in attributes.keys() & {*_COUNTS}:
        check_count(name, attributes[name])
    check_counts(**{name: attributes[name] for name in attributes.keys() & {"n_envs", "n_steps"}})
    for name in attributes.keys() & {*_NUMBERS}:
        if not is_finite_number(attributes[name]):
            raise ValueError(f"{name} must be a finite number, got {described(attributes[name])}")
    _check_episodes(attributes)
    n_envs = attributes.get("n_envs")
    if attributes.get("_last_obs") is not None and n_envs is not None:
        _check_observed("_last_obs", attributes["_last_obs"], attributes["observation_space"], n_envs)
    if attributes.get("_last_episode_starts") is not None and n_envs is not None:
        check_array("_last_episode_starts", attributes["_last_episode_starts"], (n_envs,), np.bool_)


def _check_episodes(attributes: dict[str, Any]) -> None:
    for name in attributes.keys() & {"ep_info_buffer", "ep_success_buffer"}:
        check_type(name, attributes[name], (deque, type(None)))
    for episode in attributes.get("ep_info_buffer") or ():
        check_type("ep_info_buffer", episode, dict)
        if not all(isinstance(episode.get(part), int | float | np.generic) for part in ("r", "l")):
            raise ValueError(f"ep_info_buffer must have numbers r and l for each episode, got {described(episode)}")
    for success in attributes.get("ep_success_buffer") or ():
        check_type("ep_success_buffer", success, (bool, int, float, np.generic))


def check_training(training: dict[str, Any], spaces: Spaces, exploration: dict[str, Any]) -> None:
    """
    Args:
        training: where training stands, with tensors on the model's device.
        spaces: of rollouts.
        exploration: exploration matrices of gSDE by name; their shapes count. Empty without gSDE.
    """
    check_names("training", training, _TRAINING)
    check_type("training.device", training["device"], str)
    check_type("training.environment", training["environment"], (dict, type(None)))
    check_random_states(training["random"])
    actor = training["actor"]
    if isinstance(actor, dict):
        actor.setdefault("simulated_log_probs", None)  # files of earlier versions have none
    check_names("training.actor", actor, ("generator", "noise", "simulated_actions", "simulated_log_probs"))
    check_type("training.actor.generator", training["actor"]["generator"], np.random.Generator)
    check_type("training.collecting", training["collecting"], bool)
    check_type("training.exploration", training["exploration"], dict)
    if training["collecting"]:
        shape = _check_steps(training["steps"], spaces)
        _check_actor(training["actor"], spaces, shape)
        if training["starts"] is not None:
            check_array("training.starts", training["starts"], shape[1:], np.bool_)
        _check_exploration(training["exploration"], exploration, shape[1])
    if training["rollout"] is not None:
        check_rollout("training.rollout", training["rollout"], spaces)
    if training["log"] is not None:
        _check_log(training["log"])


def _check_steps(steps: Any, spaces: Spaces) -> tuple[int, int]:
    """Check the steps of an unfinished rollout; the shape [T, B] of the whole."""
    check_names("training.steps", steps, (*STEPS, LOG_PROBS) if spaces.off_policy else STEPS)
    rewards = steps["_rewards"]
    if not isinstance(rewards, np.ndarray) or rewards.ndim != 2 or rewards.size == 0:
        raise ValueError(f"training.steps._rewards must be an array [T, B], got {described(rewards)}")
    shape, distribution = rewards.shape, spaces.distribution
    check_array("training.steps._rewards", rewards, shape, np.float32)
    check_array("training.steps._actions", steps["_actions"], (*shape, *distribution.action_shape), _dtype(spaces))
    for name in ("_terminated", "_truncated"):
        check_array(f"training.steps.{name}", steps[name], shape, np.bool_)
    t = steps["_t"]
    check_count("training.steps._t", t, shape[0])
    check_choices("training.steps._actions", _tensor(steps["_actions"][:t]), spaces.action)
    check_finite("training.steps", {name: _tensor(steps[name][:t]) for name in ("_actions", "_rewards")})
    _check_observations(steps["_observed"], t, shape, spaces)
    if spaces.off_policy:
        check_type(f"training.steps.{LOG_PROBS}", steps[LOG_PROBS], list)
        if len(steps[LOG_PROBS]) != t:
            raise ValueError(f"training.steps.{LOG_PROBS} must have {t} tensors, got {len(steps[LOG_PROBS])}")
        for i, log_probs in enumerate(steps[LOG_PROBS]):
            _check_log_probs(f"training.steps.{LOG_PROBS}.{i}", log_probs, shape[1:])
    check_type("training.steps._ends", steps["_ends"], list)
    for end in steps["_ends"]:
        _check_end(end, (t, shape[1]), spaces.observation)
    return shape


def _check_observations(observed: Any, t: int, shape: tuple[int, int], spaces: Spaces) -> None:
    """Check that observations are there for all steps, and after the last step of a complete rollout."""
    steps, n_envs = shape
    check_type("training.steps._observed", observed, list)
    if not (t + (t == steps) <= len(observed) <= t + 1):
        raise ValueError(f"training.steps._observed must have {t} or {t + 1} observations, got {len(observed)}")
    for i, one in enumerate(observed):
        name = f"training.steps._observed.{i}"
        like(name, one, observations_like(spaces.observation, (n_envs,)))
        check_finite(name, one)
        check_choices(name, one, spaces.observation)


def _check_end(end: Any, shape: tuple[int, int], space: gym.Space) -> None:
    name = "training.steps._ends"
    if not isinstance(end, tuple) or len(end) != 3:
        raise ValueError(f"{name} must have tuples of step, environment and observation, got {described(end)}")
    for value, limit in zip(end[:2], shape, strict=True):
        check_count(name, value, limit - 1)
    _check_last(name, end[2], space)


def _check_last(name: str, observation: Any, space: gym.Space) -> None:
    """Check an episode's last observation, which environments may give in another dtype."""
    if isinstance(space, gym.spaces.Dict):
        check_names(name, observation, space.spaces)
        for part, inner in space.spaces.items():
            _check_last(f"{name}.{part}", observation[part], inner)
        return
    array = np.asarray(observation)
    if array.shape != space.shape or array.dtype.kind not in "biuf" or not np.isfinite(array).all():
        raise ValueError(f"{name} must have finite observations of {space}, got {described(observation)}")
    check_choices(name, _tensor(array), space)


def _check_actor(actor: dict[str, Any], spaces: Spaces, shape: tuple[int, int]) -> None:
    expected = spaces.distribution.draw_noise(np.random.default_rng(0), *shape)
    check_array("training.actor.noise", actor["noise"], expected.shape, expected.dtype)
    check_finite("training.actor.noise", _tensor(actor["noise"]))
    simulated = actor["simulated_actions"]
    if simulated is not None:
        check_type("training.actor.simulated_actions", simulated, np.ndarray)
        expected_shape = (*simulated.shape[:1], shape[1], *spaces.distribution.action_shape)
        check_array("training.actor.simulated_actions", simulated, expected_shape, _dtype(spaces))
        check_choices("training.actor.simulated_actions", _tensor(simulated), spaces.action)
        if spaces.off_policy:
            expected_shape = (*simulated.shape[:1], shape[1])
            _check_log_probs("training.actor.simulated_log_probs", actor["simulated_log_probs"], expected_shape)


def _check_log_probs(name: str, log_probs: Any, shape: tuple[int, ...]) -> None:
    like(name, log_probs, tensor_like(shape, np.float32))
    check_finite(name, log_probs)


def _check_exploration(given: dict[str, Any], own: dict[str, Any], n_envs: int) -> None:
    """Check gSDE's matrices: one, and one for each environment."""
    check_names("training.exploration", given, own)
    for name, matrix in own.items():
        several = isinstance(matrix, Tensor) and matrix.ndim == 3
        like(f"training.exploration.{name}", given[name], matrix[:1].expand(n_envs, -1, -1) if several else matrix)
        check_finite(f"training.exploration.{name}", given[name])


def _check_log(log: Any) -> None:
    check_names("training.log", log, ("values", "counts", "excluded"))
    for name, kinds in (("values", (int, float, str)), ("counts", int), ("excluded", (tuple, str, type(None)))):
        check_type(f"training.log.{name}", log[name], dict)
        for key, value in log[name].items():
            check_type("training.log", key, str)
            check_type(f"training.log.{name}.{key}", value, kinds)


def _check_observed(name: str, observations: Any, space: gym.Space, n_envs: int) -> None:
    """Check observations `[B, *obs]` as an environment gives them."""
    if isinstance(space, gym.spaces.Dict):
        check_names(name, observations, space.spaces)
        for part, inner in space.spaces.items():
            _check_observed(f"{name}.{part}", observations[part], inner, n_envs)
    elif not isinstance(observations, np.ndarray) or observations.shape != (n_envs, *(space.shape or ())):
        raise ValueError(f"{name} must have {n_envs} observations of {space}, got {described(observations)}")


def _dtype(spaces: Spaces) -> Any:
    return spaces.distribution.action_dtype


def _tensor(array: np.ndarray) -> Tensor:
    """A copy."""
    return torch.from_numpy(np.array(array))
