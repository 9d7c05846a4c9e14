"""The options of `dgvf sweep`."""

from __future__ import annotations

import ast
import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, final

import tyro

from dgvf_agents.execution.devices import check_device_name
from dgvf_agents.experiments.settings import ScaleName, Setting, setting
from dgvf_agents.experiments.sweep import processes_on
from dgvf_agents.options import Method, World
from dgvf_agents.train.config import TrainConfig

_OTHERS = ("env", "seed", "steps", "task", "atari", "device")
"""Fields of `TrainConfig` that other options decide."""


@final
@dataclass(frozen=True)
class Grid:
    """Train a method with every combination of settings, or what is left of it; write a table and a picture."""

    world: Annotated[World, tyro.conf.Positional]
    """The world."""
    method: Annotated[Method, tyro.conf.Positional]
    """The method, whose preset is varied."""
    vary: tuple[str, ...] = ()
    """Fields of the configuration and their values, as learning-rate=1e-4,3e-4 ent-coef=0.01,0.03; all combinations
    are run."""
    seeds: int = 3
    """Seeds per combination."""
    first_seed: int = 0
    """The lowest seed."""
    scale: ScaleName = "full"
    """`full` as in the preset, `small` a quarter of the steps, `demo` minutes, `tiny` a smoke test."""
    steps: int | None = None
    """Environment steps of every run; the preset's and the scale's if `None`."""
    jobs: int | None = None
    """Parallel processes, one thread each; if `None`, as many as there are cores, and one on a GPU. Runs that are
    faster at once share one."""
    device: str = "cpu"
    """`cpu`, `cuda`, or `auto` for CUDA if available. On a GPU, all networks train in populations."""
    out: Path = Path("runs/sweep")
    """Folder of the runs, and of table and picture."""

    def __post_init__(self) -> None:
        for name in ("seeds", "jobs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value!r}")
        if self.first_seed < 0:
            raise ValueError(f"first_seed must be >= 0, got {self.first_seed!r}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be >= 1, got {self.steps!r}")
        check_device_name(self.device)
        names = [name for name, _ in map(varied_field, self.vary)]
        if len(set(names)) < len(names):
            raise ValueError(f"vary must name every field once, got {' '.join(self.vary)}")

    def settings(self) -> list[Setting]:
        """All combinations.

        Raises:
            ValueError: a value is out of the range of its field.
        """
        fields = [[(name, value) for value in values] for name, values in map(varied_field, self.vary)]
        return [setting(self.world, self.method, **dict(chosen)) for chosen in itertools.product(*fields)]

    @property
    def processes(self) -> int:
        """Number of parallel processes."""
        return processes_on(self.device, self.jobs)

    @property
    def results(self) -> Path:
        """Folder of table and picture, another one for another world, method or choice of fields."""
        names = [name for name, _ in map(varied_field, self.vary)]
        return self.out / "results" / "-".join([self.world, self.method, *names])


def varied_field(given: str) -> tuple[str, list[Any]]:
    """A field of `TrainConfig` and its values, from `FIELD=VALUE,VALUE`.

    Raises:
        ValueError: there is no such field or no value, or another option decides the field.
    """
    name, _, values = given.partition("=")
    name, allowed = name.replace("-", "_"), [field.name for field in dataclasses.fields(TrainConfig)]
    if name not in allowed or name in _OTHERS:
        known = ", ".join(other for other in allowed if other not in _OTHERS)
        raise ValueError(f"vary must name fields among {known}, got {given!r}")
    if not values or not all(values.split(",")):
        raise ValueError(f"vary must give values, as {name}=VALUE,VALUE, got {given!r}")
    found = [_value(text) for text in values.split(",")]
    if any(value in found[:i] for i, value in enumerate(found)):
        raise ValueError(f"vary must give every value once, got {given!r}")
    return name, found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
