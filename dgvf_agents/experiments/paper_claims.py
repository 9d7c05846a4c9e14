"""The paper's claims about the gridworlds, and the verdict of result tables on each, world by world."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

from dgvf_agents.experiments.evidence import Evidence, count_of, every_seed, p_value, returns_of
from dgvf_agents.experiments.protocols import PAPER_CHOICE
from dgvf_agents.experiments.settings import words_of
from dgvf_agents.experiments.tables import QUANTITIES, Quantity, Results
from dgvf_agents.experiments.verdicts import (
    MIN_SEEDS,
    Mark,
    OrderVerdict,
    mark_of,
    solves,
    solves_alone,
    worst_order,
)
from dgvf_agents.experiments.worlds import SOLVED, reference_of


class Finding(NamedTuple):
    """What was found on one world."""

    words: str
    """The effect."""
    mark: Mark
    """Whether the claim holds there."""
    verdict: str
    """The same in words."""


def suffices(found: Evidence) -> Finding:
    """The setting solves the world."""
    (label,) = found.settings
    ended = found.ended(label)
    level, optimal = SOLVED[found.world], reference_of(found.world).optimal
    words = f"{count_of(found.reached(label))} seeds get to {level:g}, {sum(ended)} end there"
    finals, verdict = every_seed(returns_of(found.results, found.world, label, "final")), solves(ended)
    return Finding(f"{words}; final returns {finals} (optimal {optimal:g})", mark_of(verdict), verdict)


def faster(found: Evidence) -> Finding:
    """The first setting learns faster than each of the others, by the average return."""
    verdict = _order(found, "average")
    return Finding(found.returns("average"), mark_of(verdict), verdict)


def slower(found: Evidence) -> Finding:
    """The first setting learns more slowly than each of the others, by the average return."""
    reverse = [test._replace(difference=-test.difference) for test in found.tests("average")]
    verdict = worst_order(reverse)
    beaten = sum(test.difference < 0 for test in reverse)
    words = f"{found.name(found.settings[0])} has a larger mean than {beaten} of {len(reverse)} others"
    return Finding(f"{found.returns('average')}; {words}", mark_of(verdict), verdict)


def better(found: Evidence) -> Finding:
    """The first setting is better than each of the others, by the final and by the average return."""
    final, average = (_order(found, quantity) for quantity in QUANTITIES)
    words = "; ".join(found.returns(quantity) for quantity in QUANTITIES)
    verdict = final if final == average else f"final: {final}; average: {average}"
    return Finding(words, mark_of(final, average), verdict)


def others_fail(found: Evidence) -> Finding:
    """The first setting solves the world, and the others do not."""
    first, *others = found.settings
    verdict = solves_alone(found.ended(first), [ended for label in others for ended in found.ended(label)])
    words = f"seeds that end solved: {found.counts(found.ended)}; {found.returns('final')}"
    return Finding(words, mark_of(verdict), verdict)


def more_stable(found: Evidence) -> Finding:
    """`better`, with the number of seeds that get there and that end there."""
    seeds = f"seeds that get there: {found.counts(found.reached)}; that end there: {found.counts(found.ended)}"
    compared = better(found)
    return compared._replace(words=f"{seeds}; {compared.words}")


def _order(found: Evidence, quantity: Quantity) -> OrderVerdict:
    return worst_order(found.tests(quantity))


PRESET = "preset"
"""The protocol of experiments that use the presets' hyperparameters."""
PROTOCOLS = {
    "paper": "A, the paper's",
    "equal-budget": "B, equal budget",
    "steady": "chosen on discovered questions",
}
"""How other experiments chose their hyperparameters."""
_STUDIES = ("questions", "unroll-length", "meta-objective")
"""Those that use the choice of `paper` on the worlds of `PAPER_CHOICE`."""


def _protocol_of(experiment: str, world: str) -> str:
    if experiment in _STUDIES and world in PAPER_CHOICE:
        return PROTOCOLS["paper"]
    return PROTOCOLS.get(experiment, PRESET)


@final
class ClaimRow(NamedTuple):
    """A row of the table of claims."""

    claim: str
    source: str
    world: str
    """Id of the environment."""
    protocol: str
    mark: Mark
    verdict: str
    words: str
    seeds: str
    """Of the setting that has the fewest, and the smallest p-value that they allow."""


