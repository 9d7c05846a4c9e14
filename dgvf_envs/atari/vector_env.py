"""A vector environment of Atari games, based on ALE's C++ vector environment."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from ale_py import AtariVectorEnv
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv

from dgvf_envs.argument_checks import check_count, checked_actions, checked_reset_mask, checked_seeds
from dgvf_envs.atari.games import MAX_SEED, frames_before_start, rom_id_of, title_of
from dgvf_envs.atari.presets import PAPER, AtariPreset, preset_of
from dgvf_envs.atari.scalar_env import life_lost
from dgvf_envs.functional.vector_env import final_infos

_LOGGER = logging.getLogger("dgvf_envs.atari")

_NO_FRAME_LIMIT = 2**31 - 2
"""A frame limit that no game reaches; the emulator adds 1 to it, which must not overflow."""
_INFO_KEYS = ("lives", "episode_frame_number", "frame_number")
"""The infos that ALE's single environment has too."""


@final
class GamesVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """N games as a `gymnasium.vector.VectorEnv`.

    It returns the same values as `gymnasium.vector.SyncVectorEnv` with autoreset mode `SAME_STEP` and N environments
    made by `make_atari`, except for the number of no-ops, which another generator draws.

    **Seeding.** `reset(seed=s)` with an integer seeds game i with `s + i`; a sequence has one seed per game, and `None`
    leaves the game's generator as it is.

    **Episodes.** If the preset has `life_loss_ends`, the loss of a life sets `terminated` and the game continues: the
    returned observation is both the final observation of the episode and the first one of the next. A game that is over
    or truncated restarts in the same step. In both cases the final observations and infos are in `infos["final_obs"]`
    and `infos["final_info"]`, under the masks `infos["_final_obs"]` and `infos["_final_info"]`.

    **Scores.** When whole games are over or truncated, `infos["final_info"]["episode"]` has their scores `r` (sums of
    unclipped rewards), lengths `l` in agent steps, and the seconds `t` since the environment was made, under the mask
    `_episode`. Rewards are clipped if the preset says so.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012, Gymnasium reads a plain class attribute
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "reports_episodes": True,
    }

    def __init__(self, game: str, num_envs: int, preset: AtariPreset | str = PAPER, threads: int = 0) -> None:
        """
        Args:
            game: the game in Gymnasium's or ALE's spelling: `"Breakout"`, `"ms_pacman"`.
            num_envs: number of games N ≥ 1.
            preset: the preset or its name, `"paper"` or `"modern"`.
            threads: number of emulator threads; 0 for one per core.

        Raises:
            ValueError: there is no such game or preset, or a number is out of range.
        """
        check_count("num_envs", num_envs)
        if threads < 0:
            raise ValueError(f"threads must be >= 0, got {threads!r}")
        self.game, self.preset, self.num_envs = title_of(game), preset_of(preset), num_envs
        _LOGGER.info("%s: %s", self.game, self.preset.describe())
        self._emulators = _emulators(rom_id_of(game), num_envs, self.preset, threads)
        self._first_frame = frames_before_start(rom_id_of(game)) if self.preset.max_noops else 0
        self.single_observation_space = self._emulators.single_observation_space
        self.single_action_space = self._emulators.single_action_space
        self.observation_space = self._emulators.observation_space
        self.action_space = self._emulators.action_space
        self._scores = np.zeros(num_envs)  # of the current games, unclipped
        self._steps = np.zeros(num_envs, dtype=np.int64)  # of the current games
        self._lives = np.zeros(num_envs, dtype=np.int32)
        self._start_time = time.time()
        self._was_reset = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new games everywhere, or where `options["reset_mask"]` (`[N]` boolean) is true.

        Raises:
            ValueError: the number of seeds or the shape of the mask does not match N, the mask is all false, or a seed
                is negative or larger than 2³¹ - 1.
            TypeError: the mask is not a boolean array.
            ResetNeeded: the mask is partial and there was no full reset before.
            ClosedEnvironmentError: the environment has been closed.
        """
        if self.closed:
            raise ClosedEnvironmentError("reset() was called after close()")
        games = checked_reset_mask(options, self.num_envs, self._was_reset)
        return self._new_games(games, self._emulator_seeds(seed))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all games.

        Args:
            actions: `[N]` integer.

        Returns:
            Observations `[N, stack, size, size]` uint8, rewards `[N]` float64, terminations and truncations `[N]`
            boolean, and infos.

        Raises:
            InvalidAction: the actions have the wrong shape or type, or one is out of range.
            ResetNeeded: the environment has not been reset.
            ClosedEnvironmentError: the environment has been closed.
        """
        if self.closed:
            raise ClosedEnvironmentError("step() was called after close()")
        if not self._was_reset:
            raise ResetNeeded("step() was called before reset(): call reset() first")
        num_actions = int(self.single_action_space.n)  # type: ignore[attr-defined]
        actions = checked_actions(actions, self.num_envs, num_actions)  # a wrong action would hang the emulators
        observations, raw_rewards, game_over, _, ale_infos = self._emulators.step(actions)
        self._scores += raw_rewards
        self._steps += 1
        truncated = self._steps >= self.preset.max_steps
        terminated = game_over
        if self.preset.life_loss_ends:
            terminated = game_over | life_lost(self._lives, ale_infos["lives"])
        self._lives = ale_infos["lives"]
        infos: dict[str, Any] = {key: ale_infos[key] for key in _INFO_KEYS}
        if (done := terminated | truncated).any():
            observations, infos = self._autoreset(observations, infos, done, game_over | truncated)
        rewards = raw_rewards.astype(np.float64)
        if self.preset.clip_rewards:
            rewards = rewards.clip(-1.0, 1.0)
        return observations, rewards, terminated, truncated, infos

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the emulators and their threads."""
        del self._emulators.ale

    def __repr__(self) -> str:
        return f"GamesVectorEnv({self.game!r}, {self.num_envs}, preset={self.preset.name!r})"

    def _autoreset(
        self, observations: np.ndarray, infos: dict[str, Any], done: np.ndarray, over: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Restart the games that are `over`; add the final observations and infos of the episodes that are `done`."""
        final_info: dict[str, Any] = {}
        for key, values in infos.items():
            final_info |= {key: np.where(done, values, 0), f"_{key}": done.copy()}
        if over.any():
            final_info |= {"episode": self._episode_infos(over), "_episode": over}
        ended = final_infos(observations, final_info, done)
        if over.any():
            observations, infos = self._new_games(over, None)
        return observations, {**infos, **ended}

    def _new_games(self, games: np.ndarray, seeds: np.ndarray | None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new games where `games` `[N]` is true; returns the observations and infos of all games."""
        observations, ale_infos = self._reset_emulators(games, None if seeds is None else seeds[games])
        if self.preset.max_noops:
            # The emulators draw 0 to max_noops no-ops; rejecting 0 gives 1 to max_noops.
            while (without_noops := games & (ale_infos["episode_frame_number"] == self._first_frame)).any():
                observations, ale_infos = self._reset_emulators(without_noops, None)
        self._was_reset = True
        self._scores[games] = 0.0
        self._steps[games] = 0
        self._lives = ale_infos["lives"]
        return observations, {key: ale_infos[key] for key in _INFO_KEYS}

    def _episode_infos(self, games: np.ndarray) -> dict[str, np.ndarray]:
        """Scores, lengths and times as in Stable-Baselines3's `Monitor`, where `games` `[N]` is true; 0 elsewhere."""
        return {
            "r": np.where(games, self._scores, 0.0),
            "l": np.where(games, self._steps, 0),
            "t": np.where(games, round(time.time() - self._start_time, 6), 0.0),
        }

    def _reset_emulators(self, games: np.ndarray, seeds: np.ndarray | None) -> tuple[np.ndarray, dict[str, Any]]:
        return self._emulators.reset(seed=seeds, options={"reset_mask": games})

    def _emulator_seeds(self, seed: int | Sequence[int | None] | None) -> np.ndarray | None:
        """`[N]` seeds for the emulators, -1 for none; `None` if there are none at all."""
        if seed is None:
            return None
        seeds = checked_seeds(seed, self.num_envs)
        invalid = [one for one in seeds if one is not None and not 0 <= one <= MAX_SEED]
        if invalid:
            raise ValueError(f"seeds must lie in [0, {MAX_SEED}], got {invalid[0]!r}")
        return np.array([-1 if one is None else one for one in seeds])


def make_atari_vec(game: str, n: int, preset: AtariPreset | str = PAPER, threads: int = 0) -> GamesVectorEnv:
    """Make a vector environment of N games, stepped in C++; see `GamesVectorEnv`.

    Args:
        game: the game in Gymnasium's or ALE's spelling: `"Breakout"`, `"ms_pacman"`.
        n: number of games ≥ 1.
        preset: the preset or its name, `"paper"` or `"modern"`.
        threads: number of emulator threads; 0 for one per core.

    Raises:
        ValueError: there is no such game or preset, or a number is out of range.
    """
    return GamesVectorEnv(game, n, preset, threads)


def _emulators(rom_id: str, n: int, preset: AtariPreset, threads: int) -> AtariVectorEnv:
    """ALE's environment, used for emulation and preprocessing only; rewards and episode ends are handled here."""
    return AtariVectorEnv(
        rom_id,
        n,
        num_threads=threads,
        max_num_frames_per_episode=_NO_FRAME_LIMIT,
        repeat_action_probability=preset.sticky,
        full_action_space=preset.full_action_set,
        autoreset_mode=AutoresetMode.NEXT_STEP,  # finished games are reset by mask before the next step
        img_height=preset.frame_size,
        img_width=preset.frame_size,
        grayscale=True,
        stack_num=preset.stack,
        frameskip=preset.frame_skip,
        maxpool=preset.frame_skip > 1,
        noop_max=preset.max_noops + 1,  # exclusive
        episodic_life=False,  # would reset the game
        life_loss_info=False,  # indistinguishable from the end of a game
        reward_clipping=False,  # would lose the unclipped rewards
        use_fire_reset=False,
    )
