"""The script that compares settings across experiments."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

DOCS = Path(__file__).parents[2] / "docs"
WORLD = "puddle-world"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("compare_settings")


def final_returns(experiment: str, setting: str) -> list[float]:
    with (DOCS / "results" / experiment / "cells.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if (row["world"], row["setting"]) == (WORLD, setting)]
    return [float(row["final_return"]) for row in rows]


def test_seeds_of_joined_settings_count_together(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    joined, other = "gridworlds:discovered+paper:discovered", "paper:random"
    script.main([WORLD, joined, other])
    ours = [*final_returns("gridworlds", "discovered"), *final_returns("paper", "discovered")]
    theirs = final_returns("paper", "random")
    final, average = capsys.readouterr().out.splitlines()
    assert final.startswith(
        f"final: means {np.mean(ours):.1f} and {np.mean(theirs):.1f} ({len(ours)} and {len(theirs)} seeds), p = "
    )
    larger = np.mean([one > another for one in ours for another in theirs])
    assert final.endswith(f"larger with probability {larger:.2f}")
    assert average.startswith("average: ")


@pytest.mark.parametrize("settings", ["discovered", "paper:none", "nothing:discovered"])
def test_unknown_settings_are_named(settings: str, script: Any) -> None:
    message = f"settings must be EXPERIMENT:SETTING with tables of {WORLD}, got '{settings}'"
    with pytest.raises(ValueError, match=message):
        script.main([WORLD, "paper:discovered", settings])
