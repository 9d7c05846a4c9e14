"""`dgvf watch --questions`: the overlay of a question, and the keys that select it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pygame
import pytest

from dgvf_agents.atlas.live import LiveQuestions, live_questions
from dgvf_agents.train.folder import RunFolder
from tests.atlas.runs import QUESTIONS, model_of, tiny_run
from tests.helpers import refused


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "small", "collect-objects-small", "discovered", steps=240)


@pytest.fixture(scope="module")
def square(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory.mktemp("runs") / "square", "puddle-world", "random", steps=240)


class NoWaiting:
    """A clock that counts frames without waiting."""

    frames = 0

    def tick(self, frames_per_second: float) -> None:
        NoWaiting.frames += 1


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pygame.time, "Clock", NoWaiting)
    NoWaiting.frames = 0
    yield
    pygame.quit()


def window(run: Path) -> tuple[gym.Env, LiveQuestions]:
    config = RunFolder(run).read_config()
    env: gym.Env[Any, Any] = gym.make(config.env, render_mode="human", **config.evaluation_kwargs)
    overlay = live_questions(model_of(run), config)
    env.unwrapped.overlay = overlay  # type: ignore[attr-defined]
    env.reset(seed=0)
    return env, overlay


def press(env: gym.Env, *keys: int) -> np.ndarray:
    """The window's pixels after these keys."""
    for key in keys:
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=key))
    env.render()  # keys are taken before a frame is drawn
    return pygame.surfarray.array3d(pygame.display.get_surface()).copy()


@pytest.mark.parametrize("which", ["run", "square"])
def test_a_question_is_drawn_over_the_map(which: str, request: pytest.FixtureRequest) -> None:
    env, _ = window(request.getfixturevalue(which))
    drawn = press(env)
    env.unwrapped.overlay = None  # type: ignore[attr-defined]
    plain = press(env)
    assert (drawn != plain).any(axis=-1).mean() > 0.1
    assert pygame.display.get_caption()[0] in ("Collect-Objects", "PuddleWorld")
    env.close()


def test_keys_go_through_questions_and_quantities(run: Path) -> None:
    env, overlay = window(run)
    pictures, seen = [press(env)], [(overlay.question, overlay.quantity)]
    for key in [*[pygame.K_RIGHT] * (QUESTIONS - 1), *[pygame.K_DOWN] * 2]:
        pictures.append(press(env, key))
        seen.append((overlay.question, overlay.quantity))
        assert pygame.display.get_caption()[0].startswith(f"{overlay.quantity} of question {overlay.question} (")
    assert sorted(question for question, _ in seen[:QUESTIONS]) == list(range(QUESTIONS))
    assert [quantity for _, quantity in seen[-3:]] == ["cumulant", "answer", "discount"]
    assert all((one != other).any() for one, other in pairwise(pictures))
    np.testing.assert_array_equal(press(env, pygame.K_DOWN, pygame.K_RIGHT), pictures[0])  # around
    np.testing.assert_array_equal(press(env, pygame.K_LEFT, pygame.K_UP), pictures[-1])
    np.testing.assert_array_equal(press(env, pygame.K_F1), pictures[-1])  # other keys do nothing
    env.close()


def test_the_map_shows_the_current_phase(run: Path) -> None:
    _, overlay = window(run)
    config = RunFolder(run).read_config()
    world = gym.make(config.env).unwrapped.dynamics  # type: ignore[attr-defined]
    kind = type(world.states())
    before, after = (overlay.values(kind(0, first, True)) for first in (True, False))
    over = overlay.values(kind(world.second_cell, False, False))
    first, second = (tuple(world.map.cells[cell]) for cell in (world.first_cell, world.second_cell))
    assert np.isnan(before.values[first])
    assert not np.isnan(before.values[second])
    assert not np.isnan(after.values[first])
    np.testing.assert_array_equal(over.values, after.values)
    assert (before.low, before.high) == (after.low, after.high)  # colors mean the same on both


@pytest.mark.parametrize("number", [-1, QUESTIONS])
def test_a_question_that_is_not_there_is_refused(number: int, run: Path) -> None:
    with pytest.raises(ValueError, match=rf"question must be from 0 to {QUESTIONS - 1}, got {number}"):
        live_questions(model_of(run), RunFolder(run).read_config(), first=number)


def test_an_agent_without_questions_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tiny_run(tmp_path / "prediction", "collect-objects-small", "reward-prediction", steps=240)
    assert "run must have questions" in refused(capsys, "watch", str(other), "--questions")
