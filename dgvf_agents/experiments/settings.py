"""Settings of an experiment: worlds, presets with changes, and the scale at which they run.

A world has its name in `dgvf train`; a game of Atari is `atari/GAME`, a game of MinAtar `minatar/GAME`, and an external
task has its id without the module.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, final

import pandas as pd

from dgvf_agents.options import Algorithm, AtariMethod, Method, World
from dgvf_agents.train.config import WORLDS, TrainConfig, atari_config, own_config, preset
from dgvf_agents.train.environments import REFERENCE_RETURNS, ReferenceReturns
from dgvf_envs.atari.games import GAMES, title_of

OwnTaskMethod = Literal["sb3-a2c", "none", "discovered", "random", "reward-prediction"]
"""Stable-Baselines3's A2C, and the auxiliary tasks of `DGVFA2C`."""


@final
@dataclass(frozen=True)
class OwnTask:
    """An external task, on which methods are trained and training returns are recorded."""

    env: str
    """Id of the environment, `module:Id` where the module registers it."""
    steps: int
    """Environment steps of training, over all environments."""
    random: float
    """Mean return of the uniformly random policy, as the tests measure it."""
    solved: float
    """1 in normalized returns: Gymnasium's reward threshold, the best known return, or a published score."""
    wrapper: str = ""
    """Import path of a wrapper, `module:Class`, if there is one."""
    needs: str = ""
    """Module that must be installed, if there is one."""
    changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Fields of `TrainConfig` that are not the defaults of `DGVFA2C`."""
    meta_changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The same where questions are discovered."""
    ppo_changes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Fields that are not the defaults of `DGVFPPO`; empty where it is not compared."""

    @property
    def is_installed(self) -> bool:
        """Whether the task's module is installed."""
        return not self.needs or importlib.util.find_spec(self.needs) is not None

    def config(self, method: OwnTaskMethod, algorithm: Algorithm = "a2c") -> TrainConfig:
        """The defaults of an agent with the task's changes.

        Args:
            method: the auxiliary task, or `"sb3-a2c"`: the fields about the agent do not apply, since
                Stable-Baselines3's A2C has its own defaults.
            algorithm: `"a2c"` or `"ppo"`.
        """
        ours = {**self.changes, **(self.meta_changes if method == "discovered" else {})}
        own = {"steps": self.steps, **ours} if algorithm == "a2c" else self.ppo_changes
        usual = own_config(self.env, method, algorithm, own["steps"])
        recording = {"checkpoint_every": usual.steps, "evaluate_every": 2 * usual.steps, "evaluation_episodes": 1}
        changes = {**own, **recording, "checkpoints_kept": 1, "env_wrapper": self.wrapper or None}
        return dataclasses.replace(usual, **changes)


_JOINT: dict[str, Any] = {
    "changes": {
        "policy": "PaperCnnPolicy",
        "n_envs": 16,
        "final_learning_rate": 0.0,
        "ent_coef": 0.01,
        "auxiliary_weighting": "fixed",
        "question_encoder": "shared",
        "question_discount": None,
        "storage": "graph",
        "log_every": 8_000,
    },
    "meta_changes": {"meta_learning_rate": 6e-4, "meta_max_discount_grad_norm": 10.0},
}
"""The paper's joint questions: on the agent's last hidden layer, learned discounts, meta-gradients as in Table 1."""


def read_table(name: str) -> pd.DataFrame:
    """A table of this folder; empty cells are empty texts."""
    return pd.read_csv(Path(__file__).with_name(f"{name}.csv"), keep_default_na=False)


_TASKS, _PPO = (read_table(name).set_index("name").to_dict("index") for name in ("tasks", "ppo_tasks"))
EXTERNAL = {
    str(name): OwnTask(**row, ppo_changes=_PPO.get(name, {}), **(_JOINT if row["needs"] == "minatar" else {}))
    for name, row in _TASKS.items()
}
"""All worlds that other packages provide, by name, without the module."""

SEARCHED_TASKS = ("MiniGrid-Empty-6x6-v0", "MiniGrid-DoorKey-5x5-v0")
"""On which `ppo-tasks` chooses its coefficients."""

OWN_TASKS = {name: task for name, task in EXTERNAL.items() if task.needs != "minatar" and name not in SEARCHED_TASKS}
"""Of the defaults, only `auxiliary_coefficient` was chosen on one of them, CartPole-v1."""

