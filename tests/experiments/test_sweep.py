"""`dgvf reproduce` and `dgvf sweep` at tiny scale, through their real main; killed, interrupted and failed ones."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch
from filelock import FileLock
from rich.console import Console

from dgvf_agents.cli import main
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.records import read_configs, read_records
from dgvf_agents.experiments.reproduce import Grid, Reproduction
from dgvf_agents.experiments.runs import Cell, SweepView, learning_curve, run_cells, run_sweep
from dgvf_agents.experiments.settings import SCALES
from dgvf_agents.train.checkpoint import load_model
from dgvf_agents.train.config import METHODS
from dgvf_agents.train.folder import RunFolder, code_version
from tests.helpers import refused
from tests.run_folders import rows_of, write_run

OWN = ["--settings", *METHODS]
"""Without the trials of the search."""
PUDDLE = ["reproduce", "figure-2", "--scale", "tiny", "--jobs", "2", "--worlds", "puddle-world", *OWN]
SEEDS = (200, 201)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("swept")
    main([*PUDDLE, "--out", str(out)])
    return out


def own_cells(out: Path, seeds: tuple[int, ...] = SEEDS) -> list[Cell]:
    settings = EXPERIMENTS["figure-2"].settings("puddle-world")
    return [Cell.of(one, seed, SCALES["tiny"], out) for seed in seeds for one in settings]


def learned(folder: Path) -> list[dict[str, str]]:
    """Every number of a run's metrics that does not depend on the clock."""
    return [{k: v for k, v in row.items() if k not in ("time/fps", "time/time_elapsed")} for row in rows_of(folder)]


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


def test_a_sweep_leaves_records_of_every_run_and_a_picture(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = read_records(swept / "records")
    assert {(row.world, row.setting, row.seed) for row in records.itertuples()} == {
        ("puddle-world", method, seed) for method in METHODS for seed in SEEDS
    }
    assert len(records) == 8
    for row in records.itertuples():
        steps, returns = learning_curve(swept / row.world / row.setting / f"seed-{row.seed}")
        assert row.steps.tolist() == steps == [480, 960]
        assert np.allclose(row.returns, returns, rtol=1e-5)
        assert row.core_seconds > 0
        assert math.isnan(row.largest_discount)  # discounts are fixed
        assert row.processor
        assert row.code == (code_version() or "")
    assert read_configs(swept / "records", "puddle-world")["random"]["task"] == "random"
    assert str(swept) not in (swept / "records" / "puddle-world.csv").read_text()
    assert (swept / "records" / "figure-2.png").read_bytes().startswith(b"\x89PNG")
    assert not list(swept.rglob("*.tmp*"))
    before = {file: file.stat().st_mtime_ns for file in swept.rglob("finished.json")}
    main([*PUDDLE, "--out", str(swept)])  # trains nothing
    assert "finished in" not in capsys.readouterr().out
    assert {file: file.stat().st_mtime_ns for file in swept.rglob("finished.json")} == before


def test_a_run_with_a_record_is_not_trained_again(swept: Path, tmp_path: Path) -> None:
    main([*PUDDLE, "--out", str(tmp_path), "--merge", str(swept / "records")])
    assert not list(tmp_path.rglob("config.json"))
    merged, expected = (read_records(path / "records") for path in (tmp_path, swept))
    assert merged.map(str).equals(expected.map(str))
    main(["draw", "figure-2", str(tmp_path / "records")])


def test_records_of_finished_runs_can_be_added_later(swept: Path, tmp_path: Path) -> None:
    main([*PUDDLE, "--out", str(swept), "--records", str(tmp_path), "--no-run"])
    assert (tmp_path / "puddle-world.csv").read_bytes() == (swept / "records" / "puddle-world.csv").read_bytes()


def test_records_of_another_configuration_stop_the_command(
    swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*PUDDLE, "--out", str(tmp_path), "--merge", str(swept / "records")])
    told = refused(capsys, *PUDDLE, "--out", str(tmp_path), "--steps", "1600")
    assert "must have the configuration of its records in" in told
    assert "steps (960, not 1600)" in told


