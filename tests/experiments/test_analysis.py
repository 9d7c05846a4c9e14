"""From run folders to tables and pictures, with returns that are known."""

from __future__ import annotations

import dataclasses
import json
import lzma
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from dgvf_agents.experiments import figures
from dgvf_agents.experiments.analysis import analyze
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.metrics import Curve, RunMetrics
from dgvf_agents.experiments.provenance import provenance
from dgvf_agents.experiments.reproduce import draw, reproduce
from dgvf_agents.experiments.reproduction import Reproduction
from dgvf_agents.experiments.runs import Cell, FinishedMark, cells_of, write_mark
from dgvf_agents.experiments.search import best_setting
from dgvf_agents.experiments.settings import SCALES, SearchGrid, setting
from dgvf_agents.experiments.tables import COLUMNS, Results, make_table, only, read_provenance, where
from dgvf_agents.options import World
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.plotting import Strip
from tests.run_folders import write_run


def cells_with_runs(experiment: str, world: str, out: Path, seeds: int = 3, measure: str = "evaluation") -> list[Cell]:
    """Curves that rise linearly to 10·setting + seed over ten points."""
    settings = EXPERIMENTS[experiment].settings(world)
    cells = cells_of(settings, SCALES["full"], seeds, out)
    for cell in cells:
        top = 10 * settings.index(cell.setting) + cell.seed
        total = cell.config.steps
        write_run(cell.folder, cell.config, **{measure: {total * k // 10: top * k / 10 for k in range(1, 11)}})
    return cells


def test_the_average_return_is_the_area_under_the_curve() -> None:
    rising = Curve(np.array([0, 50, 100]), np.array([0.0, 5.0, 10.0]))
    assert rising.average_return(100) == pytest.approx(5.0)
    late = Curve(np.array([50, 100]), np.array([2.0, 4.0]))  # constant before the first value
    assert late.average_return(100) == pytest.approx(0.5 * 2.0 + 0.5 * 3.0)
    early = Curve(np.array([0, 50]), np.array([0.0, 4.0]))  # and after the last
    assert early.average_return(100) == pytest.approx(0.5 * 2.0 + 0.5 * 4.0)
    uneven = Curve(np.array([10, 20, 100]), np.array([7.0, 7.0, 7.0]))
    assert uneven.average_return(100) == pytest.approx(7.0)


def test_the_final_return_is_the_mean_of_the_last_tenth() -> None:
    curve = Curve(np.array([80, 90, 91, 95, 100]), np.array([99.0, 50.0, 1.0, 2.0, 6.0]))
    assert curve.final_return(100) == pytest.approx(3.0)
    assert Curve(np.array([10, 20]), np.array([1.0, 8.0])).final_return(100) == 8.0


def test_metrics_are_read_by_measure(tmp_path: Path) -> None:
    config = TrainConfig(steps=100)
    write_run(tmp_path / "run", config, evaluation={50: 1.5}, training={20: 0.5, 100: 0.75}, seconds=40.0)
    metrics = RunMetrics.read(tmp_path / "run")
    assert (metrics.total_steps, metrics.seconds) == (100, 40.0)
    assert metrics.curves["evaluation"].steps.tolist() == [50]
    assert metrics.curves["training"].returns.tolist() == [0.5, 0.75]
    (tmp_path / "run" / "progress.csv").write_text("time/total_timesteps\n")
    with pytest.raises(ValueError, match="metrics must have a row"):
        RunMetrics.read(tmp_path / "run")


def test_tables_hold_every_run_and_its_returns(tmp_path: Path) -> None:
    cells = cells_with_runs("gridworlds", "collect-objects-small", tmp_path)
    results = analyze(EXPERIMENTS["gridworlds"], cells)
    assert len(results.cells) == 12
    for row in results.cells.itertuples():
        top = 10 * ["discovered", "random", "reward-prediction", "a2c"].index(row.setting) + row.seed
        assert (row.steps, row.measure, row.final_return) == (1_000_000, "evaluation", pytest.approx(top))
        assert row.average_return == pytest.approx(top * (0.1 * 0.1 + 0.9 * 0.55))
    assert len(results.curves) == 120
    pd.testing.assert_frame_equal(results.times.drop(columns="seconds"), results.curves.drop(columns="mean_return"))
    assert results.times["seconds"].to_numpy() == pytest.approx(60 * results.times["steps"].to_numpy() / 1_000_000)
    final = {row.setting: row for row in where(results.summary, quantity="final").itertuples()}
    assert (final["random"].seeds, final["random"].mean) == (3, pytest.approx(11.0))
    assert (final["random"].mean_low, final["random"].mean_high) == (pytest.approx(10.0), pytest.approx(12.0))
    assert final["a2c"].interquartile_mean == pytest.approx(31.0)
    band = where(results.bands, setting="random")
    assert list(band["mean"]) == pytest.approx([11 * k / 10 for k in range(1, 11)])
    assert (band["low"].iloc[-1], band["high"].iloc[-1]) == (pytest.approx(10.0), pytest.approx(12.0))
    wins = {(row.other, row.quantity): row.probability for row in results.comparisons.itertuples()}
    assert wins == {(o, q): 0.0 for o in ("random", "reward-prediction", "a2c") for q in ("final", "average")}
    assert set(results.comparisons["setting"]) == {"discovered"}
    assert set(results.summary["world"]) == {"collect-objects-small"}


def test_a_mean_curve_is_as_fine_as_the_finest_seed(tmp_path: Path) -> None:
    settings = EXPERIMENTS["meta-objective"].settings("collect-objects-small")[:1]
    cells = cells_of(settings, SCALES["full"], 2, tmp_path)
    coarse, fine = ({steps * 1_000: steps / 1_000 for steps in range(every, 1_001, every)} for every in (500, 100))
    for cell, evaluation in zip(cells, (coarse, fine), strict=True):
        write_run(cell.folder, cell.config, evaluation=evaluation)
    band = analyze(EXPERIMENTS["meta-objective"], cells).bands
    assert len(band) == 10
    assert (band["steps"].iloc[0], band["mean"].iloc[0]) == (500_000, pytest.approx(0.5))


def test_a_member_of_a_population_has_a_share_of_its_wall_time(tmp_path: Path) -> None:
    cells = cells_with_runs("gridworlds", "collect-objects-small", tmp_path)
    write_mark(cells[0].folder, FinishedMark(wall_seconds=15.0, members=4))
    last = analyze(EXPERIMENTS["gridworlds"], cells).times.groupby(["setting", "seed"])["seconds"].max()
    own = (cells[0].setting.label, cells[0].seed)
    assert last[own] == pytest.approx(60 / 4)
    assert last.drop(index=[own]).to_numpy() == pytest.approx(60.0)


def test_relative_steps_of_the_encoder_are_averaged(tmp_path: Path) -> None:
    """Those of the first tenth of training too, which RMSProp's statistics of TensorFlow make small."""
    settings = EXPERIMENTS["meta-objective"].settings("collect-objects-small")
    cells = cells_of(settings, SCALES["full"], 1, tmp_path)
    steps = {100_000: 0.5, 50_000: 0.25, 600_000: 3.0}
    for cell, logged in zip(cells, (steps, None), strict=True):
        write_run(cell.folder, cell.config, evaluation={1_000_000: 1.0}, encoder_steps=logged)
    results = analyze(EXPERIMENTS["meta-objective"], cells)
    (row,) = results.encoder_steps.itertuples(index=False)
    assert tuple(row) == ("collect-objects-small", "sum", 0, 0.375, 1.25)
    assert RunMetrics.read(cells[1].folder).encoder_steps.shape == (0, 2)
    results.write(tmp_path / "tables", {})
    assert len(Results.read(tmp_path / "tables").encoder_steps) == 1


def test_worlds_together_are_normalized(tmp_path: Path) -> None:
    cells = cells_with_runs("meta-objective", "collect-objects-small", tmp_path, seeds=2)
    puddles = cells_with_runs("meta-objective", "puddle-world", tmp_path, seeds=2)
    results = analyze(EXPERIMENTS["meta-objective"], [*cells, *puddles])
    row = only(results.summary, world="all", setting="end", quantity="final")
    small = [(x - 0.331) / (3.0 - 0.331) for x in (10, 11)]
    puddle = [(x + 12_888.0) / (12_888.0 - 36.7) for x in (10, 11)]
    assert (row.seeds, row.mean) == (4, pytest.approx(np.mean(small + puddle)))
    compared = only(results.comparisons, world="all", quantity="final")
    assert (compared.setting, compared.other, compared.probability) == ("sum", "end", 0.0)


def test_evaluation_counts_only_if_every_run_has_it(tmp_path: Path) -> None:
    experiment = EXPERIMENTS["meta-objective"]
    cells = cells_with_runs("meta-objective", "collect-objects-small", tmp_path, seeds=1, measure="training")
    write_run(cells[0].folder / "again", cells[0].config, {500_000: 9.0}, {500_000: 1.0})
    shutil.copy(cells[0].folder / "again" / "progress.csv", cells[0].folder / "progress.csv")
    assert list(analyze(experiment, cells).cells["measure"]) == ["training", "training"]
    assert list(analyze(experiment, cells[:1]).cells["measure"]) == ["evaluation"]


def test_training_does_not_count_where_its_rewards_are_others(tmp_path: Path) -> None:
    cells = cells_with_runs("meta-objective", "puddle-world", tmp_path, seeds=1, measure="training")
    with pytest.raises(ValueError, match=r"must have eval/mean_reward, .*got none in puddle-world/discovered seed 0"):
        analyze(EXPERIMENTS["meta-objective"], cells)


def test_runs_without_returns_are_named(tmp_path: Path) -> None:
    cells = cells_of(EXPERIMENTS["meta-objective"].settings("collect-objects-small"), SCALES["full"], 1, tmp_path)
    for cell in cells:
        write_run(cell.folder, cell.config)
    named = "must have finished an episode, got none in collect-objects-small/discovered seed 0"
    with pytest.raises(ValueError, match=named):
        analyze(EXPERIMENTS["meta-objective"], cells)


def test_tables_come_back_from_their_files_as_they_were(tmp_path: Path) -> None:
    results = analyze(
        EXPERIMENTS["gridworlds"], cells_with_runs("gridworlds", "puddle-world", tmp_path / "runs", seeds=1)
    )
    assert np.isnan(results.bands["low"].iloc[0])
    results.write(tmp_path / "tables", {"command": "dgvf"})
    found = Results.read(tmp_path / "tables")
    for name in COLUMNS:
        pd.testing.assert_frame_equal(getattr(found, name), getattr(results, name), check_exact=True)
    assert json.loads((tmp_path / "tables" / "provenance.json").read_text()) == {"command": "dgvf"}
    assert not (tmp_path / "tables" / "choices.csv").exists()
    with pytest.raises(FileNotFoundError, match="results must be a folder that `dgvf reproduce` wrote"):
        Results.read(tmp_path)


def test_a_row_is_found_by_its_values_or_missed_by_name() -> None:
    cells = table(("a", 1.0, 2.0), ("b", 3.0, 4.0), ("b", 5.0, 6.0))
    assert list(where(cells, world="puddle-world", setting="b")["final_return"]) == [3.0, 5.0]
    assert only(cells, setting="b", average_return=6.0).final_return == 5.0
    with pytest.raises(ValueError, match=r"table must have a row with \{'setting': 'c'\}, got none"):
        only(cells, setting="c")


def test_a_label_may_look_like_a_missing_value(tmp_path: Path) -> None:
    Results(table(("NA", 1.0, 2.0), ("None", 0.1 + 0.2, -1e-17))).write(tmp_path, {})
    found = Results.read(tmp_path).cells
    assert list(found["setting"]) == ["NA", "None"]
    assert found.iloc[1][["final_return", "average_return"]].tolist() == [0.1 + 0.2, -1e-17]


def test_tables_of_earlier_versions_are_read_and_replaced(tmp_path: Path) -> None:
    curves = make_table("curves", [("puddle-world", "a2c", 0, 10, -1.5)])
    Results(table(("a2c", 1.0, 2.0)), curves).write(tmp_path, {})
    compressed = tmp_path / "curves.csv.xz"
    (tmp_path / "curves.csv").write_bytes(lzma.decompress(compressed.read_bytes()))
    compressed.unlink()
    found = Results.read(tmp_path)
    pd.testing.assert_frame_equal(found.curves, curves)
    found.write(tmp_path, {})
    assert [path.name for path in sorted(tmp_path.glob("curves*"))] == ["curves.csv.xz"]
    Results(found.cells).write(tmp_path, {})
    assert list(tmp_path.glob("curves*")) == []


COMMITTED = sorted(path.parent for path in (Path(__file__).parents[2] / "docs" / "results").rglob("cells.csv"))


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.name)
def test_committed_tables_are_rewritten_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    Results.read(folder).write(tmp_path, read_provenance(folder))
    files = [*folder.glob("*.csv*"), folder / "provenance.json"]
    assert {file.name for file in tmp_path.iterdir()} == {file.name for file in files}
    for file in files:
        written, expected = (
            lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
            for path in (tmp_path / file.name, file)
        )
        assert written == expected, file.name


@pytest.mark.parametrize("experiment", ["meta-objective", "own-tasks", "search"])
def test_committed_statistics_follow_from_the_committed_runs(experiment: str) -> None:
    """Bands, summary, comparisons and choices, up to the rounding of another processor."""
    (folder,) = (folder for folder in COMMITTED if folder.name == experiment)
    committed = Results.read(folder)
    recorded = ("cells", "curves", "times", "encoder_steps", "evaluations")
    found = analyze(EXPERIMENTS[experiment], [], Results(**{name: getattr(committed, name) for name in recorded}))
    for name in COLUMNS:
        pd.testing.assert_frame_equal(getattr(found, name), getattr(committed, name), rtol=1e-5, obj=name)


def test_provenance_tells_machines_and_wall_times_apart(tmp_path: Path) -> None:
    cells = cells_with_runs("meta-objective", "puddle-world", tmp_path, seeds=2)
    write_mark(cells[1].folder, FinishedMark(5.0, "dgvf reproduce", {"torch": "2"}, {"cores": 4}, "abc"))
    told = provenance("dgvf reproduce meta-objective", cells[:3], cells[3:])
    assert told["wall_seconds"] == pytest.approx(60.0 + 5.0 + 60.0)
    assert told["made_with"] == [
        {"code": None, "versions": None, "hardware": None, "runs": 2},
        {"code": "abc", "versions": {"torch": "2"}, "hardware": {"cores": 4}, "runs": 1},
    ]
    assert [run["made_with"] for run in told["runs"]] == [0, 1, 0]
    assert told["missing"] == [cells[3].name]
    assert told["configurations"]["puddle-world/discovered,objective=end"]["objective"] == "end"


DRAWN = ("gridworlds", "learning-rate", "collapses", "own-tasks", "atari-representation", "atari-joint")
"""Pictures of every kind; the others are slow."""


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(name, marks=[] if name in DRAWN else [pytest.mark.slow])
        for name, experiment in EXPERIMENTS.items()
        if experiment.grid is None
    ],
)
def test_pictures_are_drawn_from_tables_alone(experiment: str, tmp_path: Path) -> None:
    usual = EXPERIMENTS[experiment].worlds if experiment == "collapses" else ("collect-objects-small", "puddle-world")
    usual = EXPERIMENTS[experiment].worlds[-2:] if experiment == "own-tasks" else usual
    worlds = ("atari/Breakout", "atari/Pong") if experiment.startswith("atari-") else usual
    cells = [cell for world in worlds for cell in cells_with_runs(experiment, world, tmp_path / "runs", seeds=2)]
    analyze(EXPERIMENTS[experiment], cells).write(tmp_path / "tables", {})
    shutil.rmtree(tmp_path / "runs")
    picture = draw(experiment, tmp_path / "tables")
    assert picture == tmp_path / "tables" / f"{experiment}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.with_suffix(".pdf").read_bytes().startswith(b"%PDF")


