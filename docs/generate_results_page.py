"""Write the page of results, claim by claim, from the tables that `dgvf reproduce` left in `results/`.

With `--check`, fail unless the committed page is up to date.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from generated import DOCS, capital, check, table, write

from dgvf_agents.experiments.figures import FIGURES
from dgvf_agents.experiments.pictures import NAMES
from dgvf_agents.experiments.results import Quantity, Results, SummaryRow
from dgvf_agents.experiments.worlds import reference_of

RESULTS = DOCS / "results"
PAGE = DOCS / "results.md"
COMMAND = "python docs/generate_results_page.py"

SOLVED = {"collect-objects": 2.9, "collect-objects-small": 2.9, "puddle-world": -45.0, "atari/Pong": 0.0}
"""Mean return that counts as solved; on Atari a score that shows learning."""

TITLES = {
    "gridworlds": "Representation learning on the gridworlds",
    "questions": "How many questions",
    "unroll-length": "How many updates a meta-gradient passes through",
    "meta-objective": "Summed or end meta-loss",
    "joint": "Main task and questions together",
    "convention": "Exact and surrogate meta-gradients",
    "search": "The search for hyperparameters",
    "learning-rate": "Two learning rates",
    "atari-laptop/Pong": "Pong on two cores",
}
"""Of the sections, in their order, by the folder of their tables; its first part is the name of the experiment."""


def figure_of(name: str) -> str:
    """The experiment whose tables lie in a folder of `results/`."""
    return name.split("/")[0]


class Claim(NamedTuple):
    """What the paper says, and what was found."""

    paper: str
    source: str
    figure: str
    found: Callable[[Experiment], str]


@dataclass(frozen=True)
class Experiment:
    """The tables of one experiment."""

    name: str
    """Of its folder."""
    results: Results
    provenance: dict

    @classmethod
    def read(cls, name: str) -> Experiment | None:
        """The committed tables; None where there are none."""
        folder = RESULTS / name
        if not (folder / "cells.csv").exists():
            return None
        return cls(name, Results.read(folder), json.loads((folder / "provenance.json").read_text()))

    @property
    def figure(self) -> str:
        """What `dgvf reproduce` calls it."""
        return figure_of(self.name)

    @property
    def worlds(self) -> list[str]:
        """In the order of the cells."""
        return self.results.worlds()

    @property
    def pictures(self) -> list[Path]:
        """The experiment's own first."""
        return sorted((RESULTS / self.name).glob(f"{self.figure}*.png"), key=lambda path: len(path.name))

    def first_at(self, world: str, setting: str) -> list[int | None]:
        """For each seed, the steps of the first evaluation that reached what counts as solved."""
        seeds: dict[int, int | None] = {}
        for row in self.results.curves:
            if (row.world, row.setting) == (world, setting):
                seeds.setdefault(row.seed, None)
                if seeds[row.seed] is None and row.mean_return >= SOLVED[world]:
                    seeds[row.seed] = row.steps
        return [seeds[seed] for seed in sorted(seeds)]

    def summary(self, world: str, setting: str, quantity: Quantity) -> SummaryRow:
        """A row of the summary."""
        return next(
            row for row in self.results.summary if (row.world, row.setting, row.quantity) == (world, setting, quantity)
        )

    def solving(self, world: str, setting: str) -> str:
        """How many of how many seeds solve a world."""
        first = self.first_at(world, setting)
        return f"{sum(steps is not None for steps in first)} of {len(first)}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if abs(value) < 10 else f"{value:,.1f}"


def _interval(row: SummaryRow) -> str:
    if row.mean_low is None:
        return _number(row.mean)
    return f"{_number(row.mean)} [{_number(row.mean_low)}, {_number(row.mean_high)}]"


def _each_world(experiment: Experiment, settings: Sequence[str], words: Callable[[str], str]) -> str:
    """What is said of each world that all the settings have been run on."""
    known = [world for world in experiment.worlds if set(settings) <= set(experiment.results.settings(world))]
    return "; ".join(f"{reference_of(world).env}: {words(world)}" for world in known) or "not run yet"


