"""The experiment on frozen questions: which runs take whose, and the experiment through its real main."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Tensor

from dgvf_agents.cli import main
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.records import read_records
from dgvf_agents.train.checkpoint import load_model
from dgvf_agents.train.folder import RunFolder

TRANSFER = EXPERIMENTS["question-transfer"]
TINY = ["--scale", "tiny", "--worlds", "puddle-world", "--seeds", "1", "--jobs", "2"]
COMMAND = ["reproduce", "question-transfer", *TINY]


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
def test_the_experiment_runs_from_the_first_stage_to_the_picture(tmp_path: Path) -> None:
    main([*COMMAND, "--out", str(tmp_path)])
    names = {one.name for one in TRANSFER.settings("puddle-world")}
    assert set(read_records(tmp_path / "records")["setting"]) == names | {"discovered,env=PuddleWorldSutton-v0"}
    assert (tmp_path / "records" / "question-transfer.png").is_file()
    discovered, frozen = frozen_eta(tmp_path)
    assert all(frozen[name].equal(value) for name, value in discovered.items())
