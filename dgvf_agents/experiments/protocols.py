"""How hyperparameters are chosen before methods are compared: two protocols, each with seeds of its own for the result.

- `paper`: learning rate and entropy coefficient by a grid search on plain A2C, then the same for every method, as in
  the paper. The auxiliary coefficient, which A2C has not, is the preset's.
- `equal-budget`: every method gets the same trials, spread evenly over learning rate, entropy coefficient and
  auxiliary coefficient, and is run at its own best. `joint-equal-budget` is the same for joint learning.

In all of them, the learning rate falls linearly to 0 ("initial learning rate" in the paper), and the initial entropy
coefficient has the preset's ratio to the final one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
import pandas as pd
from scipy.stats import qmc

from dgvf_agents.experiments.outside_tasks import OWN_TASKS
from dgvf_agents.experiments.search import Choice, Stages, best_setting, initial_entropy
from dgvf_agents.experiments.settings import (
    AnyMethod,
    Changes,
    SearchGrid,
    Setting,
    changes_in,
    is_trial,
    method_in,
    setting,
)
from dgvf_agents.train.config import METHODS

_SEED = 0
"""Of the trials of `equal-budget`."""
_ANNEALED: Changes = {"final_learning_rate": 0.0}
_JOINT: Changes = {"encoder_mode": "joint"}
_PLAIN = "a2c"
"""The agent without an auxiliary task, and so without an auxiliary coefficient."""
PAPER_CHOICE: dict[str, Changes] = {"collect-objects": {"learning_rate": 0.003, **_ANNEALED}}
"""What `paper` chooses for 500,000 steps. The parameter studies use it there: the preset's 3M steps are too many."""
_IMAGE_WORLDS = ("collect-objects", "collect-objects-small")
"""Worlds whose observations are images, which pixel control needs."""


@final
class Agent(NamedTuple):
    """What a protocol tunes."""

    method: AnyMethod
    """Of the preset."""
    changes: Changes
    """To the preset."""


Agents = Mapping[str, Agent]
"""By the first word of their labels."""


def agents_alone(world: str) -> Agents:
    """The presets of a world, whose encoders the auxiliary task trains alone."""
    return {method: Agent(method, {}) for method in METHODS}


def agents_joint(world: str) -> Agents:
    """Main and auxiliary task together, on a gridworld or on one of `OWN_TASKS`, where that is the default."""
    if world in OWN_TASKS:
        return {
            "discovered": Agent("discovered", {}),
            "random": Agent("random", {}),
            "reward-prediction": Agent("reward-prediction", {}),
            _PLAIN: Agent("none", {}),
        }
    pixels = {"pixel-control": Agent("a2c", {"task": "pixel-control", **_JOINT})} if world in _IMAGE_WORLDS else {}
    return {
        "discovered": Agent("discovered", _JOINT),
        "random": Agent("random", _JOINT),
        "reward-prediction": Agent("reward-prediction", _JOINT),
        **pixels,
        _PLAIN: Agent("a2c", {}),
    }


def paper_trials(grid: SearchGrid, world: str) -> list[Setting]:
    """Plain A2C with every learning rate and entropy coefficient."""
    return [
        _setting(world, _PLAIN, Agent("a2c", {}), {"learning_rate": rate, "final_ent_coef": entropy}, is_trial=True)
        for rate in grid.learning_rates
        for entropy in grid.entropies
    ]


def paper_settings(grid: SearchGrid, world: str, cells: pd.DataFrame) -> list[Setting]:
    """Every method with what the trials on A2C lead to choose."""
    chosen = _chosen(paper_trials(grid, world), _trials(cells))
    return [_setting(world, name, agent, chosen) for name, agent in agents_alone(world).items()]


def budget_trials(agents: Callable[[str], Agents], grid: SearchGrid, world: str) -> list[Setting]:
    """Every agent with the same hyperparameters, log-uniform between the ends of the grid."""
    return [
        _setting(world, name, agent, _of_agent(name, drawn), is_trial=True)
        for name, agent in agents(world).items()
        for drawn in _draw(grid)
    ]


def budget_settings(
    agents: Callable[[str], Agents], grid: SearchGrid, world: str, cells: pd.DataFrame
) -> list[Setting]:
    """Every agent with its own best hyperparameters."""
    trials, found = budget_trials(agents, grid, world), _trials(cells)
    return [_setting(world, name, agent, _chosen(trials, _of(name, found))) for name, agent in agents(world).items()]


