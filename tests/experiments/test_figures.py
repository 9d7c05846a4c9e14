"""Figures show every run, their mean, and what a color stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dgvf_agents.experiments import figures


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Draws runs of two seeds, given as (world, label), and returns the figure."""

    def draw(*runs: tuple[str, str]) -> Any:
        rows = [
            (world, label, seed, np.array([[100.0, seed], [200.0, 3.0 * seed]]))
            for world, label in runs
            for seed in (0, 1)
        ]
        found: list[Any] = []
        monkeypatch.setattr(figures, "save", lambda canvas, path: found.append(canvas))
        figures.draw_runs(pd.DataFrame(rows, columns=["world", "label", "seed", "curve"]), Path("x.png"))
        return found[0]

    return draw


WORLDS = ("collect-objects", "collect-objects-small")


def test_a_legend_of_all_panels_stands_once(drawn: Any) -> None:
    figure = drawn(*((world, label) for world in WORLDS for label in ("discovered", "random")))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["Discovered GVFs", "Random GVFs", "optimal"]
    assert [axes.get_legend() for axes in figure.axes] == [None, None]
    for axes in figure.axes:
        lines = [list(line.get_ydata()) for line in axes.get_lines()]
        assert lines[:3] == lines[3:6] == [[0.0, 0.0], [1.0, 3.0], [0.5, 1.5]]  # seeds, mean
        colors = [axes.get_lines()[index].get_color() for index in (2, 5)]
        assert (
            colors
            == [line.get_color() for line in legend.get_lines()[:2]]
            == [figures.COLORS[name] for name in ("discovered", "random")]
        )


def test_panels_whose_colors_differ_have_legends_of_their_own(drawn: Any) -> None:
    figure = drawn((WORLDS[0], "one"), (WORLDS[0], "other"), (WORLDS[1], "other"))
    shown = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in figure.axes]
    assert (figure.legends, shown) == ([], [["one", "other", "optimal"], ["other", "optimal"]])
