"""A single Atari environment, made from Gymnasium's wrappers."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any, SupportsFloat, final

import ale_py
import gymnasium as gym
import numpy as np
from gymnasium.error import DependencyNotInstalled
from gymnasium.wrappers import AtariPreprocessing, ClipReward, FrameStackObservation, TimeLimit

from dgvf_envs.atari.games import MAX_SEED, title_of
from dgvf_envs.atari.presets import PAPER, AtariPreset, preset_of


def life_lost(before: Any, after: Any) -> Any:
    """Whether a life was lost in a step; for integers or arrays `[N]`.

    The last life counts too, as in DeepMind's `dqn_zoo`: some games continue for a few frames after it is lost.
    """
    return after < before


@final
class LifeLossEnds(gym.Wrapper[np.ndarray, int, np.ndarray, int]):
    """Sets `terminated` when a life is lost; the `reset()` that follows continues the game.

    This must be the outermost wrapper, so that the frame stack is continued too. A `reset` with a seed or with options,
    or at any other time, starts a new game.
    """

    def __init__(self, env: gym.Env) -> None:
        """
        Args:
            env: an Atari environment with `lives` in its infos.
        """
        super().__init__(env)
        self._lives = 0
        self._continuation: tuple[np.ndarray, dict[str, Any]] | None = None
        """The result of the next `reset()` if it continues the game."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        continuation, self._continuation = self._continuation, None
        if continuation is not None and seed is None and not options:
            return continuation
        observation, info = self.env.reset(seed=seed, options=options)
        self._lives = info["lives"]
        return observation, info

    def step(self, action: int) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, game_over, truncated, info = self.env.step(action)
        lost = life_lost(self._lives, info["lives"])
        self._lives = info["lives"]
        continues = lost and not (game_over or truncated)
        self._continuation = (observation.copy(), dict(info)) if continues else None
        return observation, reward, game_over or lost, truncated, info


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
    from stable_baselines3.common.monitor import Monitor  # with PyTorch, which takes seconds

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
class EmulatorSeed(gym.Wrapper[np.ndarray, int, np.ndarray, int]):
    """Makes `reset(seed=s)` seed the emulator with s itself, like ALE's vector environment, not with a hash of s."""

    def __init__(self, env: gym.Env) -> None:
        """
        Args:
            env: a game.
        """
        super().__init__(env)

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
