"""Atari games: ALE's names, seeds and frame counts, and the scores of a random and a human player in 57 of them."""

from __future__ import annotations

import difflib
from functools import cache
from typing import NamedTuple

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

    Args:
        rom_id: the game, as `rom_id_of` returns it.
    """
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # suppress the banner, like ALE's environments
    emulator, path = ale_py.ALEInterface(), roms.get_rom_path(rom_id)
    emulator.loadROM(str(path))
    emulator.reset_game()
    return int(emulator.getEpisodeFrameNumber())


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


class ReferenceScores(NamedTuple):
    """Mean unclipped scores of games that start with 1 to 30 no-ops and last at most 30 minutes."""

    random: float
    """Score of a uniformly random policy."""
    human: float
    """Score of a professional human game tester."""


GAMES: dict[str, ReferenceScores] = {
    "Alien": ReferenceScores(227.8, 7127.7),
    "Amidar": ReferenceScores(5.8, 1719.5),
    "Assault": ReferenceScores(222.4, 742.0),
    "Asterix": ReferenceScores(210.0, 8503.3),
    "Asteroids": ReferenceScores(719.1, 47388.7),
    "Atlantis": ReferenceScores(12850.0, 29028.1),
    "BankHeist": ReferenceScores(14.2, 753.1),
    "BattleZone": ReferenceScores(2360.0, 37187.5),
    "BeamRider": ReferenceScores(363.9, 16926.5),
    "Berzerk": ReferenceScores(123.7, 2630.4),
    "Bowling": ReferenceScores(23.1, 160.7),
    "Boxing": ReferenceScores(0.1, 12.1),
    "Breakout": ReferenceScores(1.7, 30.5),
    "Centipede": ReferenceScores(2090.9, 12017.0),
    "ChopperCommand": ReferenceScores(811.0, 7387.8),
    "CrazyClimber": ReferenceScores(10780.5, 35829.4),
    "Defender": ReferenceScores(2874.5, 18688.9),
    "DemonAttack": ReferenceScores(152.1, 1971.0),
    "DoubleDunk": ReferenceScores(-18.6, -16.4),
    "Enduro": ReferenceScores(0.0, 860.5),
    "FishingDerby": ReferenceScores(-91.7, -38.7),
    "Freeway": ReferenceScores(0.0, 29.6),
    "Frostbite": ReferenceScores(65.2, 4334.7),
    "Gopher": ReferenceScores(257.6, 2412.5),
    "Gravitar": ReferenceScores(173.0, 3351.4),
    "Hero": ReferenceScores(1027.0, 30826.4),
    "IceHockey": ReferenceScores(-11.2, 0.9),
    "Jamesbond": ReferenceScores(29.0, 302.8),
    "Kangaroo": ReferenceScores(52.0, 3035.0),
    "Krull": ReferenceScores(1598.0, 2665.5),
    "KungFuMaster": ReferenceScores(258.5, 22736.3),
    "MontezumaRevenge": ReferenceScores(0.0, 4753.3),
    "MsPacman": ReferenceScores(307.3, 6951.6),
    "NameThisGame": ReferenceScores(2292.3, 8049.0),
    "Phoenix": ReferenceScores(761.4, 7242.6),
    "Pitfall": ReferenceScores(-229.4, 6463.7),
    "Pong": ReferenceScores(-20.7, 14.6),
    "PrivateEye": ReferenceScores(24.9, 69571.3),
    "Qbert": ReferenceScores(163.9, 13455.0),
    "Riverraid": ReferenceScores(1338.5, 17118.0),
    "RoadRunner": ReferenceScores(11.5, 7845.0),
    "Robotank": ReferenceScores(2.2, 11.9),
    "Seaquest": ReferenceScores(68.4, 42054.7),
    "Skiing": ReferenceScores(-17098.1, -4336.9),
    "Solaris": ReferenceScores(1236.3, 12326.7),
    "SpaceInvaders": ReferenceScores(148.0, 1668.7),
    "StarGunner": ReferenceScores(664.0, 10250.0),
    "Surround": ReferenceScores(-10.0, 6.5),
    "Tennis": ReferenceScores(-23.8, -8.3),
    "TimePilot": ReferenceScores(3568.0, 5229.2),
    "Tutankham": ReferenceScores(11.4, 167.6),
    "UpNDown": ReferenceScores(533.4, 11693.2),
    "Venture": ReferenceScores(0.0, 1187.5),
    "VideoPinball": ReferenceScores(16256.9, 17667.9),
    "WizardOfWor": ReferenceScores(563.5, 4756.5),
    "YarsRevenge": ReferenceScores(3092.9, 54576.9),
    "Zaxxon": ReferenceScores(32.5, 9173.3),
}
"""Random and human scores of the 57 games, by Gymnasium's names.

The scores are the columns "Random" and "Human" in the table for 30 no-op starts of Wang et al., *Dueling Network
Architectures for Deep Reinforcement Learning* (2016), as in DeepMind's `dqn_zoo` (`atari_data.py`). Mnih et al.,
*Human-level control through deep reinforcement learning* (2015), report 49 of the games with the same random scores,
but different human scores for 34 of them (Breakout 31.8, Pong 9.3). State the source of the reference scores with any
normalized score. The paper (Veeriah et al. 2019) does not say which table it used.
"""


def human_normalized_score(game: str, score: float) -> float:
    """(score - random) / (human - random), with the reference scores in `GAMES`.

    Args:
        game: one of the 57, in Gymnasium's or ALE's spelling.
        score: the unclipped score of whole games.

    Raises:
        ValueError: there are no reference scores for the game.
    """
    title = title_of(game)
    if title not in GAMES:
        raise ValueError(f"game must be one of the {len(GAMES)} games with reference scores, got {game!r}")
    reference = GAMES[title]
    return (score - reference.random) / (reference.human - reference.random)
