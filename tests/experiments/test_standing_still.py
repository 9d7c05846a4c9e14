"""The script that tells where agents on PuddleWorld stand still."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from dgvf_agents import DGVFA2C


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "docs"))
    return importlib.import_module("standing_still")


def test_a_shipped_agent_does_not_stand_still(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(["demo"])
    assert capsys.readouterr().out == "demo: 0 of 64 episodes last for 500 steps\n"


@pytest.mark.parametrize(("action", "where"), [(1, r"\(1\.00, 0\.\d\d\): right"), (3, r"\(0\.\d\d, 1\.00\): up")])
def test_an_agent_that_pushes_against_a_wall_stands_there(
    action: int, where: str, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DGVFA2C("PaperMlpPolicy", "PuddleWorld-v0", auxiliary_task="none", n_envs=1, device="cpu", compile=False)
    with torch.no_grad():
        for head, bias in ((model.policy.action_net, 4.0 * torch.eye(5)[action]), (model.policy.value_net, -7.0)):
            head.weight.zero_()
            head.bias.copy_(torch.as_tensor(bias))
    monkeypatch.setattr(script, "load_model", lambda *given, **options: model)
    monkeypatch.setattr(script, "STEPS", 80)
    line = script.standing_still(Path("demo"))
    probability = torch.softmax(4.0 * torch.eye(5)[action], 0).max().item()
    expected = (
        rf"64 of 64 episodes last for 80 steps, at {where} with probability {probability:.6f}, value -7.0, .*-50.0"
    )
    assert re.fullmatch(expected, line), line
