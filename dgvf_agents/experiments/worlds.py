"""The worlds of experiments, and the constants that their returns are judged by.

A world has its name in `dgvf train`, a game of Atari is `atari/GAME`, an external task has its id.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dgvf_agents.experiments.outside_tasks import OWN_TASKS
from dgvf_agents.options import World
from dgvf_agents.train.config import WORLDS, preset
from dgvf_agents.train.environments import REFERENCE_RETURNS
from dgvf_envs.atari import GAMES, PAPER
from dgvf_envs.atari.games import title_of


@final
@dataclass(frozen=True)
class WorldReference:
    """Constants of a world, as undiscounted returns."""

    env: str
    """Id of the environment."""
    optimal: float | None
    """1 in normalized returns: an optimal policy, the level that counts as solved, or a human player on Atari; `None`
    if unknown."""
    random: float | None
    """0 in normalized returns: the uniformly random policy. `None`: returns are not normalized."""
    solved: float | None = None
    """Final return from which on a seed counts as solved; `None`: no threshold."""
    logarithmic: bool = False
    """Whether pictures have a logarithmic scale."""
    frames_per_step: int | None = None
    """Frames per step on Atari; `None` elsewhere."""

    def normalized(self, value: float) -> float:
        """0 at the random policy's return, 1 at the optimal one; NaN if one is unknown."""
        if self.optimal is None or self.random is None:
            return math.nan
        return (value - self.random) / (self.optimal - self.random)


_SOLVED: dict[World, float] = {"collect-objects": 2.9, "collect-objects-small": 2.9, "puddle-world": -45.0}


def _gridworld(world: World) -> WorldReference:
    env = preset(world, "a2c").env
    known = REFERENCE_RETURNS[env]
    # not normalized on a logarithmic scale: a policy that stands still for 1,000 steps would be nearly optimal
    random = None if known.logarithmic else known.random
    return WorldReference(env, known.optimal, random, _SOLVED[world], known.logarithmic)


REFERENCES: dict[str, WorldReference] = {
    **{world: _gridworld(world) for world in WORLDS},
    **{name: WorldReference(name, task.solved, task.random) for name, task in OWN_TASKS.items()},
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


def reference_of(world: str) -> WorldReference:
    """The constants of a world."""
    game = game_of_world(world)
    if game is None:
        return REFERENCES[world]
    scores = GAMES.get(game)
    human, random = (None, None) if scores is None else (scores.human, scores.random)
    solved = _PONG_LEARNED if game == "Pong" else None
    return WorldReference(game, human, random, solved, frames_per_step=PAPER.frame_skip)
