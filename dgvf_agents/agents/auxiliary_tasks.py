"""Auxiliary tasks by name, built for a policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import gymnasium as gym
from stable_baselines3.common.policies import ActorCriticPolicy

from dgvf_agents.agents.extractors import PreprocessedEncoder, window_space
from dgvf_agents.agents.functional_policy import encoder_widths
from dgvf_agents.agents.policies import DGVFPolicy
from dgvf_agents.core.networks import QuestionNetwork
from dgvf_agents.core.question_networks import QuestionFunctions, SharedQuestionNetwork
from dgvf_agents.core.tasks import (
    AuxiliaryTask,
    DiscoveredGVFs,
    GVFTask,
    NoTask,
    PixelControl,
    RandomGVFs,
    RewardPrediction,
)
from dgvf_agents.options import QuestionEncoder, Task

TASKS: tuple[Task, ...] = get_args(Task)
"""The auxiliary tasks that have a name."""


def check_auxiliary_task(given: Any) -> None:
    """
    Raises:
        ValueError: it is neither a name of `TASKS` nor a function.
    """
    if isinstance(given, AuxiliaryTask):
        raise ValueError(
            f"auxiliary_task must be one of {TASKS} or a function that builds a task for the model, got a "
            f"{type(given).__name__}: pass lambda model: task"
        )
    if not (given in TASKS if isinstance(given, str) else callable(given)):
        raise ValueError(f"auxiliary_task must be one of {TASKS} or a function, got {given!r}")


def build_task(given: str | Callable[[Any], AuxiliaryTask], model: Any, *settings: Any) -> AuxiliaryTask:
    """The auxiliary task of a model.

    Args:
        given: a name, or a function of the model.
        model: with its policy.
        settings: arguments of `named_task`.

    Raises:
        ValueError: the function returns something else, or the task does not fit the policy's action space.
    """
    if not callable(given):
        return named_task(given, model.policy, *settings)
    task = given(model)
    if not isinstance(task, AuxiliaryTask):
        raise ValueError(f"auxiliary_task must return an AuxiliaryTask where it is a function, got {task!r}")
    return task


def named_task(
    name: str,
    policy: ActorCriticPolicy,
    questions: int,
    discount: float | None,
    window: int,
    mixed_precision: bool,
    question_encoder: QuestionEncoder = "independent",
) -> AuxiliaryTask:
    """The auxiliary task of a name.

    Args:
        name: one of `TASKS`.
        policy: whose encoder it trains.
        questions: D.
        discount: of all questions in [0, 1); `None`: the question network learns them.
        window: j, the future observations that a question sees.
        mixed_precision: whether the question network's encoder computes in bfloat16.
        question_encoder: what the question network reads.

    Raises:
        ValueError: the task does not fit the policy's action space.
    """
    if name in ("discovered", "random"):
        kind: type[GVFTask] = DiscoveredGVFs if name == "discovered" else RandomGVFs
        network: QuestionFunctions
        if question_encoder == "shared":
            network = shared_question_network(policy, questions, discount is None, window)
        else:
            network = question_network(policy, questions, discount is None, window, mixed_precision)
        return kind(network, discount, window)
    if name == "pixel-control":
        if not isinstance(policy.action_space, gym.spaces.Discrete):
            raise ValueError(
                "auxiliary_task must not be 'pixel-control' unless actions are Discrete, got actions of "
                f"{policy.action_space}"
            )
        return _pixel_control(policy.observation_space, int(policy.action_space.n))
    return RewardPrediction() if name == "reward-prediction" else NoTask()


def _pixel_control(space: gym.spaces.Space[Any], num_actions: int) -> PixelControl:
    """Cells of 4x4 pixels; in binary images, such as Collect-Objects's, a cell for every pixel."""
    shape = space.shape or ()
    if not isinstance(space, gym.spaces.MultiBinary):
        return PixelControl.over(shape, num_actions)
    task = PixelControl.over(shape, num_actions, cell=1, border=0)
    return PixelControl(num_actions, task.grid, scale=1.0)


def question_network(
    policy: ActorCriticPolicy, questions: int, learns_discounts: bool, window: int = 1, mixed_precision: bool = False
) -> QuestionNetwork:
    """A question network with an encoder like the policy's own, on windows of future observations."""
    space = window_space(policy.observation_space, window)
    if isinstance(policy, DGVFPolicy):
        extractor = policy.make_encoder(space)
    else:
        extractor = policy.features_extractor_class(space, **policy.features_extractor_kwargs)
    encoder = PreprocessedEncoder(extractor, space, policy.normalize_images, mixed_precision=mixed_precision).eval()
    return QuestionNetwork(encoder, encoder.features, questions, learns_discounts).to(policy.device)


def shared_question_network(
    policy: ActorCriticPolicy, questions: int, learns_discounts: bool, window: int = 1
) -> SharedQuestionNetwork:
    """A question network on the features of the policy's own encoder, or of both where policy and value have one."""
    features = window * sum(encoder_widths(policy))
    return SharedQuestionNetwork(features, questions, learns_discounts).to(policy.device)
