"""How hyperparameters are chosen: what is tried, what it leads to, and what is said at the edge of a grid."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dgvf_agents.cli import main
from dgvf_agents.command_names import ExperimentName
from dgvf_agents.experiments.analysis import analyze
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.experiment import Experiment
from dgvf_agents.experiments.protocols import edge_warnings
from dgvf_agents.experiments.reproduce import SEEDS_AFTER_TRIALS, reproduce
from dgvf_agents.experiments.reproduction import Reproduction
from dgvf_agents.experiments.runs import Cell, cells_of
from dgvf_agents.experiments.search import Choice
from dgvf_agents.experiments.settings import SCALES, SearchGrid, is_trial
from dgvf_agents.experiments.tables import Results, where
from dgvf_agents.options import World
from dgvf_agents.train.config import METHODS
from tests.run_folders import write_run

WORLD: World = "puddle-world"
GRID = SearchGrid((1e-3, 3e-3), (0.01, 0.03), (0.01, 1.0), trials=5, trial_seeds=2)
FULL = SCALES["full"]


def experiment_of(name: str, grid: SearchGrid = GRID) -> Experiment:
    return dataclasses.replace(EXPERIMENTS[name], grid=grid)


def trained(experiment: Experiment, out: Path, best: dict[str, tuple[float, ...]], world: World = WORLD) -> list[Cell]:
    """Trials whose return is -40 at the best hyperparameters of their method, and -100 elsewhere."""
    cells = cells_of(experiment.settings(world), FULL, GRID.trial_seeds or 3, out)
    for cell in cells:
        method, config = cell.setting.method, cell.config
        values = (config.learning_rate, config.final_ent_coef, config.auxiliary_coefficient)
        good = values[: len(best.get(method, ()))] == best.get(method)
        write_run(cell.folder, config, {config.steps: -40.0 if good else -100.0})
    return cells


def test_the_paper_chooses_on_a2c_for_every_method(tmp_path: Path) -> None:
    experiment = experiment_of("paper")
    pairs = [(rate, entropy) for rate in (1e-3, 3e-3) for entropy in (0.01, 0.03)]
    assert [(s.method, s.label) for s in experiment.settings(WORLD)] == [
        ("a2c", f"a2c learning_rate={rate} final_ent_coef={entropy}") for rate, entropy in pairs
    ]
    cells = trained(experiment, tmp_path, {"a2c": (3e-3, 0.01)})
    assert len(cells) == 8
    then = experiment.follow_up(WORLD, analyze(experiment, cells).cells)
    assert [(s.method, s.label) for s in then] == [(method, method) for method in METHODS]
    for s in then:
        config = s.config(FULL, 0)
        assert (config.learning_rate, config.final_learning_rate) == (3e-3, 0.0)
        assert (config.ent_coef, config.final_ent_coef) == (1.0, 0.01)  # a hundred times as large, as in the preset
        assert config.auxiliary_coefficient == s.preset.auxiliary_coefficient


def test_every_trial_has_an_annealed_learning_rate() -> None:
    for name in ("paper", "equal-budget"):
        for world in EXPERIMENTS[name].worlds:
            for s in experiment_of(name).settings(world):
                assert s.config(FULL, 0).final_learning_rate == 0.0


def test_every_method_has_the_same_trials() -> None:
    by_method = {m: [s for s in experiment_of("equal-budget").settings(WORLD) if s.method == m] for m in METHODS}
    fields = ("learning_rate", "final_ent_coef", "auxiliary_coefficient")
    tried = {m: [tuple(getattr(s.config(FULL, 0), f) for f in fields) for s in of] for m, of in by_method.items()}
    assert {len(values) for values in tried.values()} == {GRID.trials}
    assert tried["discovered"] == tried["random"] == tried["reward-prediction"]
    assert [values[:2] for values in tried["a2c"]] == [values[:2] for values in tried["discovered"]]
    preset = by_method["a2c"][0].preset.auxiliary_coefficient
    assert {values[2] for values in tried["a2c"]} == {preset}
    for column, values in enumerate((GRID.learning_rates, GRID.entropies, GRID.coefficients)):
        drawn = {row[column] for row in tried["discovered"]}
        assert len(drawn) == GRID.trials
        assert min(values) <= min(drawn) < max(drawn) <= max(values)


@pytest.mark.parametrize("trials", [16, 400])
def test_trials_are_evenly_spread_on_a_logarithmic_scale(trials: int) -> None:
    grid = dataclasses.replace(GRID, learning_rates=(1e-4, 1e-2), trials=trials)
    tried = experiment_of("equal-budget", grid).settings(WORLD)
    rates = np.log10([s.config(FULL, 0).learning_rate for s in tried if s.method == "random"])
    counts, _ = np.histogram(rates, np.linspace(-4, -2, 5))
    assert counts.tolist() == [trials / 4] * 4


def test_more_trials_keep_the_ones_before() -> None:
    few, many = (
        [s.folder_name for s in experiment_of("equal-budget", dataclasses.replace(GRID, trials=n)).settings(WORLD)]
        for n in (3, 6)
    )
    assert set(few) < set(many)


def test_every_method_is_run_at_its_own_best(tmp_path: Path) -> None:
    experiment = experiment_of("equal-budget")
    tried = {m: [s.config(FULL, 0) for s in experiment.settings(WORLD) if s.method == m] for m in METHODS}
    picked = {method: configs[k] for k, (method, configs) in enumerate(tried.items())}
    best = {m: (c.learning_rate, c.final_ent_coef, c.auxiliary_coefficient) for m, c in picked.items()}
    results = analyze(experiment, trained(experiment, tmp_path, best))
    assert [choice.searched for choice in results.choices.itertuples()] == [
        *["learning_rate final_ent_coef auxiliary_coefficient"] * 3,
        "learning_rate final_ent_coef",
    ]
    then = experiment.follow_up(WORLD, results.cells)
    assert [s.label for s in then] == list(METHODS)
    for s in then:
        assert dataclasses.replace(s.config(FULL, 0), seed=0) == picked[s.method]


@pytest.mark.parametrize("world", ["collect-objects", "puddle-world", "CartPole-v1"])
def test_joint_agents_have_the_same_trials(world: str) -> None:
    trials = experiment_of("joint-equal-budget").settings(world)
    tasks = {"a2c": "none", **{task: task for task in ("discovered", "random", "reward-prediction")}}
    if world == "collect-objects":  # pixel control needs images
        tasks["pixel-control"] = "pixel-control"
    by_name = {name: [s.config(FULL, 0) for s in trials if s.label.split()[0] == name] for name in tasks}
    assert sum(map(len, by_name.values())) == len(trials)
    alone = [s.config(FULL, 0) for s in experiment_of("equal-budget").settings(WORLD) if s.method == "discovered"]
    for name, configs in by_name.items():
        assert {config.task for config in configs} == {tasks[name]}
        assert [c.learning_rate for c in configs] == [c.learning_rate for c in alone]
        assert [c.final_ent_coef for c in configs] == [c.final_ent_coef for c in alone]
        assert {c.final_learning_rate for c in configs} == {0.0}
        if name != "a2c":
            assert [c.auxiliary_coefficient for c in configs] == [c.auxiliary_coefficient for c in alone]
            assert {c.encoder_mode for c in configs} == {"joint"}
        if world == "CartPole-v1":  # whose entropy coefficient is constant by default
            assert [c.ent_coef for c in configs] == [c.final_ent_coef for c in configs]


def test_every_joint_agent_is_run_at_its_own_best(tmp_path: Path) -> None:
    experiment = experiment_of("joint-equal-budget")
    cells = cells_of(experiment.settings("CartPole-v1"), FULL, 1, tmp_path)
    for i, cell in enumerate(cells):  # the trial k of the agent k is its best
        write_run(cell.folder, cell.config, training={cell.config.steps: 400.0 if i % 5 == i // 5 else 20.0})
    then = experiment.follow_up("CartPole-v1", analyze(experiment, cells).cells)
    assert [s.label for s in then] == ["discovered", "random", "reward-prediction", "a2c"]
    assert [s.config(FULL, 0) for s in then] == [cells[6 * k].config for k in range(4)]


def test_joint_learning_takes_worlds_and_tasks(tmp_path: Path) -> None:
    grid = dataclasses.replace(GRID, trials=1, trial_seeds=1)
    options = Reproduction(
        "joint-equal-budget", worlds=(WORLD,), tasks=("CartPole-v1",), out=tmp_path, run=False, search=grid
    )
    assert {cell.setting.world for cell in reproduce(options, Console(quiet=True))} == {WORLD, "CartPole-v1"}
    assert (
        "joint-equal-budget --scale full --worlds puddle-world --tasks CartPole-v1 --learning-rates" in options.command
    )
    with pytest.raises(ValueError, match="tasks must be left out for equal-budget"):
        Reproduction("equal-budget", tasks=("CartPole-v1",))


def test_trials_and_results_have_different_seeds(tmp_path: Path) -> None:
    """The second stage does not train the winner's seeds again, and comparisons are about the second stage alone."""
    cells = trained(experiment_of("paper"), tmp_path, {"a2c": (1e-3, 0.03)})
    then = experiment_of("paper").follow_up(WORLD, analyze(experiment_of("paper"), cells).cells)
    for cell in cells_of(then, FULL, 2, tmp_path, SEEDS_AFTER_TRIALS):
        write_run(cell.folder, cell.config, {cell.config.steps: -40.0 if cell.config.task == "discovered" else -90.0})
    options = Reproduction("paper", seeds=2, worlds=(WORLD,), out=tmp_path, run=False, search=GRID)
    console = Console(record=True, width=200)
    assert reproduce(options, console) == []
    results = Results.read(tmp_path / "results" / "paper")
    assert set(where(results.cells, setting="discovered")["seed"]) == {100, 101}
    assert set(results.cells.loc[results.cells["setting"].str.contains("="), "seed"]) == {0, 1}
    assert set(results.comparisons["other"]) == {"random", "reward-prediction", "a2c"}
    for name in ("paper.png", "paper-search.png", "paper.pdf"):
        assert (tmp_path / "results" / "paper" / name).is_file()
    told = console.export_text()
    assert "learning_rate 0.001, chosen on puddle-world, is the smallest value tried: --learning-rates" in told


