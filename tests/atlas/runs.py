"""Tiny trained runs for the tests of the atlas, made once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.atlas.domain import domain_of
from dgvf_agents.options import Method, World
from dgvf_agents.train.config import preset
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import train

QUESTIONS = 5


def tiny_run(path: Path, world: World, method: Method, steps: int = 240) -> Path:
    """Train for a moment, uncompiled; three checkpoints."""
    intervals = {"log_every": steps, "checkpoint_every": steps // 3, "evaluate_every": 10 * steps}
    small = {"questions": QUESTIONS, "n_envs": 8, "unroll_length": 2, "meta_learning_rate": 0.01, "compile": False}
    config = dataclasses.replace(preset(world, method), steps=steps, **small, **intervals)
    train(config, path, show_progress=False)
    return path


def model_of(run: Path) -> DGVFA2C:
    return DGVFA2C.load(RunFolder(run).latest_checkpoint(), device="cpu")


def domain(env_id: str, **options: object) -> Any:
    """The domain registered for the world of an environment."""
    return domain_of(gym.make(env_id, **options).unwrapped.dynamics)  # type: ignore[attr-defined]
