"""One Atari game, as Gymnasium's own wrappers in the order that a preset asks for."""

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
    """One game under a preset: observations `[stack, size, size]` uint8, rewards for learning, scores in the infos.

    `info["episode"]` appears where a whole game is over or cut off and holds its score `r` from unclipped rewards, its
    length `l` in the agent's steps, lost lives or not, and the seconds `t` since the environment was made.
    `info["lives"]` is always there.

    Args:
        game: in Gymnasium's or ALE's spelling: `"Breakout"`, `"ms_pacman"`.
        preset: or its name, `"paper"` or `"modern"`.
        render_mode: `None`, `"human"` (a window in real time, with sound) or `"rgb_array"` (the console's colors).

    Raises:
        ValueError: there is no such game or preset.
        DependencyNotInstalled: `cv2` is missing.
    """
    preset = preset_of(preset)
    if importlib.util.find_spec("cv2") is None:
        raise DependencyNotInstalled('make_atari needs cv2, which `pip install "dgvf[atari]"` brings')
    _LOGGER.info("%s: %s", title_of(game), preset.describe())
    env = gym.make(
        f"ALE/{title_of(game)}-v5",
        obs_type="grayscale",
        frameskip=1,
        repeat_action_probability=preset.sticky,
        full_action_space=preset.full_action_set,
        max_num_frames_per_episode=None,  # TimeLimit's; the emulator's own would count no-ops and hide the last frames
        render_mode=render_mode,
        disable_env_checker=True,
    )
    env = AtariPreprocessing(
        EmulatorSeed(env), noop_max=preset.max_noops, frame_skip=preset.frame_skip, screen_size=preset.frame_size
    )
    env = Monitor(
        TimeLimit(env, preset.max_steps)
    )  # Stable-Baselines3 finds it and adds none that would see lives only
    if preset.clip_rewards:
        env = ClipReward(env, -1.0, 1.0)
    env = FrameStackObservation(env, preset.stack, padding_type="zero")
    return LifeLossEnds(env) if preset.life_loss_ends else env


@final
class EmulatorSeed(gym.Wrapper[np.ndarray, int, np.ndarray, int], gym.utils.RecordConstructorArgs):
    """`reset(seed=s)` seeds the emulator with s itself, as ALE's vector environment does, and not with a hash of it."""

    def __init__(self, env: gym.Env) -> None:
        """
        Args:
            env: ALE's environment.
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
            game.seed_game(seed)  # the generator of no-ops too
            game.ale.setInt("random_seed", seed)
            game.load_game()  # seeds count from here on
        return self.env.reset(options=options)
