"""Memory of an unroll before it is taken: the estimate, what is chosen, and what is refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from dgvf_agents import DGVFA2C, learner
from dgvf_agents.execution.memory import free_bytes, graph_bytes
from tests.small_agents import small_model


def test_the_estimate_counts_what_the_graph_keeps() -> None:
    def function(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return ((scale * x.exp()).tanh() + 1.0).sum()

    given = torch.zeros(1000, dtype=torch.float32), torch.ones(())
    # exp(x) and tanh for their own derivatives, and the sum; the product and the addition keep nothing
    assert graph_bytes(function, given, 1) == 2 * 4000 + 4
    assert graph_bytes(lambda x, _: x.clone(), given, 1) == 4000  # the result alone


def model(free: float | None, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> DGVFA2C:
    monkeypatch.setattr(learner, "free_bytes", lambda device: free)
    return small_model("CartPole-v1", "MlpPolicy", **{"n_envs": 2, "questions": 4, "unroll_length": 10, **changes})


def test_what_does_not_fit_is_recomputed_with_equal_results(monkeypatch: pytest.MonkeyPatch) -> None:
    large = model(None, monkeypatch).learn(150)
    with pytest.warns(
        UserWarning, match=r"storage='recompute' is chosen, .* 10 updates would take .* are free"
    ) as told:
        small = model(2e6, monkeypatch).learn(150)
    assert len(told) == 1
    assert (large.learner.storage, small.learner.storage) == ("graph", "recompute")
    assert large.meta_updates > 0
    learned = ((model.learner.theta, model.learner.eta) for model in (small, large))
    torch.testing.assert_close(*learned, rtol=0, atol=0)


def test_what_fits_in_no_way_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"n_steps x n_envs must be .* GB, with 'graph' .* GB; 0\.0 GB are free"):
        model(1e4, monkeypatch).learn(50)


def test_a_storage_that_was_asked_for_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="storage='graph' needs about"):
        assert model(2e6, monkeypatch, storage="graph").learn(50).learner.storage == "graph"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model(1e12, monkeypatch, storage="recompute").learn(50).learner.storage == "recompute"
        model(1e12, monkeypatch, auxiliary_task="random").learn(50)


def test_free_memory_is_less_than_what_the_machine_has() -> None:
    free = free_bytes(torch.device("cpu"))
    assert free is None or 1e6 < free < 1e14
