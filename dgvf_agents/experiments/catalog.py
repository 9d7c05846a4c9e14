"""All experiments, by name."""

from __future__ import annotations

from dgvf_agents.experiments.atari_experiments import ATARI_EXPERIMENTS
from dgvf_agents.experiments.experiment import Experiment
from dgvf_agents.experiments.gridworld_experiments import GRIDWORLD_EXPERIMENTS
from dgvf_agents.experiments.own_task_experiments import OWN_TASK_EXPERIMENTS

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (*GRIDWORLD_EXPERIMENTS, *OWN_TASK_EXPERIMENTS, *ATARI_EXPERIMENTS)
}
