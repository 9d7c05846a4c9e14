"""The state of run folders, which runs train at once, and what is recorded of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from filelock import FileLock
from rich.console import Console

from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.records import COLUMNS
from dgvf_agents.experiments.runs import (
    MAX_MEMBERS,
    REFERENCE,
    Cell,
    SweepView,
    groups_of,
    learning_curve,
    run_cells,
    run_sweep,
)
from dgvf_agents.experiments.settings import SCALES, Setting, setting
from dgvf_agents.storage.files import DamagedFileError
from dgvf_agents.train.folder import RunFolder, code_version
from tests.run_folders import write_run

FULL, TINY = SCALES["full"], SCALES["tiny"]
PUDDLE = setting("puddle-world", "discovered")


def cells(out: Path, settings: list[Setting], seeds: int, scale: Any = FULL, device: str | None = None) -> list[Cell]:
    return [Cell.of(one, seed, scale, out, device) for seed in range(seeds) for one in settings]


def one_cell(out: Path) -> Cell:
    return Cell.of(setting("collect-objects-small", "a2c"), 0, FULL, out)


def sizes(groups: list[tuple[Cell, ...]]) -> list[int]:
    return [len(members) for members in groups]


def test_a_run_is_missing_then_unfinished_then_finished(tmp_path: Path) -> None:
    cell = one_cell(tmp_path)
    assert cell.found_config() is None
    write_run(cell.folder, cell.config, {8_000: 1.0})
    assert cell.found_config() == cell.config
    assert not cell.is_finished
    record = {"world": "collect-objects-small", **dict.fromkeys(COLUMNS, 5)}
    cell.mark.write_text(json.dumps(record))
    assert cell.is_finished
    before = {path: path.stat().st_mtime_ns for path in cell.folder.rglob("*")}
    run_cells([cell])  # trains nothing
    assert {path: path.stat().st_mtime_ns for path in cell.folder.rglob("*")} == before
    assert cell.record() == record
    cell.mark.write_text(json.dumps({"code": "", "processor": "", "versions": {}, "core_seconds": 1.0}))  # no record
    with pytest.raises(DamagedFileError, match=r"finished.json cannot be read: .*'world'"):
        cell.record()


def test_without_evaluations_the_last_five_points_are_the_last_tenth_of_training(tmp_path: Path) -> None:
    cell = one_cell(tmp_path)
    config = dataclasses.replace(cell.config, steps=1_000)
    write_run(cell.folder, config, training={10 * i: float(i) for i in range(1, 101)})
    steps, returns = learning_curve(cell.folder)
    assert steps == list(range(20, 1_001, 20))
    assert returns[-1] == pytest.approx(99.5)
    assert sum(returns[-5:]) / 5 == pytest.approx(sum(range(91, 101)) / 10)
    write_run(tmp_path / "none", config)
    with pytest.raises(ValueError, match=r"a run must have returns, got .*none without any"):
        learning_curve(tmp_path / "none")


@pytest.mark.parametrize("task", ["none", REFERENCE])
def test_links_to_files_elsewhere_are_refused(task: str, tmp_path: Path) -> None:
    cell = one_cell(tmp_path / "out")
    cell = dataclasses.replace(cell, config=dataclasses.replace(cell.config, task=task))
    cell.folder.mkdir(parents=True)
    other = tmp_path / "other"
    other.write_text("mine")
    for link in (cell.folder / "progress.csv", cell.beside("log")):
        link.symlink_to(other)
        with pytest.raises(ValueError, match=f"{link.name} must .*, got a link"):
            cell.log_failure(ValueError("x")) if link.suffix == ".log" else run_cells([cell])
        link.unlink()
    assert other.read_text() == "mine"


def test_a_run_of_another_configuration_is_an_error_that_says_what_differs(tmp_path: Path) -> None:
    cell = one_cell(tmp_path)
    write_run(cell.folder, dataclasses.replace(cell.config, gamma=0.5, log_every=1, checkpoint_every=3))
    with pytest.raises(ValueError, match=r"got another gamma \(0\.5, not 0\.99\);"):
        run_cells([cell])
    RunFolder(cell.folder).config_file.write_text(json.dumps({"no_such_setting": 1}))
    with pytest.raises(ValueError, match=r"config.json cannot be read: .*no_such_setting"):
        cell.found_config()


def test_a_cell_is_trained_by_one_process_at_a_time(tmp_path: Path) -> None:
    group = cells(tmp_path, [PUDDLE], 2, TINY)
    group[0].folder.mkdir(parents=True)
    with FileLock(RunFolder(group[0].folder).lock_file):
        with pytest.raises(ValueError, match="in use by another training process"):
            run_cells(group[:1])
        run_cells(group)
    assert not group[0].is_finished
    assert "in use by another training process" in group[0].beside("log").read_text()
    assert group[1].is_finished


@pytest.mark.parametrize(
    ("seeds", "jobs", "expected"),
    [(1, 1, [1]), (2, 2, [1, 1]), (10, 2, [5, 5]), (11, 1, [6, 5]), (30, 2, [8, 8, 8, 6]), (5, 2, [3, 2])],
)
def test_small_networks_in_our_worlds_train_at_once(tmp_path: Path, seeds: int, jobs: int, expected: list[int]) -> None:
    own = cells(tmp_path, [PUDDLE], seeds)
    groups = groups_of(own, jobs)
    assert sizes(groups) == expected
    assert max(sizes(groups)) <= MAX_MEMBERS
    assert [cell for group in groups for cell in group] == own


def test_members_differ_in_numbers_only(tmp_path: Path) -> None:
    changed = {"gamma": 0.9, "ent_coef": 0.1, "auxiliary_coefficient": 0.1, "learning_rate": 1e-3}
    alike = [PUDDLE, setting("puddle-world", "discovered", **changed)]
    assert sizes(groups_of(cells(tmp_path, alike, 1), 1)) == [2]
    for change in ({"questions": 8}, {"unroll_length": 5}, {"max_grad_norm": 0.5}, {"final_learning_rate": None}):
        different = [PUDDLE, setting("puddle-world", "discovered", **change)]
        assert sizes(groups_of(cells(tmp_path, different, 1), 1)) == [1, 1]
    methods = [PUDDLE, setting("puddle-world", "random")]
    assert sizes(groups_of(cells(tmp_path, methods, 2), 1)) == [2, 2]
    clipped = [setting("puddle-world", "discovered", max_grad_norm=norm) for norm in (0.5, 1.0)]
    assert sizes(groups_of(cells(tmp_path, clipped, 1), 1)) == [2]


def test_members_may_take_questions_of_different_runs(tmp_path: Path) -> None:
    settings = list(EXPERIMENTS["question-transfer"].settings("puddle-world"))
    groups = groups_of(cells(tmp_path, settings, 2), 1)
    assert [[(cell.setting.label, cell.seed) for cell in group] for group in groups] == [
        [("discovered", 0), ("discovered", 1)],
        [(label, seed) for seed in (0, 1) for label in ("random", "frozen", "other-world")],
        *([(f"principal-{k}", seed) for seed in (0, 1)] for k in (1, 2, 4, 16)),
    ]


def test_others_train_alone_but_all_networks_at_once_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [setting("CartPole-v1", method) for method in ("discovered", "sb3-a2c")]
    for alone, scale in (*((task, FULL) for task in tasks), (PUDDLE, TINY)):  # not simulated, not ours, eager
        assert sizes(groups_of(cells(tmp_path, [alone], 3, scale), 1)) == [1, 1, 1]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    convolutions = [setting("collect-objects", "discovered")]
    for seeds, jobs, expected in ((10, 1, [10]), (40, 1, [20, 20]), (3, 2, [3])):
        assert sizes(groups_of(cells(tmp_path, convolutions, seeds, device="cuda"), jobs)) == expected
        assert sizes(groups_of(cells(tmp_path, convolutions, seeds), jobs)) == [1] * seeds


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
def test_a_setting_can_have_environment_variables(tmp_path: Path) -> None:
    usual = setting("collect-objects-small", "a2c")
    traced = setting("collect-objects-small", "a2c", ONEDNN_VERBOSE=1)
    group = cells(tmp_path, [usual, traced], 1, TINY)
    assert [cell.folder.parent.name for cell in group] == ["a2c", "a2c,ONEDNN_VERBOSE=1"]
    assert group[0].config == group[1].config
    run_sweep(group, 1, SweepView(Console(quiet=True)))
    assert ["onednn_verbose" in cell.beside("log").read_text() for cell in group] == [False, True]
    variable = setting("puddle-world", "discovered", ONEDNN_VERBOSE=1)
    assert sizes(groups_of(cells(tmp_path, [PUDDLE, variable], 3), 1)) == [3, 3]


def test_cells_trained_at_once_are_marked_one_by_one(tmp_path: Path) -> None:
    group = cells(tmp_path, [PUDDLE], 2, TINY)
    diverging = dataclasses.replace(group[1].config, learning_rate=1e30, final_learning_rate=1e30)
    group[1] = dataclasses.replace(group[1], config=diverging)
    earlier = group[0].folder.with_name("seed-0.spent")
    earlier.parent.mkdir(parents=True)
    earlier.write_text("1000.0\n")  # of a process that was interrupted
    run_cells(group)
    record = group[0].record()
    assert 500 < record["core_seconds"] < 900
    assert record["code"] == (code_version() or "")
    assert (record["setting"], record["seed"], record["steps"]) == ("discovered", 0, [480, 960])
    assert group[1].found_config() is not None
    assert not group[1].is_finished
    assert group[1].beside("log").read_text().startswith("NotFiniteError: ")
    group[1].log_failure(ValueError("first\n  second"))
    assert group[1].beside("log").read_text().endswith("\nValueError: first second\n")


def test_a_record_has_the_largest_discount_where_discounts_are_learned(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path, [PUDDLE], 1, TINY)
    learning = dataclasses.replace(cell.config, question_discount=None, meta_learning_rate=0.1, log_every=80)
    run_cells([dataclasses.replace(cell, config=learning)])
    largest = pd.read_csv(cell.folder / "progress.csv")["questions/discount_max"]
    assert largest.nunique() > 1
    assert dataclasses.replace(cell, config=learning).record()["largest_discount"] == largest.max()


def test_a_cell_that_cannot_begin_lets_the_others_train(tmp_path: Path) -> None:
    group = cells(tmp_path, [PUDDLE], 3, TINY)
    group[0] = dataclasses.replace(group[0], config=dataclasses.replace(group[0].config, env_kwargs={"speed": 1}))
    write_run(group[1].folder, dataclasses.replace(group[1].config, gamma=0.5))
    run_cells(group)
    assert "'speed'" in group[0].beside("log").read_text()
    assert "another gamma (0.5, not 0.99)" in group[1].beside("log").read_text()
    assert group[2].is_finished
