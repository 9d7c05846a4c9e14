"""What the experiments are to decide, declared before their runs, and the verdicts that follow from the records.

The rule of every verdict: a claim has an effect, which is large if the claim holds, and a smallest effect δ that would
matter. It is

- *supported* if the effect's 95% interval lies above 0, its estimate is at least δ, and its test, if it has one, is
  significant at 5% after Holm's correction over the claims of its experiment, untested ones included;
- *contradicted* if the interval lies below δ: an effect that matters is excluded, a smaller one is not;
- *inconclusive* otherwise;
- *untested* unless every setting has a record of at least `seeds` seeds on every world.

A seed counts if one processor has the records of all of a claim's settings; bootstrap and permutations stay within
world and processor, where a seed that is alone counts with those of another processor. Single worlds and games are
described, not tested. Runs older than the claims give no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, final

import numpy as np
import pandas as pd

from dgvf_agents.experiments import statistics as stats
from dgvf_agents.experiments.catalog import EXPERIMENTS, FIRST_SEED
from dgvf_agents.experiments.records import scaled, tables_of
from dgvf_agents.experiments.settings import read_table, reference_of

Measure = Literal["solved", "final", "area"]
"""`solved`: whether the final return reaches the world's threshold, 0 or 1; `final`: the final return, the mean of the
last five points of the curve; `area`: the mean return over the run."""
_COLUMNS: dict[Measure, str] = {"solved": "solved", "final": "final", "area": "average"}
"""Of `tables_of`."""
Effect = Literal["level", "difference", "improvement"]
"""`level`: the fraction of solved seeds of one setting, with its exact interval, minus 1/2; `difference`: of the
fraction of solved seeds (mean over worlds), or of the interquartile means of normalized returns; `improvement`:
probability that a run of the first setting has a larger measure than one of the other, mean over worlds, minus 1/2."""
Verdict = Literal["supported", "contradicted", "inconclusive", "untested"]


@final
@dataclass(frozen=True)
class Claim:
    """A claim, and what decides it."""

    text: str
    source: str
    """Where the paper has it, or `ours`."""
    experiment: str
    """Its name in `dgvf reproduce`."""
    worlds: tuple[str, ...]
    settings: tuple[str, ...]
    """Labels of the experiment's settings. The first is compared with each other one; the weakest comparison counts."""
    measure: Measure
    effect: Effect
    delta: float
    """δ, the smallest effect that matters."""
    seeds: int
    """Seeds of every setting and world that a verdict needs."""

    @property
    def key(self) -> str:
        """Experiment and number among its claims, as `figure-2.1`."""
        own = [claim for claim in CLAIMS if claim.experiment == self.experiment]
        return f"{self.experiment}.{own.index(self) + 1}"


def _claim(worlds: str, settings: str, experiment: str, **fields: Any) -> Claim:
    """A row of `claims.csv`, which names worlds only where they are not the experiment's."""
    compared = tuple(worlds.split()) or EXPERIMENTS[experiment].worlds
    return Claim(worlds=compared, settings=tuple(settings.split("; ")), experiment=experiment, **fields)


CLAIMS = tuple(_claim(**row) for row in read_table("claims").to_dict("records"))
"""The paper's and ours; at most four per experiment."""


@final
class Finding(NamedTuple):
    """Evidence on a claim from the records."""

    claim: Claim
    verdict: Verdict
    effect: stats.Estimate | None
    """Estimate and 95% interval of the weakest comparison; `None` if untested."""
    p: float | None
    """After Holm's correction; `None` if there is no test."""
    seeds: dict[str, int]
    """Seeds with all records, by world."""


def findings(records: pd.DataFrame, claims: Sequence[Claim] = CLAIMS) -> list[Finding]:
    """The verdict on each claim.

    Args:
        records: as by `read_records`.
        claims: those to judge; all claims of an experiment, for Holm's correction.
    """
    found = [_tested(claim, records) for claim in claims]
    p = pd.Series({i: finding.p for i, finding in enumerate(found) if finding.claim.effect != "level"}, dtype=float)
    # of untested ones, too
    adjusted = p.fillna(1.0).groupby([claims[i].experiment for i in p.index]).transform(stats.holm)
    found = [finding if finding.p is None else finding._replace(p=adjusted[i]) for i, finding in enumerate(found)]
    return [finding._replace(verdict=_verdict(finding)) for finding in found]


def _verdict(finding: Finding) -> Verdict:
    effect, delta = finding.effect, finding.claim.delta
    if effect is None or math.isnan(effect.low):
        return "untested"
    if effect.high < delta:
        return "contradicted"
    significant = finding.p is None or finding.p <= stats.SIGNIFICANCE
    return "supported" if effect.low > 0 and effect.value >= delta and significant else "inconclusive"


def _tested(claim: Claim, records: pd.DataFrame) -> Finding:
    """Effect and uncorrected p-value."""
    strata = {world: _strata(claim, world, records) for world in claim.worlds}
    seeds = {world: sum(len(values[0]) for values in of) for world, of in strata.items()}
    if min(seeds.values()) < claim.seeds:
        return Finding(claim, "untested", None, None, seeds)
    all_values = [values for of in strata.values() for values in of]
    if claim.effect == "level":
        solved = np.concatenate([values[0] for values in all_values])
        fraction = stats.fraction_estimate(int(solved.sum()), len(solved))
        return Finding(claim, "untested", stats.Estimate(*(value - 0.5 for value in fraction)), None, seeds)
    weights = [len(values[0]) / seeds[world] / len(strata) for world, of in strata.items() for values in of]
    compare = stats.improvement if claim.effect == "improvement" else stats.mean_difference
    solves = claim.measure == "solved" and claim.effect == "difference"
    over_worlds = solves or compare is stats.improvement
    statistic = stats.weighted(compare, weights) if over_worlds else stats.interquartile_difference
    others = [[values[[0, i]] for values in all_values] for i in range(1, len(claim.settings))]
    interval = partial(stats.fraction_difference, weights=weights) if solves else partial(stats.estimate, statistic)
    effects = [interval(pairs) for pairs in others]
    weakest = min(effects, key=lambda one: (one.value, one.low))
    p = max(stats.stratified_permutation_test(statistic, pairs) for pairs in others)
    return Finding(claim, "untested", weakest, p, seeds)


def _strata(claim: Claim, world: str, records: pd.DataFrame) -> list[np.ndarray]:
    """The measure on a world by processor, [settings, seeds] of a claim.

    Seeds count for which a processor has all settings, a seed once.
    """
    known = {one.label: one for one in EXPERIMENTS[claim.experiment].compared(world, records)}
    if not set(claim.settings) <= set(known):  # not yet
        return []
    strata, used = list[np.ndarray](), set[int]()
    scales = claim.measure != "solved" and reference_of(world).random is not None
    for _, rows in records.groupby("processor"):
        runs = tables_of([known[label] for label in claim.settings], rows)
        runs = scaled(runs) if scales else runs
        values = runs.pivot(index="seed", columns="label", values=_COLUMNS[claim.measure])
        values = values.reindex(columns=claim.settings).dropna()
        values = values[[seed in range(FIRST_SEED, FIRST_SEED + 100) and seed not in used for seed in values.index]]
        used.update(values.index)
        if len(values):
            strata.append(values.to_numpy(dtype=float).T)
    several, alone = ([one for one in strata if (one.shape[1] > 1) == more] for more in (True, False))
    return [np.concatenate([several[0], *alone], axis=1), *several[1:]] if several else alone
