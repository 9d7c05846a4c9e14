from __future__ import annotations

import dataclasses
import json
import logging

import pytest

from dgvf_envs.atari import MODERN, PAPER, PRESETS, AtariPreset, make_atari_vec
from dgvf_envs.atari.presets import preset_of


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_a_preset_survives_a_file(preset: AtariPreset) -> None:
    assert AtariPreset(**json.loads(json.dumps(dataclasses.asdict(preset)))) == preset


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
    ("values", "message"),
    [
        ({"frame_skip": 0}, "^frame_skip must be >= 1, got 0"),
        ({"frame_size": -1}, "^frame_size must be >= 1, got -1"),
        ({"stack": 0}, "^stack must be >= 1, got 0"),
        ({"stack": "4"}, "^stack must be an integer >= 1, got '4'"),
        ({"frame_skip": 2.5}, "^frame_skip must be an integer >= 1, got 2.5"),
        ({"max_noops": -1}, "^max_noops must be >= 0, got -1"),
        ({"sticky": 1.0}, r"^sticky must lie in \[0, 1\), got 1\.0"),
        ({"max_frames": 0}, "^max_frames must be a positive multiple of frame_skip=4, got 0"),
        ({"max_frames": 10}, "^max_frames must be a positive multiple of frame_skip=4, got 10"),
    ],
)
def test_bad_values_are_named(values: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AtariPreset(**values)
