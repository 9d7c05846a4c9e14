"""The shared question network."""

from __future__ import annotations

import math

import pytest
import torch

from dgvf_agents.core.question_networks import SharedQuestionNetwork
from dgvf_agents.core.tasks import DiscoveredGVFs, GVFTask
from tests.core_oracles import mlp
from tests.random_rollouts import random_rollout

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.mark.parametrize("learned", [True, False])
def test_cumulants_and_discounts_have_networks_of_their_own(learned: bool) -> None:
    torch.manual_seed(0)
    network = SharedQuestionNetwork(7, 5, learned, hidden=(6, 4))
    eta = {name: value + 0.1 * torch.randn(value.shape) for name, value in network.params().items()}
    features = torch.randn(4, 3, 7)
    cumulants, discounts = network.ask(eta, features)
    torch.testing.assert_close(cumulants, torch.atan(mlp(eta, "cumulants", features)))
    assert network.learns_discounts == learned
    if learned:
        torch.testing.assert_close(discounts, torch.sigmoid(mlp(eta, "discounts", features)))
        moved = {name: value + 1.0 if name.startswith("discounts.") else value for name, value in eta.items()}
        assert torch.equal(network.ask(moved, features)[0], cumulants)
    else:
        assert discounts is None
        assert not any(name.startswith("discounts.") for name in eta)


def test_the_network_of_the_paper() -> None:
    network = SharedQuestionNetwork(256, 128, True)
    shapes = {name: tuple(value.shape) for name, value in network.params().items() if name.endswith("weight")}
    layers = {"0.weight": (256, 256), "1.weight": (128, 256), "2.weight": (128, 128)}
    assert shapes == {f"{head}.{name}": shape for head in ("cumulants", "discounts") for name, shape in layers.items()}


def test_new_questions_differ_over_states() -> None:
    torch.manual_seed(1)
    network = SharedQuestionNetwork(256, 128, True)
    cumulants, discounts = network.ask(network.params(), torch.relu(torch.randn(5, 16, 256)))
    assert discounts is not None
    assert cumulants.flatten(0, 1).var(0).mean() > 0.01
    assert discounts.mean() == pytest.approx(0.5, abs=0.05)
    assert cumulants.abs().max() <= math.pi / 2


def test_tasks_read_features_if_their_network_does() -> None:
    task = DiscoveredGVFs(SharedQuestionNetwork(2 * 6, 5, True), None, window=2)
    assert task.reads_features
    assert not GVFTask.reads_features
    assert task.num_answers == 5
    rollout = random_rollout(0, shape=(6,))
    cumulants, discounts = task.ask(task.initial_meta_params(), rollout)
    assert cumulants.shape == discounts.shape == (4, 3, 5)
