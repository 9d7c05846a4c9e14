"""The paper's choice of hyperparameters: learning rate and entropy coefficient by the results of plain A2C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import pandas as pd

from dgvf_agents.experiments.settings import Changes, Setting, setting
from dgvf_agents.experiments.statistics import area_under_curve, final_return

TRIAL_SEED = 300
"""The first seed of the trials of a search."""
TRIAL = "trial"
"""Label of the trials."""
TOLERANCE = 0.02
"""Returns that differ by less than this fraction of the best count as equal."""


@final
class Wanted(NamedTuple):
    """A run that an experiment needs."""

    setting: Setting
    seed: int


@final
@dataclass(frozen=True)
class Search:
    """A search in rungs: all pairs are tried with the first seeds, then the best pairs with more.

    The learning rate falls linearly to 0, and the initial entropy coefficient has the preset's ratio to the final one.
    The mean final return decides. Ties go to the larger mean over the whole run, then to the smaller learning rate,
    then to the smaller entropy coefficient.
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
        return [setting(world, "a2c", TRIAL, **_changes(world, *pair)) for pair in pairs]

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
            names = [one.name for one in settings]
            rows = records[(records["world"] == world) & records["setting"].isin(names)]
            rows = rows[rows["seed"].between(TRIAL_SEED, TRIAL_SEED + seeds - 1)].drop_duplicates(["setting", "seed"])
            if len(rows) < seeds * len(settings):
                return []
            settings = _ranked(settings, rows)[:kept]
        return settings


def _changes(world: str, rate: float, entropy: float) -> Changes:
    usual = setting(world, "a2c").preset
    ratio = 1.0 if usual.final_ent_coef is None else usual.ent_coef / usual.final_ent_coef
    initial = float(f"{ratio * entropy:.12g}")  # rounded to the preset's own value
    return {"learning_rate": rate, "final_learning_rate": 0.0, "ent_coef": initial, "final_ent_coef": entropy}


def best_setting(means: pd.DataFrame) -> str:
    """The best setting, by `Search`'s rule without its last two ties, which go to the first.

    Args:
        means: the columns `final` and `average`, by label.
    """
    equal = means
    for name in ("final", "average"):
        best = equal[name].max()
        equal = equal[equal[name] >= best - TOLERANCE * abs(best)]
    return str(equal.index[0])


def _ranked(settings: list[Setting], rows: pd.DataFrame) -> list[Setting]:
    """The best settings first."""
    finals = [final_return(returns) for returns in rows["returns"]]
    averages = [area_under_curve(*pair) for pair in zip(rows["steps"], rows["returns"], strict=True)]
    means = rows.assign(final=finals, average=averages).groupby("setting")[["final", "average"]].mean()
    by_name = {one.name: one for one in settings}
    means = means.loc[sorted(by_name, key=lambda name: _size(dict(by_name[name].changes)))]
    ranked = []
    while len(means):
        ranked.append(by_name[best_setting(means)])
        means = means.drop(ranked[-1].name)
    return ranked


def _size(changes: Changes) -> tuple[float, float]:
    return changes["learning_rate"], changes["final_ent_coef"]
