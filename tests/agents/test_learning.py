"""Stable-Baselines3's own tests that ask A2C to learn, for `DGVFA2C`; see `tests.agents.learning`."""

from __future__ import annotations

import pytest
from stable_baselines3 import A2C

from dgvf_agents import DGVFA2C
from tests.agents.learning import SEEDS, passes

TASKS = ("none", pytest.param("discovered", marks=pytest.mark.slow))
SLOW = pytest.mark.slow


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "name",
    ["identity", "infinite horizon", pytest.param("multi-discrete", marks=SLOW), pytest.param("box", marks=SLOW)],
)
def test_learning(name: str, task: str) -> None:
    assert passes(name, DGVFA2C, SEEDS[name], auxiliary_task=task, compile=False)


@SLOW
@pytest.mark.parametrize("task", TASKS)
def test_identity_with_binary_actions(task: str) -> None:
    """A2C passes with the seed of Stable-Baselines3's test and with few others: compare how many of eight pass."""
    seeds = range(3, 11)
    ours = sum(passes("multi-binary", DGVFA2C, s, auxiliary_task=task, compile=False) for s in seeds)
    theirs = sum(passes("multi-binary", A2C, s) for s in seeds)
    print(f"{task}: {ours} of ours pass, {theirs} of A2C")
    assert ours >= theirs
