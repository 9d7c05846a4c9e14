"""The full training on the small rooms, by questions alone: what the results page reports, from nothing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dgvf_agents.options import Method
from dgvf_agents.train.config import preset
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.train import train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7_200)]

LOW_LEARNING_RATE = 3e-4
"""At which discovered questions are needed: random ones stay at a return of about 1."""


def final_return(run: Path, method: Method, learning_rate: float | None = None) -> float:
    """Mean return of 200 episodes after training with the preset, or the preset with another learning rate."""
    config = preset("collect-objects-small", method)
    if learning_rate is not None:
        config = dataclasses.replace(config, learning_rate=learning_rate)
    train(config, run, show_progress=False)
    return evaluate(run, episodes=200)[0]


def test_the_preset_reaches_the_optimal_return(tmp_path: Path) -> None:
    assert final_return(tmp_path / "run", "discovered") >= 2.9


def test_discovered_questions_beat_random_ones_at_a_low_learning_rate(tmp_path: Path) -> None:
    assert final_return(tmp_path / "discovered", "discovered", LOW_LEARNING_RATE) >= 2.9
    assert final_return(tmp_path / "random", "random", LOW_LEARNING_RATE) < 2.0
