"""The emulator: names of games, seeds and frame counts."""

from __future__ import annotations

import difflib
from functools import cache

import ale_py
from ale_py import roms
from ale_py.registration import rom_id_to_name

MAX_SEED = 2**31 - 1
"""The largest seed that the emulator accepts."""

_TWO_PLAYERS_ONLY = {"combat", "joust", "maze_craze", "warlords"}
"""Two-player games, which ALE does not register either."""


@cache
def _rom_ids() -> dict[str, str]:
    """ROM ids by their names without underscores."""
    return {_letters(rom_id): rom_id for rom_id in roms.get_all_rom_ids() if rom_id not in _TWO_PLAYERS_ONLY}


def rom_id_of(game: str) -> str:
    """ALE's name for a game, such as `"ms_pacman"`.

    Args:
        game: the game in ALE's or Gymnasium's spelling: `"ms_pacman"`, `"MsPacman"`.

    Raises:
        ValueError: ALE has no such single-player game.
    """
    letters = _letters(game)
    if letters not in _rom_ids():
        near = [rom_id_to_name(_rom_ids()[name]) for name in difflib.get_close_matches(letters, _rom_ids())]
        hint = f"; did you mean {' or '.join(near)}?" if near else "; examples are 'Breakout' and 'MsPacman'"
        raise ValueError(f"game must be a single-player game of ale-py, got {game!r}{hint}")
    return _rom_ids()[letters]


def title_of(game: str) -> str:
    """Gymnasium's name for a game, such as `"MsPacman"`.

    Raises:
        ValueError: ALE has no such single-player game.
    """
    return rom_id_to_name(rom_id_of(game))


@cache
def frames_before_start(rom_id: str) -> int:
    """The emulator's frame count at the start of a game: 0 in most games, 134 in Name This Game.

    Raises:
        ValueError: ALE has no such ROM.
    """
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # suppress the banner, like ALE's environments
    emulator, path = ale_py.ALEInterface(), roms.get_rom_path(rom_id)
    if path is None:
        raise ValueError(f"rom_id must be one of ale-py's ROMs, got {rom_id!r}")
    emulator.loadROM(path)
    emulator.reset_game()
    return int(emulator.getEpisodeFrameNumber())


def _letters(name: str) -> str:
    return name.replace("_", "").lower()
