"""The experiments as data: what is compared, on which worlds, with which seeds, and how it is drawn.

All of this was declared before the runs were made; see `claims`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, final, get_args

import pandas as pd

from dgvf_agents.experiments.records import scaled, tables_of
from dgvf_agents.experiments.settings import (
    MINATAR,
    OWN_TASKS,
    PPO_TASKS,
    SEARCHED_TASKS,
    Changes,
    OwnTaskMethod,
    Setting,
    Wanted,
    field_value,
    read_table,
    setting,
)

FIRST_SEED = 200
"""Of all runs that give a verdict, or before them; no run older than the claims has these seeds."""

TRIAL_SEED = 300
"""The first seed of the trials of a search."""
TRIAL = "trial"
"""Label of the trials."""
TOLERANCE = 0.02
"""Returns that differ by less than this fraction of the best count as equal."""

Figure = Literal["curves", "studies"]
"""Learning curves, or final and average return over numbers in the labels, as `k = 10`."""


@final
@dataclass(frozen=True)
class Search:
    """A search in rungs: all candidates are tried with the first seeds, then the best ones with more.

    The mean final return decides, normalized where a candidate has several worlds. Ties go to the larger mean over the
    whole run, then to the earlier candidate.
    """

    candidates: Sequence[Sequence[Setting]]
    """Trials of each candidate, with the same changes; the preferred ones first."""
    rungs: tuple[tuple[int, int], ...]
    """Number of candidates, the best ones after the first rung, and seeds of each trial."""
    then: Callable[[Changes], Sequence[Setting]]
    """Settings to run with the changes of the best candidate."""

    def wanted(self, records: pd.DataFrame) -> list[Wanted]:
        """The trials of all rungs that can be run, given the records so far."""
        found: list[Wanted] = []
        for rung, (_, seeds) in enumerate(self.rungs):
            trials = [one for candidate in self._rung(records, rung) for one in candidate]
            found += [Wanted(one, TRIAL_SEED + i) for i in range(seeds) for one in trials]
        return list(dict.fromkeys(found))

    def chosen(self, records: pd.DataFrame) -> Sequence[Setting]:
        """The settings to run after the search; none until its last rung is finished."""
        best = self._rung(records, len(self.rungs))
        return self.then(dict(best[0][0].changes)) if best else ()

    def _rung(self, records: pd.DataFrame, rung: int) -> list[Sequence[Setting]]:
        """The candidates of a rung, the best first; none if the one before is unfinished. One more rung: the choice."""
        found = list(self.candidates)
        for number, (_, seeds) in enumerate(self.rungs[:rung]):
            kept = self.rungs[number + 1][0] if number + 1 < len(self.rungs) else 1
            returns = [_mean_returns(candidate, seeds, records) for candidate in found]
            left, best = pd.DataFrame(returns, columns=["final", "average"]), list[int]()
            if left.isna().any(axis=None):
                return []
            while len(left) and len(best) < kept:
                best.append(best_setting(left))
                left = left.drop(best[-1])
            found = [found[i] for i in best]
        return found


def best_setting(means: pd.DataFrame) -> Any:
    """The best setting by `Search`'s rule.

    Args:
        means: the columns `final` and `average`, by label.
    """
    equal = means
    for name in ("final", "average"):
        best = equal[name].max()
        equal = equal[equal[name] >= best - TOLERANCE * abs(best)]
    return equal.index[0]


def _mean_returns(candidate: Sequence[Setting], seeds: int, records: pd.DataFrame) -> tuple[float, float]:
    """Mean final and average return of a candidate's trials; NaN if one has no record."""
    trials = records[records["seed"].between(TRIAL_SEED, TRIAL_SEED + seeds - 1)]
    runs = tables_of(candidate, trials.drop_duplicates(["world", "setting", "seed"]))
    if len(runs) < seeds * len(candidate):
        return math.nan, math.nan
    if len(candidate) > 1:
        runs = scaled(runs)
    return runs["final"].mean(), runs["average"].mean()


@final
@dataclass(frozen=True)
class Experiment:
    """Compared settings, with their worlds and seeds."""

    name: str
    """Its name in `dgvf reproduce`."""
    summary: str
    """One line; the title of its figure."""
    settings: Callable[[str], Sequence[Setting]]
    """Settings compared on a world, in the order of the runs."""
    worlds: tuple[str, ...]
    """Those that it is declared for; none on Atari, where the command names games."""
    seeds: int = 5
    """Number of seeds."""
    first_seed: int = FIRST_SEED
    """The lowest of them."""
    seeds_on: Mapping[str, int] = field(default_factory=dict)
    """The same for worlds that have another number."""
    searches: Callable[[str], Sequence[Search]] = lambda world: ()
    """Searches on a world; settings at their choices are compared, too."""
    figure: Figure = "curves"

    def compared(self, world: str, records: pd.DataFrame) -> list[Setting]:
        """The settings that are compared on a world, as far as the records say which these are."""
        return [*self.settings(world), *(one for search in self.searches(world) for one in search.chosen(records))]

    def wanted(self, world: str, records: pd.DataFrame, number: int | None = None) -> list[Wanted]:
        """All runs that are needed on a world, as far as the records say which these are.

        Args:
            world: one of `worlds`, or another that has these settings.
            records: as by `read_records`.
            number: of seeds; the experiment's if `None`.
        """
        count = number or self.seeds_on.get(world, self.seeds)
        runs = [Wanted(one, self.first_seed + i) for one in self.compared(world, records) for i in range(count)]
        own = count * len(self.settings(world))
        trials = [one for search in self.searches(world) for one in search.wanted(records)]
        return [*runs[:own], *trials, *runs[own:]]


