"""The experiment on frozen questions: which runs take whose, and the experiment through its real main."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from torch import Tensor

from dgvf_agents.cli import main
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.records import read_records
from dgvf_agents.experiments.runs import Cell
from dgvf_agents.experiments.settings import SCALES
from dgvf_agents.train.checkpoint import load_model
from dgvf_agents.train.folder import RunFolder
from tests.kill_harness import differences

TRANSFER = EXPERIMENTS["question-transfer"]
TINY = ["--scale", "tiny", "--worlds", "puddle-world", "--seeds", "1", "--jobs", "2"]
COMMAND = ["reproduce", "question-transfer", *TINY]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("swept")
    main([*COMMAND, "--out", str(out)])
    return out


def frozen_eta(out: Path) -> list[dict[str, Tensor]]:
    """η of the run that discovered questions, and of the fresh agent that answers them."""
    names = ("discovered", "random,questions=discovered")
    runs = (RunFolder(out / "puddle-world" / name / "seed-200") for name in names)
    return [load_model(run.read_config(), run.latest_checkpoint()).learner.eta for run in runs]


def test_questions_are_discovered_before_an_agent_takes_them(tmp_path: Path) -> None:
    main([*COMMAND, "--settings", "frozen", "--out", str(tmp_path)])
    discovered, frozen = frozen_eta(tmp_path)
    assert all(frozen[name].equal(value) for name, value in discovered.items())
    assert list(read_records(tmp_path / "records")["setting"]) == ["discovered", "random,questions=discovered"]


@pytest.mark.slow
def test_the_experiment_runs_from_the_first_stage_to_the_picture(swept: Path) -> None:
    names = {one.name for one in TRANSFER.settings("puddle-world")}
    assert set(read_records(swept / "records")["setting"]) == names | {"discovered,env=PuddleWorldSutton-v0"}
    assert (swept / "records" / "question-transfer.png").is_file()
    discovered, frozen = frozen_eta(swept)
    assert all(frozen[name].equal(value) for name, value in discovered.items())


@pytest.mark.slow
def test_an_unfinished_run_continues_from_its_checkpoint(swept: Path, tmp_path: Path) -> None:
    out = tmp_path / "moved"
    shutil.copytree(swept, out)
    (setting,) = (one for one in TRANSFER.settings("puddle-world") if one.label == "principal-4")
    cell = Cell.of(setting, 200, SCALES["tiny"], out)
    shutil.rmtree(out / "records")
    whole = tmp_path / "whole"
    cell.folder.rename(whole)
    shutil.copytree(whole, cell.folder, ignore=shutil.ignore_patterns("0000000960.zip", "finished.json"))
    assert cell.found_config() is not None
    assert not cell.is_finished
    main([*COMMAND, "--out", str(out)])
    assert cell.is_finished
    assert differences(whole, cell.folder) == []
