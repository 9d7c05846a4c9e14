"""Settings of an experiment: presets with changes, and the scale at which they run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, final

from dgvf_agents.experiments.outside_tasks import OWN_TASKS, OwnTaskMethod, own_task_config
from dgvf_agents.experiments.worlds import game_of_world
from dgvf_agents.options import AtariMethod, Method, Mode, World
from dgvf_agents.train.config import TrainConfig, atari_config, preset

Changes = Mapping[str, Any]
"""Fields of `TrainConfig` and their values."""

AnyMethod = AtariMethod | OwnTaskMethod
"""Method of any preset."""

_STUDIED: dict[str, Changes] = {
    "puddle-world": {
        "env_kwargs": {"reward_scale": 0.5, "start": "random", "max_episode_steps": 200},
        "learning_rate": 7e-4,
        "ent_coef": 1.5,
        "final_ent_coef": 0.015,
        "auxiliary_coefficient": 0.01,
        "final_auxiliary_coefficient": None,
    }
}
"""What experiments keep of an earlier preset, so that their results can be extended. Today's is that of `steady`."""

_EVALUATION: dict[str, Changes] = {"puddle-world": {"evaluation_kwargs": {"max_episode_steps": 1_000}}}
"""What figures 2, 4 and 5 change in a world's preset: a seed that is lost must not count as -5,000."""

FRESH_SEED = 1_000
"""What is added to the seed of a run on the questions of another run."""

ScaleName = Literal["tiny", "demo", "small", "full"]

SMOKE_TEST_STEPS = 10_000
"""Runs with fewer environment steps learn nothing: they only show that everything runs."""

_TINY: dict[str, Any] = {
    "log_every": 240,
    "checkpoint_every": 480,
    "evaluate_every": 480,
    "evaluation_episodes": 16,
    "compile": False,
}
_TINY_EPISODE = {"max_episode_steps": 40}
"""Short enough that episodes end within a tiny run."""
_TINY_GAME: dict[str, Any] = {"max_frames": 160, "frame_size": 36}
"""The same on Atari, with the smallest frames that the network accepts."""
_TINY_BATCH: dict[str, Any] = {"n_envs": 4, "n_steps": 5, "unroll_length": 3, "questions": 8}
"""Small enough on Atari for meta-updates within a tiny run."""


@final
@dataclass(frozen=True)
class Scale:
    """What is changed in every configuration of an experiment."""

    fraction: float = 1.0
    """Of the preset's environment steps."""
    steps: int | None = None
    """Environment steps; the fraction applies if `None`."""
    seeds: int | None = None
    """Seeds per setting; the experiment's if `None`."""
    worlds: tuple[World, ...] | None = None
    """Worlds of an experiment that has them; the experiment's if `None`."""
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
    """Whether episodes are short and nothing is compiled."""

    def __post_init__(self) -> None:
        for name in ("steps", "seeds"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value!r}")

    def worlds_of(self, worlds: tuple[str, ...]) -> tuple[str, ...]:
        """The worlds at this scale of an experiment on `worlds`."""
        return tuple(world for world in worlds if world in (self.worlds or ())) or worlds

    def apply(self, config: TrainConfig) -> TrainConfig:
        """The configuration at this scale."""
        steps = max(1, round(self.fraction * config.steps)) if self.steps is None else self.steps
        if self.evaluate_every is not None:
            config = dataclasses.replace(config, evaluate_every=self.evaluate_every)
        config = dataclasses.replace(config, actors=self.actors or config.actors, address=self.address)
        compile: Mode = "auto" if self.compiled and config.policy == "ResNetPolicy" else self.compiled
        config = dataclasses.replace(config, steps=steps, compile=compile)
        if not self.tiny:
            return config
        if config.atari is not None:
            rules = dataclasses.replace(config.atari, **_TINY_GAME)
            return dataclasses.replace(config, atari=rules, **_TINY_BATCH, **_TINY)
        return dataclasses.replace(
            config,
            env_kwargs={**config.env_kwargs, **_TINY_EPISODE},
            evaluation_kwargs={**config.evaluation_kwargs, **_TINY_EPISODE},
            **_TINY,
        )


SCALES: dict[ScaleName, Scale] = {
    "tiny": Scale(steps=960, seeds=2, tiny=True),
    "demo": Scale(steps=200_000, seeds=2, worlds=("collect-objects-small",), evaluate_every=8_000, compiled=False),
    "small": Scale(fraction=0.25, seeds=2),
    "full": Scale(),
}
"""`full`: the presets' size; `demo`: minutes, on the smallest world; `tiny`: a smoke test."""