def choices(cells: pd.DataFrame) -> list[Choice]:
    """What the trials of one world lead to choose, by agent."""
    trials = _trials(cells)
    found = [best_setting(_of(name, trials)) for name in trials["setting"].map(method_in).unique()]
    return [choice._replace(searched=" ".join(changes_in(choice.setting))) for choice in found]


_OPTIONS = {
    "learning_rate": "learning_rates",
    "final_ent_coef": "entropies",
    "auxiliary_coefficient": "coefficients",
}
"""Fields of `SearchGrid` by the field of `TrainConfig` that they have values of."""


def edge_warnings(grid: SearchGrid, found: list[Choice]) -> list[str]:
    """What to try beyond the grid, for each choice at an edge of it.

    Args:
        grid: the values that were tried.
        found: what they led to choose.
    """
    warnings = []
    for choice in found:
        changes = changes_in(choice.setting)
        for field, option in _OPTIONS.items():
            values, best = sorted(getattr(grid, option)), float(changes.get(field, "nan"))
            if len(values) < 2 or best not in (values[0], values[-1]):
                continue
            beyond = values[0] ** 2 / values[1] if best == values[0] else values[-1] ** 2 / values[-2]
            place = "smallest" if best == values[0] else "largest"
            more = " ".join(f"{value:g}" for value in sorted([*values, float(f"{beyond:.1g}")]))
            warnings.append(
                f"{field} {best:g}, chosen on {choice.world}, is the {place} value tried: --{option.replace('_', '-')} "
                f"{more} tries one beyond it"
            )
    return warnings


PAPER = Stages(paper_trials, paper_settings, choices, fresh_seeds=True)


def _equal_budget(agents: Callable[[str], Agents]) -> Stages:
    trials, then = partial(budget_trials, agents), partial(budget_settings, agents)
    return Stages(trials, then, choices, fresh_seeds=True, is_drawn=True)


EQUAL_BUDGET = _equal_budget(agents_alone)
JOINT_EQUAL_BUDGET = _equal_budget(agents_joint)


def _draw(grid: SearchGrid) -> list[dict[str, float]]:
    """The hyperparameters of every trial, from a Halton sequence. More trials begin with the same ones.

    A few independent random points leave large parts of the ranges untried.
    """
    ranges = {name: getattr(grid, option) for name, option in _OPTIONS.items()}
    low, high = (np.log([end(values) for values in ranges.values()]) for end in (min, max))
    points = qmc.Halton(len(ranges), rng=_SEED).random(grid.trials)
    drawn = np.exp(low + points * (high - low))
    return [{name: float(f"{value:.3g}") for name, value in zip(ranges, row, strict=True)} for row in drawn]


def _of_agent(name: str, drawn: dict[str, float]) -> dict[str, float]:
    """Plain A2C has no auxiliary coefficient."""
    return {field: value for field, value in drawn.items() if name != _PLAIN or field != "auxiliary_coefficient"}


def _setting(world: str, name: str, agent: Agent, hyperparameters: dict[str, float], is_trial: bool = False) -> Setting:
    """A trial has its hyperparameters in its label; the setting that they lead to has the agent's name."""
    label = " ".join([name, *(f"{field}={value}" for field, value in hyperparameters.items() if is_trial)])
    entropy = {"ent_coef": initial_entropy(world, hyperparameters["final_ent_coef"])}
    changes: dict[str, Any] = {**agent.changes, **hyperparameters, **entropy, **_ANNEALED}
    return setting(world, agent.method, label, **changes)


def _chosen(trials: list[Setting], cells: pd.DataFrame) -> dict[str, float]:
    """The hyperparameters of the best trial."""
    label = best_setting(cells).setting
    changes = next(dict(trial.changes) for trial in trials if trial.label == label)
    return {name: changes[name] for name in changes_in(label)}


def _trials(cells: pd.DataFrame) -> pd.DataFrame:
    return cells[cells["setting"].map(is_trial).astype(bool)]


def _of(name: str, cells: pd.DataFrame) -> pd.DataFrame:
    return cells[cells["setting"].map(method_in) == name]
