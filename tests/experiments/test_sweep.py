"""`dgvf reproduce` through its real main, at tiny scale; what killing, interrupting and failing leave."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from filelock import FileLock
from rich.console import Console

from dgvf_agents.cli import main
from dgvf_agents.experiments import figures
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.metrics import RunMetrics
from dgvf_agents.experiments.runs import Cell, CellState, cells_of, run_cell, state_of
from dgvf_agents.experiments.settings import SCALES
from dgvf_agents.experiments.sweep import run_sweep
from dgvf_agents.experiments.sweep_view import SweepView
from dgvf_agents.experiments.tables import Results, where
from dgvf_agents.train.config import METHODS
from dgvf_agents.train.folder import code_version
from tests.run_folders import write_run

TINY = ["reproduce", "gridworlds", "--scale", "tiny", "--jobs", "2"]
PUDDLE = [*TINY, "--worlds", "puddle-world"]
WORLDS = ("collect-objects-small", "puddle-world")
"""Of the sweep that most tests share, one of each kind."""
BOTH = [*TINY, "--worlds", *WORLDS]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("swept")
    main([*BOTH, "--out", str(out)])
    return out


def gridworld_cells(out: Path, world: str = "puddle-world", seeds: int = 2) -> list[Cell]:
    return cells_of(EXPERIMENTS["gridworlds"].settings(world), SCALES["tiny"], seeds, out)  # type: ignore[arg-type]


def learned(folder: Path) -> list[dict[str, str]]:
    """Every number of a run's metrics that does not depend on the clock."""
    with (folder / "progress.csv").open() as file:
        return [
            {k: v for k, v in row.items() if k not in ("time/fps", "time/time_elapsed")} for row in csv.DictReader(file)
        ]


def start_sweep(arguments: list[str]) -> subprocess.Popen[str]:
    code = "from dgvf_agents.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def test_a_sweep_leaves_tables_of_every_run_and_a_picture(swept: Path) -> None:
    tables = swept / "results" / "gridworlds"
    results = Results.read(tables)
    expected = {(world, method, seed) for world in WORLDS for method in METHODS for seed in (0, 1)}
    assert {(row.world, row.setting, row.seed) for row in results.cells.itertuples()} == expected
    assert len(results.cells) == len(expected)
    assert (tables / "gridworlds.png").read_bytes().startswith(b"\x89PNG")
    assert set(results.summary["world"]) == {*WORLDS, "all"}
    assert not list(swept.rglob("*.tmp*"))


def test_tables_hold_what_the_run_folders_hold(swept: Path) -> None:
    results = Results.read(swept / "results" / "gridworlds")
    for row in results.cells.itertuples():
        curve = RunMetrics.read(swept / row.world / row.setting / f"seed-{row.seed}").curves["evaluation"]
        assert (row.measure, row.steps) == ("evaluation", 960)
        assert row.final_return == curve.returns[-1]
        points = where(results.curves, world=row.world, setting=row.setting, seed=row.seed)
        assert list(points["steps"]) == list(curve.steps)
        assert list(points["mean_return"]) == pytest.approx(list(curve.returns), rel=1e-5)


def test_curves_follow_from_the_episodes(swept: Path) -> None:
    results = Results.read(swept / "results" / "gridworlds")
    run = ["world", "setting", "seed", "steps"]
    episodes = results.evaluations.set_index(run)["episode_returns"].str.split(expand=True).astype(float)
    assert episodes.shape[1] == 16
    assert not episodes.isna().any(axis=None)
    expected = results.curves.set_index(run)["mean_return"]
    assert episodes.mean(axis=1).reindex(expected.index).to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-5)


def test_a_run_of_a_sweep_is_an_ordinary_run(swept: Path, tmp_path: Path) -> None:
    from dgvf_agents.train.evaluate import evaluate
    from dgvf_agents.train.train import train

    cell = gridworld_cells(swept)[0]
    train(cell.config, tmp_path / "run", show_progress=False)
    assert learned(tmp_path / "run") == learned(cell.folder)
    assert evaluate(cell.folder, episodes=2) == evaluate(tmp_path / "run", episodes=2)


