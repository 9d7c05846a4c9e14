"""How hyperparameters are chosen before methods are compared: two protocols, each with seeds of its own for the result.

- `paper`: learning rate and entropy coefficient by a grid search on plain A2C, then the same for every method, as in
  the paper. The auxiliary coefficient, which A2C has not, is the preset's.
- `equal-budget`: every method gets the same number of random trials, over learning rate, entropy coefficient and
  auxiliary coefficient, and is run at its own best.

In both, the learning rate falls linearly to 0 ("initial learning rate" in the paper), and the initial entropy
coefficient has the preset's ratio to the final one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dgvf_agents.experiments.search import Choice, Stages, best_setting, initial_entropy
from dgvf_agents.experiments.settings import SearchGrid, Setting, changes_in, is_trial, method_in, setting
from dgvf_agents.runs.config import METHODS, Method

_SEED = 0
"""Of the random trials."""
_ANNEALED = {"final_learning_rate": 0.0}


def paper_trials(grid: SearchGrid, world: str) -> list[Setting]:
    """Plain A2C with every learning rate and entropy coefficient."""
    return [
        _setting(world, "a2c", {"learning_rate": rate, "final_ent_coef": entropy}, is_trial=True)
        for rate in grid.learning_rates
        for entropy in grid.entropies
    ]


def paper_settings(grid: SearchGrid, world: str, cells: pd.DataFrame) -> list[Setting]:
    """Every method with what the trials on A2C lead to choose."""
    chosen = _chosen(paper_trials(grid, world), _trials(cells))
    return [_setting(world, method, chosen) for method in METHODS]


def budget_trials(grid: SearchGrid, world: str) -> list[Setting]:
    """Every method with the same random hyperparameters, log-uniform between the ends of the grid."""
    return [
        _setting(world, method, _of_method(method, drawn), is_trial=True) for method in METHODS for drawn in _draw(grid)
    ]


def budget_settings(grid: SearchGrid, world: str, cells: pd.DataFrame) -> list[Setting]:
    """Every method with its own best hyperparameters."""
    trials, found = budget_trials(grid, world), _trials(cells)
    return [_setting(world, m, _chosen([t for t in trials if t.method == m], _of(m, found))) for m in METHODS]


def choices(cells: pd.DataFrame) -> list[Choice]:
    """What the trials of one world lead to choose, by method."""
    trials = _trials(cells)
    found = [best_setting(own) for method in METHODS if len(own := _of(method, trials))]
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
EQUAL_BUDGET = Stages(budget_trials, budget_settings, choices, fresh_seeds=True)


def _draw(grid: SearchGrid) -> list[dict[str, float]]:
    """The hyperparameters of every trial. More trials begin with the same ones."""
    ranges = {name: getattr(grid, option) for name, option in _OPTIONS.items()}
    random = np.random.default_rng(_SEED)
    drawn = []
    for _ in range(grid.trials):
        shares = random.uniform(size=len(ranges))
        drawn.append(
            {
                name: float(f"{np.exp(np.log(min(values)) + share * np.log(max(values) / min(values))):.3g}")
                for (name, values), share in zip(ranges.items(), shares, strict=True)
            }
        )
    return drawn


def _of_method(method: Method, drawn: dict[str, float]) -> dict[str, float]:
    """Plain A2C has no auxiliary coefficient."""
    return {name: value for name, value in drawn.items() if method != "a2c" or name != "auxiliary_coefficient"}


def _setting(world: str, method: Method, hyperparameters: dict[str, float], is_trial: bool = False) -> Setting:
    """A trial has its hyperparameters in its label; the setting that they lead to has the method's name."""
    label = " ".join([method, *(f"{name}={value}" for name, value in hyperparameters.items() if is_trial)])
    entropy = {"ent_coef": initial_entropy(world, hyperparameters["final_ent_coef"])}
    changes: dict[str, Any] = {**hyperparameters, **entropy, **_ANNEALED}
    return setting(world, method, label, **changes)


def _chosen(trials: list[Setting], cells: pd.DataFrame) -> dict[str, float]:
    """The hyperparameters of the best trial."""
    label = best_setting(cells).setting
    changes = next(dict(trial.changes) for trial in trials if trial.label == label)
    return {name: changes[name] for name in changes_in(label)}


def _trials(cells: pd.DataFrame) -> pd.DataFrame:
    return cells[cells["setting"].map(is_trial).astype(bool)]


def _of(method: str, cells: pd.DataFrame) -> pd.DataFrame:
    return cells[cells["setting"].map(method_in) == method]