def _suffices(experiment: Experiment) -> str:
    def words(world: str) -> str:
        level, solving = SOLVED[world], experiment.solving(world, "discovered")
        final = _interval(experiment.summary(world, "discovered", "final"))
        return f"{solving} seeds reach {level:g} (optimal {reference_of(world).optimal:g}), final return {final}"

    return _each_world(experiment, ["discovered"], words)


def _against(*others: str) -> Callable[[Experiment], str]:
    """Average returns of discovered questions and of others, and whether their intervals are apart."""

    def found(experiment: Experiment) -> str:
        def words(world: str) -> str:
            ours = experiment.summary(world, "discovered", "average")
            said = [f"average return {_interval(ours)}"]
            for other in others:
                row = experiment.summary(world, other, "average")
                said.append(f"{NAMES[other]} {_interval(row)}, {_apart(ours, row)}")
            return ", ".join(said)

        return _each_world(experiment, ["discovered", *others], words)

    return found


def _apart(one: SummaryRow, other: SummaryRow) -> str:
    if one.mean_low is None or other.mean_low is None or one.mean_high is None or other.mean_high is None:
        return "no intervals"
    if one.mean_low > other.mean_high:
        return "**below**"
    return "**above**" if one.mean_high < other.mean_low else "intervals overlap"


def _finals(*settings: str) -> Callable[[Experiment], str]:
    """Final returns of settings, and how many of their seeds solve the world."""

    def found(experiment: Experiment) -> str:
        def words(world: str) -> str:
            return ", ".join(
                f"{NAMES.get(label, label)}: {_interval(experiment.summary(world, label, 'final'))}, "
                f"{experiment.solving(world, label)} seeds"
                for label in settings
            )

        return _each_world(experiment, settings, words)

    return found


def _averages(*settings: str) -> Callable[[Experiment], str]:
    def found(experiment: Experiment) -> str:
        def words(world: str) -> str:
            return ", ".join(f"{label}: {_interval(experiment.summary(world, label, 'average'))}" for label in settings)

        return _each_world(experiment, settings, words)

    return found


CLAIMS = (
    Claim("Discovered questions suffice alone for an optimal policy", "section 5.1, figure 2", "gridworlds", _suffices),
    Claim(
        "Random questions and reward prediction are notably worse",
        "section 5.1, figure 2",
        "gridworlds",
        _against("random", "reward-prediction"),
    ),
    Claim("The main task trains an encoder faster", "section 5.1, figure 2", "gridworlds", _against("a2c")),
    Claim("Unrolls of 1 and 2 updates fail", "section 5.1, figure 5", "unroll-length", _finals("1", "2", "10")),
    Claim(
        "25 updates are better than 10 and 50", "section 5.1, figure 5", "unroll-length", _averages("10", "25", "50")
    ),
    Claim("Two questions fail", "section 5.1, figure 5", "questions", _finals("2", "8", "128")),
    Claim("128 questions are slower", "section 5.1, figure 5", "questions", _averages("32", "64", "128")),
    Claim(
        "The summed meta-loss is more stable than the end meta-loss",
        "section 5.1, figure 4 (Atari)",
        "meta-objective",
        _finals("sum", "end"),
    ),
)


def claims(experiments: dict[str, Experiment]) -> str:
    """The table of claims."""
    rows = []
    for claim in CLAIMS:
        experiment = experiments.get(claim.figure)
        found = "not run yet" if experiment is None else claim.found(experiment)
        rows.append((claim.paper, claim.source, found))
    return table(("The paper", "Where", "Here"), rows)


