"""A single Atari environment, built from Gymnasium's own wrappers."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any, final

import ale_py
import gymnasium as gym
import numpy as np
from gymnasium.error import DependencyNotInstalled
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation, TimeLimit
from stable_baselines3.common.monitor import Monitor

from dgvf_envs.atari.emulator import MAX_SEED, title_of
from dgvf_envs.atari.life_loss import LifeLossEnds
from dgvf_envs.atari.presets import PAPER, AtariPreset, preset_of

gym.register_envs(ale_py)

_LOGGER = logging.getLogger("dgvf_envs.atari")


def make_atari(game: str, preset: AtariPreset | str = PAPER, render_mode: str | None = None) -> gym.Env:
    """Make a single Atari environment with observations `[stack, size, size]` uint8.

    At the end of a whole game (over or truncated), `info["episode"]` has the score `r` (the sum of unclipped rewards),
    the length `l` in agent steps over all lives, and the seconds `t` since the environment was made. `info["lives"]` is
    always present.

    Args:
        game: the game in Gymnasium's or ALE's spelling: `"Breakout"`, `"ms_pacman"`.
        preset: the preset or its name, `"paper"` or `"modern"`.
        render_mode: `None`, `"human"` (a window in real time, with sound) or `"rgb_array"` (in color).

    Raises:
        ValueError: there is no such game or preset.
        DependencyNotInstalled: `cv2` is not installed.
    """
    preset = preset_of(preset)
    if importlib.util.find_spec("cv2") is None:
        raise DependencyNotInstalled('make_atari needs cv2: run `pip install "dgvf[atari]"`')
    _LOGGER.info("%s: %s", title_of(game), preset.describe())
    env = gym.make(
        f"ALE/{title_of(game)}-v5",
        obs_type="grayscale",
        frameskip=1,
        repeat_action_probability=preset.sticky,
        full_action_space=preset.full_action_set,
        max_num_frames_per_episode=None,  # TimeLimit below: the emulator's own counts no-ops and hides the last frames
        render_mode=render_mode,
        disable_env_checker=True,
    )
    env = AtariPreprocessing(
        EmulatorSeed(env), noop_max=preset.max_noops, frame_skip=preset.frame_skip, screen_size=preset.frame_size
    )
    env = Monitor(TimeLimit(env, preset.max_steps))  # inside LifeLossEnds, so that it records whole games
    if preset.clip_rewards:
        env = ClipReward(env, -1.0, 1.0)
    env = FrameStackObservation(env, preset.stack, padding_type="zero")
    return LifeLossEnds(env) if preset.life_loss_ends else env


@final
class EmulatorSeed(gym.Wrapper[np.ndarray, int, np.ndarray, int], gym.utils.RecordConstructorArgs):
    """Makes `reset(seed=s)` seed the emulator with s itself, like ALE's vector environment, not with a hash of s."""

    def __init__(self, env: gym.Env) -> None:
        """
        Args:
            env: an ALE environment.
        """
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """
        Raises:
            ValueError: the seed is negative or larger than `MAX_SEED`.
        """
        if seed is not None and not 0 <= seed <= MAX_SEED:
            raise ValueError(f"seed must lie in [0, {MAX_SEED}], got {seed!r}")
        if seed is not None:
            game: Any = self.env.unwrapped
            game.seed_game(seed)  # also seeds the generator of no-ops
            game.ale.setInt("random_seed", seed)
            game.load_game()  # the seed takes effect here
        return self.env.reset(options=options)