LEARNING_RATES = (1e-4, 3e-4, 7e-4, 1e-3, 3e-3, 7e-3)
"""Of RMSProp in the search of figure 2 (the paper's, which lists 1e-3 twice); they fall linearly to 0."""
ENTROPIES = (1e-4, 1e-3, 1e-2, 3e-2, 5e-2)
"""Final entropy coefficients (the paper's); the initial one has the preset's ratio to the final one."""
COEFFICIENTS = (1e-4, 1e-3, 1e-2)
"""Auxiliary coefficients of the search of `joint`; of equal ones the earlier is chosen."""
PPO_COEFFICIENTS = (1e-3, 1e-2, 1e-1)
"""Of the search of `ppo-tasks`."""
SEARCHED_GAMES = ("minatar/asterix", "minatar/space_invaders")
"""Games of the search of `joint`; they count in the verdict, too."""

_SETTINGS = {str(name): list(of.itertuples()) for name, of in read_table("settings").groupby("experiment", sort=False)}
"""The settings by experiment, in the order of the runs: a preset's method with changes, on some worlds or on all.

A row without a method has changes to all rows after it. Rows with `searched` are run with what a search has chosen.
Rows with `source` are fresh agents on the frozen questions of the run with their seed: of `discovered` here, or in
another environment with the same observations; the small rooms have none.

Names in capitals are environment variables: in `processors`, convolutions and matrix products round as on another
processor, at the rate and steps where seeds ended differently. In `rms-prop`, TensorFlow's ε is inside the root: steps
shrink with gradients below 3e-3, of a sum over the batch or a mean. `atari` has figure 3 (`representation`), figure 4
(`objective`), section 5.2 (`joint`), and A2C on a `laptop`, with Stable-Baselines3's defaults, 16 environments and an
entropy bonus: batches of 80 steps in place of the paper's 640, but TensorFlow's RMSProp as in all presets of Atari.
With PyTorch's, Pong was at -18.0 after 1.02M steps, not at -17.5 (one seed).
"""


def _settings(experiment: str, world: str, choice: Changes | None = None, method: str = "") -> list[Setting]:
    """An experiment's settings on a world, but for those that wait for a search.

    Args:
        experiment: its name.
        world: the world.
        choice: what a search has chosen; then those that waited for it.
        method: only this one's, if it is given.
    """
    common, found = dict[str, Any](), list[Setting]()
    for row in _SETTINGS[experiment]:
        own = dict(field_value(text) for text in row.changes.split("; ") if text)
        if row.worlds and world not in row.worlds.split():
            continue
        if not row.method:
            common |= own
        elif bool(row.searched) == (choice is not None) and method in ("", row.method):
            elsewhere = {} if row.source in ("", "here") else {"env": row.source}
            source = setting(world, "discovered", **common, **elsewhere) if row.source else None
            changes = {**common, **(choice or {}), **own}
            found.append(setting(world, row.method, row.label or row.method, source, **changes))
    return found


def _paper_choice(world: str) -> list[Search]:
    """Learning rate and entropy coefficient of all methods, by the results of plain A2C."""
    usual = setting(world, "a2c").preset
    ratio = 1.0 if usual.final_ent_coef is None else usual.ent_coef / usual.final_ent_coef
    trials = [
        setting(
            world,
            "a2c",
            TRIAL,
            learning_rate=rate,
            final_learning_rate=0.0,
            ent_coef=float(f"{ratio * entropy:.12g}"),  # rounded to the preset's own value
            final_ent_coef=entropy,
        )
        for rate in LEARNING_RATES
        for entropy in ENTROPIES
    ]
    then = partial(_settings, "figure-2", world)
    return [Search([[trial] for trial in trials], ((len(trials), 1), (6, 3)), then)]


def _coefficient_choice(
    experiment: str, tasks: Sequence[str], coefficients: Sequence[float], changes: Changes, world: str
) -> list[Search]:
    """The auxiliary coefficient of each method, by its trials on two tasks with some changes; beside them, none."""

    def search(method: OwnTaskMethod) -> Search:
        tried = coefficients if method != "none" else [setting(world, method).preset.auxiliary_coefficient]
        trials = [
            [setting(task, method, TRIAL, **changes, auxiliary_coefficient=one) for task in tasks] for one in tried
        ]
        name, rungs = "auxiliary_coefficient", ((len(trials), 2),)
        return Search(trials, rungs, lambda found: _settings(experiment, world, {name: found[name]}, method))

    return [search(method) for method in get_args(OwnTaskMethod)[1:]]  # all tasks of ours


_SEARCHES: dict[str, Callable[[str], Sequence[Search]]] = {
    "figure-2": _paper_choice,
    **{
        name: partial(_coefficient_choice, name, SEARCHED_GAMES, COEFFICIENTS, {"steps": 1_000_000})
        for name in ("joint", "own-tasks")
    },
    "ppo-tasks": partial(_coefficient_choice, "ppo-tasks", SEARCHED_TASKS, PPO_COEFFICIENTS, {"algorithm": "ppo"}),
}


_GROUPS = {"minatar": tuple(MINATAR), "external": tuple(OWN_TASKS), "ppo": tuple(PPO_TASKS)}
"""Names of worlds in `experiments.csv`."""

EXPERIMENTS: dict[str, Experiment] = {
    row.name: Experiment(
        row.name,
        row.summary,
        partial(_settings, row.name),
        _GROUPS.get(row.worlds) or tuple(row.worlds.split()),
        row.seeds,
        row.first_seed,
        seeds_on={"puddle-world": row.puddle_world_seeds},
        searches=_SEARCHES.get(row.name, lambda world: ()),
        figure=row.figure,
    )
    for row in read_table("experiments").itertuples(index=False)
}
"""By name."""
