"""A plugin of pytest: tests that import Stable-Baselines3's A2C and PPO get `DGVFA2C` and `DGVFPPO`.

    PYTHONPATH=CLONE/tests python -m pytest -p in_place

In a checkout of Stable-Baselines3. `DGVFPPO` has no auxiliary task, `DGVFA2C` has discovered questions. The summary
counts the tests that construct one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import stable_baselines3
import stable_baselines3.a2c.a2c
import stable_baselines3.ppo.ppo

from dgvf_agents import DGVFA2C, DGVFPPO

running: list[str] = []
users: defaultdict[str, set[str]] = defaultdict(set)
failed: set[str] = set()


class InPlaceOfA2C(DGVFA2C):
    def __init__(self, *args: Any, auxiliary_task: str = "discovered", **kwargs: Any) -> None:
        users["A2C"].update(running)
        super().__init__(*args, auxiliary_task=auxiliary_task, **kwargs)


class InPlaceOfPPO(DGVFPPO):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        users["PPO"].update(running)
        super().__init__(*args, **kwargs)


for module in (stable_baselines3, stable_baselines3.a2c, stable_baselines3.a2c.a2c):
    module.A2C = InPlaceOfA2C  # type: ignore[attr-defined]
for module in (stable_baselines3, stable_baselines3.ppo, stable_baselines3.ppo.ppo):
    module.PPO = InPlaceOfPPO  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    running[:] = [item.nodeid]
    return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failed.add(report.nodeid)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for name, tests in users.items():
        counts = Counter("failed" if test in failed else "passed" for test in tests)
        terminalreporter.write_line(f"{len(tests)} tests construct {name}: {dict(counts)}")
