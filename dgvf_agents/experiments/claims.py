"""The paper's claims about the gridworlds, and the verdict of result tables on each, world by world."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

from dgvf_agents.experiments.figures import NAMES
from dgvf_agents.experiments.statistics import Estimate
from dgvf_agents.experiments.tables import QUANTITIES, Quantity, Results, only, where
from dgvf_agents.experiments.worlds import SOLVED, reference_of

OrderVerdict = Literal["yes", "in the mean", "no", "the reverse"]
SolvedVerdict = Literal["yes", "in part", "no"]

ORDER_VERDICTS: tuple[OrderVerdict, ...] = ("yes", "in the mean", "no", "the reverse")
"""On one return being larger than another, the best first."""


def order(first: Estimate, other: Estimate) -> OrderVerdict:
    """Whether the first mean is larger: `yes` and `the reverse` if the intervals are disjoint.

    The interval of a single seed is its value.
    """
    low, high = _ends(first)
    other_low, other_high = _ends(other)
    if first.value > other.value:
        return "yes" if low > other_high else "in the mean"
    return "the reverse" if high < other_low else "no"


def _ends(estimate: Estimate) -> tuple[float, float]:
    return (estimate.value, estimate.value) if math.isnan(estimate.low) else (estimate.low, estimate.high)


def worst_order(first: Estimate, others: Sequence[Estimate]) -> OrderVerdict:
    """The worst verdict on the first mean being larger than each of the others."""
    return max((order(first, other) for other in others), key=ORDER_VERDICTS.index)


def solves(solved: Sequence[bool]) -> SolvedVerdict:
    """Whether all seeds, some or none solve a world."""
    return "yes" if all(solved) else "in part" if any(solved) else "no"


def solves_alone(first: Sequence[bool], others: Sequence[bool]) -> SolvedVerdict:
    """Whether all seeds of one setting and none of others solve a world, or at least a larger fraction of the first."""
    if all(first) and not any(others):
        return "yes"
    return "in part" if sum(first) / len(first) > sum(others) / len(others) else "no"


def steps_to_solve(results: Results, world: str, setting: str) -> list[int | None]:
    """For each seed, the steps of the first evaluation that counts as solved; `None` if there is none."""
    seeds = where(results.curves, world=world, setting=setting).groupby("seed")
    solved = [points.loc[points["mean_return"] >= SOLVED[world], "steps"] for _, points in seeds]
    return [int(steps.iloc[0]) if len(steps) else None for steps in solved]


def ends_solved(results: Results, world: str, setting: str) -> list[bool]:
    """For each seed, whether its final return counts as solved."""
    cells = where(results.cells, world=world, setting=setting).sort_values("seed")
    return [value >= SOLVED[world] for value in cells["final_return"]]


def mean_of(results: Results, world: str, setting: str, quantity: Quantity) -> Estimate:
    """The mean return of a setting's seeds."""
    row = only(results.summary, world=world, setting=setting, quantity=quantity)
    return Estimate(row.mean, row.mean_low, row.mean_high)


def improvement_over(results: Results, world: str, other: str, quantity: Quantity) -> Estimate:
    """Probability that a run of the experiment's reference has a larger return than one of another setting."""
    row = only(results.comparisons, world=world, other=other, quantity=quantity)
    return Estimate(row.probability, row.low, row.high)


def number(value: float) -> str:
    """Three digits or one decimal."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.1f}"


def interval(estimate: Estimate) -> str:
    """`value [low, high]`; the value alone if there is no interval."""
    ends = "" if math.isnan(estimate.low) else f" [{number(estimate.low)}, {number(estimate.high)}]"
    return f"{number(estimate.value)}{ends}"


def count_of(flags: Sequence[bool]) -> str:
    """`2 of 5`."""
    return f"{sum(flags)} of {len(flags)}"


class Finding(NamedTuple):
    """What was found on one world."""

    words: str
    verdict: str
    """Whether the claim holds there."""


@final
@dataclass(frozen=True)
class Evidence:
    """The tables of one experiment on one world, as far as a claim is about them."""

    results: Results
    figure: str
    world: str
    settings: tuple[str, ...]
    """Labels, the allegedly better one first."""

    def name(self, label: str) -> str:
        """A setting in words."""
        symbol = {"questions": "d", "unroll-length": "k"}.get(self.figure)
        return NAMES.get(label, label) if symbol is None else f"{symbol} = {label}"

    def returns(self, quantity: Quantity) -> str:
        """Mean returns in words."""
        means = [f"{self.name(s)} {interval(mean_of(self.results, self.world, s, quantity))}" for s in self.settings]
        return f"{quantity} return: {', '.join(means)}"

    def order(self, quantity: Quantity) -> OrderVerdict:
        """Whether the first setting's mean return is larger than all others."""
        first, *others = (mean_of(self.results, self.world, label, quantity) for label in self.settings)
        return worst_order(first, others)

    def ended(self, label: str) -> list[bool]:
        """For each seed, whether it ends solved."""
        return ends_solved(self.results, self.world, label)

    def reached(self, label: str) -> list[bool]:
        """For each seed, whether any evaluation counts as solved."""
        return [steps is not None for steps in steps_to_solve(self.results, self.world, label)]

    def counts(self, solved: Callable[[str], Sequence[bool]]) -> str:
        """Solved seeds of each setting, in words."""
        return ", ".join(f"{self.name(label)} {count_of(solved(label))}" for label in self.settings)


