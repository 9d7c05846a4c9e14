"""Which cells one process trains at once, as a population.

On the CPU a population is faster than separate runs where Python and the calls of compiled functions take a good part
of an update: in our own worlds with small networks. With wide networks and convolutions, separate runs are as fast. On
a GPU a population is faster with both worlds' networks, and processes only compete.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dgvf_agents.execution.devices import device_named
from dgvf_agents.experiments.runs import REFERENCE, Cell
from dgvf_agents.train.config import TrainConfig

MAX_MEMBERS = 10
"""Of a population on the CPU. More hardly gain, and make all of them wait for the slowest part of a sweep."""
MAX_MEMBERS_ON_GPU = 32
"""Of one on a GPU, where members of the widest network take half a gigabyte each."""

_POLICIES = ("PaperMlpPolicy", "MlpPolicy")
"""Policies whose networks are small."""
_WORLDS = ("PuddleWorld", "CollectObjects")
"""Beginnings of the environment ids of `dgvf_envs`."""
_FREE = (
    "seed",
    "questions_from",
    "learning_rate",
    "final_learning_rate",
    "ent_coef",
    "final_ent_coef",
    "gamma",
    "vf_coef",
    "auxiliary_coefficient",
    "rms_prop_eps",
    "meta_learning_rate",
    "final_meta_learning_rate",
    "meta_max_grad_norm",
)
"""Fields of `TrainConfig` that members need not agree in."""
_OPTIONAL = ("max_grad_norm", "meta_max_discount_grad_norm", "final_auxiliary_coefficient")
"""Fields in which members may have any number, or all of them none."""


def processes_on(device: str | None, jobs: int | None) -> int:
    """Number of parallel processes.

    Args:
        device: that all runs are on; `None` for those of their presets.
        jobs: the wanted number; if `None`, as many as there are cores, and one on a GPU.
    """
    if jobs is not None:
        return jobs
    return 1 if device is not None and device_named(device).type == "cuda" else os.cpu_count() or 1


def groups_of(cells: Sequence[Cell], jobs: int) -> list[tuple[Cell, ...]]:
    """The cells that one process trains at once, in the order of the first of each group.

    Args:
        cells: those to train.
        jobs: number of processes that share the work; on the CPU, no group is so large that one of them
            has nothing to do.
    """
    alike: dict[Any, list[Cell]] = defaultdict(list)
    for cell in cells:
        alike[_kind(cell)].append(cell)
    groups = [group for members in alike.values() for group in _divided(members, jobs)]
    return sorted(groups, key=lambda group: list(cells).index(group[0]))


def _kind(cell: Cell) -> Any:
    """Equal for cells that a population can train at once."""
    config = cell.config
    if not _gains(config):
        return cell
    fields = {name: value for name, value in dataclasses.asdict(config).items() if name not in _FREE}
    return repr(fields | {name: fields[name] is None for name in _OPTIONAL})


def _gains(config: TrainConfig) -> bool:
    """Whether the run is faster in a population."""
    ours = config.env.startswith(_WORLDS) and config.env_wrapper is None and config.algorithm == "a2c"
    fast = config.policy in _POLICIES or _on_gpu(config)
    return ours and fast and config.compile is not False and config.task != REFERENCE


def _on_gpu(config: TrainConfig) -> bool:
    return device_named(config.device).type == "cuda"


def _divided(members: Sequence[Cell], jobs: int) -> list[tuple[Cell, ...]]:
    """Groups of about equal size: functions are compiled for every size."""
    if _on_gpu(members[0].config):
        count = math.ceil(len(members) / MAX_MEMBERS_ON_GPU)
    else:
        count = min(len(members), math.ceil(len(members) / (MAX_MEMBERS * jobs)) * jobs)
    size = math.ceil(len(members) / count)
    return [tuple(members[start : start + size]) for start in range(0, len(members), size)]
