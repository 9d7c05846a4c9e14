"""Spectral radius and gain against dense linear algebra."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dgvf_agents.agents.collecting import RolloutCallback
from dgvf_agents.cli import main
from dgvf_agents.train.stability import gain, jacobian, measure, next_update, spectral_radius
from tests.run_folders import rows_of
from tests.small_agents import small_model

N = 12


def matrix(seed: int) -> torch.Tensor:
    return torch.randn(N, N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", range(3))
def test_products_with_a_jacobian_are_those_of_automatic_differentiation(seed: int) -> None:
    a, at = matrix(seed), matrix(seed + 10)[0]

    def update(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(a @ x) + x**3

    dense = torch.func.jacrev(update)(at).numpy()
    operator = jacobian(update, at)
    np.testing.assert_allclose(operator @ np.eye(N), dense, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(operator.H @ np.eye(N), dense.T, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_the_spectral_radius_is_that_of_the_dense_matrix(seed: int) -> None:
    a = matrix(seed)
    largest = np.abs(np.linalg.eigvals(a.numpy())).max()
    operator = jacobian(lambda x: a @ x, torch.zeros(N, dtype=torch.float64))
    assert spectral_radius(operator) == pytest.approx(largest, 1e-2)


def test_gradient_descent_on_a_quadratic_leaves_the_unit_disc_where_theory_says() -> None:
    curvatures = torch.linspace(0.1, 10.0, N, dtype=torch.float64)
    for learning_rate, radius in ((0.1, 0.99), (0.25, 1.5)):
        step = jacobian(lambda x, a=learning_rate: x - a * curvatures * x, torch.ones(N, dtype=torch.float64))
        assert spectral_radius(step) == pytest.approx(radius, 1e-2)


@pytest.mark.parametrize("size", [4, N])
def test_the_gain_of_a_chain_is_the_norm_of_a_block_of_its_product(size: int) -> None:
    matrices = [matrix(seed) for seed in range(3)]
    operators = [jacobian(lambda x, a=a: a @ x, torch.zeros(N, dtype=torch.float64)) for a in matrices]
    product = (matrices[2] @ matrices[1] @ matrices[0]).numpy()[:size, :size]
    assert gain(operators, size) == pytest.approx(np.linalg.norm(product, 2), 1e-2)


@pytest.mark.parametrize("total_steps", [200, 400])
def test_measurements_of_an_agent_equal_those_of_dense_jacobians_in_the_same_run(total_steps: int) -> None:
    layers = {"features_extractor_kwargs": {"hidden": (3,)}}
    small = {"n_envs": 2, "unroll_length": 2, "questions": 2, "seed": 1, "policy_kwargs": layers}
    made = [small_model(learning_rate=lambda remaining: 0.02 + 0.2 * remaining, **small) for _ in range(2)]
    for model in made:
        model.learn(200)
    measured, dense = measure(made[0], total_steps), _DenseWitness()
    made[1].learn(max(20, total_steps - 200), dense, reset_num_timesteps=False)
    jacobians = dense.jacobians[:2]
    radii = [np.abs(np.linalg.eigvals(jacobian)).max() for jacobian in jacobians]
    product = jacobians[1] @ jacobians[0]
    assert measured.spectral_radius == pytest.approx(np.mean(radii), 1e-3)
    assert measured.gain == pytest.approx(np.linalg.norm(product[: dense.size, : dense.size], 2), 1e-3)


class _DenseWitness(RolloutCallback):
    def __init__(self) -> None:
        super().__init__()
        self.jacobians: list[np.ndarray] = []
        self.size = 0

    def _on_rollout_end(self) -> None:
        update, at, self.size = next_update(self.model)  # type: ignore[arg-type]
        self.jacobians.append(torch.func.jacrev(update)(at).detach().numpy())


def test_a_run_is_probed_at_its_complete_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, tiny = tmp_path / "run", ["--compile", "False", "--questions", "2", "--unroll-length", "2", "--steps", "480"]
    checkpoints = ["--checkpoint-every", "160", "--checkpoints-kept", "2"]
    main(["train", "puddle-world", "discovered", *tiny, *checkpoints, "--out", str(run)])
    main(["probe", str(run)])
    assert "spectral radius" in capsys.readouterr().out.replace("\n", " ")
    rows = rows_of(run, "stability.csv")
    assert [int(row["steps"]) for row in rows] == [320, 480]
    assert all(float(row["spectral_radius"]) > 0.9 and float(row["gain"]) > 0 for row in rows)
