"""`dgvf probe`: how stable the inner updates of a run are, checkpoint by checkpoint."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from stable_baselines3.common.callbacks import BaseCallback

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.storage.atomic import replacing
from dgvf_agents.runs.checkpoint import complete_checkpoints
from dgvf_agents.execution.devices import evaluation_device
from dgvf_agents.runs.environments import training_environments
from dgvf_agents.runs.folder import RunFolder
from dgvf_agents.runs.stability import gain, jacobian, spectral_radius


class Stability(NamedTuple):
    """What L inner updates in a row do to neighboring parameters."""

    steps: int
    """Environment steps that the agent was trained for."""
    spectral_radius: float
    """Of an update's Jacobian, the mean over the first three updates."""
    gain: float
    """The most that all of them together stretch a change of θ."""


def probe(run: Path, seed: int = 20_000, device: str | None = None) -> list[Stability]:
    """Measure every complete checkpoint of a run, and write `stability.csv` beside its metrics.

    Checkpoints that keep networks only lack the optimizer's statistics, on which everything here depends.

    Args:
        run: the run folder.
        seed: of the environments that the updates' experience comes from.
        device: for the updates; that of the run where it can be used here, the CPU elsewhere, when left out.

    Raises:
        FileNotFoundError: there is no run, or it has no complete checkpoint.
        ValueError: `device` cannot be used here.
    """
    folder = RunFolder.existing(run)
    config = folder.read_config()
    files = complete_checkpoints(folder)
    if not files:
        raise FileNotFoundError(f"run must have complete checkpoints (--checkpoints-kept), got {run} without any")
    torch.set_num_threads(config.threads)
    where = evaluation_device(device, config.device)
    rows = []
    for file in files:
        env = training_environments(config, seed)
        rows.append(measure(DGVFA2C.load(file, env, device=where, compile=False)))
    with replacing(folder.path / "stability.csv") as unfinished, unfinished.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(Stability._fields)
        writer.writerows(rows)
    return rows


def measure(model: DGVFA2C) -> Stability:
    """Measure the next L updates of a model, which makes them."""
    steps, witness = model.num_timesteps, _Witness()
    batch = model.n_envs * model.n_steps
    model.learn(model.unroll_length * batch, witness, reset_num_timesteps=False)
    radii = [spectral_radius(jacobian) for jacobian in witness.jacobians[:3]]
    return Stability(steps, float(np.mean(radii)), gain(witness.jacobians, witness.size))


class _Witness(BaseCallback):
    """Keeps the Jacobian of every update."""

    def __init__(self) -> None:
        super().__init__()
        self.jacobians: list[LinearOperator] = []
        self.size = 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        assert isinstance(self.model, DGVFA2C)
        update, at, self.size = self.model.next_update()
        self.jacobians.append(jacobian(update, at))
