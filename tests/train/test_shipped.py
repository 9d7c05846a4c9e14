"""The trained runs that come with the package, and `demo` in place of a run folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dgvf_agents.cli import main
from dgvf_agents.options import World
from dgvf_agents.storage.model_file import ModelFile
from dgvf_agents.train.checkpoint import NothingToResumeError
from dgvf_agents.train.config import preset
from dgvf_agents.train.environments import REFERENCE_RETURNS
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import SHIPPED, RunFolder
from dgvf_agents.train.train import train
from tests.atlas.runs import tiny_run
from tests.helpers import refused
from tests.run_folders import write_run

LARGEST = 1 << 22
"""Bytes of a file in the repository, at most."""
ROOMS = "demo/collect-objects-small"
FOLDERS = tuple(SHIPPED.values())
WORLD_OF: dict[str, World] = {"demo": "puddle-world", ROOMS: "collect-objects-small"}


def stamps() -> dict[Path, int]:
    """When each file of the shipped runs was written."""
    return {file: file.stat().st_mtime_ns for path in FOLDERS for file in (path, *path.rglob("*"))}


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty one; shipped runs are never written to."""
    monkeypatch.chdir(tmp_path)
    before = stamps()
    yield
    assert stamps() == before


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_run_is_small_and_tells_where_it_comes_from(name: str) -> None:
    run = RunFolder.existing(Path(name))
    assert all(file.stat().st_size < LARGEST for file in run.path.rglob("*"))
    assert run.is_finished()
    config = run.read_config()
    usual = preset(WORLD_OF[name], "discovered")
    assert config.fields(apart_from=["seed", "compile"]) == usual.fields(apart_from=["seed", "compile"])
    (origin,) = json.loads(run.origin_file.read_text())
    assert len(origin["code"]) == 40  # a commit, without changes
    for text in (run.config_file.read_text(), run.origin_file.read_text(), json.dumps(checkpoint_of(run).document)):
        assert '"/' not in text  # no path of the machine
    assert run.learning_curve("eval/mean_reward")[0][-1] >= 0.95 * config.steps


def checkpoint_of(run: RunFolder) -> ModelFile:
    return ModelFile.from_bytes(run.latest_checkpoint().read_bytes())


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_run_returns_what_its_record_says(name: str) -> None:
    run = RunFolder.existing(Path(name))
    record, episodes = json.loads((run.path / "evaluation.json").read_text()), 100
    mean, _ = evaluate(Path(name), episodes)
    # the same episodes, unless rounding differs on this processor
    assert mean == pytest.approx(record["mean"], abs=5.0 * record["deviation"] / episodes**0.5)
    reference = REFERENCE_RETURNS[run.read_config().env]
    assert reference.optimal - record["mean"] < 0.01 * (reference.optimal - reference.random)


def test_the_atlas_of_a_shipped_run_goes_to_the_working_directory(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    quick = tiny_run(tmp_path_factory.mktemp("package") / "run", "collect-objects-small", "discovered")
    monkeypatch.setitem(SHIPPED, ROOMS, quick)
    folder = Path("demo-collect-objects-small-atlas")
    main(["atlas", ROOMS])
    assert str(folder / "index.html") in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert json.loads((folder / "atlas.json").read_text())["env"] == "CollectObjectsSmall-v0"
    assert "data:image/png" in (folder / "index.html").read_text()
    assert not (quick / "atlas").exists()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_run_is_not_trained(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = refused(capsys, "train", "--resume", name)
    assert f"got {name}, which comes with the package and holds networks only" in error
    assert f"dgvf train {SHIPPED[name].name} discovered" in error
    assert "To go on" not in error
    with pytest.raises(NothingToResumeError, match="one of your own"):
        train(RunFolder(SHIPPED[name]).read_config(), SHIPPED[name], resume=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_working_directory_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_run(tmp_path / "demo", "collect-objects-small", "random")
    main(["evaluate", "demo", "--episodes", "2"])
    assert "evaluation:" not in capsys.readouterr().out  # PuddleWorld is evaluated in another world than trained in
    main(["atlas", "demo", "--checkpoints", "1", "--kinds", "1"])
    assert (tmp_path / "demo" / "atlas" / "index.html").is_file()
    write_run(tmp_path / ROOMS, preset("puddle-world", "a2c"))
    assert RunFolder.existing(Path(ROOMS)).read_config().env == "PuddleWorld-v0"