def test_every_seed_is_drawn_beside_what_counts_as_solved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Strip] = []
    monkeypatch.setattr(figures, "plot_strips", lambda path, panels, title, xlabel: shown.extend(panels))
    cells = cells_with_runs("collapses", "puddle-world", tmp_path)
    EXPERIMENTS["collapses"].draw(analyze(EXPERIMENTS["collapses"], cells), tmp_path / "x.png")
    (panel,) = shown
    assert (panel.title, panel.threshold, panel.logarithmic) == ("PuddleWorld-v0, 3 seeds", -45.0, True)
    assert list(panel.groups)[:3] == ["preset", "long episodes", "short episodes"]
    assert [panel.groups[name].tolist() for name in ("preset", "long episodes")] == [[0, 1, 2], [10, 11, 12]]


def table(*rows: tuple[str, float, float]) -> pd.DataFrame:
    """Cells of one world: setting, final and average return."""
    return make_table("cells", [("puddle-world", label, 0, 100, "evaluation", *returns) for label, *returns in rows])


def test_the_search_takes_the_best_final_return_and_the_fastest_of_equals() -> None:
    rows = [("slow", -40.0, -500.0), ("fast", -40.7, -300.0), ("faster but worse", -41.0, -100.0)]
    assert best_setting(table(*rows)).setting == "fast"
    assert best_setting(table(*rows[::2])).setting == "slow"
    assert best_setting(table(("a", 2.95, 1.0), ("b", 2.90, 2.0), ("c", 2.88, 3.0))).setting == "b"
    assert best_setting(table(("first", 1.0, 2.0), ("second", 1.0, 2.0))).setting == "first"


