"""What pictures show: centers, intervals, panels and colors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from dgvf_agents.experiments import figures
from dgvf_agents.experiments.figures import draw_runs
from dgvf_agents.experiments.records import tables_of
from dgvf_agents.experiments.settings import setting

Returns = Mapping[str, Sequence[float]]


def table(worlds: Mapping[str, Returns]) -> pd.DataFrame:
    """Runs whose curves rise linearly from 0 to the returns of their seeds, by world and label."""
    steps = np.arange(10.0, 110.0, 10.0)
    rows, settings = [], []
    for world, of in worlds.items():
        for i, (label, returns) in enumerate(of.items()):
            one = setting(world, "a2c", label, gamma=0.9 + i / 100)
            settings.append(one)
            rows += [(world, one.name, seed, steps, value * steps / 100) for seed, value in enumerate(returns)]
    return tables_of(settings, pd.DataFrame(rows, columns=["world", "setting", "seed", "steps", "returns"]))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The pictures that are drawn."""
    found: list[Figure] = []
    monkeypatch.setattr(figures, "_save", lambda figure, path: found.append(figure))
    return found


def lines(figure: Figure, panel: int = 0) -> dict[str, np.ndarray]:
    """The y values of labelled lines."""
    return {
        str(line.get_label()): np.asarray(line.get_ydata())
        for line in figure.axes[panel].lines
        if not str(line.get_label()).startswith("_")
    }


def test_a_run_has_final_and_average_return_and_is_solved_at_the_level() -> None:
    found = table({"collect-objects": {"x": [3.5, 3.0]}})
    assert list(found["final"]) == pytest.approx([3.5 * 0.8, 3.0 * 0.8])  # the last five of ten: 60 % to 100 %
    assert list(found["solved"]) == [0.0, 0.0]
    assert list(table({"puddle-world": {"x": [-50.0, -60.0]}})["solved"]) == [1.0, 0.0]
    assert table({"CartPole-v1": {"x": [9.0]}})["solved"].isna().all()
    assert list(found["average"]) == pytest.approx([(0.1 * 0.1 + 0.9 * 0.55) * value for value in (3.5, 3.0)])


def test_the_center_is_a_seed_where_returns_are_logarithmic(drawn: list[Figure]) -> None:
    seeds = [-40.0, -42.0, -44.0, -5000.0]
    worlds = {"puddle-world": {"discovered": seeds}, "collect-objects": {"discovered": [1.0, 2.0, 2.0, 7.0]}}
    draw_runs(table(worlds), Path("a.png"))
    assert lines(drawn[0])["Discovered GVFs"][-1] in (-42.0, -44.0)
    assert lines(drawn[0], 1)["Discovered GVFs"][-1] == 3.0


def test_equal_records_give_equal_files(tmp_path: Path) -> None:
    found = table({"collect-objects": {"discovered": [1.0, 2.0]}})
    for name in ("a.png", "b.png"):
        draw_runs(found, tmp_path / name)
    for ending in (".png", ".pdf"):
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()
