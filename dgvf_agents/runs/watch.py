"""`dgvf watch`: a trained agent in a window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.runs.algorithms import algorithm_of
from dgvf_agents.runs.config import TrainConfig
from dgvf_agents.runs.environments import window
from dgvf_agents.runs.folder import RunFolder
from dgvf_envs.rendering import LiveOverlay

_FRAMES_WITH_OVERLAY = 6
"""Frames per step with an overlay, so that its values can be read."""

MakeOverlay = Callable[[DGVFA2C, TrainConfig], LiveOverlay[Any]]
"""Makes the overlay for an agent and the configuration of its run."""


def watch(
    run: Path,
    episodes: int = 10,
    deterministic: bool = False,
    seed: int | None = None,
    make_overlay: MakeOverlay | None = None,
) -> None:
    """Show the agent of a run's latest checkpoint in a window.

    Args:
        run: the run folder.
        episodes: number of episodes.
        deterministic: whether to take the most likely action instead of sampling from the policy.
        seed: seed of the environment.
        make_overlay: makes an overlay to draw over the map, as `dgvf_agents.atlas.live_questions` does for the agent's
            questions. Each step is then shown for several frames.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: the run is on an Atari game and `make_overlay` is given, or it raises the error.
    """
    folder = RunFolder.existing(run)
    config = folder.read_config()
    model: Any = algorithm_of(config).load(folder.latest_checkpoint(), device="cpu")
    if make_overlay is not None and config.atari is not None:
        raise ValueError(f"overlay must be drawn in a world with a map, got a run on the game {config.env}")
    env = window(config)
    frames = 1
    if make_overlay is not None:
        env.unwrapped.overlay = make_overlay(model, config)  # type: ignore[attr-defined]
        frames = _FRAMES_WITH_OVERLAY
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        over = False
        while not over:
            action, _ = model.predict(observation, deterministic=deterministic)
            for _ in range(frames - 1):  # the step renders one frame itself
                env.render()
            observation, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
    env.close()
