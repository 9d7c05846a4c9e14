"""The shared question network against its formulas; principal questions against a singular value decomposition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgvf_agents.core.networks import MLPEncoder, QuestionNetwork
from dgvf_agents.core.question_networks import (
    PrincipalComponents,
    PrincipalQuestions,
    SharedQuestionNetwork,
    principal_components,
    principal_eta,
)
from dgvf_agents.core.tasks import RandomGVFs
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
    for name, value in network.params().items():  # orthogonal, with gain √2 under ReLUs and 1 at the output
        if name.endswith("weight"):
            gain = 1.0 if name.endswith("2.weight") else 2.0
            torch.testing.assert_close(value @ value.T, gain * torch.eye(len(value)))


QUESTIONS, STEPS, NUM_ENVS = 5, 6, 3


def network() -> QuestionNetwork:
    return QuestionNetwork(MLPEncoder(4, (7, 6)), 6, QUESTIONS, learned_discounts=False)


def test_components_are_those_of_the_singular_value_decomposition() -> None:
    scales = torch.tensor([0.1, 5.0, 2.0, 0.5, 1.0])
    cumulants = (torch.randn(40, QUESTIONS) * scales) @ torch.linalg.qr(torch.randn(QUESTIONS, QUESTIONS))[0] + 3.0
    found = principal_components(cumulants, 3)
    values = cumulants.numpy()
    _, _, rows = np.linalg.svd(values - values.mean(axis=0))
    torch.testing.assert_close(found.center, cumulants.mean(0))
    for component, row in zip(found.components.numpy(), rows, strict=False):
        assert abs(component @ row) == pytest.approx(1.0)
    torch.testing.assert_close(found.components @ found.components.T, torch.eye(3))
    variances = ((cumulants - found.center) @ found.components.T).var(0)
    assert variances.tolist() == sorted(variances.tolist(), reverse=True)
    for values in torch.randn(8, 40, QUESTIONS):  # of both signs, the one with a positive largest entry
        components = principal_components(values, QUESTIONS).components
        assert (components.gather(1, components.abs().argmax(1, keepdim=True)) > 0).all()


def test_cumulants_are_combined() -> None:
    principal = principal_components(torch.randn(20, QUESTIONS), 2)
    own, windows = network(), torch.randn(STEPS, NUM_ENVS, 4)
    eta = own.params()
    asked, discounts = PrincipalQuestions(own, 2).ask(principal_eta(eta, principal), windows)
    assert discounts is None
    expected = (own.ask(eta, windows)[0] - principal.center) @ principal.components.T
    torch.testing.assert_close(asked, expected)


def test_all_principal_questions_have_the_loss_of_the_questions_that_they_combine() -> None:
    rollout = random_rollout(0, steps=STEPS, num_envs=NUM_ENVS, shape=(4,), actions=3, ends=True)
    answers, bootstraps = torch.randn(2, STEPS, NUM_ENVS, QUESTIONS)
    own = network()
    whole = RandomGVFs(own, 0.9).loss(answers, bootstraps, own.params(), rollout)
    components = principal_components(torch.randn(20, QUESTIONS), QUESTIONS).components
    eta = principal_eta(own.params(), PrincipalComponents(torch.zeros(QUESTIONS), components))
    turned = (answers @ components.T, bootstraps @ components.T)
    found = RandomGVFs(PrincipalQuestions(own, QUESTIONS), 0.9).loss(*turned, eta, rollout)
    torch.testing.assert_close(found, whole)
    fewer = PrincipalQuestions(own, 2)
    part = RandomGVFs(fewer, 0.9).loss(
        turned[0][..., :2], turned[1][..., :2], {**eta, "components": components[:2]}, rollout
    )
    assert 0.0 < part < whole
