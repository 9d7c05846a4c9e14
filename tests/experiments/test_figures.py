"""What pictures show: centers, intervals, colors and legends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from dgvf_agents.experiments import figures
from dgvf_agents.experiments.analysis import analyze
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.figures import COLORS, draw_curves, draw_curves_by_changes, draw_search, draw_study
from dgvf_agents.experiments.tables import Results, make_table
from dgvf_agents.train import plotting
from dgvf_agents.train.plotting import Line, Panel

Returns = Mapping[str, Sequence[float]]


def results(worlds: Mapping[str, Returns], experiment: str = "gridworlds") -> Results:
    """Tables of runs whose curves rise linearly from 0 to the returns of their seeds, by world and setting."""
    cells, curves = [], []
    for world, settings in worlds.items():
        for label, returns in settings.items():
            for seed, value in enumerate(returns):
                cells.append((world, label, seed, 100, "evaluation", value, value / 2))
                curves += [(world, label, seed, steps, value * steps / 100) for steps in range(0, 101, 10)]
    return analyze(EXPERIMENTS[experiment], [], Results(make_table("cells", cells), make_table("curves", curves)))


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> list[Panel]:
    """The panels that are drawn."""
    drawn: list[Panel] = []
    for name in ("plot_curves", "plot_studies"):
        monkeypatch.setattr(figures, name, lambda path, shown, *words, **options: drawn.extend(shown))
    return drawn


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The pictures that are drawn."""
    found: list[Figure] = []
    monkeypatch.setattr(plotting, "_save", lambda figure, path: found.append(figure))
    return found


def last(line: Line) -> list[float]:
    """Center and interval at the end."""
    return line.band[-1, 1:].tolist()


def test_the_center_is_a_seed_where_returns_are_logarithmic(panels: list[Panel]) -> None:
    seeds = [-40.0, -42.0, -44.0, -5000.0]
    worlds = {"puddle-world": {"discovered": seeds}, "collect-objects": {"discovered": [1.0, 2.0, 2.0, 7.0]}}
    draw_curves(results(worlds), Path("a.png"), "")
    rooms, puddles = (panel.lines[0] for panel in panels)
    assert last(puddles)[0] in (-42.0, -44.0)
    assert last(rooms)[0] == 3.0


def test_intervals_are_drawn_from_ten_seeds_on(panels: list[Panel]) -> None:
    for seeds in (9, 10):
        draw_curves(results({"collect-objects": {"a2c": list(range(seeds))}}), Path("a.png"), "")
    nine, ten = (last(panel.lines[0]) for panel in panels)
    assert np.isnan(nine[1:]).all()
    assert nine[0] == 4.0
    assert 0.0 < ten[1] < ten[0] < ten[2] < 9.0


def test_studies_show_the_same(panels: list[Panel]) -> None:
    worlds = {
        "puddle-world": {"2": [-100.0, -5000.0, -90.0], "8": [-40.0, -41.0, -5000.0]},
        "collect-objects": {"2": [1.0, 2.0, 6.0], "8": [3.0] * 3},
    }
    draw_study(results(worlds, "questions"), Path("a.png"), "d")
    rooms, puddles = (panel.lines[0].band for panel in panels)
    assert puddles[:, :2].tolist() == [[2.0, -100.0], [8.0, -41.0]]
    assert rooms[:, :2].tolist() == [[2.0, 3.0], [8.0, 3.0]]
    assert np.isnan(rooms[:, 2:]).all()


def test_a_method_has_one_color_that_nothing_else_has(panels: list[Panel]) -> None:
    labels = ["d=2", "discovered", "k=1", "random", "end"]
    draw_curves(results({"collect-objects": {label: [1.0] for label in labels}}), Path("a.png"), "")
    colors = {line.label: line.color for line in panels[0].lines}
    assert len(set(colors.values())) == len(labels)
    assert (colors["Discovered GVFs"], colors["Random GVFs"]) == (COLORS["discovered"], COLORS["random"])
    assert not set(COLORS.values()) & set(figures._OTHER_COLORS)


def test_a_learning_rate_with_a_single_curve_has_no_panel(panels: list[Panel]) -> None:
    rates = ("0.0005", "0.003")
    methods = {f"{method} learning_rate={rates[0]}": [1.0] for method in ("discovered", "random")}
    found = results({"collect-objects": {**methods, f"random learning_rate={rates[1]}": [1.0]}}, "learning-rate")
    draw_curves_by_changes(found, Path("a.png"), "")
    assert [panel.title.split("\n")[1] for panel in panels] == ["learning rate 0.0005"]


def test_single_curves_share_a_panel_if_nothing_else_is_left(panels: list[Panel]) -> None:
    methods = {f"discovered learning_rate={rate}": [1.0] for rate in ("0.0005", "0.003")}
    draw_curves_by_changes(results({"collect-objects": methods}, "learning-rate"), Path("a.png"), "")
    assert [len(panel.lines) for panel in panels] == [2]


def test_conventions_of_rms_prop_are_in_words(panels: list[Panel]) -> None:
    rules = ("rms_prop=pytorch", "rms_prop=tensorflow loss_reduction=sum")
    methods = {f"{method} {rule}": [1.0] for rule in rules for method in ("discovered", "random")}
    draw_curves_by_changes(results({"collect-objects": methods}, "rms-prop"), Path("a.png"), "")
    words = [panel.title.split("\n")[1] for panel in panels]
    assert words == ["PyTorch's RMSProp", "TensorFlow's RMSProp, losses as sums"]


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize(
    ("worlds", "seeds", "entries"),
    [
        (["collect-objects"], 1, ["one seed"]),
        (["collect-objects"], 3, ["one seed", "mean of the seeds"]),
        (["collect-objects"], 10, ["one seed", "mean of the seeds", "95 % bootstrap interval"]),
        (["puddle-world"], 3, ["one seed", "median seed"]),
        (["puddle-world", "collect-objects"], 3, ["one seed", "mean; on logarithmic axes median"]),
    ],
)
def test_the_legend_says_what_is_drawn(drawn: list[Figure], worlds: list[str], seeds: int, entries: list[str]) -> None:
    found = results({world: {"8": list(range(seeds))} for world in worlds})
    draw_curves(found, Path("a.png"), "")
    draw_study(found, Path("a.png"), "d")
    curves, study = map(legend_of, drawn)
    assert curves == ["8", "optimal", *entries]
    assert study == ["final return", "average return", "optimal", *entries]


def test_heat_maps_have_color_bars(drawn: list[Figure]) -> None:
    tried = {f"a2c learning_rate={rate} final_ent_coef=0.01": [rate] for rate in (0.001, 0.003)}
    draw_search(results({"collect-objects": tried}, "search"), Path("a.png"))
    labels = [axes.get_ylabel() for axes in drawn[0].axes]
    assert labels.count("mean return over seeds") == 2


def test_equal_tables_give_equal_files(tmp_path: Path) -> None:
    found = results({"collect-objects": {"a2c": [1.0, 2.0]}})
    for name in ("a.png", "b.png"):
        draw_curves(found, tmp_path / name, "")
    for ending in (".png", ".pdf"):
        assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()