def suffices(found: Evidence) -> Finding:
    """The setting solves the world."""
    (label,) = found.settings
    ended = found.ended(label)
    words = f"{count_of(found.reached(label))} seeds get there, {sum(ended)} end there; {found.returns('final')}"
    return Finding(f"{words} (optimal {reference_of(found.world).optimal:g})", solves(ended))


def faster(found: Evidence) -> Finding:
    """The first setting learns faster than the others, by the average return alone."""
    return Finding("; ".join(found.returns(quantity) for quantity in QUANTITIES), found.order("average"))


def better(found: Evidence) -> Finding:
    """The first setting is better than the others, by the final and by the average return."""
    final, average = (found.order(quantity) for quantity in QUANTITIES)
    return Finding(faster(found).words, final if final == average else f"final: {final}; average: {average}")


def better_methods(found: Evidence) -> Finding:
    """`better`, with the probability that a run of the first setting beats one of each other."""
    chances = ", ".join(
        f"{found.name(other)} {interval(improvement_over(found.results, found.world, other, 'average'))}"
        for other in found.settings[1:]
    )
    words, verdict = better(found)
    return Finding(f"{words}; probability that its average is the larger: {chances}", verdict)


def others_fail(found: Evidence) -> Finding:
    """The first setting solves the world, and the others do not."""
    first, *others = found.settings
    verdict = solves_alone(found.ended(first), [ended for label in others for ended in found.ended(label)])
    return Finding(f"seeds that end solved: {found.counts(found.ended)}; {found.returns('final')}", verdict)


def more_stable(found: Evidence) -> Finding:
    """`better`, with the number of seeds that get there and that end there."""
    words, verdict = better(found)
    seeds = f"seeds that get there: {found.counts(found.reached)}; that end there: {found.counts(found.ended)}"
    return Finding(f"{seeds}; {words}", verdict)


@final
@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how it is checked."""

    text: str
    source: str
    """Where the paper has it."""
    figure: str
    """The experiment."""
    settings: tuple[str, ...]
    """Labels, the allegedly better one first."""
    check: Callable[[Evidence], Finding]

    def findings(self, results: Results) -> dict[str, Finding]:
        """By world, those that all settings were run on."""
        worlds = [world for world in results.worlds() if set(self.settings) <= set(results.settings(world))]
        return {world: self.check(Evidence(results, self.figure, world, self.settings)) for world in worlds}


_APPENDIX = "figure 5 and appendix"

CLAIMS = (
    Claim(
        "Discovered questions suffice alone for an optimal policy", "figure 2", "gridworlds", ("discovered",), suffices
    ),
    Claim(
        "Random questions and reward prediction are notably worse",
        "figure 2",
        "gridworlds",
        ("discovered", "random", "reward-prediction"),
        better_methods,
    ),
    Claim("The main task trains an encoder faster", "figure 2", "gridworlds", ("a2c", "discovered"), faster),
    Claim("Unrolls of 1 and 2 updates fail, of 10 do not", _APPENDIX, "unroll-length", ("10", "1", "2"), others_fail),
    Claim("25 updates are better than 10", _APPENDIX, "unroll-length", ("25", "10"), better),
    Claim("25 updates are better than 50", _APPENDIX, "unroll-length", ("25", "50"), better),
    Claim("Two questions fail, 8 do not", _APPENDIX, "questions", ("8", "2"), others_fail),
    Claim("128 questions are slower", _APPENDIX, "questions", ("32", "128"), faster),
    Claim(
        "The summed meta-loss is more stable than the end meta-loss",
        "figure 4 (Atari)",
        "meta-objective",
        ("sum", "end"),
        more_stable,
    ),
)


def claim_rows(experiments: Mapping[str, Results]) -> list[tuple[str, str, str, str, str]]:
    """Claim, source, environment, verdict and words: a row for each claim and world.

    Args:
        experiments: tables by the experiment's name.
    """
    rows = []
    for claim in CLAIMS:
        findings = claim.findings(experiments[claim.figure]) if claim.figure in experiments else {}
        for i, (world, found) in enumerate(findings.items()):
            paper = (claim.text, claim.source) if i == 0 else ("", "")
            rows.append((*paper, reference_of(world).env, f"**{found.verdict}**", found.words))
        if not findings:
            rows.append((claim.text, claim.source, "", "not run yet", ""))
    return rows