def section(experiment: Experiment) -> str:
    """An experiment's picture and table."""
    name, provenance = experiment.name, experiment.provenance
    rows = []
    for world in experiment.worlds:
        for label in experiment.results.settings(world):
            final, average = (experiment.summary(world, label, quantity) for quantity in ("final", "average"))
            first = [f"{steps / 1e6:.2f}M" if steps else "–" for steps in experiment.first_at(world, label)]
            rows.append(
                (
                    reference_of(world).env,
                    NAMES.get(label, label),
                    str(final.seeds),
                    _interval(final),
                    _interval(average),
                    f"{SOLVED[world]:g}: {', '.join(first)}",
                )
            )
    headings = ("World", "Setting", "Seeds", "Final return", "Average return", "Steps to, by seed")
    parts = [
        f"## {TITLES[name]}\n",
        f"{capital(FIGURES[experiment.figure].summary)}.\n",
        *(f"![{TITLES[name]}]({picture.relative_to(DOCS).as_posix()})\n" for picture in experiment.pictures),
        table(headings, rows, right=(2, 3, 4)) + "\n",
    ]
    chosen = [
        (reference_of(row.world).env, f"`{row.setting}`", _number(row.final_return), _number(row.average_return))
        for row in experiment.results.choices
    ]
    if chosen:
        parts.append(table(("World", "Chosen", "Final return", "Average return"), chosen, right=(2, 3)) + "\n")
    hours, runs = provenance["wall_seconds"] / 3600, sum(made["runs"] for made in provenance["made_with"])
    parts.append(
        f"`{provenance['command']}`: {runs} runs, {hours:.1f} hours in all{_machine(provenance['made_with'])}.\n"
    )
    if provenance["missing"]:
        parts.append(f"Not run yet: {_missing(provenance['missing'])}.\n")
    return "\n".join(parts)


def _missing(runs: Sequence[str]) -> str:
    """`WORLD/SETTING seed N` of several seeds together."""
    seeds: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        setting, _, seed = run.rpartition(" seed ")
        seeds[setting].append(seed)
    return "; ".join(f"{setting} (seed{'s' * (len(of) > 1)} {', '.join(of)})" for setting, of in seeds.items())


def _machine(made_with: Sequence[dict]) -> str:
    """Hardware and versions of the first runs that tell; those adopted from plain training do not."""
    known = next((made for made in made_with if made["versions"]), None)
    if known is None:
        return ""
    versions = ", ".join(f"{package} {version}" for package, version in known["versions"].items())
    return f" on {known['hardware']['processor']}, {known['hardware']['cores']} cores; {versions}"


def page(experiments: dict[str, Experiment]) -> str:
    """The Markdown of the page."""
    parts = [
        "<!-- Generated by docs/generate_results_page.py. -->\n\n# Results\n",
        "Every number below is computed from the tables in `docs/results/`, which `dgvf reproduce` wrote; command,\n"
        "versions and machine stand under each table. *Final* is the mean return of the last tenth of training,\n"
        "*average* the area under the curve; brackets are 95 % bootstrap intervals over seeds. Returns are those of\n"
        "evaluation: 64 episodes of the world as it is registered, actions drawn from the policy. On Atari they are\n"
        "unclipped scores of the last 100 whole games of training, over the agent's steps of 4 frames.\n"
        "[Experiments](experiments.md) says how to run them, [Deviations](deviations.md) what the paper leaves open.\n",
        "## Claim by claim\n",
        claims(experiments) + "\n",
        (DOCS / "results" / "remarks.txt").read_text(encoding="utf-8"),
        *(section(experiments[name]) for name in TITLES if name in experiments),
    ]
    return "\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail unless the page is up to date; write nothing")
    options = parser.parse_args(arguments)
    experiments = {name: found for name in TITLES if (found := Experiment.read(name)) is not None}
    pages: dict[Path, str] = {PAGE: page(experiments)}
    if options.check:
        check(pages, COMMAND, [RESULTS / name / f"{figure_of(name)}.png" for name in experiments])
    else:
        write(pages)


if __name__ == "__main__":
    main()