def test_provenance_names_command_versions_hardware_and_wall_time(swept: Path) -> None:
    told = json.loads((swept / "results" / "gridworlds" / "provenance.json").read_text())
    assert told["command"] == "dgvf reproduce gridworlds --scale tiny --worlds collect-objects-small puddle-world"
    (made,) = told["made_with"]
    assert made["runs"] == len(told["runs"]) == 16
    assert {"python", "torch", "numpy", "dgvf"} <= set(made["versions"])
    assert made["code"] == code_version()
    assert made["hardware"]["cores"] == os.cpu_count()
    assert told["wall_seconds"] == pytest.approx(sum(run["wall_seconds"] for run in told["runs"]))
    assert str(swept) not in json.dumps(told)


@pytest.mark.slow
def test_a_sweep_records_the_commit_that_it_began_with(tmp_path: Path) -> None:
    root, source = tmp_path / "repository", Path(__file__).parents[2]
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for package in ("dgvf_agents", "dgvf_envs"):
        shutil.copytree(source / package, root / package, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run([*git[:3], "init", "-q"], check=True)
    commit = ["sh", "-c", f"{shlex.join([*git, 'add', '.'])} && {shlex.join([*git, 'commit', '-qm', 'one'])}"]
    subprocess.run(commit, check=True)
    first = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    out = tmp_path / "runs"
    command = [sys.executable, "-m", "dgvf_agents.cli", *PUDDLE, "--jobs", "1", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    process = subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: any(out.rglob("finished.json")))
        with (root / "dgvf_agents" / "core" / "returns.py").open("a") as file:
            file.write("# more\n")
        subprocess.run(commit, check=True)
        assert process.wait(300) == 0
    finally:
        process.kill()
    marks = [json.loads(file.read_text()) for file in out.rglob("finished.json")]
    assert [mark["code"] for mark in marks] == 8 * [first]


def test_a_finished_sweep_is_only_analyzed_again(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {file: file.stat().st_mtime_ns for file in swept.rglob("finished.json")}
    main([*BOTH, "--out", str(swept), "--results", str(tmp_path)])
    shown = capsys.readouterr().out
    assert "16 of 16 cells are finished already" in shown
    assert "This was a smoke test" in shown
    assert {file: file.stat().st_mtime_ns for file in swept.rglob("finished.json")} == before
    for name in ("cells.csv", "curves.csv.xz", "bands.csv.xz", "summary.csv", "comparisons.csv", "evaluations.csv.xz"):
        table = Path("gridworlds") / name
        assert (tmp_path / table).read_bytes() == (swept / "results" / table).read_bytes()


def test_a_picture_says_that_its_runs_are_a_smoke_test(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(figures, "plot_curves", lambda path, panels, title: shown.extend(p.title for p in panels))
    main(["draw", "gridworlds", str(swept / "results" / "gridworlds")])
    assert shown == ["CollectObjectsSmall-v0, smoke test, 2 seeds", "PuddleWorld-v0, smoke test, 2 seeds"]
    results = Results.read(swept / "results" / "gridworlds")
    long = dataclasses.replace(results, cells=results.cells.assign(steps=figures.SMOKE_TEST_STEPS))
    figures.draw_curves(long, swept, "")
    assert shown[2:] == ["CollectObjectsSmall-v0, 2 seeds", "PuddleWorld-v0, 2 seeds"]


def test_settings_that_are_one_run_train_once(tmp_path: Path) -> None:
    labels = ("preset", "exact convention")  # which the preset of the rooms has
    settings = [one for one in EXPERIMENTS["collapses"].settings("collect-objects-small") if one.label in labels]
    cells = cells_of(settings, SCALES["tiny"], 1, tmp_path)
    assert cells[0].folder == cells[1].folder
    with SweepView(Console(file=io.StringIO())) as view:
        assert run_sweep(cells, 2, "a command", view) == []
    assert all(cell.is_finished for cell in cells)


def test_another_experiment_uses_the_runs_that_it_shares(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scale", "tiny", "--worlds", "puddle-world", "--out", str(swept)]
    main(["reproduce", "meta-objective", *arguments])
    assert "2 of 4 cells are finished already" in capsys.readouterr().out
    main(["draw", "meta-objective", str(swept / "results" / "meta-objective")])


@pytest.mark.slow
def test_a_killed_sweep_resumes(swept: Path, tmp_path: Path) -> None:
    moment = random.Random()
    wanted, delay = moment.randint(1, 5), moment.uniform(0.0, 0.8)
    print(f"killed {delay:.3f} s after run {wanted}")
    sweep = start_sweep([*PUDDLE, "--out", str(tmp_path)])
    wait_for(lambda: len(list(tmp_path.rglob("finished.json"))) >= wanted)
    time.sleep(delay)
    sweep.kill()
    sweep.communicate()
    finished = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in tmp_path.rglob("finished.json")}
    assert len(finished) >= wanted
    main([*PUDDLE, "--out", str(tmp_path)])
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in finished} == finished
    whole, again = (Results.read(path / "results" / "gridworlds") for path in (swept, tmp_path))
    assert len(again.cells) == 8
    for name in ("cells", "curves", "bands", "summary", "comparisons"):
        expected = where(getattr(whole, name), world="puddle-world").reset_index(drop=True)
        pd.testing.assert_frame_equal(getattr(again, name), expected, check_exact=True)
    for old, new in zip(gridworld_cells(swept), gridworld_cells(tmp_path), strict=True):
        assert learned(new.folder) == learned(old.folder)


def test_an_unfinished_run_continues_from_its_checkpoint(swept: Path, tmp_path: Path) -> None:
    whole = gridworld_cells(swept)[0]
    again = gridworld_cells(tmp_path)[0]
    shutil.copytree(whole.folder, again.folder, ignore=shutil.ignore_patterns("0000000960.zip", "finished.json"))
    assert state_of(again.folder, again.config) is CellState.UNFINISHED
    early = again.folder / "checkpoints" / "0000000480.zip"
    before = early.stat().st_mtime_ns
    run_cell(again.config, again.folder, "dgvf")
    assert state_of(again.folder, again.config) is CellState.FINISHED
    assert learned(again.folder) == learned(whole.folder)
    assert early.stat().st_mtime_ns == before


def test_an_interrupted_sweep_stops_its_runs(tmp_path: Path) -> None:
    sweep = start_sweep([*PUDDLE, "--steps", "100000000", "--out", str(tmp_path)])
    wait_for(lambda: sum(len(file.read_text().splitlines()) > 1 for file in tmp_path.rglob("progress.csv")) == 2)
    sweep.send_signal(signal.SIGINT)
    output, _ = sweep.communicate(timeout=30)
    assert sweep.returncode == 130
    assert "stopped; the same command goes on from here" in output
    assert len(list(tmp_path.rglob("checkpoints/*.zip"))) == 2
    locks = list(tmp_path.rglob("*.lock"))
    assert len(locks) >= 2
    for lock in locks:
        with FileLock(lock, timeout=0):  # no process holds it
            pass


class KillsFirst:
    """A view that kills the first process that starts."""

    def __init__(self) -> None:
        self.killed: Cell | None = None
        self.ends: dict[Cell, str | None] = {}

    def begin(self, cells: Any, waiting: Any) -> None: ...

    def refresh(self) -> None: ...

    def started(self, cell: Cell) -> None:
        if self.killed is None:
            self.killed = cell
            (process,) = multiprocessing.active_children()
            process.kill()

    def ended(self, cell: Cell, failure: str | None) -> None:
        self.ends[cell] = failure


class InterruptsAfterTheFirst(KillsFirst):
    """Ctrl-C when the second process has started, the first having ended unnoticed."""

    def started(self, cell: Cell) -> None:
        if self.killed is not None:
            wait_for(lambda: len(multiprocessing.active_children()) == 1)
            raise KeyboardInterrupt
        super().started(cell)

    def stopping(self, running: int) -> None: ...


@pytest.mark.slow
def test_an_interrupt_reaches_the_runs_beside_one_that_has_just_ended(tmp_path: Path) -> None:
    cells = [
        dataclasses.replace(cell, config=dataclasses.replace(cell.config, steps=100_000_000))
        for cell in gridworld_cells(tmp_path, seeds=1)
    ]
    with pytest.raises(KeyboardInterrupt):
        run_sweep(cells, 2, "dgvf", InterruptsAfterTheFirst())  # type: ignore[arg-type]
    assert not multiprocessing.active_children()


def test_a_killed_run_takes_no_other_with_it(tmp_path: Path) -> None:
    cells, view = gridworld_cells(tmp_path, seeds=1), KillsFirst()
    (failure,) = run_sweep(cells, 2, "dgvf", view)  # type: ignore[arg-type]
    assert failure.cell is cells[0] is view.killed
    assert failure.reason == "killed by SIGKILL"
    assert view.ends == {cells[0]: failure.reason, **dict.fromkeys(cells[1:])}
    states = [state_of(cell.folder, cell.config) for cell in cells]
    assert states[0] is not CellState.FINISHED
    assert set(states[1:]) == {CellState.FINISHED}


def test_a_run_that_fails_is_reported_and_results_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = gridworld_cells(tmp_path, seeds=1)
    cells[0].folder.parent.mkdir(parents=True)
    cells[0].folder.write_text("a file where a folder should be")
    arguments = [*PUDDLE, "--seeds", "1", "--out", str(tmp_path)]
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 1
    output = capsys.readouterr().out
    assert f"{cells[0].name} FAILED: " in output
    assert "Error" in output
    assert "1 of 4 runs are not finished, the first is puddle-world/discovered seed 0" in output
    assert not (tmp_path / "results").exists()
    with pytest.raises(SystemExit):
        main([*arguments, "--no-run", "--partial"])
    results = Results.read(tmp_path / "results" / "gridworlds")
    assert list(results.cells["setting"]) == ["random", "reward-prediction", "a2c"]
    told = json.loads((tmp_path / "results" / "gridworlds" / "provenance.json").read_text())
    assert told["missing"] == [cells[0].name]


def test_a_folder_with_another_run_stops_the_sweep(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*PUDDLE, "--steps", "1600", "--out", str(swept)])
    assert stop.value.code == 2
    assert "got another steps (960, not 1600)" in capsys.readouterr().err.replace("\n", " ")


def test_runs_are_on_the_given_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    devices = []
    for options in (["--device", "auto"], []):
        ran: list[Cell] = []
        monkeypatch.setattr("dgvf_agents.experiments.reproduce.run_sweep", lambda cells, *_, ran=ran: ran.extend(cells))
        with pytest.raises(SystemExit):  # nothing has run
            main([*PUDDLE, "--out", str(tmp_path), *options])
        devices.append({cell.config.device for cell in ran})
    assert devices == [{"auto"}, {"cpu"}]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "jobs must be >= 1, got 0"),
        (["--seeds", "0"], "seeds must be >= 1, got 0"),
        (["--steps", "0"], "steps must be >= 1, got 0"),
        (["--adopt", "nowhere"], "adopt must name folders, got nowhere"),
    ],
)
def test_bad_arguments_are_named(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "gridworlds", "--out", str(tmp_path), *arguments])
    assert stop.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_tables_of_another_experiment_are_not_drawn(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["draw", "search", str(swept / "results" / "gridworlds")])
    assert stop.value.code == 2
    assert "results must be the tables of search, got" in " ".join(capsys.readouterr().err.split())


