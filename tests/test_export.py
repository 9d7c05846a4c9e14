"""Exported folders: what a model hub shows, and a model without pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
import torch

from dgvf_agents import DGVFA2C, DGVFPPO
from dgvf_agents.cli import main
from dgvf_agents.export import export
from dgvf_agents.storage.files import DamagedFileError
from dgvf_agents.train.checkpoint import load_model
from dgvf_agents.train.folder import RunFolder
from tests.helpers import refused

yaml = pytest.importorskip("yaml")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and the folder that it is exported to."""
    run, folder = (tmp_path_factory.mktemp("export") / name for name in ("run", "agent"))
    given = ["--steps", "320", "--n-steps", "32", "--n-envs", "2", "--batch-size", "32", "--n-epochs", "2"]
    given += ["--questions", "4", "--out", str(run)]
    main(["train", "own", "CartPole-v1", "discovered", "--algorithm", "ppo", *given])
    main(["export", str(run), str(folder), "--episodes", "3"])
    return run, folder


def test_a_hub_shows_its_card_curve_and_video(exported: tuple[Path, Path]) -> None:
    _, folder = exported
    _, header, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    (result,) = yaml.safe_load(header)["model-index"][0]["results"]
    assert result["dataset"]["type"] == "CartPole-v1"
    mean, deviation = map(float, result["metrics"][0]["value"].split(" +/- "))
    assert 8.0 <= mean <= 500.0
    assert deviation >= 0.0
    assert "after 320 environment steps" in text
    written = {path.name for path in folder.iterdir()}
    assert written - {"replay.mp4"} == {"README.md", "config.json", "model.safetensors", "learning-curve.png"}
    assert all(name in text for name in written & {"replay.mp4", "learning-curve.png"})


def test_the_lines_on_the_card_load_the_agent(exported: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run, folder = exported
    monkeypatch.chdir(folder.parent)
    code = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    found: dict[str, Any] = {}
    exec(code, found)
    assert found["model"].action_space.contains(found["action"])
    seen = np.ones((3, 4), np.float32)
    source = RunFolder.existing(run)
    trained = load_model(source.read_config(), source.latest_checkpoint())
    weights = (one.policy.state_dict() for one in (found["model"], trained))
    torch.testing.assert_close(*weights, rtol=0, atol=0)
    assert np.array_equal(*(one.predict(seen, deterministic=True)[0] for one in (found["model"], trained)))


class Unseen(gym.Env):
    """Does not render."""

    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, True, False, {}


if "Unseen-v0" not in gym.registry:  # doctests import this module again
    gym.register("Unseen-v0", Unseen)


def test_an_agent_of_an_environment_that_does_not_render_has_no_video(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, folder = tmp_path / "run", tmp_path / "new" / "agent"
    given = ["--steps", "160", "--n-envs", "2", "--compile", "False", "--questions", "4", "--out", str(run)]
    main(["train", "own", "tests.test_export:Unseen-v0", "discovered", *given])
    with monkeypatch.context() as patch:
        patch.setattr("dgvf_agents.export.plot_learning_curve", Mock(side_effect=OSError("No space left on device")))
        with pytest.raises(OSError, match="No space left"):
            export(run, folder, 2)
    assert not list(folder.parent.iterdir())
    folder.mkdir()
    assert export(run, folder, 2).is_file()
    assert {path.name for path in folder.iterdir()} == {
        *("README.md", "config.json", "model.safetensors", "learning-curve.png")
    }
    assert DGVFA2C.load(folder).n_envs == 2


def test_what_does_not_fit_is_refused(
    exported: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, folder = exported
    assert "folder must be new or empty" in refused(capsys, "export", str(run), str(folder))
    assert "an exported agent is no run" in refused(capsys, "evaluate", str(folder))
    tensors = bytearray((folder / "model.safetensors").read_bytes())
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    with pytest.raises(DamagedFileError, match=r"got no config\.json"):
        DGVFPPO.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(document))
    with pytest.raises(DamagedFileError, match=r"got no model\.safetensors"):
        DGVFPPO.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(tensors)
    other = {**document, "attributes": {**document["attributes"], "gamma": 0.5}}
    (tmp_path / "config.json").write_text(json.dumps(other))
    with pytest.raises(DamagedFileError, match="checksum"):
        DGVFPPO.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(document))
    tensors[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(tensors)
    with pytest.raises(DamagedFileError, match="checksum"):
        DGVFPPO.load(tmp_path)
    with pytest.raises(ValueError, match="load it with the class that saved it"):
        DGVFA2C.load(folder)


def test_an_agent_with_questions_has_a_picture_of_one(tmp_path: Path) -> None:
    folder = tmp_path / "agent"
    main(["export", "demo", str(folder), "--episodes", "3"])
    assert "![A question](question.png)" in (folder / "README.md").read_text(encoding="utf-8")
    assert (folder / "question.png").read_bytes().startswith(b"\x89PNG")
    source = RunFolder.existing(Path("demo"))
    trained, loaded = load_model(source.read_config(), source.latest_checkpoint()), DGVFA2C.load(folder)
    torch.testing.assert_close(loaded.policy.state_dict(), trained.policy.state_dict(), rtol=0, atol=0)
