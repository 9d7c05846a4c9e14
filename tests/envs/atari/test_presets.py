from __future__ import annotations

import dataclasses
import logging

import pytest

from dgvf_envs.atari import MODERN, PAPER, PRESETS, AtariPreset, make_atari_vec
from dgvf_envs.atari.presets import preset_of


def test_presets_have_names() -> None:
    assert [PRESETS[name].name for name in PRESETS] == ["paper", "modern"]
    assert dataclasses.replace(PAPER, stack=3).name == "own"
    assert preset_of("modern") is MODERN
    assert preset_of(own := AtariPreset(stack=3)) is own
    with pytest.raises(ValueError, match=r"^preset must be an AtariPreset or one of 'paper', 'modern', got 'papper'"):
        preset_of("papper")


def test_what_is_used_is_logged_and_not_printed(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO, logger="dgvf_envs.atari"):
        make_atari_vec("Pong", 1, MODERN, threads=1).close()
    assert caplog.messages == [f"Pong: {MODERN.describe()}"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("frame_skip", 0),
        ("frame_size", -1),
        ("stack", 0),
        ("stack", "4"),
        ("frame_skip", 2.5),
        ("max_noops", -1),
        ("sticky", 1.0),
        ("max_frames", 0),
        ("max_frames", 10),
    ],
)
def test_bad_values_are_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{name} must .*got {value!r}"):
        AtariPreset(**{name: value})
