"""Which compiled functions models ask for, without a compiler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dgvf_agents.execution import compiling
from dgvf_agents.execution.task import Task, pickled


def recorded_keys(monkeypatch: pytest.MonkeyPatch, updates: int) -> list[str]:
    """The keys that models with `compile="auto"` ask for from now on, in calls of `learn` of so many updates."""
    asked: list[str] = []

    def finished(task: Task) -> Any:
        asked.append(pickled(task).key)
        return SimpleNamespace(finished=True)

    monkeypatch.setattr(compiling, "job", finished)
    monkeypatch.setattr(compiling, "LONG_ENOUGH", updates)
    return asked
