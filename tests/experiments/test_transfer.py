"""The experiment on frozen questions: which runs take whose, and the experiment through its real main."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from torch import Tensor

from dgvf_agents.cli import main
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.runs import CellState, cells_of, state_of
from dgvf_agents.experiments.settings import FRESH_SEED, SCALES, setting
from dgvf_agents.experiments.tables import Results, read_provenance
from dgvf_agents.experiments.transfer import OTHER_WORLDS, PRINCIPAL_QUESTIONS, question_sources
from dgvf_agents.train.algorithms import load_model
from dgvf_agents.train.config import WORLDS
from dgvf_agents.train.folder import RunFolder
from tests.kill_harness import differences

TRANSFER = EXPERIMENTS["question-transfer"]
LABELS = ["discovered", "random", "frozen", *(f"principal-{k}" for k in PRINCIPAL_QUESTIONS)]
COMMAND = [
    "reproduce",
    "question-transfer",
    "--scale",
    "tiny",
    "--worlds",
    "puddle-world",
    "--seeds",
    "1",
    "--jobs",
    "2",
]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("swept")
    main([*COMMAND, "--out", str(out)])
    return out


@pytest.mark.parametrize("world", WORLDS)
def test_agents_take_the_questions_of_the_run_with_their_seed(world: str, tmp_path: Path) -> None:
    cells = cells_of(TRANSFER.settings(world), SCALES["full"], 3, tmp_path)
    assert [cell.setting.label for cell in cells if cell.seed == 2] == [
        *LABELS,
        *(["other-world"] if world in OTHER_WORLDS else []),
    ]
    assert len({cell.folder for cell in cells}) == len(cells)
    sources = {cell.folder: cell for cell in cells_of(question_sources(world), SCALES["full"], 3, tmp_path)}
    taken = [cell for cell in cells if cell.config.questions_from is not None]
    assert len(taken) == len(cells) - 2 * 3
    for cell in taken:
        source = sources[(cell.folder / (cell.config.questions_from or "")).resolve()]
        assert source.seed == cell.seed
        assert source.config.task == "discovered"
        assert source.config.seed == cell.seed != cell.config.seed == cell.seed + FRESH_SEED
        other = cell.setting.label == "other-world"
        assert (source.config.env != cell.config.env) == other


def test_settings_without_a_source_keep_their_folders(tmp_path: Path) -> None:
    assert setting("puddle-world", "random").folder_name == "puddle-world/random"
    assert TRANSFER.settings("puddle-world")[3].folder_name == (
        "puddle-world/random,principal_questions=1,questions=discovered"
    )


def frozen_eta(out: Path) -> list[dict[str, Tensor]]:
    """η of the run that discovered questions, and of the fresh agent that answers them."""
    runs = (RunFolder(out / "puddle-world" / name / "seed-0") for name in ("discovered", "random,questions=discovered"))
    return [load_model(run.read_config(), run.latest_checkpoint()).learner.eta for run in runs]


def test_questions_are_discovered_before_an_agent_takes_them(tmp_path: Path) -> None:
    main([*COMMAND, "--settings", "frozen", "--out", str(tmp_path)])
    discovered, frozen = frozen_eta(tmp_path)
    assert all(frozen[name].equal(value) for name, value in discovered.items())
    assert list(Results.read(tmp_path / "results" / "question-transfer").cells["setting"]) == ["frozen"]


@pytest.mark.slow
def test_the_experiment_runs_from_the_first_stage_to_the_picture(swept: Path) -> None:
    folder = swept / "results" / "question-transfer"
    results = Results.read(folder)
    assert list(results.cells["setting"]) == [*LABELS, "other-world"]
    assert (folder / "question-transfer.png").is_file()
    assert str(swept) not in (folder / "provenance.json").read_text()
    assert read_provenance(folder)["missing"] == []
    discovered, frozen = frozen_eta(swept)
    assert all(frozen[name].equal(value) for name, value in discovered.items())


@pytest.mark.slow
def test_an_unfinished_run_continues_from_its_checkpoint(swept: Path, tmp_path: Path) -> None:
    out = tmp_path / "moved"
    shutil.copytree(swept, out)
    (cell,) = (
        cell
        for cell in cells_of(TRANSFER.settings("puddle-world"), SCALES["tiny"], 1, out)
        if cell.setting.label == "principal-4"
    )
    whole = tmp_path / "whole"
    cell.folder.rename(whole)
    shutil.copytree(whole, cell.folder, ignore=shutil.ignore_patterns("0000000960.zip", "finished.json"))
    assert state_of(cell.folder, cell.config) is CellState.UNFINISHED
    main([*COMMAND, "--out", str(out)])
    assert state_of(cell.folder, cell.config) is CellState.FINISHED
    assert differences(whole, cell.folder) == []
