"""The examples of the engine: their experience, and their mains with tiny settings."""

from __future__ import annotations

import csv
import importlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from examples.engine import meta_discount, random_predictions, rooms
from tests.random_rollouts import random_rollout

ROOT = Path(__file__).resolve().parents[1]


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_example_of_the_page_learns_which_half_to_trust() -> None:
    text = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
    block = next(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))[1]
    found: dict[str, Any] = {}
    exec(compile(block, "engine.md", "exec"), found)
    assert float(found["trust"][:16].mean()) < 0.3
    assert float(found["trust"][16:].mean()) > 0.5


# --- experience -------------------------------------------------------------------------------------------------------


def test_batches_of_the_rooms_are_those_of_the_environment() -> None:
    """Chains of states, rewards at the objects, and ends that agree with the environment's episodes."""
    collector = rooms.Rooms(8, seed=0)
    logits = torch.zeros(rooms.NUM_STATES, rooms.NUM_ACTIONS)
    batches = [collector.collect(logits, 10) for _ in range(12)]
    states, ends = torch.cat([b.states for b in batches]), torch.cat([b.segment_end for b in batches])
    following, rewards = torch.cat([b.next_states for b in batches]), torch.cat([b.rewards for b in batches])
    within = ~ends[:-1]
    assert torch.equal(following[:-1][within], states[1:][within])
    took_first = (states % 2 == 1) & (following % 2 == 0)
    assert torch.equal(took_first, rewards == 1.0)
    assert took_first.any()
    assert torch.equal(torch.cat([b.terminated for b in batches]), rewards == 2.0)
    row, column = following // 2 // 9, following // 2 % 9
    assert {(int(r), int(c)) for r, c in zip(row[took_first], column[took_first], strict=True)} == {(2, 6)}
    assert len(collector.returns) >= 8 * 2  # a hundred and twenty steps, at most forty each


# --- mains ------------------------------------------------------------------------------------------------------------


TINY: dict[str, tuple[dict[str, Any], str]] = {
    "meta_discount": ({"updates": 8, "log_every": 4, "num_envs": 64}, "meta_learning_rate"),
    "intrinsic_reward": ({"updates": 8, "log_every": 4, "num_envs": 64}, "meta_learning_rate"),
    "bootstrapped": ({"updates": 60, "log_every": 8}, "meta_learning_rate"),
}


@pytest.mark.parametrize("name", TINY)
def test_only_the_meta_gradient_changes_the_meta_parameters(name: str, tmp_path: Path) -> None:
    """The last columns of the learning curve, which show η, change with the meta-learning rate and only with it."""
    module, (settings, rate) = importlib.import_module(f"examples.engine.{name}"), TINY[name]
    given = module.Settings(seed=1, output=tmp_path / "curve.csv", **settings)
    rows = module.main(given)
    with (tmp_path / "curve.csv").open(encoding="utf-8") as file:
        header, *written = csv.reader(file)
    assert header[0] == "steps"
    assert [float(value) for value in written[-1]] == pytest.approx(rows[-1], rel=1e-5, nan_ok=True)
    still = module.main(replace(given, output=None, **{rate: 0.0}))
    for column in range(2, len(header)):
        first, last = still[0][column], still[-1][column]
        assert last == pytest.approx(first, rel=1e-6)
        assert rows[-1][column] != pytest.approx(last, rel=1e-6)


def test_the_discount_grows_where_it_is_too_short() -> None:
    """From 0.6, in a world where the objects are up to twenty steps away."""
    rows = meta_discount.main(meta_discount.Settings(seed=0, updates=240, log_every=80))
    assert rows[-1][2] > 0.62


# --- random predictions -----------------------------------------------------------------------------------------------


def test_targets_of_random_predictions() -> None:
    """Against the definition, step by step."""
    rollout = random_rollout(0)
    size = rollout.observations.shape[-1]
    task = random_predictions.RandomPredictions(size, 3, num_features=4, depth=3, seed=0)
    answers, bootstraps = torch.randn(*rollout.rewards.shape, 12), torch.randn(*rollout.rewards.shape, 12)
    total = 0.0
    for t in range(len(rollout.rewards)):
        for b in range(rollout.rewards.shape[1]):
            after = bootstraps[t, b] if rollout.segment_end[t, b] else answers[t + 1, b]
            alive = 0.0 if rollout.terminated[t, b] else 1.0
            for i in range(4):
                feature = torch.tanh(rollout.next_observations[t, b] @ task.weights[:, i])
                for d in range(3):
                    target = feature if d == 0 else alive * after[3 * i + d - 1]
                    if rollout.actions[t, b] == task.actions[i, d]:
                        total += 0.5 * float(target - answers[t, b, 3 * i + d]) ** 2
    expected = total / rollout.rewards.numel()
    assert rollout.terminated.any()
    assert float(task.loss(answers, bootstraps, {}, rollout)) == pytest.approx(expected, rel=1e-5)


def test_random_predictions_are_trained_to_a_curve(tmp_path: Path) -> None:
    settings = random_predictions.Settings(steps=4_800, num_features=4, depth=3, log_every=1_600)
    rows = random_predictions.main(replace(settings, output=tmp_path / "curve.csv"))
    assert [row[0] for row in rows] == [1_600, 3_200, 4_800]
    assert (tmp_path / "curve.csv").read_text().startswith("steps,return\n1600,")
