"""Settings, cells, the state of their folders, and adopted runs."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest
from filelock import FileLock
from rich.console import Console

from dgvf_agents.experiments.adopt import adopt
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.reproduce import reproduce
from dgvf_agents.experiments.reproduction import Reproduction
from dgvf_agents.experiments.runs import (
    Cell,
    CellState,
    FinishedMark,
    cells_of,
    mark_file,
    read_mark,
    run_cell,
    state_of,
    write_mark,
)
from dgvf_agents.experiments.settings import SCALES, Scale, SearchGrid, setting
from dgvf_agents.experiments.worlds import REFERENCES
from dgvf_agents.train.config import METHODS, WORLDS, TrainConfig, preset
from dgvf_agents.train.folder import RunFolder
from tests.run_folders import write_run

FULL, TINY = SCALES["full"], SCALES["tiny"]
RESULTS = Path(__file__).parents[2] / "docs" / "results"


def one_cell(out: Path, seed: int = 0) -> Cell:
    return cells_of([setting("collect-objects-small", "a2c")], FULL, seed + 1, out)[seed]


def test_a_setting_is_a_preset_with_changes() -> None:
    study = setting("collect-objects", "discovered", "two", questions=2)
    expected = dataclasses.replace(preset("collect-objects", "discovered"), questions=2, seed=3, compile=True)
    assert study.config(FULL, seed=3) == expected


def test_a_change_may_be_an_entry_of_a_field() -> None:
    usual = preset("puddle-world", "discovered")
    changed = setting("puddle-world", "discovered", **{"env_kwargs.max_episode_steps": 1_000})
    assert changed.config(FULL, seed=0).env_kwargs == {**usual.env_kwargs, "max_episode_steps": 1_000}
    assert changed.folder_name == "puddle-world/discovered,env_kwargs.max_episode_steps=1000"
    same = setting("puddle-world", "discovered", **{"env_kwargs.max_episode_steps": 200})
    assert same.folder_name == "puddle-world/discovered"


def test_equal_settings_of_experiments_share_their_folder() -> None:
    changed = setting("puddle-world", "discovered", unroll_length=25, questions=2)
    assert changed.folder_name == "puddle-world/discovered,questions=2,unroll_length=25"
    usual = preset("puddle-world", "discovered")
    assert setting("puddle-world", "discovered", questions=usual.questions).folder_name == "puddle-world/discovered"
    for world in (*WORLDS, "atari/Breakout"):
        folders: dict[str, TrainConfig] = {}
        for experiment in EXPERIMENTS.values():
            if experiment.name == "own-tasks" or experiment.name.startswith("atari-") != world.startswith("atari/"):
                continue
            settings = experiment.settings(world)
            assert len({s.label for s in settings}) == len(settings)
            for s in settings:
                config = s.config(FULL, 0)
                assert folders.setdefault(s.folder_name, config) == config


def test_studies_share_the_runs_of_the_papers_protocol() -> None:
    chosen = {"learning_rate": 0.003, "final_learning_rate": 0.0}
    shared = setting("collect-objects", "discovered", **chosen)
    usual = {"questions": "128", "unroll-length": "10", "meta-objective": "sum", "convention": "exact"}
    for name, label in usual.items():
        settings = {s.label: s for s in EXPERIMENTS[name].settings("collect-objects")}
        assert settings[label].config(FULL, 100) == shared.config(FULL, 100)
        assert settings[label].folder_name == shared.folder_name
        assert all(chosen.items() <= dict(s.changes).items() for s in settings.values())


def test_what_is_varied_is_not_the_scales() -> None:
    varied = setting("puddle-world", "discovered", compile="auto", evaluate_every=1_234, env_wrapper="a/b:C")
    config = varied.config(Scale(evaluate_every=8_000, compiled=False), 0)
    assert (config.compile, config.evaluate_every) == ("auto", 1_234)
    assert varied.folder_name.count("/") == 1


def test_experiments_ask_for_what_the_paper_varies() -> None:
    def varied(name: str, field: str) -> list[object]:
        configs = [s.config(FULL, 0) for s in EXPERIMENTS[name].settings("collect-objects")]
        return [getattr(config, field) for config in configs]

    tasks = EXPERIMENTS["own-tasks"].settings("CartPole-v1")
    assert [s.method for s in tasks] == ["sb3-a2c", "discovered", "none", "random", "reward-prediction"]
    assert {(s.config(FULL, 2).env, s.config(FULL, 2).seed) for s in tasks} == {("CartPole-v1", 2)}
    assert varied("questions", "questions") == [2, 8, 32, 64, 128]
    assert varied("unroll-length", "unroll_length") == [1, 2, 5, 10, 25, 50]
    assert varied("meta-objective", "objective") == ["sum", "end"]
    assert varied("convention", "convention") == ["exact", "surrogate"]
    assert varied("gridworlds", "task") == ["discovered", "random", "reward-prediction", "none"]
    assert varied("gridworlds", "encoder_mode") == ["auxiliary"] * 3 + ["joint"]
    assert varied("joint", "encoder_mode") == ["joint"] * 4
    assert varied("joint", "task") == varied("gridworlds", "task")
    assert varied("learning-rate", "learning_rate") == [5e-4] * 4 + [3e-3] * 4
    assert varied("learning-rate", "task") == 2 * varied("gridworlds", "task")
    assert varied("rms-prop", "task") == 3 * varied("gridworlds", "task")
    assert varied("rms-prop", "rms_prop") == ["pytorch"] * 4 + ["tensorflow"] * 8
    assert varied("rms-prop", "loss_reduction") == ["mean"] * 8 + ["sum"] * 4
    assert set(varied("rms-prop", "learning_rate")) == {5e-4}
    small = [s.config(FULL, 0) for s in EXPERIMENTS["rms-prop"].settings("collect-objects-small")]
    assert {config.learning_rate for config in small} == {3e-4}  # not the preset's, unlike in the large rooms
    assert varied("answer-scale", "questions") == [128, 2, 8, 32, 64, 128, 2, 8, 32, 64, 128]
    assert varied("answer-scale", "auxiliary_coefficient") == [0.1] * 6 + [6.4, 1.6, 0.4, 0.2, 12.8]
    assert varied("answer-scale", "task") == ["discovered", *(["discovered"] * 4 + ["reward-prediction"]) * 2]
    assert varied("low-rate", "unroll_length") == [10, 1, 2, 10]
    assert varied("low-rate", "questions") == [128, 128, 128, 2]
    assert set(varied("low-rate", "learning_rate")) == {5e-4}
    assert set(varied("convention", "learning_rate")) == {3e-3}
    small = [s.config(FULL, 0) for s in EXPERIMENTS["convention"].settings("collect-objects-small")]
    assert {config.learning_rate for config in small} == {3e-4}


def test_all_methods_are_compared_where_discovered_questions_keep_the_optimum() -> None:
    settings = EXPERIMENTS["steady"].settings("puddle-world")
    of_presets = [dataclasses.replace(preset("puddle-world", m), seed=3, compile=True) for m in METHODS]
    assert [one.config(FULL, 3) for one in settings] == of_presets
    in_collapses = {one.folder_name for one in EXPERIMENTS["collapses"].settings("puddle-world")}
    assert settings[0].folder_name in in_collapses  # one run for both


def test_a_scale_leaves_a_settings_own_actors() -> None:
    settings = {s.label: s for s in EXPERIMENTS["algorithms"].settings("collect-objects-small")}
    ours = settings["discovered DGVFImpala, 2 actors"]
    assert [ours.config(scale, 0).actors for scale in (FULL, Scale(actors=8))] == [2, 8]
    assert settings["plain DGVFImpala"].config(FULL, 0).actors == 0


def test_scales_shrink_steps_and_seeds() -> None:
    config = preset("puddle-world", "discovered")
    assert FULL.apply(config) == dataclasses.replace(config, compile=True)
    assert SCALES["small"].apply(config).steps == config.steps // 4
    assert Scale(steps=7).apply(config).steps == 7
    tiny = TINY.apply(config)
    assert (tiny.steps, tiny.compile) == (960, False)
    assert tiny.env_kwargs["reward_scale"] == config.env_kwargs["reward_scale"]
    assert tiny.evaluation_kwargs == {**config.evaluation_kwargs, "max_episode_steps": 40}


def test_the_demo_runs_on_the_smallest_world_and_is_evaluated_often(tmp_path: Path) -> None:
    demo, usual = SCALES["demo"], preset("collect-objects-small", "random")
    assert demo.worlds_of(("CartPole-v1",)) == ("CartPole-v1",)
    assert FULL.worlds_of(WORLDS) == WORLDS
    assert demo.apply(usual).steps >= 20 * demo.apply(usual).evaluate_every
    assert FULL.apply(usual).evaluate_every == usual.evaluate_every
    waiting = reproduce(Reproduction("gridworlds", "demo", out=tmp_path, run=False), Console(file=io.StringIO()))
    assert [(cell.setting.world, cell.seed) for cell in waiting] == [
        ("collect-objects-small", seed) for seed in (0, 1) for _ in METHODS
    ]
    asked = Reproduction("gridworlds", "demo", worlds=("puddle-world",), out=tmp_path, run=False)
    assert {cell.setting.world for cell in reproduce(asked, Console(file=io.StringIO()))} == {"puddle-world"}


def test_the_first_seed_of_all_settings_comes_first(tmp_path: Path) -> None:
    cells = cells_of(EXPERIMENTS["meta-objective"].settings("puddle-world"), FULL, 2, tmp_path)
    assert [(cell.setting.label, cell.seed) for cell in cells] == [("sum", 0), ("end", 0), ("sum", 1), ("end", 1)]
    assert [cell.config.seed for cell in cells] == [0, 0, 1, 1]
    assert cells[3].folder == tmp_path / "puddle-world" / "discovered,objective=end" / "seed-1"


def test_returns_of_reference_are_those_of_the_documentation() -> None:
    file = Path(__file__).parents[2] / "docs" / "environments" / "reference.json"
    environments = json.loads(file.read_text())["environments"]
    assert set(REFERENCES) == set(WORLDS)
    for world, reference in REFERENCES.items():
        known = environments[preset(world, "a2c").env]
        assert reference.env == preset(world, "a2c").env
        if "planned" in known:
            optimal, random = known["planned"]["return"], known["random"]["return"]
        else:
            optimal, random = known["optimal_return"], known["random_return"]
        assert reference.optimal == pytest.approx(optimal, rel=1e-3)
        assert reference.random == pytest.approx(random, rel=5e-3)
        assert (reference.normalized(reference.random), reference.normalized(reference.optimal)) == (0.0, 1.0)


def test_a_run_is_missing_then_unfinished_then_finished(tmp_path: Path) -> None:
    cell = one_cell(tmp_path)
    assert state_of(cell.folder, cell.config) is CellState.MISSING
    write_run(cell.folder, cell.config, {8_000: 1.0}, checkpoint=False)
    assert state_of(cell.folder, cell.config) is CellState.UNFINISHED
    write_mark(cell.folder, FinishedMark(5.0, "dgvf", {"python": "3"}, {"cores": 2}))
    assert state_of(cell.folder, cell.config) is CellState.FINISHED
    assert read_mark(cell.folder) == FinishedMark(5.0, "dgvf", {"python": "3"}, {"cores": 2})


def test_a_run_without_mark_is_finished_if_metrics_and_checkpoint_are_complete(tmp_path: Path) -> None:
    cell = one_cell(tmp_path)
    write_run(cell.folder, cell.config, {8_000: 1.0}, seconds=77.0)
    assert state_of(cell.folder, cell.config) is CellState.FINISHED
    assert read_mark(cell.folder) == FinishedMark(77.0)
    rows = RunFolder(cell.folder).progress_file.read_text().splitlines()
    RunFolder(cell.folder).progress_file.write_text("\n".join(rows[:-1]) + "\n")
    assert state_of(cell.folder, cell.config) is CellState.UNFINISHED


def test_a_run_of_another_configuration_is_an_error_that_says_what_differs(tmp_path: Path) -> None:
    cell = one_cell(tmp_path)
    write_run(cell.folder, dataclasses.replace(cell.config, gamma=0.5, log_every=1, checkpoint_every=3))
    with pytest.raises(ValueError, match=r"got another gamma \(0\.5, not 0\.99\);"):
        state_of(cell.folder, cell.config)
    config_file = RunFolder(cell.folder).config_file
    config_file.write_text(json.dumps({"no_such_setting": 1}))
    with pytest.raises(ValueError, match=r"must have a configuration of this version: .*no_such_setting"):
        state_of(cell.folder, cell.config)


def test_finished_runs_of_plain_training_are_adopted(tmp_path: Path) -> None:
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    cells = [one_cell(out, seed) for seed in range(4)]
    write_run(elsewhere / "deep" / "zero", cells[0].config, {8_000: 1.0}, seconds=12.0)
    write_run(elsewhere / "one", dataclasses.replace(cells[1].config, checkpoint_every=99), {8_000: 1.0})
    write_run(elsewhere / "unfinished", cells[2].config, {8_000: 1.0}, checkpoint=False)
    write_run(elsewhere / "other", dataclasses.replace(cells[3].config, gamma=0.5), {8_000: 1.0})
    (elsewhere / "strange").mkdir()
    (elsewhere / "strange" / "config.json").write_text('{"no_such_setting": 1}')
    write_run(cells[0].folder, cells[0].config, checkpoint=False)  # half a run gives way
    assert adopt(cells, [elsewhere]) == cells[:2]
    states = [state_of(cell.folder, cell.config) for cell in cells]
    assert states == [CellState.FINISHED, CellState.FINISHED, CellState.MISSING, CellState.MISSING]
    assert read_mark(cells[0].folder) == FinishedMark(12.0)
    assert not mark_file(elsewhere / "deep" / "zero").exists()
    assert (elsewhere / "deep" / "zero" / "progress.csv").is_file()
    assert not list(out.rglob("*.tmp"))
    assert adopt(cells, [elsewhere]) == []


def test_a_run_with_another_number_of_actors_is_not_adopted(tmp_path: Path) -> None:
    labels = ["plain DGVFImpala", "plain DGVFImpala, 2 actors"]
    settings = [one for one in EXPERIMENTS["algorithms"].settings("collect-objects-small") if one.label in labels]
    one, two = cells_of(settings, FULL, 1, tmp_path / "out")
    write_run(tmp_path / "run", one.config, {8_000: 1.0})
    assert adopt([two, one], [tmp_path / "run"]) == [one]


def test_runs_that_tell_nothing_of_the_world_as_it_is_are_not_adopted(tmp_path: Path) -> None:
    (cell,) = cells_of([setting("puddle-world", "a2c")], FULL, 1, tmp_path / "out")
    write_run(tmp_path / "run", cell.config, training={80_000: -9.0})
    assert adopt([cell], [tmp_path]) == []
    write_run(tmp_path / "evaluated", cell.config, evaluation={80_000: -90.0})
    assert adopt([cell], [tmp_path]) == [cell]


def test_a_run_without_a_whole_end_is_not_adopted(tmp_path: Path) -> None:
    (cell,) = cells_of([setting("puddle-world", "a2c")], FULL, 1, tmp_path / "out")
    write_run(tmp_path / "run", cell.config, evaluation={80_000: -90.0})
    (last,) = RunFolder(tmp_path / "run").checkpoints()
    last.write_bytes(last.read_bytes()[:-1])
    assert adopt([cell], [tmp_path / "run"]) == []


def test_a_cell_that_is_being_trained_adopts_nothing(tmp_path: Path) -> None:
    cell = one_cell(tmp_path / "out")
    write_run(tmp_path / "run", cell.config, {8_000: 1.0})
    cell.folder.parent.mkdir(parents=True)
    with (
        FileLock(cell.folder.with_name("seed-0.lock")),
        pytest.raises(ValueError, match=r"another process trains, got .*seed-0"),
    ):
        adopt([cell], [tmp_path / "run"])
    assert not cell.folder.exists()


def test_a_folder_to_adopt_from_must_exist(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"adopt must name folders, got .*nowhere"):
        adopt([one_cell(tmp_path)], [tmp_path / "nowhere"])


def test_a_cell_is_trained_by_one_process_at_a_time(tmp_path: Path) -> None:
    cell = one_cell(tmp_path)
    cell.folder.parent.mkdir(parents=True)
    with FileLock(cell.folder.with_name("seed-0.lock")), pytest.raises(TimeoutError):
        run_cell(cell.config, cell.folder, "dgvf", lock_seconds=0)
    assert not cell.folder.exists()


def test_commands_leave_out_where_files_lie(tmp_path: Path) -> None:
    told = Reproduction("search", "small", 4, worlds=("puddle-world",), out=tmp_path, search=SearchGrid((1e-3, 3e-3)))
    assert told.command == (
        "dgvf reproduce search --scale small --seeds 4 --worlds puddle-world --learning-rates 0.001 0.003"
    )
    assert Reproduction("joint", steps=5).command == "dgvf reproduce joint --scale full --steps 5"
    on_gpu = Reproduction("joint", steps=5, device="cuda", jobs=3)
    assert on_gpu.command == "dgvf reproduce joint --scale full --steps 5 --device cuda"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Reproduction("joint", jobs=0), "jobs must be >= 1, got 0"),
        (lambda: Reproduction("joint", device="gpu"), "device must be 'auto', 'cpu', 'cuda'"),
        (lambda: Reproduction("joint", worlds=()), "worlds must name a world"),
        (lambda: Scale(steps=0), "steps must be >= 1, got 0"),
        (lambda: Scale(seeds=-1), "seeds must be >= 1, got -1"),
        (lambda: SearchGrid(entropies=()), "entropies must have a value"),
    ],
)
def test_bad_settings_are_named(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_runs_are_copied_where_files_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from one disk to another."""

    def refuse(*arguments: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    cell, run = one_cell(tmp_path / "out"), tmp_path / "elsewhere"
    write_run(run, cell.config, {8_000: 1.0})
    assert adopt([cell], [run]) == [cell]
    assert state_of(cell.folder, cell.config) is CellState.FINISHED
    assert (cell.folder / "progress.csv").read_bytes() == (run / "progress.csv").read_bytes()
    assert (cell.folder / "progress.csv").stat().st_ino != (run / "progress.csv").stat().st_ino


def test_a_finished_cell_is_not_trained_again(tmp_path: Path) -> None:
    cell = one_cell(tmp_path)
    write_run(cell.folder, cell.config, {8_000: 1.0})
    write_mark(cell.folder, FinishedMark(12.0))
    before = {path: path.stat().st_mtime_ns for path in cell.folder.rglob("*")}
    run_cell(cell.config, cell.folder, "dgvf")
    assert {path: path.stat().st_mtime_ns for path in cell.folder.rglob("*")} == before


def test_a_figure_of_the_paper_is_several_experiments(tmp_path: Path) -> None:
    options = Reproduction("figure-5", worlds=("puddle-world",), seeds=2, out=tmp_path, run=False)
    waiting = reproduce(options, Console(file=io.StringIO()))
    own = {name: EXPERIMENTS[name].settings("puddle-world") for name in ("questions", "unroll-length")}
    assert [cell.setting for cell in waiting] == [s for settings in own.values() for _ in range(2) for s in settings]
    assert {cell.seed for cell in waiting} == {0, 1}
    assert [part.experiment for part in Reproduction("figure-2").experiments] == ["paper", "equal-budget"]
    assert Reproduction("joint").experiments == (Reproduction("joint"),)