@final
@dataclass(frozen=True)
class Claim:
    """A claim of the paper, and how it is checked."""

    text: str
    source: str
    """Where the paper has it."""
    experiments: tuple[str, ...]
    """The experiments, one for each protocol."""
    settings: tuple[str, ...]
    """Labels, the one that the claim is about first."""
    check: Callable[[Evidence], Finding]
    worlds: tuple[str, ...] = ("collect-objects", "puddle-world")
    """Those of the paper's worlds that are ours; the small rooms are not in the paper."""
    protocol: str | None = None
    """What its settings have in common; `None`: that of the experiment."""

    def evidence(self, tables: Mapping[str, Results]) -> list[Evidence]:
        """By experiment and world, where all settings were run."""
        return [
            Evidence(results, name, world, self.settings)
            for name in self.experiments
            if (results := tables.get(name)) is not None
            for world in results.worlds()
            if set(self.settings) <= set(results.settings(world))
        ]

    def finding(self, found: Evidence) -> Finding:
        """What was found; no verdict from fewer than `MIN_SEEDS`."""
        if found.seeds >= MIN_SEEDS:
            return self.check(found)
        means = "; ".join(found.returns(quantity) for quantity in QUANTITIES)
        return Finding(self.check(found).words if found.seeds > 1 else means, "–", "not enough seeds")

    def rows(self, tables: Mapping[str, Results]) -> list[ClaimRow]:
        """A row for each world and protocol, and one for each world of the paper that it was not run on."""
        rows, evidence = [], self.evidence(tables)
        for found in evidence:
            p, finding = found.smallest_p, self.finding(found)
            seeds = str(found.seeds) if p is None else f"{found.seeds} (p ≥ {p_value(p)})"
            protocol = self.protocol or _protocol_of(found.experiment, found.world)
            env = reference_of(found.world).env
            rows.append(
                ClaimRow(self.text, self.source, env, protocol, finding.mark, finding.verdict, finding.words, seeds)
            )
        missing = [world for world in self.worlds if world not in {found.world for found in evidence}]
        envs = [reference_of(world).env for world in missing]
        return rows + [ClaimRow(self.text, self.source, env, "", "–", "not run", "", "") for env in envs]


_APPENDIX = "figure 5 and appendix"
_FIGURE_2 = ("gridworlds", "paper", "equal-budget", "steady")
"""The experiments with all methods."""

_RMS_PROPS = ("rms_prop=pytorch", "rms_prop=tensorflow", "rms_prop=tensorflow loss_reduction=sum")
"""Ends of the labels of the experiment `rms-prop`."""


def _of_figure_2(text: str, methods: tuple[str, ...], check: Callable[[Evidence], Finding]) -> list[Claim]:
    """A claim about methods, and the same under every convention of RMSProp at a low learning rate."""
    claims = [Claim(text, "figure 2", _FIGURE_2, methods, check)]
    for ending in _RMS_PROPS:
        labels, words = tuple(f"{method} {ending}" for method in methods), ", ".join(map(words_of, ending.split()))
        claims.append(Claim(text, "figure 2", ("rms-prop",), labels, check, (), f"low learning rate, {words}"))
    return claims


CLAIMS = (
    *_of_figure_2("Discovered questions suffice alone for an optimal policy", ("discovered",), suffices),
    *_of_figure_2(
        "Random questions and reward prediction are notably worse",
        ("discovered", "random", "reward-prediction"),
        better,
    ),
    *_of_figure_2("The main task trains an encoder faster", ("a2c", "discovered"), faster),
    Claim(
        "Unrolls of 1 and 2 updates fail, of 10 do not", _APPENDIX, ("unroll-length",), ("10", "1", "2"), others_fail
    ),
    Claim("25 updates are better than 10", _APPENDIX, ("unroll-length",), ("25", "10"), better),
    Claim("25 updates are better than 50", _APPENDIX, ("unroll-length",), ("25", "50"), better),
    Claim("Two questions fail, 8 do not", _APPENDIX, ("questions",), ("8", "2"), others_fail),
    Claim("128 questions are slower than fewer", _APPENDIX, ("questions",), ("128", "2", "8", "32", "64"), slower),
    Claim(
        "The summed meta-loss is more stable than the end meta-loss",
        "figure 4, there on Atari",
        ("meta-objective",),
        ("sum", "end"),
        more_stable,
        worlds=(),
    ),
)


def claim_rows(tables: Mapping[str, Results]) -> list[ClaimRow]:
    """A row for each claim, world and protocol.

    Args:
        tables: by the experiment's name.
    """
    return [row for claim in CLAIMS for row in claim.rows(tables)]