def test_the_search_goes_by_means_over_seeds() -> None:
    steady, lucky = [("steady", -50.0, -90.0)] * 2, [("lucky", -37.0, -60.0), ("lucky", -5000.0, -5000.0)]
    chosen = best_setting(table(*steady, *lucky))
    assert (chosen.setting, chosen.final_return, chosen.average_return) == ("steady", -50.0, -90.0)
    with pytest.raises(ValueError, match="cells must be of one world, got 0"):
        best_setting(table())


@pytest.mark.parametrize("world", ["collect-objects", "collect-objects-small", "puddle-world"])
def test_what_the_search_tries_may_be_the_preset(world: World) -> None:
    usual = setting(world, "a2c").preset
    grid = SearchGrid((usual.learning_rate,), (usual.final_ent_coef or usual.ent_coef,), (usual.auxiliary_coefficient,))
    search = dataclasses.replace(EXPERIMENTS["search"], grid=grid)
    assert [found.folder_name for found in search.settings(world)] == [f"{world}/a2c"]


def test_the_search_carries_what_a2c_chose_into_the_next_stage(tmp_path: Path) -> None:
    search = dataclasses.replace(EXPERIMENTS["search"], grid=SearchGrid((1e-3, 3e-3), (0.01, 0.03), (0.1, 1.0)))
    first = cells_of(search.settings("collect-objects-small"), SCALES["full"], 2, tmp_path / "runs")
    assert len(first) == 8
    for cell in first:
        good = (cell.config.learning_rate, cell.config.final_ent_coef) == (3e-3, 0.01)
        assert cell.config.ent_coef == {0.01: 0.03, 0.03: 0.09}[cell.config.final_ent_coef or 0.0]  # thrice, as usual
        write_run(cell.folder, cell.config, {1_000_000: 2.9 if good else 1.0})
    then = search.follow_up("collect-objects-small", analyze(search, first).cells)
    assert [s.config(SCALES["full"], 0).auxiliary_coefficient for s in then] == [0.1, 1.0]
    second = cells_of(then, SCALES["full"], 2, tmp_path / "runs")
    for cell in second:
        assert (cell.config.task, cell.config.learning_rate) == ("discovered", 3e-3)
        assert (cell.config.ent_coef, cell.config.final_ent_coef) == (0.03, 0.01)
        write_run(cell.folder, cell.config, {1_000_000: cell.config.auxiliary_coefficient})
    results = analyze(search, [*first, *second])
    assert [(choice.searched, choice.setting) for choice in results.choices.itertuples()] == [
        ("learning_rate final_ent_coef", "a2c learning_rate=0.003 final_ent_coef=0.01"),
        ("auxiliary_coefficient", "discovered auxiliary_coefficient=1.0"),
    ]
    results.write(tmp_path / "tables", {})
    assert draw("search", tmp_path / "tables").is_file()
    assert (tmp_path / "tables" / "search-coefficient.png").is_file()


