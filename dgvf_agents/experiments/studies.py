"""Figures 2, 4 and 5 of the paper as data: what is compared, on which worlds, with which seeds.

Everything here was declared before the runs were made; see `claims`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
import pandas as pd

from dgvf_agents.experiments.settings import AnyMethod, Changes, Setting
from dgvf_agents.experiments.statistics import area_under_curve, final_return
from dgvf_agents.train.config import METHODS

FIRST_SEED = 200
"""Of all runs that give a verdict; no earlier run has these seeds."""
TRIAL_SEED = 300
"""The first seed of the trials of a search."""
TOLERANCE = 0.02
"""Returns that differ by less than this fraction of the best count as equal in a search."""


@final
class Wanted(NamedTuple):
    """A run that a study needs."""

    setting: Setting
    seed: int


@final
@dataclass(frozen=True)
class Search:
    """The paper's choice of hyperparameters: learning rate and entropy coefficient by the results of plain A2C.

    The learning rate falls linearly to 0, and the initial entropy coefficient has the preset's ratio to the final one.
    All pairs are tried with the first seeds, then the best pairs with more. The mean final return decides. Ties go to
    the larger mean over the whole run, then to the smaller learning rate, then to the smaller entropy coefficient.
    """

    learning_rates: tuple[float, ...] = (1e-4, 3e-4, 7e-4, 1e-3, 3e-3, 7e-3)
    """Of RMSProp (the paper's, which lists 1e-3 twice)."""
    entropies: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 3e-2, 5e-2)
    """Final entropy coefficients (the paper's)."""
    rungs: tuple[tuple[int, int], ...] = ((30, 1), (6, 3))
    """Number of pairs, the best ones after the first rung, and seeds of each."""

    def trials(self, world: str) -> list[Setting]:
        """Plain A2C with every pair."""
        pairs = [(rate, entropy) for rate in self.learning_rates for entropy in self.entropies]
        return [declared(world, "a2c", **self._changes(world, *pair)) for pair in pairs]

    def wanted(self, world: str, records: pd.DataFrame) -> list[Wanted]:
        """The trials of all rungs that can be run, given the records so far."""
        found: list[Wanted] = []
        for rung, (_, seeds) in enumerate(self.rungs):
            settings = self._rung(world, records, rung)
            found += [Wanted(one, TRIAL_SEED + i) for i in range(seeds) for one in settings]
        return list(dict.fromkeys(found))

    def choice(self, world: str, records: pd.DataFrame) -> Changes | None:
        """Learning rate and entropy coefficients to use; `None` until the last rung is finished."""
        best = self._rung(world, records, len(self.rungs))
        return dict(best[0].changes) if best else None

    def _rung(self, world: str, records: pd.DataFrame, rung: int) -> list[Setting]:
        """The settings of a rung, the best first; none if the one before is unfinished. One more rung: the choice."""
        settings = self.trials(world)
        for number, (_, seeds) in enumerate(self.rungs[:rung]):
            kept = self.rungs[number + 1][0] if number + 1 < len(self.rungs) else 1
            names = [name_of(one) for one in settings]
            rows = records[(records["world"] == world) & records["setting"].isin(names)]
            rows = rows[rows["seed"].between(TRIAL_SEED, TRIAL_SEED + seeds - 1)].drop_duplicates(["setting", "seed"])
            if len(rows) < seeds * len(settings):
                return []
            settings = _ranked(settings, rows)[:kept]
        return settings

    def _changes(self, world: str, rate: float, entropy: float) -> Changes:
        usual = declared(world, "a2c").preset
        ratio = 1.0 if usual.final_ent_coef is None else usual.ent_coef / usual.final_ent_coef
        initial = float(f"{ratio * entropy:.12g}")  # rounded to the preset's own value
        return {
            "learning_rate": rate,
            "final_learning_rate": 0.0,
            "ent_coef": initial,
            "final_ent_coef": entropy,
        }


