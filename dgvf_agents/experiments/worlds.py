"""The worlds of experiments, and their reference returns: of an optimal and of a uniformly random policy.

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
    """Undiscounted mean returns by which a world's returns are normalized."""

    env: str
    """Id of the environment."""
    optimal: float | None
    """Of an optimal policy; of a human player on Atari. `None` if unknown."""
    random: float | None
    """Of the uniformly random policy; `None` if unknown."""
    logarithmic: bool = False
    """Whether pictures have a logarithmic scale."""
    frames_per_step: int | None = None
    """Frames per step on Atari; `None` elsewhere."""

    def normalized(self, value: float) -> float:
        """0 at the random policy's return, 1 at the optimal one; NaN if these are unknown."""
        if self.optimal is None or self.random is None:
            return math.nan
        return (value - self.random) / (self.optimal - self.random)


REFERENCES: dict[World, WorldReference] = {
    world: WorldReference(env, returns.optimal, returns.random, returns.logarithmic)
    for world in WORLDS
    for env in (preset(world, "a2c").env,)
    for returns in (REFERENCE_RETURNS[env],)
}

SOLVED: dict[str, float] = {
    "collect-objects": 2.9,
    "collect-objects-small": 2.9,
    "puddle-world": -45.0,
    "atari/Pong": 0.0,
}
"""Mean return that counts as solved; on Atari a score that shows learning."""

_SEARCHED_GAMES = (
    *("ChopperCommand", "Breakout", "Seaquest", "SpaceInvaders", "KungFuMaster"),
    *("MsPacman", "Krull", "Tutankham", "BattleZone", "BeamRider"),
)

GAME_ORDER: tuple[str, ...] = tuple(dict.fromkeys((*_SEARCHED_GAMES, *GAMES)))
"""The 57 games in the order in which they are run: the ten of the paper's search for hyperparameters, in the order of
its appendix, then the others alphabetically.

The paper ranks games by the gain of pixel control, which its text does not give; `ranking` measures it.
"""

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
    """The reference returns of a world."""
    game = game_of_world(world)
    if world in OWN_TASKS:
        return WorldReference(world, OWN_TASKS[world].solved, OWN_TASKS[world].random)
    if game is None:
        return next(reference for name, reference in REFERENCES.items() if name == world)
    scores = GAMES.get(game)
    human, random = (None, None) if scores is None else (scores.human, scores.random)
    return WorldReference(game, human, random, frames_per_step=PAPER.frame_skip)