def test_some_settings_may_be_run_by_themselves(tmp_path: Path) -> None:
    cells_with_runs("meta-objective", "puddle-world", tmp_path / "runs")
    for label, found in (("end", {"end"}), ("sum", {"end", "sum"})):
        given = Reproduction(
            "meta-objective", worlds=("puddle-world",), settings=(label,), out=tmp_path / "runs",
            run=False, extend=True,
        )  # fmt: skip
        reproduce(given, Console(quiet=True))
        folder = tmp_path / "runs" / "results" / "meta-objective"
        assert set(Results.read(folder).cells["setting"]) == found
        assert f"--settings {label}" in read_provenance(folder)["command"]
    with pytest.raises(ValueError, match="settings must be among sum, end, got start"):
        reproduce(dataclasses.replace(given, settings=("end", "start")), Console(quiet=True))


def test_results_are_extended_by_runs_made_elsewhere(tmp_path: Path) -> None:
    """Seeds 0 and 1, then 2 and 3 from another folder: the tables of all four together."""
    settings = EXPERIMENTS["gridworlds"].settings("puddle-world")
    whole = cells_with_runs("gridworlds", "puddle-world", tmp_path / "whole", seeds=4)
    analyze(EXPERIMENTS["gridworlds"], whole).write(tmp_path / "expected", provenance("all", whole, []))
    for first in (0, 2):
        cells = cells_of(settings, SCALES["full"], 2, tmp_path / f"part-{first}", first)
        for cell in cells:
            shutil.copytree(next(c.folder for c in whole if c.name == cell.name), cell.folder)
        runs = tmp_path / f"part-{first}"
        given = Reproduction(
            "gridworlds", seeds=2, first_seed=first, worlds=("puddle-world",), out=runs, run=False,
            results=tmp_path / "extended", extend=True,
        )  # fmt: skip
        reproduce(given, Console(quiet=True))
    folder = tmp_path / "extended" / "gridworlds"
    extended, expected = Results.read(folder), Results.read(tmp_path / "expected")
    for name in ("cells", "curves", "bands", "summary", "comparisons"):
        rows = [sorted(getattr(tables, name).itertuples(index=False, name=None)) for tables in (extended, expected)]
        assert rows[0] == rows[1], name
    told = read_provenance(folder)
    assert sorted(run["run"] for run in told["runs"]) == sorted(cell.name for cell in whole)
    assert sum(made["runs"] for made in told["made_with"]) == len(whole)
    assert {run["made_with"] for run in told["runs"]} == set(range(len(told["made_with"])))
    with pytest.raises(ValueError, match=r"must not hold these runs already, got .* seed 2 in both"):
        reproduce(given, Console(quiet=True))


