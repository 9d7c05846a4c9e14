"""Training for a given time, in whole multiples of updates."""

from __future__ import annotations

import time

import pytest

from dgvf_agents import DGVFA2C
from dgvf_agents.bench.timing import learn_for, steady_rate, training_rate


def _model(task: str = "none") -> DGVFA2C:
    settings = {"n_envs": 2, "unroll_length": 4, "compile": False, "device": "cpu", "seed": 0}
    return DGVFA2C("MlpPolicy", "PuddleWorld-v0", auxiliary_task=task, **settings)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
@pytest.mark.parametrize(("task", "updates"), [("none", 1), ("discovered", 4)])
def test_all_updates_of_a_multiple_are_done_and_it_takes_its_time(seconds: float, task: str, updates: int) -> None:
    model, start = _model(task), time.perf_counter()
    learn_for(model, seconds)
    assert time.perf_counter() - start >= seconds
    assert model._n_updates % updates == 0
    assert model._n_updates == updates if seconds == 0.0 else model._n_updates >= updates


def test_a_rate_counts_every_environment_and_only_new_steps() -> None:
    model = _model()
    learn_for(model, 0.0)
    before, start = model.num_timesteps, time.perf_counter()
    found = training_rate(model, 0.2)
    upper = (model.num_timesteps - before) / 0.2
    assert (model.num_timesteps - before) / (time.perf_counter() - start) <= found <= upper


@pytest.mark.parametrize(("task", "before", "multiple"), [("none", 10, 1), ("discovered", 10, 4)])
def test_a_steady_rate_leaves_the_first_updates_out(
    task: str, before: int, multiple: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that says at which update it was asked."""
    model = _model(task)
    clock = {"now": 0.0}
    train = model.train

    def slow_at_first() -> None:
        clock["now"] += 100.0 if model._n_updates < before else 1.0
        train()

    monkeypatch.setattr(model, "train", slow_at_first)
    monkeypatch.setattr("dgvf_agents.bench.timing.time.perf_counter", lambda: clock["now"])
    assert steady_rate(model, 6.5) == pytest.approx(model.n_envs * model.n_steps)  # a second for each update
    assert (model._n_updates - before) % multiple == 0
    assert model._n_updates - before >= 6.5
