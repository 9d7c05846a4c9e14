"""What the experiments are to decide, declared before their runs, and the verdicts that follow from the records.

The rule of every verdict: a claim has an effect, which is large if the claim holds, and a smallest effect δ that would
matter. It is

- *supported* if the effect's 95 % interval lies above 0, its estimate is at least δ, and its test, if it has one, is
  significant at 5 % after Holm's correction over the claims of its experiment;
- *contradicted* if the interval lies below δ;
- *inconclusive* otherwise;
- *untested* unless every setting has a record of at least `seeds` seeds on every world.

A seed counts if one processor has the records of all of a claim's settings; bootstrap and permutations stay within
world and processor. Single worlds and games are described, not tested. Runs older than the claims give no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np
import pandas as pd

from dgvf_agents.experiments.catalog import EXPERIMENTS, FIRST_SEED, PAPER_CHOICE
from dgvf_agents.experiments.outside_tasks import OWN_TASKS
from dgvf_agents.experiments.settings import Setting
from dgvf_agents.experiments.statistics import (
    SIGNIFICANCE,
    Estimate,
    area_under_curve,
    estimate,
    final_return,
    fraction_estimate,
    holm,
    improvement,
    interquartile_difference,
    mean_difference,
    stratified_permutation_test,
    weighted,
)
from dgvf_agents.experiments.worlds import reference_of

Measure = Literal["solved", "final", "area"]
"""`solved`: whether the final return reaches the world's threshold, 0 or 1; `final`: the final return, the mean of the
last five evaluations, on MinAtar of the last tenth of the training episodes; `area`: the mean return over the run."""
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

    @property
    def words(self) -> str:
        """Measure and effect."""
        first, *others = self.settings
        measure = {"solved": "fraction of seeds solved", "final": "final return", "area": "mean return over the run"}
        named = " and ".join(others)
        return {
            "level": f"{measure[self.measure]}, {first}, minus 1/2",
            "difference": f"{measure[self.measure]}, {first} minus {named}",
            "improvement": f"probability that {first} has the larger {measure[self.measure]} than {named}, minus 1/2",
        }[self.effect]


_GRIDS = ("collect-objects", "puddle-world")
_MINATAR = tuple(f"minatar/{game}" for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders"))
_OWN_TASKS = tuple(OWN_TASKS)


def _at_choice(method: str) -> str:
    return f"{method}, {PAPER_CHOICE}"


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "Discovered questions alone suffice for an optimal policy",
        *("figure 2", "figure-2", _GRIDS, (_at_choice("discovered"),)),
        *("solved", "level", 0.3, 10),
    ),
    Claim(
        "Random questions and reward prediction lead to notably worse policies",
        *("figure 2", "figure-2", _GRIDS, tuple(map(_at_choice, ("discovered", "random", "reward-prediction")))),
        *("solved", "difference", 0.3, 10),
    ),
    Claim(
        "The main task trains an encoder faster than discovered questions do",
        *("section 4.2", "figure-2", _GRIDS, tuple(map(_at_choice, ("a2c", "discovered")))),
        *("area", "improvement", 0.2, 10),
    ),
    Claim(
        "Random questions and reward prediction stay worse at settings chosen for discovered questions",
        *("ours", "figure-2", _GRIDS, ("discovered", "random", "reward-prediction")),
        *("solved", "difference", 0.3, 10),
    ),
    Claim(
        "Unrolls of 1 and 2 updates fail where 10 do not",
        *("figure 5", "figure-5", _GRIDS, ("k = 10", "k = 1", "k = 2")),
        *("solved", "difference", 0.3, 5),
    ),
    Claim(
        "25 unrolled updates are better than 50",
        *("figure 5", "figure-5", _GRIDS, ("k = 25", "k = 50")),
        *("area", "improvement", 0.2, 5),
    ),
    Claim(
        "Two questions fail where 8 do not",
        *("figure 5", "figure-5", _GRIDS, ("d = 8", "d = 2")),
        *("solved", "difference", 0.3, 5),
    ),
    Claim(
        "The unrolled meta-gradient is better than the myopic approximation",
        *("appendix", "figure-5", _GRIDS, ("k = 10", "myopic")),
        *("solved", "difference", 0.3, 5),
    ),
    Claim(
        "The summed meta-loss solves more seeds than the end meta-loss",
        *("figure 4", "figure-4", _GRIDS, ("sum", "end")),
        *("solved", "difference", 0.2, 10),
    ),
    Claim(
        "The summed meta-loss learns faster than the end meta-loss",
        *("figure 4", "figure-4", _GRIDS, ("sum", "end")),
        *("area", "improvement", 0.15, 10),
    ),
    Claim(
        "Discovered questions improve the data efficiency of an actor-critic",
        *("figure 6", "joint", _MINATAR, ("discovered", "none")),
        *("area", "difference", 0.05, 5),
    ),
    Claim(
        "An actor-critic with discovered questions ends with a higher score",
        *("figure 6", "joint", _MINATAR, ("discovered", "none")),
        *("final", "difference", 0.05, 5),
    ),
    Claim(
        "Discovered questions help more than random ones",
        *("ours", "joint", _MINATAR, ("discovered", "random")),
        *("final", "difference", 0.05, 5),
    ),
    Claim(
        "Discovered questions help more than reward prediction",
        *("figure 6", "joint", _MINATAR, ("discovered", "reward-prediction")),
        *("final", "difference", 0.05, 5),
    ),
    Claim(
        "On the tasks of others, the default of DGVFA2C ends with a higher return than no questions",
        *("ours", "own-tasks", _OWN_TASKS, ("discovered", "none")),
        *("final", "difference", 0.05, 5),
    ),
    Claim(
        "Exact meta-gradients solve more seeds than surrogate ones",
        *("ours", "convention", _GRIDS, ("exact", "surrogate")),
        *("solved", "difference", 0.2, 10),
    ),
    Claim(
        "Random questions are worse under TensorFlow's convention of RMSProp, too",
        *("ours", "rms-prop", _GRIDS, ("discovered", "random")),
        *("solved", "difference", 0.3, 10),
    ),
    Claim(
        "Frozen discovered questions train fresh agents better than random questions",
        *("ours", "question-transfer", _GRIDS, ("frozen", "random")),
        *("solved", "difference", 0.3, 10),
    ),
    Claim(
        "Under another instruction set, fewer seeds of discovered questions end solved",
        *("ours", "processors", ("collect-objects",), ("native", "SSE4.1")),
        *("solved", "difference", 0.3, 10),
    ),
    Claim(
        "On Pong, discovered questions alone suffice to learn",
        *("figure 3", "atari", ("atari/Pong",), ("representation: discovered",)),
        *("solved", "level", 0.3, 6),
    ),
)
"""The paper's and ours; at most four per experiment."""