@final
@dataclass(frozen=True)
class SearchGrid:
    """What the search for hyperparameters tries."""

    learning_rates: tuple[float, ...] = (1e-4, 3e-4, 7e-4, 1e-3, 3e-3, 7e-3)
    """Of RMSProp (the paper's, which lists 1e-3 twice)."""
    entropies: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 3e-2, 5e-2)
    """Final entropy coefficients (the paper's); the initial ones have the preset's ratio to them."""
    coefficients: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    """Factors on the sum of the answer losses; the paper is silent."""
    trials: int = 16
    """Trials of every method in `equal-budget`, between the smallest and the largest of these values."""
    trial_seeds: int | None = None
    """Seeds of every trial in `paper` and `equal-budget`; those of the scale, or 3, if `None`."""

    def __post_init__(self) -> None:
        for name in ("learning_rates", "entropies", "coefficients"):
            values = getattr(self, name)
            if not values:
                raise ValueError(f"{name} must have a value, got none")
            if len(set(values)) < len(values):
                raise ValueError(f"{name} must have every value once, got {' '.join(map(str, values))}")
        for name in ("trials", "trial_seeds"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be >= 1, got {value!r}")


@final
@dataclass(frozen=True)
class Setting:
    """A preset, or an earlier one, with changes."""

    world: str
    """World of the preset, `atari/GAME`, or one of `OWN_TASKS`."""
    method: AnyMethod
    """Method of the preset."""
    label: str
    """Name in an experiment's tables, unique on its world."""
    changes: tuple[tuple[str, Any], ...] = ()
    """Fields of `TrainConfig`, or entries of theirs such as `env_kwargs.max_episode_steps`, and their values."""
    source: Setting | None = None
    """The setting whose questions its runs take, seed by seed; see `TrainConfig.questions_from`."""
    declared: bool = False
    """Whether it is a setting of the declared claims, whose presets are today's."""

    def config(self, scale: Scale, seed: int) -> TrainConfig:
        """The configuration of a run.

        A run on the questions of another has a seed of its own: its agent starts as no run that discovered questions.
        """
        usual = self.preset
        fields = _fields(usual, self.changes)
        if self.source is not None:
            source, own = (f"{setting.folder_name}/seed-{seed}" for setting in (self.source, self))
            fields["questions_from"] = Path(os.path.relpath(source, own)).as_posix()
            seed += FRESH_SEED
        recorded = {name: fields[name] for name in ("compile", "evaluate_every") if name in fields and not scale.tiny}
        return dataclasses.replace(scale.apply(dataclasses.replace(usual, **fields)), **recorded, seed=seed)

    @property
    def preset(self) -> TrainConfig:
        """The configuration without changes."""
        game = game_of_world(self.world)
        if game is not None:
            return atari_config(game, cast("AtariMethod", self.method))
        if self.world in OWN_TASKS:
            return own_task_config(self.world, cast("OwnTaskMethod", self.method))
        usual = preset(cast("World", self.world), cast("Method", self.method))
        return dataclasses.replace(usual, **(_EVALUATION if self.declared else _STUDIED).get(self.world, {}))

    @property
    def folder_name(self) -> str:
        """`WORLD/METHOD`, then the differences from the preset: equal settings of two experiments share their runs."""
        usual = self.preset
        changed = [
            change for change in sorted(self.changes) if not _fields(usual, [change]).items() <= vars(usual).items()
        ]
        changes = [f",{name}={str(value).replace('/', '%2F')}" for name, value in changed]
        source = "" if self.source is None else f",questions={self.source.folder_name.partition('/')[2]}"
        return f"{self.world}/{self.method}{''.join(changes)}{source}"


def _fields(usual: TrainConfig, changes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Fields and their values from changes of fields, and of entries of fields, `FIELD.KEY`."""
    fields: dict[str, Any] = {}
    for name, value in changes:
        field, _, key = name.partition(".")
        fields[field] = {**fields.get(field, getattr(usual, field)), key: value} if key else value
    return fields


def setting(
    world: str, method: AnyMethod, label: str | None = None, source: Setting | None = None, /, **changes: Any
) -> Setting:
    """A setting; if `label` is `None`, it is the method and the changes.

    That label leaves out the initial entropy coefficient where a final one is given: the first follows from the second.
    """
    shown = [name for name in changes if name != "ent_coef" or "final_ent_coef" not in changes]
    default = " ".join([method, *(f"{name}={changes[name]}" for name in shown)])
    return Setting(world, method, default if label is None else label, tuple(changes.items()), source)


def method_in(label: str) -> str:
    """The method in a default label."""
    return label.split(" ")[0]


def is_trial(label: str) -> bool:
    """Whether a default label has changes, as those of a search's trials do."""
    return "=" in label


_WORDS = {
    "rms_prop=pytorch": "PyTorch's RMSProp",
    "rms_prop=tensorflow": "TensorFlow's RMSProp",
    "loss_reduction=sum": "losses as sums",
}


def words_of(change: str) -> str:
    """`name=value` in words."""
    return _WORDS.get(change, change.replace("_", " ").replace("=", " "))


def changes_in(label: str) -> dict[str, str]:
    """The changes in a default label."""
    return dict(part.split("=") for part in label.split(" ")[1:])
