"""Names and scores of the games, and presets of their rules."""

from __future__ import annotations

import dataclasses

import ale_py
import gymnasium as gym
import pytest

from dgvf_envs.atari import GAMES, MODERN, PAPER, PRESETS, AtariPreset, human_normalized_score
from dgvf_envs.atari.games import frames_before_start, rom_id_of, title_of
from dgvf_envs.atari.presets import preset_of

gym.register_envs(ale_py)


def test_the_57_games_are_there() -> None:
    assert len(GAMES) == 57
    for game in GAMES:
        assert title_of(game) == game
        assert gym.spec(f"ALE/{game}-v5").kwargs["game"] == rom_id_of(game)


def test_the_tables_of_2015_and_2016_are_told_apart() -> None:
    """Random scores agree; in these games Mnih et al. 2015 have 31.8, 9.3, 6875.4 and 20182 for the human."""
    expected = {"Breakout": (1.7, 30.5), "Pong": (-20.7, 14.6), "Alien": (227.8, 7127.7), "Seaquest": (68.4, 42054.7)}
    assert {game: tuple(GAMES[game]) for game in expected} == expected


@pytest.mark.parametrize("game", ["Breakout", "breakout"])
def test_normalized_scores(game: str) -> None:
    assert human_normalized_score(game, 1.7) == 0.0
    assert human_normalized_score(game, 30.5) == 1.0
    assert human_normalized_score(game, 59.3) == pytest.approx(2.0)
    assert human_normalized_score(game, 0.0) == pytest.approx(-1.7 / 28.8)


def test_a_game_without_reference_scores() -> None:
    with pytest.raises(ValueError, match=r"^game must be one of the 57 games .* 'Tetris'"):
        human_normalized_score("Tetris", 1.0)


@pytest.mark.parametrize(
    ("name", "rom_id", "title"),
    [("MsPacman", "ms_pacman", "MsPacman"), ("ms_pacman", "ms_pacman", "MsPacman"), ("Qbert", "qbert", "Qbert")],
)
def test_both_spellings(name: str, rom_id: str, title: str) -> None:
    assert (rom_id_of(name), title_of(name)) == (rom_id, title)


@pytest.mark.parametrize(
    ("name", "hint"), [("Breakuot", "did you mean Breakout"), ("xxxxxx", "examples are"), ("combat", "")]
)
def test_unknown_games(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"^game must be a single-player game of ale-py, got '{name}'.*{hint}"):
        rom_id_of(name)


def test_frames_before_start() -> None:
    assert [frames_before_start(rom_id) for rom_id in ("breakout", "surround", "name_this_game")] == [0, 1, 134]


def test_presets_have_names() -> None:
    assert [PRESETS[name].name for name in PRESETS] == ["paper", "modern"]
    assert dataclasses.replace(PAPER, stack=3).name == "own"
    assert preset_of("modern") is MODERN
    assert preset_of(own := AtariPreset(stack=3)) is own
    with pytest.raises(ValueError, match=r"^preset must be an AtariPreset or one of 'paper', 'modern', got 'papper'"):
        preset_of("papper")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frame_skip", 0),
        ("stack", 0),
        ("stack", "4"),
        ("max_noops", -1),
        ("sticky", 1.0),
        ("max_frames", 0),
        ("max_frames", 10),
    ],
)
def test_bad_values_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name} must .*got {value!r}"):
        AtariPreset(**{name: value})