def test_extending_results_is_refused_before_anything_is_trained(tmp_path: Path, never_trained: None) -> None:
    cells = cells_with_runs("gridworlds", "puddle-world", tmp_path / "runs", seeds=2)
    given = Reproduction("gridworlds", seeds=2, worlds=("puddle-world",), out=tmp_path / "runs")
    reproduce(dataclasses.replace(given, run=False), Console(quiet=True))
    fresh = dataclasses.replace(given, out=tmp_path / "new", results=given.results_folder.parent, extend=True)
    with pytest.raises(ValueError, match=r"must not hold these runs already, got .* seed 0 in both"):
        reproduce(fresh, Console(quiet=True))
    for changed in ({"first_seed": 1}, {"first_seed": 2, "steps": 1_000}):
        with pytest.raises(ValueError, match=r"seed 1 in both|configuration of puddle-world/.*another steps \(5000000"):
            reproduce(dataclasses.replace(fresh, **changed), Console(quiet=True))
    file = given.results_folder / "provenance.json"
    told = read_provenance(given.results_folder)
    for config in told["configurations"].values():
        del config["head_rate"]  # as in runs of earlier versions
        config["log_every"] = 77  # decides nothing that is learned
    file.write_text(json.dumps(told))
    with pytest.raises(_TrainedError):
        reproduce(dataclasses.replace(fresh, first_seed=2), Console(quiet=True))
    assert len(cells) == 8


class _TrainedError(Exception):
    pass


@pytest.fixture
def never_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: object) -> None:
        raise _TrainedError

    monkeypatch.setattr("dgvf_agents.experiments.reproduce.run_sweep", train)