PPO_TASKS = {name: task for name, task in EXTERNAL.items() if task.ppo_changes and name not in SEARCHED_TASKS}
"""Those of `OWN_TASKS` and two games, with the settings of RL Zoo for PPO: the task's own, on MiniGrid its defaults,
on MinAtar Atari's. Rollouts are shorter where there would be fewer than 500 meta-updates, runs of 1M and 10M steps are
shorter, and of 0.1M longer; nothing is normalized, and Pendulum has no gSDE."""

MINATAR = {name: task for name, task in EXTERNAL.items() if task.needs == "minatar"}
"""Games with their minimal action sets and sticky actions. Random: over 1,000 episodes, 100 of Freeway. Published: the
actor-critic AC(λ), λ = 0.8, at its best step size, over the last 100 of 5M frames, read off the sensitivity curves in
the README of kenjyoung/MinAtar (Young & Tian 2019), which give no table. These runs have all six actions, and Seaquest
had a bug in its oxygen bar."""


def _gridworld(world: World) -> ReferenceReturns:
    known = REFERENCE_RETURNS[preset(world, "a2c").env]
    # not normalized on a logarithmic scale: a policy that stands still for 1,000 steps would be nearly optimal
    return dataclasses.replace(known, random=None) if known.logarithmic else known


REFERENCES: dict[str, ReferenceReturns] = {
    **{world: _gridworld(world) for world in WORLDS},
    **{name: ReferenceReturns(task.solved, task.random) for name, task in EXTERNAL.items()},
}
"""By world, without Atari."""

_PONG_LEARNED = 0.0
"""Score of Pong that counts as solved: as many points as the opponent."""

_SEARCHED_GAMES = (
    *("ChopperCommand", "Breakout", "Seaquest", "SpaceInvaders", "KungFuMaster"),
    *("MsPacman", "Krull", "Tutankham", "BattleZone", "BeamRider"),
)

GAME_ORDER: tuple[str, ...] = tuple(dict.fromkeys((*_SEARCHED_GAMES, *GAMES)))
"""The 57 games in the order in which they are run: the ten of the paper's search for hyperparameters, in the order of
its appendix, then the others alphabetically."""

_ATARI = "atari/"


def world_of_game(game: str) -> str:
    """The world of a game.

    Args:
        game: in Gymnasium's or ALE's spelling.

    Raises:
        ValueError: ALE has no such game.
    """
    return f"{_ATARI}{title_of(game)}"


def game_of_world(world: str) -> str | None:
    """The game by Gymnasium's name; `None` for any other world."""
    return world.removeprefix(_ATARI) if world.startswith(_ATARI) else None


def title_of_world(world: str) -> str:
    """The id of a world's environment, or the name of a game."""
    return preset(world, "a2c").env if world in WORLDS else game_of_world(world) or world


def reference_of(world: str) -> ReferenceReturns:
    """The constants of a world."""
    game = game_of_world(world)
    if game is None:
        return REFERENCES[world]
    random, human = GAMES.get(game, (None, None))
    return ReferenceReturns(human, random, _PONG_LEARNED if game == "Pong" else None)


# --- settings ---------------------------------------------------------------------------------------------------------

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
        changes: dict[str, Any] = {
            "steps": self.steps or max(1, round(self.fraction * config.steps)),
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
    """Fields of `TrainConfig`, or environment variables of the run's process in capitals, and their values."""
    source: Setting | None = None
    """The setting whose questions its runs take, seed by seed; see `TrainConfig.questions_from`."""

    def config(self, scale: Scale, seed: int) -> TrainConfig:
        """The configuration of a run.

        A run on the questions of another has a seed of its own: its agent starts as no run that discovered questions.
        """
        fields = {name: value for name, value in self.changes if name not in self.variables}
        if self.source is not None:
            source, own = (f"{setting.folder_name}/seed-{seed}" for setting in (self.source, self))
            fields["questions_from"] = Path(os.path.relpath(source, own)).as_posix()
            seed += FRESH_SEED
        recorded = {name: fields[name] for name in ("compile", "evaluate_every") if name in fields and not scale.tiny}
        return dataclasses.replace(scale.apply(dataclasses.replace(self.preset, **fields)), **recorded, seed=seed)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables among the changes."""
        return {name: str(value) for name, value in self.changes if name.isupper()}

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
        changed = [(name, value) for name, value in sorted(self.changes) if getattr(usual, name, None) != value]
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
