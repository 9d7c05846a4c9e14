"""The search for hyperparameters: learning rate and entropy on plain A2C, then the auxiliary coefficient.

The paper chose one learning rate and one entropy coefficient "according to the results of the A2C baseline" for all
agents. It is silent on the factor on the answer loss, which only agents with an auxiliary task have: the second stage
searches it on discovered questions, with what the first stage chose on A2C.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import pandas as pd

from dgvf_agents.experiments.outside_tasks import OWN_TASKS
from dgvf_agents.experiments.settings import SearchGrid, Setting, method_in, setting

TOLERANCE = 0.02
"""Final returns that differ by less than this fraction of the best count as equal."""


@final
class Choice(NamedTuple):
    """A row of the table of choices."""

    world: str
    searched: str
    """The fields that were searched."""
    setting: str
    """Label of the chosen setting."""
    final_return: float
    """Mean over its seeds."""
    average_return: float
    """Mean over its seeds."""


@final
@dataclass(frozen=True)
class Stages:
    """A search in two stages: trials, then what they lead to run."""

    first: Callable[[SearchGrid, str], list[Setting]]
    """The trials on a world."""
    second: Callable[[SearchGrid, str, pd.DataFrame], list[Setting]]
    """What is run on a world given the cells of its trials."""
    choices: Callable[[pd.DataFrame], list[Choice]]
    """What the cells of one world lead to choose."""
    fresh_seeds: bool = False
    """Whether the second stage has seeds of its own: the best of many trials was lucky too."""
    is_drawn: bool = False
    """Whether trials are drawn from ranges, so that none is at the edge of a grid."""


def best_setting(cells: pd.DataFrame) -> Choice:
    """The setting to choose on one world.

    The mean final return over seeds decides. Settings within `TOLERANCE` of the best count as equal; among them the
    mean average return decides, then the order of `cells`.

    Raises:
        ValueError: `cells` is empty or of several worlds.
    """
    if cells["world"].nunique() != 1:
        raise ValueError(f"cells must be of one world, got {len(cells)} of {sorted(set(cells['world']))}")
    seeds = cells.groupby("setting", sort=False)[["final_return", "average_return"]]
    means = seeds.agg(lambda returns: np.mean(returns.to_numpy()))
    best = means["final_return"].max()
    equal = means[means["final_return"] >= best - TOLERANCE * abs(best)]
    chosen = equal["average_return"].idxmax()
    return Choice(cells["world"].iloc[0], "", chosen, *map(float, means.loc[chosen]))


def first_stage(grid: SearchGrid, world: str) -> list[Setting]:
    """Plain A2C with every learning rate and entropy coefficient."""
    return [
        setting(
            world,
            "a2c",
            learning_rate=rate,
            ent_coef=initial_entropy(world, entropy),
            final_ent_coef=entropy,
        )
        for rate in grid.learning_rates
        for entropy in grid.entropies
    ]


def second_stage(grid: SearchGrid, world: str, cells: pd.DataFrame) -> list[Setting]:
    """Discovered questions with every auxiliary coefficient and what `first_stage` leads to choose."""
    chosen = best_setting(_of("a2c", cells)).setting
    changes = next(dict(candidate.changes) for candidate in first_stage(grid, world) if candidate.label == chosen)
    return [
        setting(
            world,
            "discovered",
            f"discovered auxiliary_coefficient={coefficient}",
            **changes,
            auxiliary_coefficient=coefficient,
        )
        for coefficient in grid.coefficients
    ]


def choices(cells: pd.DataFrame) -> list[Choice]:
    """What the cells of one world lead to choose, by stage."""
    searched = {"a2c": "learning_rate final_ent_coef", "discovered": "auxiliary_coefficient"}
    stages = {method: _of(method, cells) for method in searched}
    return [best_setting(stages[m])._replace(searched=searched[m]) for m in searched if len(stages[m])]


def initial_entropy(world: str, final_ent_coef: float) -> float:
    """The initial entropy coefficient with the preset's ratio to the final one."""
    usual = setting(world, "none" if world in OWN_TASKS else "a2c").preset
    ratio = 1.0 if usual.final_ent_coef is None else usual.ent_coef / usual.final_ent_coef
    return float(f"{ratio * final_ent_coef:.12g}")  # rounded to the preset's own value, whose run is then shared


def _of(method: str, cells: pd.DataFrame) -> pd.DataFrame:
    return cells[cells["setting"].map(method_in) == method]


COEFFICIENT = Stages(first_stage, second_stage, choices)
"""The auxiliary coefficient at the learning rate and entropy coefficient that A2C leads to choose."""
