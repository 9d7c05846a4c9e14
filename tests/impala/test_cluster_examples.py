"""The cluster examples: what they start is understood by the command."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dgvf_agents.cli import main
from dgvf_agents.train import train as train_module
from dgvf_agents.train.config import TrainConfig

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _trained(command: str, monkeypatch: pytest.MonkeyPatch) -> tuple[TrainConfig, Path, bool]:
    calls: list[tuple[TrainConfig, Path, bool]] = []
    monkeypatch.setattr(train_module, "train", lambda config, path, resume: calls.append((config, path, resume)))
    main(command.split()[1:])
    return calls[0]


def test_the_cluster_file_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (EXAMPLES / "cluster.yaml").read_text()
    cluster = yaml.safe_load(text)
    assert all("ray start" in cluster[f"{role}_start_ray_commands"][-1] for role in ("head", "worker"))
    (command,) = re.findall(r"dgvf train .*(?=')", text)
    config, path, resume = _trained(command, monkeypatch)
    assert (config.env, config.algorithm, config.actors, config.address) == ("Breakout", "impala", 200, "auto")
    assert (path, resume) == (Path("runs/breakout"), True)


def test_the_slurm_script_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    path = EXAMPLES / "cluster.sbatch"
    subprocess.run(["bash", "-n", str(path)], check=True)
    (given,) = re.findall(r"dgvf train .*--resume", path.read_text())
    values = {'"$game"': "Pong", '"$address:$port"': "10.0.0.1:6379", '"$actors"': "200", '"$out"': "runs/pong"}
    for name, value in values.items():
        given = given.replace(name, value)
    config, run, resume = _trained(given, monkeypatch)
    assert (config.env, config.actors, config.address) == ("Pong", 200, "10.0.0.1:6379")
    assert (run, resume) == (Path("runs/pong"), True)
