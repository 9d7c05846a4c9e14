from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from dgvf_agents.core.networks import MLPEncoder, QuestionNetwork
from dgvf_agents.core.tasks import AuxiliaryTask, DiscoveredGVFs, NoTask, PixelControl, RewardPrediction
from dgvf_agents.core.types import Params, Rollout
from tests.core_oracles import (
    AnswerLoss,
    gvf_loss,
    pixel_control_loss,
    reward_prediction_loss,
    slow_pixel_changes,
    slow_window,
)
from tests.random_rollouts import random_rollout

pytestmark = pytest.mark.usefixtures("double_precision")

STEPS, NUM_ENVS, QUESTIONS, ACTIONS = 5, 3, 4, 3


def rollout_of(shape: tuple[int, ...] = (5,), seed: int = 0, ends: bool = True) -> Rollout:
    return random_rollout(seed, steps=STEPS, num_envs=NUM_ENVS, shape=shape, actions=ACTIONS, ends=ends)


def question_network(inputs: int = 5, learned: bool = False) -> QuestionNetwork:
    return QuestionNetwork(MLPEncoder(inputs, (7, 6)), 6, QUESTIONS, learned)


def discovered(discount: float | None = 0.9, window: int = 1, inputs: int = 5) -> DiscoveredGVFs:
    network = question_network(inputs * window, learned=discount is None)
    return DiscoveredGVFs(network, discount, window)


def shaken(eta: Params) -> Params:
    """η away from its initial value, with a gradient."""
    return {name: (p + 0.3 * torch.randn_like(p)).requires_grad_() for name, p in eta.items()}


def answers_and_bootstraps(width: int) -> tuple[Tensor, Tensor]:
    answers, bootstraps = torch.randn(2, STEPS, NUM_ENVS, width)
    return answers.requires_grad_(), bootstraps


def assert_follows(task: AuxiliaryTask, transcription: AnswerLoss, rollout: Rollout) -> None:
    """The loss is the transcription's, and so are its gradients in answers, bootstraps and η."""
    eta, (answers, bootstraps) = shaken(task.initial_meta_params()), answers_and_bootstraps(task.num_answers)
    inputs = [answers, bootstraps.requires_grad_(), *eta.values()]
    loss, expected = (function(answers, bootstraps, eta, rollout) for function in (task.loss, transcription))
    torch.testing.assert_close(loss, expected)
    assert loss.shape == ()
    gradients = torch.autograd.grad(loss, inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, inputs))
    assert all(gradient.any() for gradient in gradients[2:])


# --- general value functions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discount", [0.0, 0.8, None])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_the_gvf_loss_and_its_gradients_equal_the_transcription(
    discount: float | None, window: int, ends: bool, seed: int
) -> None:
    rollout = rollout_of(seed=seed, ends=ends)
    assert_follows(discovered(discount, window), gvf_loss(discount, window), rollout)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
@pytest.mark.parametrize("window", [1, 2, 3, 9])
def test_windows_join_future_observations_of_one_episode(shape: tuple[int, ...], window: int) -> None:
    rollout = rollout_of(shape, seed=1)
    windows = discovered(0.9, window, math.prod(shape)).windows(rollout)
    assert windows.shape == (STEPS, NUM_ENVS, shape[0] * window, *shape[1:])
    for t, b in product(range(STEPS), range(NUM_ENVS)):
        parts = [rollout.next_observations[w, b] for w in slow_window(rollout.segment_end, t, b, window)]
        assert torch.equal(windows[t, b], torch.cat(parts))


# --- reward prediction ------------------------------------------------------------------------------------------------


def test_reward_prediction_equals_the_transcription() -> None:
    task, rollout = RewardPrediction(), rollout_of()
    answers, bootstraps = answers_and_bootstraps(task.num_answers)
    loss = task.loss(answers, torch.full_like(bootstraps, torch.nan), {}, rollout)
    torch.testing.assert_close(loss, reward_prediction_loss(answers, bootstraps, {}, rollout))


# --- pixel control ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "grid", "border"),
    [((3, 6, 4), 2, 0), ((2, 6, 9), 3, 0), ((3, 4, 4), 4, 0), ((1, 5, 7), 1, 0), ((1, 5, 5), 3, 1), ((3, 10, 8), 2, 2)],
)
def test_pixel_changes_equal_the_slow_loop(shape: tuple[int, int, int], grid: int, border: int) -> None:
    rollout = rollout_of(shape)
    changes = PixelControl(ACTIONS, grid, scale=0.5, border=border).cumulants(rollout)
    assert changes.shape == (STEPS, NUM_ENVS, grid * grid)
    torch.testing.assert_close(changes, slow_pixel_changes(rollout, grid, 0.5, border))


def test_atari_images_have_the_cells_of_jaderberg_et_al() -> None:
    task = PixelControl.over((4, 84, 84), 6)
    assert (task.grid, task.border, task.discount, task.num_answers) == (20, 2, 0.9, 20 * 20 * 6)
    still = torch.zeros(3, 1, 4, 84, 84, dtype=torch.uint8)
    after = still.clone()
    after[..., 2 + 4 * 3 : 2 + 4 * 4, 2 + 4 * 19 : 2 + 4 * 20] = 255  # cell (3, 19), in all four frames
    rollout = random_rollout(0, steps=3, num_envs=1)._replace(observations=still, next_observations=after)
    expected = torch.zeros(3, 1, 20, 20)
    expected[..., 3, 19] = 1.0
    torch.testing.assert_close(task.cumulants(rollout), expected.flatten(2))


def test_pixels_of_bytes_change_by_at_most_one() -> None:
    """Differences of bytes would wrap around if they were taken before the conversion."""
    black, white = (torch.full((STEPS, NUM_ENVS, 1, 4, 4), level, dtype=torch.uint8) for level in (0, 255))
    rollout = rollout_of((1, 4, 4))
    task = PixelControl(ACTIONS, 2)
    for before, after in ((black, white), (white, black)):
        changes = task.cumulants(rollout._replace(observations=before, next_observations=after))
        torch.testing.assert_close(changes, torch.ones(STEPS, NUM_ENVS, 4))


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_pixel_control_and_its_gradients_equal_the_transcription(ends: bool, seed: int) -> None:
    task = PixelControl(ACTIONS, 2, discount=0.8, scale=0.5)
    assert task.num_answers == 4 * ACTIONS
    assert_follows(task, pixel_control_loss(ACTIONS, 2, 0.8, 0.5), rollout_of((3, 4, 6), seed, ends))


# --- none -------------------------------------------------------------------------------------------------------------


def test_no_task() -> None:
    task = NoTask()
    answers, bootstraps = answers_and_bootstraps(task.num_answers)
    loss = task.loss(answers, bootstraps, {}, rollout_of())
    assert (task.num_answers, float(loss), loss.shape, loss.dtype) == (0, 0.0, (), torch.float64)