def test_a_search_goes_on_until_the_papers_choice_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With runs that end at once: 30 trials of one seed, two more of the best six, then all methods at the choice."""
    trained: list[int] = []

    def train(cells: list[Cell], jobs: int, view: object, finished: Callable[[list[Cell]], None]) -> None:
        trained.append(len(cells))
        for cell in cells:
            value = -40.0 - 1e4 * abs(cell.config.learning_rate - 7e-4)
            write_run(cell.folder, cell.config, {cell.config.steps: value})
            run = {"world": cell.setting.world, "setting": cell.setting.name, "seed": cell.seed}
            curve = {"steps": [cell.config.steps], "returns": [value]}
            mark = {**run, "processor": "p", "code": "c", "core_seconds": 1.0, "largest_discount": None, **curve}
            cell.mark.write_text(json.dumps(mark))
        finished(cells)

    monkeypatch.setattr("dgvf_agents.experiments.reproduce.run_sweep", train)
    main(["reproduce", "figure-2", "--scale", "tiny", "--worlds", "puddle-world", "--out", str(tmp_path)])
    # one of the 30 trials has the preset's own settings, with other seeds
    assert trained == [8 + 30, 6 * 2, 4 * 2]
    compared = EXPERIMENTS["figure-2"].compared("puddle-world", read_records(tmp_path / "records"))
    chosen = {one.label: one for one in compared}
    assert dict(chosen["random, paper's choice"].changes)["learning_rate"] == 7e-4


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
    whole, again = (read_records(path / "records")[["setting", "seed", "returns"]] for path in (swept, tmp_path))
    assert again.map(str).equals(whole.map(str))
    for old, new in zip(own_cells(swept), own_cells(tmp_path), strict=True):
        assert learned(new.folder) == learned(old.folder)


def test_an_unfinished_run_continues_from_its_checkpoint(swept: Path, tmp_path: Path) -> None:
    whole = own_cells(swept)[0]
    again = own_cells(tmp_path)[0]
    shutil.copytree(whole.folder, again.folder, ignore=shutil.ignore_patterns("0000000960.zip", "finished.json"))
    assert not again.is_finished
    early = again.folder / "checkpoints" / "0000000480.zip"
    before = early.stat().st_mtime_ns
    run_cells([again])
    assert again.is_finished
    assert learned(again.folder) == learned(whole.folder)
    assert early.stat().st_mtime_ns == before


def test_an_interrupted_sweep_stops_its_runs(tmp_path: Path) -> None:
    sweep = start_sweep([*PUDDLE, "--steps", "100000000", "--out", str(tmp_path)])
    wait_for(lambda: sum(len(file.read_text().splitlines()) > 1 for file in tmp_path.rglob("progress.csv")) == 2)
    sweep.send_signal(signal.SIGINT)
    output, _ = sweep.communicate(timeout=30)
    assert sweep.returncode == 130
    assert "stopped; the same command goes on from here" in output
    assert len({file.parent for file in tmp_path.rglob("checkpoints/*.zip")}) == 2
    locks = list(tmp_path.rglob("*.lock"))
    assert len(locks) >= 2
    for lock in locks:
        with FileLock(lock, timeout=0):  # no process holds it
            pass


def test_a_killed_run_takes_no_other_with_it(tmp_path: Path) -> None:
    cells, view = own_cells(tmp_path, seeds=(200,)), Mock()

    def kill_the_first(cell: Cell) -> None:
        if cell is cells[0]:
            (process,) = multiprocessing.active_children()
            process.kill()

    view.started.side_effect = kill_the_first
    run_sweep(cells, 2, view)
    ends = dict(call.args for call in view.ended.call_args_list)
    assert ends == {cells[0]: "killed by SIGKILL", **dict.fromkeys(cells[1:])}
    assert [cell.is_finished for cell in cells] == [False, *[True] * (len(cells) - 1)]


def test_a_run_that_fails_is_reported_and_the_others_have_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = own_cells(tmp_path, seeds=(200,))
    cells[0].folder.parent.mkdir(parents=True)
    cells[0].folder.write_text("a file where a folder should be")
    with pytest.raises(SystemExit) as stop:
        main([*PUDDLE, "--seeds", "1", "--out", str(tmp_path)])
    assert stop.value.code == 1
    output = capsys.readouterr().out
    assert f"{cells[0].name} FAILED: " in output
    assert "Error" in output
    assert "1 of 4 runs have no record, the first is puddle-world/discovered seed 200" in output
    assert sorted(read_records(tmp_path / "records")["setting"]) == ["a2c", "random", "reward-prediction"]


@pytest.mark.slow
def test_games_are_run_and_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["--scale", "tiny", "--seeds", "1", "--steps", "240", "--jobs", "1", "--settings", "objective"]
    main(["reproduce", "atari", "--game", "breakout", *tiny, "--out", str(tmp_path)])
    assert set(read_records(tmp_path / "records")["world"]) == {"atari/Breakout"}
    assert len(read_records(tmp_path / "records")) == 2
    assert (tmp_path / "records" / "atari.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    main(["reproduce", "atari", "--game", "Breakout", *tiny, "--out", str(tmp_path)])
    assert "finished in" not in capsys.readouterr().out


def test_questions_are_discovered_before_an_agent_takes_them(tmp_path: Path) -> None:
    transfer = ["question-transfer", "--scale", "tiny", "--worlds", "puddle-world", "--seeds", "1", "--jobs", "2"]
    main(["reproduce", *transfer, "--settings", "frozen", "--out", str(tmp_path)])
    names = ["discovered", "random,questions=discovered"]
    runs = [RunFolder(tmp_path / "puddle-world" / name / "seed-200") for name in names]
    discovered, frozen = (load_model(run.read_config(), run.latest_checkpoint()).learner.eta for run in runs)
    assert all(frozen[name].equal(value) for name, value in discovered.items())
    assert list(read_records(tmp_path / "records")["setting"]) == names


# --- dgvf sweep -------------------------------------------------------------------------------------------------------

TINY = ["sweep", "puddle-world", "a2c", "--scale", "tiny", "--seeds", "1", "--jobs", "2"]


def test_all_combinations_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vary = ["--vary", "learning-rate=1e-4,1e-3", "final-ent-coef=0.01,None"]
    main([*TINY, "--out", str(tmp_path), *vary])
    folder = tmp_path / "results" / "puddle-world-a2c-learning_rate-final_ent_coef"
    runs = pd.read_csv(folder / "runs.csv")
    expected = {
        f"a2c learning_rate={rate} final_ent_coef={weight}" for rate in (0.0001, 0.001) for weight in (0.01, None)
    }
    assert set(runs[["label", "seed"]].itertuples(index=False)) == {(e, 0) for e in expected}
    assert (folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
    means = runs.groupby("label")["final"].mean()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("best: ")]
    assert means[said[0].removeprefix("best: ")] >= means.max() - 0.02 * abs(means.max())
    main([*TINY, "--out", str(tmp_path), *vary])
    assert "finished in" not in capsys.readouterr().out


def test_combinations_that_fail_leave_the_others_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*TINY, "--out", str(tmp_path / "names"), "--vary", "learning-rate=1e-3"])
    (names,) = {path.parent.relative_to(tmp_path / "names") for path in (tmp_path / "names").rglob("seed-0")}
    blocked = tmp_path / names
    blocked.parent.mkdir(parents=True, exist_ok=True)
    blocked.write_text("a file where a folder should be")
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main([*TINY, "--out", str(tmp_path), "--vary", "learning-rate=1e-4,1e-3"])
    assert stop.value.code == 1
    runs = pd.read_csv(tmp_path / "results" / "puddle-world-a2c-learning_rate" / "runs.csv")
    assert list(runs["label"]) == ["a2c learning_rate=0.0001"]
    output = " ".join(capsys.readouterr().out.split())
    assert "best of the settings whose seeds are all finished: a2c learning_rate=0.0001" in output
    assert "1 of 2 runs have no record" in output


def test_a_sweep_runs_on_the_given_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[Cell] = []
    monkeypatch.setattr("dgvf_agents.experiments.reproduce.run_sweep", lambda cells, *_: ran.extend(cells))
    with pytest.raises(SystemExit):  # nothing has run
        main([*TINY, "--out", str(tmp_path), "--device", "auto"])
    assert {cell.config.device for cell in ran} == {"auto"}


@pytest.mark.parametrize(
    "given",
    [
        ("speed=1",),
        ("seed=1,2",),
        ("gamma=",),
        ("gamma=0.9,,0.99",),
        ("gamma=0.9,0.9",),
        ("gamma=0.9", "gamma=0.99"),
    ],
)
def test_what_cannot_be_varied_is_named(given: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"vary must .*got "):
        Grid(world="puddle-world", method="a2c", vary=given)
    for name, value in (("device", "gpu"), ("seeds", 0), ("jobs", 0), ("steps", 0)):
        with pytest.raises(ValueError, match=f"{name} must be .*got {value!r}"):
            Grid(world="puddle-world", method="a2c", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["n-steps=abc", "n-steps=0", "final-learning-rate=-1e-5", "env-kwargs=3"])
@pytest.mark.parametrize("scale", ["full", "tiny"])
def test_values_of_the_wrong_kind_are_named(given: str, scale: Any, tmp_path: Path) -> None:
    grid = Grid(world="puddle-world", method="a2c", vary=(given,), scale=scale)
    with pytest.raises(ValueError, match=f"{given.split('=')[0].replace('-', '_')} must be"):
        Cell.of(grid.experiment.settings("puddle-world")[0], 0, SCALES[scale], tmp_path)


def test_as_many_processes_as_cores_or_one_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    given = [(jobs, device) for jobs in (None, 3) for device in ("cpu", "cuda")]
    grids = [Grid(world="puddle-world", method="a2c", jobs=jobs, device=device) for jobs, device in given]
    experiments = [Reproduction(experiment="figure-2", jobs=jobs, device=device) for jobs, device in given]
    assert [each.processes for each in (*grids, *experiments)] == [5, 1, 3, 3] * 2
    assert Reproduction(experiment="atari", game=("Pong",)).processes == 5


def test_a_terminal_shows_progress_return_and_time_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000.0]
    monkeypatch.setattr("dgvf_agents.experiments.runs.time.monotonic", lambda: clock[0])
    settings = EXPERIMENTS["figure-2"].settings("collect-objects")[:2]
    cells = [Cell.of(one, 200, SCALES["full"], tmp_path) for one in settings]
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)  # a usual one
    with SweepView(console) as view:
        view.begin(cells, cells)
        view.started(cells[0])
        for seconds, steps in ((40.0, 300_000), (20.0, 400_000), (10.0, 450_000)):  # the first 40 s compile, too
            clock[0] += seconds
            config = dataclasses.replace(cells[0].config, steps=steps)
            write_run(cells[0].folder, config, {steps: 1.25}, checkpoint=False)
            screen.truncate(0)
            view.refresh()
        first, second = [" ".join(line.split()) for line in screen.getvalue().split("\n") if "return" in line][-2:]
        assert "all cells" in first
        assert " 0% return" in first
        assert second.endswith("15% return 1.25 0:08:30")  # 2.55M steps at 5,000/s
        view.ended(cells[0], "killed by SIGKILL")
        assert f"[1/2] {cells[0].name} FAILED: killed by SIGKILL" in screen.getvalue()