def test_seeds_are_added_after_the_same_trials(tmp_path: Path) -> None:
    cells = trained(experiment_of("paper"), tmp_path, {"a2c": (1e-3, 0.03)})
    then = experiment_of("paper").follow_up(WORLD, analyze(experiment_of("paper"), cells).cells)
    for cell in cells_of(then, FULL, 3, tmp_path, SEEDS_AFTER_TRIALS):
        write_run(cell.folder, cell.config, {cell.config.steps: -40.0})
    for first, seeds in ((0, 2), (2, 1)):
        options = Reproduction(
            "paper", seeds=seeds, first_seed=first, worlds=(WORLD,), out=tmp_path, run=False, search=GRID, extend=True
        )
        assert reproduce(options, Console(quiet=True)) == []
    results = Results.read(tmp_path / "results" / "paper")
    assert list(where(results.cells, setting="random")["seed"]) == [100, 101, 102]
    assert len(results.cells) == 8 + 3 * len(METHODS)


def test_recorded_trials_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds are added on another machine, which has the tables but not the runs."""
    cells = trained(experiment_of("paper"), tmp_path / "first", {"a2c": (1e-3, 0.03)})
    then = experiment_of("paper").follow_up(WORLD, analyze(experiment_of("paper"), cells).cells)
    for cell in cells_of(then, FULL, 2, tmp_path / "first", SEEDS_AFTER_TRIALS):
        write_run(cell.folder, cell.config, {cell.config.steps: -40.0})
    first = Reproduction("paper", seeds=2, worlds=(WORLD,), out=tmp_path / "first", run=False, search=GRID)
    reproduce(first, Console(quiet=True))
    swept: list[Any] = []
    monkeypatch.setattr("dgvf_agents.experiments.reproduce.run_sweep", lambda cells, *_: swept.extend(cells))
    results = first.results_folder.parent
    second = dataclasses.replace(
        first, first_seed=2, seeds=1, out=tmp_path / "second", results=results, extend=True, run=True
    )
    reproduce(second, Console(quiet=True))
    assert [(cell.setting.label, cell.seed) for cell in swept] == [(method, 102) for method in METHODS]
    assert [cell.config for cell in swept] == [s.config(FULL, 102) for s in then]
    for cell in swept:
        write_run(cell.folder, cell.config, {cell.config.steps: -40.0})
    assert reproduce(dataclasses.replace(second, run=False), Console(quiet=True)) == []
    extended = Results.read(first.results_folder)
    assert list(where(extended.cells, setting="random")["seed"]) == [100, 101, 102]
    assert len(extended.cells) == 8 + 3 * len(METHODS)
    swept.clear()
    more = dataclasses.replace(GRID, entropies=(*GRID.entropies, 0.1))
    third = dataclasses.replace(second, search=more, first_seed=3)
    reproduce(third, Console(quiet=True))
    assert [cell.setting.label for cell in swept] == 2 * [
        f"a2c learning_rate={r} final_ent_coef=0.1" for r in (1e-3, 3e-3)
    ]
    for cell in swept:
        write_run(cell.folder, cell.config, {cell.config.steps: -90.0})
    swept.clear()
    reproduce(third, Console(quiet=True))
    added = [cell for cell in swept if not is_trial(cell.setting.label)]
    assert [(cell.setting.label, cell.seed) for cell in added] == [(method, 103) for method in METHODS]
    for cell in added:
        write_run(cell.folder, cell.config, {cell.config.steps: -40.0})
    assert reproduce(dataclasses.replace(third, run=False), Console(quiet=True)) == []
    assert len(Results.read(first.results_folder).cells) == 12 + 4 * len(METHODS)


def test_only_choices_on_the_worlds_of_the_command_are_told_to_be_at_an_edge(tmp_path: Path) -> None:
    """Choices on other worlds, in the tables that are extended, may come from a grid in which they are inside."""
    told = []
    worlds: tuple[World, ...] = (WORLD, "collect-objects")
    for world in worlds:
        cells = trained(experiment_of("paper"), tmp_path, {"a2c": (1e-3, 0.03)}, world)
        then = experiment_of("paper").follow_up(world, analyze(experiment_of("paper"), cells).cells)
        for cell in cells_of(then, FULL, 2, tmp_path, SEEDS_AFTER_TRIALS):
            write_run(cell.folder, cell.config, {cell.config.steps: -40.0})
        options = Reproduction("paper", seeds=2, worlds=(world,), out=tmp_path, run=False, search=GRID, extend=True)
        console = Console(record=True, width=200)
        reproduce(options, console)
        told.append(console.export_text())
    assert list(Results.read(tmp_path / "results" / "paper").choices["world"]) == [WORLD, "collect-objects"]
    first, second = (set(re.findall(r"chosen on ([a-z-]+), is", text)) for text in told)
    assert (first, second) == ({WORLD}, {"collect-objects"})


def test_an_unfinished_search_leads_nowhere(tmp_path: Path) -> None:
    trained(experiment_of("paper"), tmp_path, {})[0].folder.joinpath("progress.csv").unlink()
    options = Reproduction("paper", seeds=2, worlds=(WORLD,), out=tmp_path, run=False, search=GRID, partial=True)
    missing = reproduce(options, Console(quiet=True))
    assert [cell.setting.method for cell in missing] == ["a2c"]
    assert (tmp_path / "results" / "paper" / "paper.png").is_file()


@pytest.mark.parametrize(
    ("rate", "entropy", "warnings"),
    [
        ("0.0003", "0.01", []),
        ("0.001", "0.01", ["learning_rate 0.001, largest: --learning-rates 0.0001 0.0003 0.001 0.003"]),
        (
            "0.0001",
            "0.03",
            [
                "learning_rate 0.0001, smallest: --learning-rates 3e-05 0.0001 0.0003 0.001",
                "final_ent_coef 0.03, largest: --entropies 0.003 0.01 0.03 0.09",
            ],
        ),
    ],
)
def test_the_edge_of_a_grid_is_told(rate: str, entropy: str, warnings: list[str]) -> None:
    grid = SearchGrid((1e-4, 3e-4, 1e-3), (0.003, 0.01, 0.03))
    choice = Choice("w", "", f"a2c learning_rate={rate} final_ent_coef={entropy}", 1.0, 1.0)
    found = edge_warnings(grid, [choice])
    assert len(found) == len(warnings)
    for text, words in zip(found, warnings, strict=True):
        value, place, more = re.split(", |: ", words)
        assert text == f"{value}, chosen on w, is the {place} value tried: {more} tries one beyond it"
    assert edge_warnings(SearchGrid((1e-3,), (0.03,)), [choice]) == []
    other = Choice("w", "", "discovered auxiliary_coefficient=0.01", 1.0, 1.0)
    (text,) = edge_warnings(grid, [other])
    assert "--coefficients 0.003 0.01 0.03 0.1 0.3 1" in text


def test_bad_numbers_of_trials_are_named() -> None:
    with pytest.raises(ValueError, match="trials must be >= 1, got 0"):
        SearchGrid(trials=0)
    with pytest.raises(ValueError, match="trial_seeds must be >= 1, got 0"):
        SearchGrid(trial_seeds=0)
    with pytest.raises(ValueError, match=r"learning_rates must have every value once, got 0.001 0.003 0.001"):
        SearchGrid(learning_rates=(1e-3, 3e-3, 1e-3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"experiment": "paper", "settings": ("a2c",)}, "settings must be left out for paper"),
        ({"experiment": "figure-2", "settings": ("a2c",)}, "settings must be left out for figure-2"),
        ({"experiment": "joint", "search": GRID}, r"search must be left out for joint, .*got --learning-rates 0.001"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Reproduction(**options)


@pytest.mark.parametrize(("given", "expected"), [(None, 2), (1, 1)])
def test_the_scale_decides_on_seeds_of_trials_unless_they_are_given(
    given: int | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[Any] = []
    monkeypatch.setattr("dgvf_agents.experiments.reproduce.run_sweep", lambda cells, *_: swept.extend(cells))
    search = dataclasses.replace(GRID, trial_seeds=given)
    reproduce(Reproduction("paper", scale="tiny", worlds=(WORLD,), search=search, out=tmp_path), Console(quiet=True))
    assert {cell.seed for cell in swept} == set(range(expected))


def test_commands_name_the_trials(tmp_path: Path) -> None:
    told = Reproduction("equal-budget", search=GRID, out=tmp_path).command
    assert told.startswith("dgvf reproduce equal-budget --scale full --learning-rates 0.001 0.003 --entropies 0.01")
    assert told.endswith("--trials 5 --trial-seeds 2")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paper", "equal-budget"])
def test_the_experiment_runs_from_trials_to_the_picture(name: ExperimentName, tmp_path: Path) -> None:
    grid = ["--learning-rates", "0.001", "0.003", "--entropies", "0.01", "--coefficients", "0.01", "--trials", "2"]
    options = ["--scale", "tiny", "--worlds", WORLD, "--seeds", "1", "--jobs", "2", "--out", str(tmp_path)]
    main(["reproduce", name, *options, *grid])
    results = Results.read(tmp_path / "results" / name)
    assert set(results.cells.loc[results.cells["seed"] == SEEDS_AFTER_TRIALS, "setting"]) == set(METHODS)
    trials = results.cells[results.cells["setting"].str.contains("=")]
    assert len(trials) == (2 * 2 if name == "paper" else 2 * 2 * len(METHODS))
    assert (tmp_path / "results" / name / f"{name}.png").is_file()
