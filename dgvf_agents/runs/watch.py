"""`dgvf watch`: a trained agent in a window."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pygame
from gymnasium.wrappers import RecordVideo

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.runs.algorithms import load_model
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
    video: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Show the agent of a run's latest checkpoint in a window.

    Args:
        run: the run folder, or the name of a shipped run.
        episodes: number of episodes.
        deterministic: whether to take the most likely action instead of sampling from the policy.
        seed: seed of the environment.
        make_overlay: makes an overlay to draw over the map, as `dgvf_agents.atlas.live_questions` does for the agent's
            questions. Each step is then shown for several frames.
        video: a file ending in `.mp4` for a video of all episodes, or a folder for a video of each, in place of the
            window; needs moviepy.
        tell: is told the return of every episode.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: the run is on an Atari game and `make_overlay` is given, or it raises the error.
        OSError: there is no display for the window.
        DependencyNotInstalled: a video is to be recorded without moviepy.
    """
    folder = RunFolder.existing(run)
    config = folder.read_config()
    model: Any = load_model(config, folder.latest_checkpoint())
    if make_overlay is not None and config.atari is not None:
        raise ValueError(f"overlay must be drawn in a world with a map, got a run on the game {config.env}")
    env, frames = window(config) if video is None else _recorded(config, video), 1
    if make_overlay is not None:
        env.unwrapped.overlay = make_overlay(model, config)  # type: ignore[attr-defined]
        frames = _FRAMES_WITH_OVERLAY if video is None else 1
    try:
        if video is None:
            _check_display()
        for episode in range(episodes):
            total, steps = _episode(model, env, seed if episode == 0 else None, deterministic, frames)
            tell(f"episode {episode + 1}: return {total:g} in {steps:,} steps")
    except pygame.error as error:
        raise OSError(f"watch needs a display ({error}); with --video FILE.mp4 it needs none") from error
    finally:
        env.close()


def _check_display() -> None:
    """Raise `pygame.error` if SDL found no display and draws into memory, which nobody asked for."""
    pygame.display.init()
    if pygame.display.get_driver() == "offscreen" and "SDL_VIDEODRIVER" not in os.environ:
        raise pygame.error("none was found")


def _recorded(config: TrainConfig, video: Path) -> gym.Env[Any, Any]:
    """An environment whose episodes are recorded."""
    env = window(config, "rgb_array")
    if video.suffix != ".mp4":
        return RecordVideo(env, str(video), lambda episode: True, name_prefix=config.env)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Overwriting existing videos")  # in a folder, which may hold anything else
        whole = RecordVideo(env, str(video.parent), lambda episode: False, video_length=sys.maxsize)
    whole.start_recording(video.stem)
    return whole


def _episode(
    model: Any, env: gym.Env[Any, Any], seed: int | None, deterministic: bool, frames: int
) -> tuple[float, int]:
    """Play one episode, with each step shown for so many frames; returns its return and length."""
    observation, _ = env.reset(seed=seed)
    total, steps, over = 0.0, 0, False
    while not over:
        action, _ = model.predict(observation, deterministic=deterministic)
        for _ in range(frames - 1):  # the step renders one frame itself
            env.render()
        observation, reward, terminated, truncated, _ = env.step(action)
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
    return total, steps
