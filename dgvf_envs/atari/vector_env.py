"""Many Atari games at once, on ALE's vector environment in C++."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, final

import numpy as np
from ale_py import AtariVectorEnv
from gymnasium.error import ClosedEnvironmentError, InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv

from dgvf_envs.atari.emulator import MAX_SEED, frames_before_start, rom_id_of, title_of
from dgvf_envs.atari.game_records import GameRecords
from dgvf_envs.atari.life_loss import life_lost
from dgvf_envs.atari.presets import PAPER, AtariPreset, preset_of

_LOGGER = logging.getLogger("dgvf_envs.atari")

_NEVER = 2**31 - 2
"""A limit on frames that no game reaches, one less than the largest: the emulator adds 1 to it."""
_TOLD = ("lives", "episode_frame_number", "frame_number")
"""What infos tell of the emulators: those of ALE's entries that its scalar environment has too."""


@final
class GamesVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """N games as one `gymnasium.vector.VectorEnv`.

    It behaves like `gymnasium.vector.SyncVectorEnv` with `SAME_STEP` autoreset over N environments of `make_atari`, in
    everything that it returns but the number of no-ops, which is drawn by another generator.

    **Seeds.** `reset(seed=s)` with an integer seeds game i with `s + i`; a sequence gives one seed per game (`None`
    leaves that game's generator going).

    **Episodes.** Under a preset with `life_loss_ends`, a lost life is `terminated` and the game goes on: the
    observation is the one of the next episode's start and of this one's end. A game that is over, or cut off
    (`truncated`), starts anew within the step. At either, `infos["final_obs"]` and `infos["final_info"]` hold the last
    observations and infos where the masks `infos["_final_obs"]` and `infos["_final_info"]` are true.

    **Scores.** `infos["final_info"]["episode"]` is there where whole games are over or cut off, under its mask
    `_episode`, and holds their scores `r` from unclipped rewards, their lengths `l` in the agent's steps and the
    seconds `t` since the environment was made. Rewards are for learning and clipped if the preset says so.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012, Gymnasium reads a plain class attribute
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
        "reports_episodes": True,
    }

    def __init__(self, game: str, num_envs: int, preset: AtariPreset | str = PAPER, threads: int = 0) -> None:
        """
        Args:
            game: in Gymnasium's or ALE's spelling: `"Breakout"`, `"ms_pacman"`.
            num_envs: the number of games N ≥ 1.
            preset: or its name, `"paper"` or `"modern"`.
            threads: of the emulators; 0 for as many as there are cores.

        Raises:
            ValueError: there is no such game or preset, or a number is out of its range.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs must be >= 1, got {num_envs!r}")
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
        self._games = GameRecords(num_envs)
        self._lives = np.zeros(num_envs, dtype=np.int32)
        self._was_reset = False

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new games, all of them or those of `options["reset_mask"]` (`[N]` boolean).

        Raises:
            ValueError: the number of seeds or the mask's shape is not N, the mask is empty, or a seed is negative or
                larger than 2³¹ - 1.
            TypeError: the mask is not a boolean array.
            ResetNeeded: a partial reset was asked for before any full one.
            ClosedEnvironmentError: the environment was closed.
        """
        if self.closed:
            raise ClosedEnvironmentError("reset() was called after close()")
        games = self._checked_mask((options or {}).get("reset_mask"))
        return self._new_games(games, self._checked_seeds(seed))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one step in every game.

        Args:
            actions: `[N]` integer.

        Returns:
            Observations `[N, stack, size, size]` uint8, rewards `[N]` float64, terminations and truncations `[N]`
            boolean, and infos.

        Raises:
            InvalidAction: the actions have another shape or type, or are out of range.
            ResetNeeded: the environment was not reset.
            ClosedEnvironmentError: the environment was closed.
        """
        actions = self._checked_actions(actions)
        observations, raw_rewards, game_over, _, told = self._emulators.step(actions)
        self._games.add(raw_rewards)
        truncated = self._games.steps >= self.preset.max_steps
        terminated = game_over
        if self.preset.life_loss_ends:
            terminated = game_over | life_lost(self._lives, told["lives"])
        self._lives = told["lives"]
        infos: dict[str, Any] = {key: told[key] for key in _TOLD}
        if (done := terminated | truncated).any():
            observations, infos = self._autoreset(observations, infos, done, game_over | truncated)
        rewards = raw_rewards.astype(np.float64)
        return (
            observations,
            rewards.clip(-1.0, 1.0) if self.preset.clip_rewards else rewards,
            terminated,
            truncated,
            infos,
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the emulators and their threads."""
        del self._emulators.ale

    def __repr__(self) -> str:
        return f"GamesVectorEnv({self.game!r}, {self.num_envs}, preset={self.preset.name!r})"

    def _autoreset(
        self, observations: np.ndarray, infos: dict[str, Any], done: np.ndarray, over: np.ndarray
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The next episodes' first observations and infos, with the last ones of those `done`; `over`: whole games."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(done):
            final_obs[i] = observations[i].copy()
        final_info: dict[str, Any] = {}
        for key, values in infos.items():
            final_info |= {key: np.where(done, values, 0), f"_{key}": done.copy()}
        if over.any():
            final_info |= {"episode": self._games.of(over), "_episode": over}
            observations, infos = self._new_games(over, None)
        return observations, {
            **infos,
            "final_obs": final_obs,
            "_final_obs": done.copy(),
            "final_info": final_info,
            "_final_info": done.copy(),
        }

    def _new_games(self, games: np.ndarray, seeds: np.ndarray | None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new games where `games` `[N]` is true; what comes back is that of all."""
        observations, told = self._reset_emulators(games, None if seeds is None else seeds[games])
        if self.preset.max_noops:
            # the emulators draw from 0 to max_noops; drawing 0 again until there is none is drawing from 1
            while (without := games & (told["episode_frame_number"] == self._first_frame)).any():
                observations, told = self._reset_emulators(without, None)
        self._was_reset = True
        self._games.begin(games)
        self._lives = told["lives"]
        return observations, {key: told[key] for key in _TOLD}

    def _reset_emulators(self, games: np.ndarray, seeds: np.ndarray | None) -> tuple[np.ndarray, dict[str, Any]]:
        return self._emulators.reset(seed=seeds, options={"reset_mask": games})

    def _checked_actions(self, actions: np.ndarray) -> np.ndarray:
        """The emulators would wait forever for the one that is given a wrong action."""
        if self.closed:
            raise ClosedEnvironmentError("step() was called after close()")
        if not self._was_reset:
            raise ResetNeeded("step() was called before reset(): call reset() first")
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise InvalidAction(
                f"actions must be an integer array of shape ({self.num_envs},), "
                f"got {actions.dtype} of shape {actions.shape}"
            )
        most = int(self.single_action_space.n) - 1  # type: ignore[attr-defined]
        if actions.min() < 0 or actions.max() > most:
            wrong = int(np.flatnonzero((actions < 0) | (actions > most))[0])
            raise InvalidAction(f"actions must lie in [0, {most}], got {actions[wrong]} for game {wrong}")
        return actions.astype(np.int64, copy=False)

    def _checked_mask(self, mask: Any) -> np.ndarray:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"options['reset_mask'] must be a boolean array, got {mask!r}")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(f"options['reset_mask'] must have shape ({self.num_envs},) and a True, got {mask!r}")
        if not self._was_reset and not mask.all():
            raise ResetNeeded("a partial reset was asked for before any full reset()")
        return mask

    def _checked_seeds(self, seed: int | Sequence[int | None] | None) -> np.ndarray | None:
        if seed is None:
            return None
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int | np.integer) else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"seed must be an integer or {self.num_envs} seeds, got {len(seeds)} seeds")
        wrong = [one for one in seeds if one is not None and not 0 <= one <= MAX_SEED]
        if wrong:
            raise ValueError(f"seeds must lie in [0, {MAX_SEED}], got {wrong[0]!r}")
        return np.array([-1 if one is None else one for one in seeds])


