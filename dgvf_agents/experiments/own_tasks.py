"""Tasks from outside with default settings: does auxiliary learning cost a newcomer anything, and does it help?"""

from __future__ import annotations

from pathlib import Path
from typing import final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.outside_tasks import OWN_TASK_METHODS, OWN_TASKS
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results


@final
class OwnTasks(Figure):
    """Stable-Baselines3's A2C beside `DGVFA2C` with discovered, random and no questions, and reward prediction."""

    name = "own-tasks"
    summary = "tasks that nobody here tuned: `DGVFA2C` with its defaults beside Stable-Baselines3's A2C with its own"
    seeds = 5
    worlds = tuple(name for name, task in OWN_TASKS.items() if task.is_installed)
    reference = "discovered"

    def settings(self, world: str) -> list[Setting]:
        return [setting(world, method) for method in OWN_TASK_METHODS]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Default settings on tasks from outside")
