"""Cells that one process trains at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

from dgvf_agents.experiments.groups import MAX_MEMBERS, groups_of
from dgvf_agents.experiments.runs import Cell, CellState, cells_of, lock_file, log_file, read_mark, run_cells, state_of
from dgvf_agents.experiments.settings import SCALES, Setting, setting
from dgvf_agents.experiments.transfer import PRINCIPAL_QUESTIONS, question_transfer
from tests.run_folders import write_run

FULL, TINY = SCALES["full"], SCALES["tiny"]


def cells(out: Path, settings: list[Setting], seeds: int, scale: Any = FULL) -> list[Cell]:
    return cells_of(settings, scale, seeds, out)


def sizes(group: list[tuple[Cell, ...]]) -> list[int]:
    return [len(members) for members in group]


@pytest.mark.parametrize(
    ("seeds", "jobs", "expected"),
    [
        (1, 1, [1]),
        (2, 2, [1, 1]),
        (10, 2, [5, 5]),
        (10, 1, [10]),
        (11, 1, [6, 5]),
        (30, 2, [8, 8, 8, 6]),
        (5, 2, [3, 2]),
    ],
)
def test_small_networks_in_our_worlds_train_at_once(tmp_path: Path, seeds: int, jobs: int, expected: list[int]) -> None:
    own = cells(tmp_path, [setting("puddle-world", "discovered")], seeds)
    groups = groups_of(own, jobs)
    assert sizes(groups) == expected
    assert max(sizes(groups)) <= MAX_MEMBERS
    assert [cell for group in groups for cell in group] == own


def test_members_differ_in_continuous_settings_only(tmp_path: Path) -> None:
    alike = [
        setting("puddle-world", "discovered"),
        setting("puddle-world", "discovered", learning_rate=1e-3, gamma=0.9, final_learning_rate=None),
        setting("puddle-world", "discovered", ent_coef=0.1, final_ent_coef=0.1, auxiliary_coefficient=0.1),
    ]
    assert sizes(groups_of(cells(tmp_path, alike, 1), 1)) == [3]
    for change in ({"questions": 8}, {"unroll_length": 5}, {"objective": "end"}, {"max_grad_norm": 0.5}):
        different = [setting("puddle-world", "discovered"), setting("puddle-world", "discovered", **change)]
        assert sizes(groups_of(cells(tmp_path, different, 1), 1)) == [1, 1]
    methods = [setting("puddle-world", "discovered"), setting("puddle-world", "random")]
    assert sizes(groups_of(cells(tmp_path, methods, 2), 1)) == [2, 2]
    clipped = [setting("puddle-world", "discovered", max_grad_norm=norm) for norm in (0.5, 1.0)]
    assert sizes(groups_of(cells(tmp_path, clipped, 1), 1)) == [2]


def test_members_may_take_questions_of_different_runs(tmp_path: Path) -> None:
    groups = groups_of(cells(tmp_path, question_transfer("puddle-world"), 2), 1)
    assert [[(cell.setting.label, cell.seed) for cell in group] for group in groups] == [
        [("discovered", 0), ("discovered", 1)],
        [(label, seed) for seed in (0, 1) for label in ("random", "frozen", "other-world")],
        *([(f"principal-{k}", seed) for seed in (0, 1)] for k in PRINCIPAL_QUESTIONS),
    ]


@pytest.mark.parametrize(
    "alone",
    [
        pytest.param(setting("collect-objects-small", "a2c"), id="convolutions"),
        pytest.param(setting("CartPole-v1", "discovered"), id="a world that is not simulated"),
        pytest.param(setting("CartPole-v1", "sb3-a2c"), id="A2C of Stable-Baselines3"),
    ],
)
def test_others_train_alone(tmp_path: Path, alone: Setting) -> None:
    assert sizes(groups_of(cells(tmp_path, [alone], 3), 1)) == [1, 1, 1]


@pytest.mark.parametrize(("seeds", "jobs", "expected"), [(10, 1, [10]), (40, 1, [20, 20]), (3, 2, [3])])
def test_all_networks_train_at_once_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: int, jobs: int, expected: list[int]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    convolutions = [setting("collect-objects", "discovered")]
    assert sizes(groups_of(cells_of(convolutions, FULL, seeds, tmp_path, device="cuda"), jobs)) == expected
    assert sizes(groups_of(cells_of(convolutions, FULL, seeds, tmp_path), jobs)) == [1] * seeds


def test_eager_runs_train_alone(tmp_path: Path) -> None:
    assert sizes(groups_of(cells(tmp_path, [setting("puddle-world", "discovered")], 2, TINY), 1)) == [1, 1]


def run(group: list[Cell], **options: Any) -> None:
    run_cells([cell.config for cell in group], [cell.folder for cell in group], "a command", **options)


def test_cells_trained_at_once_are_marked_one_by_one(tmp_path: Path) -> None:
    group = cells(tmp_path, [setting("puddle-world", "discovered")], 2, TINY)
    diverging = dataclasses.replace(group[1].config, learning_rate=1e30, final_learning_rate=1e30)
    group[1] = dataclasses.replace(group[1], config=diverging)
    run(group)
    assert group[0].is_finished
    mark = read_mark(group[0].folder)
    assert (mark.members, mark.command) == (2, "a command")
    assert mark.wall_seconds > 0
    assert state_of(group[1].folder, group[1].config) is CellState.UNFINISHED
    assert log_file(group[1].folder).read_text().startswith("NotFiniteError: ")


def test_a_cell_in_use_is_not_trained_in_a_population(tmp_path: Path) -> None:
    group = cells(tmp_path, [setting("puddle-world", "discovered")], 2, TINY)
    group[0].folder.parent.mkdir(parents=True)
    with FileLock(lock_file(group[0].folder)):
        run(group, lock_seconds=0)
    assert not group[0].folder.exists()
    assert "could not be acquired" in log_file(group[0].folder).read_text()
    assert group[1].is_finished


def test_a_cell_that_cannot_begin_lets_the_others_train(tmp_path: Path) -> None:
    group = cells(tmp_path, [setting("puddle-world", "discovered")], 3, TINY)
    group[0] = dataclasses.replace(group[0], config=dataclasses.replace(group[0].config, env_kwargs={"speed": 1}))
    write_run(group[1].folder, dataclasses.replace(group[1].config, gamma=0.5))
    run(group)
    assert "'speed'" in log_file(group[0].folder).read_text()
    assert "another gamma (0.5, not 0.99)" in log_file(group[1].folder).read_text()
    assert group[2].is_finished
