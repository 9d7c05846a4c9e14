"""`dgvf watch`: a trained agent in a window."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import pygame
from gymnasium.error import DependencyNotInstalled
from gymnasium.wrappers import RecordVideo

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.core.argument_checks import check_counts
from dgvf_agents.train.checkpoint import check_spaces, load_model
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import window
from dgvf_agents.train.folder import RunFolder
from dgvf_envs.rendering import LiveOverlay

_FRAMES_WITH_OVERLAY = 6
"""Frames per step with an overlay, so that its values can be read."""
_FRAMES_PER_SECOND = 30
"""Of a video, if the environment does not say."""

MakeOverlay = Callable[[DGVFA2C, TrainConfig], LiveOverlay[Any]]
"""Makes the overlay for an agent and the configuration of its run."""


def watch(
    run: Path,
    episodes: int = 10,
    deterministic: bool = False,
    seed: int | None = None,
    make_overlay: MakeOverlay | None = None,
    video: Path | None = None,
    steps: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> None:
    """Show the agent of a run's latest checkpoint in a window.

    Args:
        run: the run folder, or the name of a shipped run.
        episodes: number of episodes.
        deterministic: whether to take the most likely action instead of sampling from the policy.
        seed: seed of the environment.
        make_overlay: makes an overlay to draw over the map, as `dgvf_agents.atlas.live` does for the agent's
            questions. Each step is then shown for several frames.
        video: a file ending in `.mp4` for a video of all episodes, or a folder for a video of each, in place of the
            window; needs moviepy.
        steps: steps after which an episode is left; `None`: never.
        tell: is told the return of every episode.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: `episodes` < 1; the run is on an Atari game and `make_overlay` is given, or it raises the error; or
            `video` is a file of another kind.
        OSError: there is no display for the window.
        DependencyNotInstalled: a video is to be recorded without moviepy.
    """
    check_counts(episodes=episodes)
    folder = RunFolder.existing(run)
    config = folder.read_config()
    try:
        _check_display() if video is None else _check_video(video)  # before anything is loaded
        model: Any = load_model(config, folder.latest_checkpoint())
        if make_overlay is not None and config.atari is not None:
            raise ValueError(f"overlay must be drawn in a world with a map, got a run on the game {config.env}")
        frames = 1 if make_overlay is None else _FRAMES_WITH_OVERLAY
        env = window(config, "human" if video is None else "rgb_array")
        try:
            check_spaces(model, env, folder)
            if make_overlay is not None:
                env.unwrapped.overlay = make_overlay(model, config)  # type: ignore[attr-defined]
            env = env if video is None else _recorded(env, config.env, video, frames)
            for episode in range(episodes):
                start, limit = seed if episode == 0 else None, sys.maxsize if steps is None else steps
                total, taken = _episode(model, env, start, deterministic, frames if video is None else 1, limit)
                tell(f"episode {episode + 1}: return {total:g} in {taken:,} steps")
        finally:
            env.close()
    except pygame.error as error:
        raise OSError(f"watch needs a display ({error}); with --video FILE.mp4 it needs none") from error


def _check_video(video: Path) -> None:
    """
    Raises:
        ValueError: it is a file of another kind than mp4.
        DependencyNotInstalled: moviepy is missing.
    """
    if video.suffix not in ("", ".mp4") and not video.is_dir():
        raise ValueError(f"video must end in .mp4 or be a folder, got {video}")
    if find_spec("moviepy") is None:
        raise DependencyNotInstalled("a video needs MoviePy: pip install moviepy")


def may_have_display() -> bool:
    """Whether the environment does not rule out a display."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _check_display() -> None:
    """
    Raises:
        pygame.error: there is no display, or SDL draws into memory, which nobody asked for.
    """
    if "SDL_VIDEODRIVER" in os.environ:
        return
    if may_have_display():  # if not, SDL itself would write a line about it to the terminal
        pygame.display.init()
        if pygame.display.get_driver() != "offscreen":
            return
    raise pygame.error("none was found")


def _recorded(env: gym.Env[Any, Any], name: str, video: Path, slower: int) -> gym.Env[Any, Any]:
    """The environment with its episodes recorded, at its frames per second divided by `slower`."""
    fps = max(1, round(env.metadata.get("render_fps", _FRAMES_PER_SECOND) / slower))
    if video.suffix != ".mp4":
        return RecordVideo(env, str(video), lambda episode: True, name_prefix=name, fps=fps)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Overwriting existing videos")  # in a folder, which may hold anything else
        whole = RecordVideo(env, str(video.parent), lambda episode: False, video_length=sys.maxsize, fps=fps)
    whole.start_recording(video.stem)
    return whole


def _episode(
    model: Any, env: gym.Env[Any, Any], seed: int | None, deterministic: bool, frames: int, limit: int
) -> tuple[float, int]:
    """Play one episode, with each step shown for so many frames; returns its return and length."""
    observation, _ = env.reset(seed=seed)
    total, steps, over = 0.0, 0, False
    while not over and steps < limit:
        action, _ = model.predict(observation, deterministic=deterministic)
        for _ in range(frames - 1):  # the step renders one frame itself
            env.render()
        observation, reward, terminated, truncated, _ = env.step(action)
        total, steps, over = total + float(reward), steps + 1, terminated or truncated
    return total, steps