@final
@dataclass(frozen=True)
class Study:
    """An experiment whose claims are declared."""

    name: str
    """Its name in `dgvf reproduce`."""
    summary: str
    """One line."""
    settings: Mapping[str, tuple[Setting, ...]]
    """What is compared, by world, in the order in which it is run."""
    seeds: Mapping[str, int]
    """Number of seeds from `FIRST_SEED` on, by world."""
    search: Search | None = None
    """If given, all methods run at its choice, too."""
    worlds: tuple[str, ...] = field(init=False)
    """Those of the settings, in their order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "worlds", tuple(self.settings))

    def compared(self, world: str, records: pd.DataFrame) -> list[Setting]:
        """The settings that are compared on a world, as far as the records say which these are."""
        settings = list(self.settings[world])
        choice = None if self.search is None else self.search.choice(world, records)
        if choice is not None:
            settings += [declared(world, method, f"{method}, {PAPER_CHOICE}", **choice) for method in METHODS]
        return settings

    def wanted(self, world: str, records: pd.DataFrame, number: int | None = None) -> list[Wanted]:
        """All runs that are needed on a world, as far as the records say which these are.

        Args:
            world: one of `worlds`.
            records: as by `read_records`.
            number: of seeds; the study's if `None`.
        """
        own = list(self.settings[world])
        chosen = self.compared(world, records)[len(own) :]
        trials = [] if self.search is None else self.search.wanted(world, records)
        seeds = range(FIRST_SEED, FIRST_SEED + (number or self.seeds[world]))
        first, last = ([Wanted(one, seed) for one in part for seed in seeds] for part in (own, chosen))
        return [*first, *trials, *last]


PAPER_CHOICE = "paper's choice"
"""In labels: at the hyperparameters that the search leads to."""


def declared(world: str, method: AnyMethod, label: str | None = None, /, **changes: object) -> Setting:
    """A setting of the declared claims: today's preset of a world with changes; the label is the method if `None`."""
    return Setting(world, method, label or method, tuple(changes.items()), declared=True)


def name_of(setting: Setting) -> str:
    """The setting's name in records: method and differences from the preset."""
    return setting.folder_name.removeprefix(f"{setting.world}/")


def _ranked(settings: list[Setting], rows: pd.DataFrame) -> list[Setting]:
    """The best settings first; see `Search`."""

    def means(setting: Setting) -> tuple[float, float]:
        own = rows[rows["setting"] == name_of(setting)]
        finals = [final_return(row.returns) for row in own.itertuples()]
        return float(np.mean(finals)), float(np.mean([area_under_curve(r.steps, r.returns) for r in own.itertuples()]))

    ranked, left = [], {setting: means(setting) for setting in settings}
    while left:
        equal = list(left)
        for index in (0, 1):
            best = max(left[one][index] for one in equal)
            equal = [one for one in equal if left[one][index] >= best - TOLERANCE * abs(best)]
        ranked.append(min(equal, key=lambda one: _size(dict(one.changes))))
        del left[ranked[-1]]
    return ranked


def _size(changes: Changes) -> tuple[float, float]:
    return changes["learning_rate"], changes["final_ent_coef"]


def _figure_5(world: str, **changes: object) -> tuple[Setting, ...]:
    """The paper's values of k and d; k = 10 with d = 128 is both."""
    lengths = [declared(world, "discovered", f"k = {k}", **changes, unroll_length=k) for k in (10, 1, 2, 5, 25, 50)]
    counts = [declared(world, "discovered", f"d = {d}", **changes, questions=d) for d in (2, 8, 32, 64)]
    return (*lengths, declared(world, "discovered", "myopic", **changes, horizon="myopic"), *counts)


_ROOMS, _PUDDLE = "collect-objects", "puddle-world"
_SHORT: Changes = {"steps": 1_000_000, "evaluate_every": 40_000}
"""Of parameter studies in the rooms."""
_METHODS: tuple[AnyMethod, ...] = ("discovered", "random", "reward-prediction", "a2c")

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        Study(
            "figure-2",
            "encoders trained by discovered questions, random ones or reward prediction alone, beside plain A2C",
            # PuddleWorld's preset is `steady`; the rooms' has the constant learning rate 0.0005 and 3M steps.
            {world: tuple(declared(world, method) for method in _METHODS) for world in (_PUDDLE, _ROOMS)},
            {_PUDDLE: 10, _ROOMS: 10},
            Search(),
        ),
        Study(
            "figure-5",
            "number of questions d, unrolled updates k, and the myopic approximation",
            {_PUDDLE: _figure_5(_PUDDLE), _ROOMS: _figure_5(_ROOMS, **_SHORT)},
            {_PUDDLE: 20, _ROOMS: 5},
        ),
        Study(
            "figure-4",
            "meta-losses summed along the unroll against the last one alone",
            {
                world: (
                    declared(world, "discovered", "sum", **changes),
                    declared(world, "discovered", "end", **changes, objective="end"),
                )
                for world, changes in ((_PUDDLE, {}), (_ROOMS, _SHORT))
            },
            {_PUDDLE: 30, _ROOMS: 10},
        ),
    )
}
"""By name."""
