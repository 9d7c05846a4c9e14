"""The worlds of experiments, and the constants that their returns are judged by.

A world has its name in `dgvf train`; a game of Atari is `atari/GAME`, a game of MinAtar `minatar/GAME`, and an external
task has its id without the module.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import pandas as pd

from dgvf_agents.options import Algorithm, World
from dgvf_agents.train.config import WORLDS, TrainConfig, own_config, preset
from dgvf_agents.train.environments import REFERENCE_RETURNS, ReferenceReturns
from dgvf_envs.atari import GAMES
from dgvf_envs.atari.games import title_of

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
        own = {"steps": self.steps, **self.changes} if algorithm == "a2c" else self.ppo_changes
        usual = own_config(self.env, method, algorithm, own["steps"])
        recording = {"checkpoint_every": usual.steps, "evaluate_every": 2 * usual.steps, "evaluation_episodes": 1}
        changes = {**own, **recording, "checkpoints_kept": 1, "env_wrapper": self.wrapper or None}
        return dataclasses.replace(usual, **changes)


_JOINT: dict[str, Any] = {
    "policy": "PaperCnnPolicy",
    "n_envs": 16,
    "final_learning_rate": 0.0,
    "ent_coef": 0.01,
    "auxiliary_weighting": "fixed",
    "question_encoder": "shared",
    "question_discount": None,
    "storage": "graph",
    "log_every": 8_000,
}
"""The paper's joint agent: questions on the agent's last hidden layer, learned discounts."""


def read_table(name: str) -> pd.DataFrame:
    """A table of this folder; empty cells are empty texts."""
    return pd.read_csv(Path(__file__).with_name(f"{name}.csv"), keep_default_na=False)


def _external() -> dict[str, OwnTask]:
    """The tasks of `tasks.csv`, and of `ppo_tasks.csv` with PPO."""
    table, ppo = (read_table(name).set_index("name").to_dict("index") for name in ("tasks", "ppo_tasks"))
    tasks = {str(name): OwnTask(**row, ppo_changes=ppo.get(name, {})) for name, row in table.items()}
    joint = {name: dataclasses.replace(task, changes=_JOINT) for name, task in tasks.items() if task.needs == "minatar"}
    return tasks | joint


EXTERNAL = _external()
"""All worlds that other packages provide, by name, without the module."""

SEARCHED_TASKS = ("MiniGrid-Empty-6x6-v0", "MiniGrid-DoorKey-5x5-v0")
"""On which `ppo-tasks` chooses its coefficients."""

OWN_TASKS = {name: task for name, task in EXTERNAL.items() if task.needs != "minatar" and name not in SEARCHED_TASKS}
"""Of the defaults, only `auxiliary_coefficient` was chosen on one of them, CartPole-v1."""

PPO_TASKS = {name: task for name, task in EXTERNAL.items() if task.ppo_changes and name not in SEARCHED_TASKS}
"""Those of `OWN_TASKS` and two games, with the settings of RL Zoo for PPO: the task's own, on MiniGrid its defaults,
on MinAtar Atari's. Rollouts are shorter or runs longer where there would be fewer than 500 meta-updates, and nothing is
normalized."""

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
    scores = GAMES.get(game)
    human, random = (None, None) if scores is None else (scores.human, scores.random)
    return ReferenceReturns(human, random, _PONG_LEARNED if game == "Pong" else None)