def test_a_picture_of_nothing_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["draw", "joint", str(tmp_path)])
    assert stop.value.code == 2
    assert "results must be a folder that `dgvf reproduce` wrote" in " ".join(capsys.readouterr().err.split())


def test_a_terminal_shows_progress_speed_return_and_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("dgvf_agents.experiments.sweep_view.time.monotonic", lambda: clock[0])
    cells = cells_of(EXPERIMENTS["meta-objective"].settings("collect-objects"), SCALES["full"], 1, tmp_path)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160, color_system=None)
    with SweepView(console) as view:
        view.begin(cells, cells)
        view.started(cells[0])
        for seconds, steps in ((40.0, 300_000), (20.0, 400_000), (10.0, 450_000)):  # the first 40 s compile, too
            clock[0] += seconds
            write_run(
                cells[0].folder, dataclasses.replace(cells[0].config, steps=steps), {steps: 1.25}, checkpoint=False
            )
            screen.truncate(0)
            view.refresh()
        shown = " ".join(screen.getvalue().split())
        assert "0 of 2 cells, 0:01:10 so far, about 0:14:23 left" in shown  # 5.55M steps at 450,000 in 70 s
        assert "15% 5,000 1.25 0:08:30" in shown  # 2.55M steps at 150,000 in 30 s
        view.ended(cells[0], "killed by SIGKILL")
        assert f"[1/2] {cells[0].name} FAILED: killed by SIGKILL" in screen.getvalue()
        view.started(cells[1])
        clock[0] += 5.0
        write_run(cells[1].folder, dataclasses.replace(cells[1].config, steps=50_000), {50_000: 1.0}, checkpoint=False)
        screen.truncate(0)
        view.refresh()
        shown = " ".join(screen.getvalue().split())
        assert "1 of 2 cells, 0:01:15 so far, about 0:07:22 left" in shown  # 2.95M steps at 500,000 in 75 s