CHANGES: tuple[tuple[str, str], ...] = (
    (
        "2026-11-27",
        "Settings of `convention`, `rms-prop`, `question-transfer` and `atari` declared, before their runs; "
        "PuddleWorld's A2C with the preset, which `rms-prop` shares, had been run.",
    ),
)
"""Later changes of claims, settings or rules: date and what was changed."""


@final
class Finding(NamedTuple):
    """Evidence on a claim from the records."""

    claim: Claim
    verdict: Verdict
    effect: Estimate | None
    """Estimate and 95 % interval of the weakest comparison; `None` if untested."""
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
    for experiment in {claim.experiment for claim in claims}:
        own = [i for i, finding in enumerate(found) if finding.claim.experiment == experiment and finding.p is not None]
        adjusted = holm([p for i in own if (p := found[i].p) is not None])
        for i, p in zip(own, adjusted, strict=True):
            found[i] = found[i]._replace(p=p)
    return [finding._replace(verdict=_verdict(finding)) for finding in found]


def claims_table(records: pd.DataFrame) -> str:
    """The claims with their verdicts as a Markdown table."""
    head = ("", "claim", "source", "worlds", "effect", "δ", "seeds", "found", "p (Holm)", "verdict")
    rows = [head, ("---",) * len(head)]
    for finding in findings(records):
        claim, effect = finding.claim, finding.effect
        size = "" if effect is None else f"{effect.value:.2f} [{effect.low:.2f}, {effect.high:.2f}]"
        seeds = f"{min(finding.seeds.values())} of {claim.seeds}"
        rows.append(
            (
                *(claim.key, claim.text, claim.source, ", ".join(claim.worlds), claim.words, f"{claim.delta:g}", seeds),
                *(size, "" if finding.p is None else f"{finding.p:.2g}", finding.verdict),
            )
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _verdict(finding: Finding) -> Verdict:
    effect, delta = finding.effect, finding.claim.delta
    if effect is None or math.isnan(effect.low):
        return "untested"
    if effect.high < delta:
        return "contradicted"
    significant = finding.p is None or finding.p <= SIGNIFICANCE
    return "supported" if effect.low > 0 and effect.value >= delta and significant else "inconclusive"


def _tested(claim: Claim, records: pd.DataFrame) -> Finding:
    """Effect and uncorrected p-value."""
    strata = [stratum for world in claim.worlds for stratum in _strata(claim, world, records)]
    seeds = {world: sum(len(s.values[0]) for s in strata if s.world == world) for world in claim.worlds}
    if min(seeds.values()) < claim.seeds:
        return Finding(claim, "untested", None, None, seeds)
    if claim.effect == "level":
        solved = np.concatenate([stratum.values[0] for stratum in strata])
        fraction = fraction_estimate(int(solved.sum()), len(solved))
        return Finding(claim, "untested", Estimate(*(value - 0.5 for value in fraction)), None, seeds)
    weights = [len(s.values[0]) / seeds[s.world] / len(claim.worlds) for s in strata]
    if claim.effect == "improvement":
        statistic = weighted(improvement, weights)
    else:
        statistic = weighted(mean_difference, weights) if claim.measure == "solved" else interquartile_difference
    found = []
    for other in range(1, len(claim.settings)):
        samples = [s.values[0] for s in strata] + [s.values[other] for s in strata]
        found.append((estimate(statistic, samples), stratified_permutation_test(statistic, samples)))
    weakest = min((one for one, _ in found), key=lambda one: (one.value, one.low))
    return Finding(claim, "untested", weakest, max(p for _, p in found), seeds)


class _Stratum(NamedTuple):
    world: str
    values: list[np.ndarray]
    """[seeds] of the measure, for each setting of a claim."""


def _strata(claim: Claim, world: str, records: pd.DataFrame) -> list[_Stratum]:
    """The measures on a world, by processor; of seeds for which a processor has all settings, a seed once."""
    settings = settings_of(claim, world, records)
    if settings is None:
        return []
    names, own = [one.name for one in settings], records[records["world"] == world]
    strata, used = [], set()
    for _, rows in own[own["setting"].isin(names)].groupby("processor"):
        values = {(r.setting, r.seed): measure_of(claim.measure, world, r.steps, r.returns) for r in rows.itertuples()}
        wanted = range(FIRST_SEED, FIRST_SEED + 100)
        seeds = [s for s in wanted if s not in used and all((name, s) in values for name in names)]
        used.update(seeds)
        if seeds:
            strata.append(_Stratum(world, [np.array([values[name, s] for s in seeds], dtype=float) for name in names]))
    return strata


def settings_of(claim: Claim, world: str, records: pd.DataFrame) -> list[Setting] | None:
    """The settings that a claim compares on a world; `None` if they are not known, or not yet."""
    experiment = EXPERIMENTS.get(claim.experiment)
    if experiment is None:
        return None
    known = {setting.label: setting for setting in experiment.compared(world, records)}
    return [known[label] for label in claim.settings] if set(claim.settings) <= set(known) else None


def measure_of(measure: Measure, world: str, steps: np.ndarray, returns: np.ndarray) -> float:
    """A measure of a run, normalized if the world has the constants for it.

    Args:
        measure: which one.
        world: the run's world.
        steps: [N] environment steps of evaluations.
        returns: [N] their mean returns.
    """
    value = area_under_curve(steps, returns) if measure == "area" else final_return(returns)
    reference = reference_of(world)
    if measure == "solved":
        if reference.solved is None:
            raise ValueError(f"measure must not be 'solved' on {world}, which has no threshold")
        return float(value >= reference.solved)
    return value if reference.random is None else reference.normalized(value)
