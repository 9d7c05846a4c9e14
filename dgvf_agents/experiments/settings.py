"""Settings of an experiment: presets with changes, and the scale at which they run."""

from __future__ import annotations

import ast
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, final

from dgvf_agents.experiments.worlds import EXTERNAL, OwnTaskMethod, game_of_world
from dgvf_agents.options import AtariMethod, Method, World
from dgvf_agents.train.config import TrainConfig, atari_config, preset

Changes = Mapping[str, Any]
"""Fields of `TrainConfig` and their values."""

AnyMethod = AtariMethod | OwnTaskMethod
"""Method of any preset."""

_EVALUATION: dict[str, Changes] = {"puddle-world": {"evaluation_kwargs": {"max_episode_steps": 1_000}}}
"""What experiments change in a world's preset: a seed that is lost must not count as -5,000."""

FRESH_SEED = 1_000
"""Offset of the seed of a run on the questions of another run."""

ScaleName = Literal["tiny", "demo", "small", "full"]

_TINY: dict[str, Any] = {"log_every": 240, "checkpoint_every": 480, "evaluation_episodes": 16}
_TINY_EPISODE = {"max_episode_steps": 40}
"""Short enough that episodes end within a tiny run."""
_TINY_GAME: dict[str, Any] = {"max_frames": 160, "frame_size": 36}
"""The same on Atari, with the smallest frames that the network accepts."""
_TINY_BATCH: dict[str, Any] = {"n_envs": 4, "n_steps": 5, "unroll_length": 3, "questions": 8}
"""Small enough on Atari for meta-updates within a tiny run."""


@final
@dataclass(frozen=True)
class Scale:
    """Changes to every configuration of an experiment."""

    fraction: float = 1.0
    """Of the preset's environment steps."""
    steps: int | None = None
    """Environment steps; the fraction applies if `None`."""
    seeds: int | None = None
    """Seeds per setting; the experiment's if `None`."""
    evaluate_every: int | None = None
    """Environment steps between evaluations; the preset's if `None`."""
    compiled: bool = True
    """Whether updates run compiled: runs share what the first one compiled, but minutes of training end before that.
    Of residual networks `"auto"` decides, since these are faster eagerly on the CPU."""
    actors: int = 0
    """Distributed actors of every run, IMPALA only; the setting's own if 0."""
    address: str | None = None
    """Address of the actors' Ray cluster; see `TrainConfig`."""
    tiny: bool = False
    """Whether episodes and batches are short."""

    def apply(self, config: TrainConfig) -> TrainConfig:
        """The configuration at this scale."""
        steps = max(1, round(self.fraction * config.steps)) if self.steps is None else self.steps
        changes: dict[str, Any] = {
            "steps": steps,
            "evaluate_every": self.evaluate_every or config.evaluate_every,
            "compile": "auto" if self.compiled and config.policy == "ResNetPolicy" else self.compiled,
            "actors": self.actors or config.actors,
            "address": self.address,
        }
        if self.tiny and config.atari is not None:
            changes |= {"atari": dataclasses.replace(config.atari, **_TINY_GAME), **_TINY_BATCH, **_TINY}
        elif self.tiny:
            kwargs = ("env_kwargs", "evaluation_kwargs")
            changes |= {**_TINY, **{name: {**getattr(config, name), **_TINY_EPISODE} for name in kwargs}}
        return dataclasses.replace(config, **changes)


SCALES: dict[ScaleName, Scale] = {
    "tiny": Scale(steps=960, seeds=2, evaluate_every=480, compiled=False, tiny=True),
    "demo": Scale(steps=200_000, seeds=2, evaluate_every=8_000, compiled=False),
    "small": Scale(fraction=0.25, seeds=2),
    "full": Scale(),
}
"""`full`: the declared size; `demo`: minutes on the smallest world; `tiny`: a smoke test."""


@final
@dataclass(frozen=True)
class Setting:
    """A preset with changes."""

    world: str
    """World of the preset, `atari/GAME`, or one of `EXTERNAL`."""
    method: AnyMethod
    """Method of the preset."""
    label: str
    """Name in an experiment, unique on its world."""
    changes: tuple[tuple[str, Any], ...] = ()
    """Fields of `TrainConfig` and their values."""
    source: Setting | None = None
    """The setting whose questions its runs take, seed by seed; see `TrainConfig.questions_from`."""

    def config(self, scale: Scale, seed: int) -> TrainConfig:
        """The configuration of a run.

        A run on the questions of another has a seed of its own: its agent starts as no run that discovered questions.
        """
        fields = dict(self.changes)
        if self.source is not None:
            source, own = (f"{setting.folder_name}/seed-{seed}" for setting in (self.source, self))
            fields["questions_from"] = Path(os.path.relpath(source, own)).as_posix()
            seed += FRESH_SEED
        recorded = {name: fields[name] for name in ("compile", "evaluate_every") if name in fields and not scale.tiny}
        return dataclasses.replace(scale.apply(dataclasses.replace(self.preset, **fields)), **recorded, seed=seed)

    @property
    def preset(self) -> TrainConfig:
        """The configuration without changes."""
        game = game_of_world(self.world)
        if game is not None:
            return atari_config(game, cast("AtariMethod", self.method))
        algorithm = dict(self.changes).get("algorithm", "a2c")
        if self.world in EXTERNAL:
            return EXTERNAL[self.world].config(cast("OwnTaskMethod", self.method), algorithm)
        usual = preset(cast("World", self.world), cast("Method", self.method), algorithm)
        # Not "auto": records do not depend on the memory of a machine.
        storage: dict[str, Any] = {} if algorithm == "ppo" else {"storage": "graph"}
        return dataclasses.replace(usual, **storage, **_EVALUATION.get(self.world, {}))

    @property
    def name(self) -> str:
        """Method and differences from the preset: equal settings of two experiments share their runs."""
        usual = self.preset
        changed = [(name, value) for name, value in sorted(self.changes) if getattr(usual, name) != value]
        changes = [f",{name}={str(value).replace('/', '%2F')}" for name, value in changed]
        source = "" if self.source is None else f",questions={self.source.name}"
        method = self.method if usual.algorithm != "ppo" else "ppo" if self.method == "a2c" else f"ppo-{self.method}"
        return f"{method}{''.join(changes)}{source}"

    @property
    def folder_name(self) -> str:
        """`WORLD/NAME`."""
        return f"{self.world}/{self.name}"


def setting(
    world: str, method: AnyMethod, label: str | None = None, source: Setting | None = None, /, **changes: Any
) -> Setting:
    """A setting; if `label` is `None`, it is the method and the changes.

    That label leaves out the initial entropy coefficient where a final one is given: the first follows from the second.
    """
    shown = [name for name in changes if name != "ent_coef" or "final_ent_coef" not in changes]
    default = " ".join([method, *(f"{name}={changes[name]}" for name in shown)])
    return Setting(world, method, default if label is None else label, tuple(changes.items()), source)


def field_value(text: str) -> tuple[str, Any]:
    """A field and its value from `FIELD=VALUE`: a number, `None` or another literal of Python, or else text."""
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


@final
class Wanted(NamedTuple):
    """A run that an experiment needs."""

    setting: Setting
    seed: int