def make_atari_vec(game: str, n: int, preset: AtariPreset | str = PAPER, threads: int = 0) -> GamesVectorEnv:
    """N games under a preset, stepped in C++; see `GamesVectorEnv`.

    Args:
        game: in Gymnasium's or ALE's spelling: `"Breakout"`, `"ms_pacman"`.
        n: the number of games ≥ 1.
        preset: or its name, `"paper"` or `"modern"`.
        threads: of the emulators; 0 for as many as there are cores.

    Raises:
        ValueError: there is no such game or preset, or a number is out of its range.
    """
    return GamesVectorEnv(game, n, preset, threads)


def _emulators(rom_id: str, n: int, preset: AtariPreset, threads: int) -> AtariVectorEnv:
    """ALE's environment, left to emulate and to scale frames; rewards, episodes and limits are counted here."""
    return AtariVectorEnv(
        rom_id,
        n,
        num_threads=threads,
        max_num_frames_per_episode=_NEVER,
        repeat_action_probability=preset.sticky,
        full_action_space=preset.full_action_set,
        autoreset_mode=AutoresetMode.NEXT_STEP,  # games that are over are reset by mask before there is a next step
        img_height=preset.frame_size,
        img_width=preset.frame_size,
        grayscale=True,
        stack_num=preset.stack,
        frameskip=preset.frame_skip,
        maxpool=preset.frame_skip > 1,
        noop_max=preset.max_noops + 1,  # exclusive
        episodic_life=False,  # it would reset the game
        life_loss_info=False,  # it could not be told from a game that is over
        reward_clipping=False,  # the unclipped rewards would be lost
        use_fire_reset=False,
    )
