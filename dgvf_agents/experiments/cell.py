"""The table behind an experiment: settings, and cells of a setting and a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, final

from dgvf_agents.experiments.outside_tasks import OWN_TASKS, OwnTaskMethod, own_task_config
from dgvf_agents.experiments.scale import Scale
from dgvf_agents.experiments.worlds import game_of_world
from dgvf_agents.runs.atari_config import AtariMethod, atari_config
from dgvf_agents.runs.config import Method, TrainConfig, World, preset

AnyMethod = AtariMethod | OwnTaskMethod
"""What any preset is called by."""


@final
@dataclass(frozen=True)
class Setting:
    """A preset with changes."""

    world: str
    """World of the preset, `atari/GAME`, or one of `OWN_TASKS`."""
    method: AnyMethod
    """Method of the preset."""
    label: str
    """What the setting is called in an experiment's tables; unique among those on its world."""
    changes: tuple[tuple[str, Any], ...] = ()
    """Fields of `TrainConfig` and their values."""

    def config(self, scale: Scale, seed: int) -> TrainConfig:
        """The configuration of a run."""
        changed = dataclasses.replace(self.usual, **dict(self.changes))
        return dataclasses.replace(scale.apply(changed), seed=seed)

    @property
    def usual(self) -> TrainConfig:
        """The preset."""
        game = game_of_world(self.world)
        if game is not None:
            return atari_config(game, cast("AtariMethod", self.method))
        if self.world in OWN_TASKS:
            return own_task_config(self.world, cast("OwnTaskMethod", self.method))
        return preset(cast("World", self.world), cast("Method", self.method))

    @property
    def folder_name(self) -> str:
        """`WORLD/METHOD`, then what differs from the preset: equal settings of two experiments share their runs."""
        changes = [f",{name}={value}" for name, value in sorted(self.changes) if getattr(self.usual, name) != value]
        return f"{self.world}/{self.method}{''.join(changes)}"


def setting(world: str, method: AnyMethod, label: str | None = None, **changes: Any) -> Setting:
    """A setting, labeled with its method and changes unless told otherwise."""
    parts = [f"{name}={value}" for name, value in changes.items()]
    return Setting(world, method, " ".join([method, *parts]) if label is None else label, tuple(changes.items()))


def method_in(label: str) -> str:
    """The method that a label begins with, as those of `setting` do."""
    return label.split(" ")[0]


@final
@dataclass(frozen=True)
class Cell:
    """One run of an experiment."""

    setting: Setting
    """What is run."""
    seed: int
    """Seed of everything random."""
    config: TrainConfig = field(hash=False)
    """The run's configuration."""
    folder: Path
    """The run's folder."""

    @property
    def name(self) -> str:
        """World, method and changes, and seed."""
        return f"{self.setting.folder_name} seed {self.seed}"


def cells_of(settings: Sequence[Setting], scale: Scale, seeds: int, out: Path, first_seed: int = 0) -> list[Cell]:
    """Every setting with so many seeds from `first_seed` on, the first seed of all settings first."""
    return [
        Cell(setting, seed, setting.config(scale, seed), out / setting.folder_name / f"seed-{seed}")
        for seed in range(first_seed, first_seed + seeds)
        for setting in settings
    ]
