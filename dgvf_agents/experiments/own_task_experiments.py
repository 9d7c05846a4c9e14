"""The experiments on external tasks."""

from __future__ import annotations

from functools import partial

from dgvf_agents.experiments.experiment import Experiment
from dgvf_agents.experiments.figures import draw_curves
from dgvf_agents.experiments.outside_tasks import INSTALLED_TASKS, OWN_TASK_METHODS
from dgvf_agents.experiments.settings import setting

OWN_TASK_EXPERIMENTS = (
    # Beyond the paper: does auxiliary learning with default settings cost a new user anything, and does it help?
    Experiment(
        "own-tasks",
        "external tasks, without tuning: `DGVFA2C` with its defaults beside Stable-Baselines3's A2C with its own",
        lambda task: [setting(task, method) for method in OWN_TASK_METHODS],
        partial(draw_curves, title="Default settings on external tasks"),
        worlds=INSTALLED_TASKS,
        seeds=5,
        reference="discovered",
    ),
)
