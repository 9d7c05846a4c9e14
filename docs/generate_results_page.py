"""Write the page of results, claim by claim, from the tables that `dgvf reproduce` left in `results/`.

With `--check`, fail unless the committed page is up to date.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from generated import DOCS, capital, check, table, write
from own_tasks_section import own_tasks_section
from result_tables import RESULTS, Experiment, figure_of

from dgvf_agents.experiments.catalogue import FIGURES
from dgvf_agents.experiments.claims import claim_rows, count_of, ends_solved, interval, mean_of, number, steps_to_solve
from dgvf_agents.experiments.figures import NAMES
from dgvf_agents.experiments.tables import Results, only
from dgvf_agents.experiments.worlds import SOLVED, reference_of

PAGE = DOCS / "results.md"
COMMAND = "python docs/generate_results_page.py"

TITLES = {
    "gridworlds": "Representation learning on the gridworlds",
    "questions": "How many questions",
    "unroll-length": "How many updates a meta-gradient passes through",
    "meta-objective": "Summed or end meta-loss",
    "joint": "Main task and questions together",
    "convention": "Exact and surrogate meta-gradients",
    "search": "The search for hyperparameters",
    "learning-rate": "Two learning rates",
    "low-rate": "Short unrolls and few questions at a low learning rate",
    "atari-laptop/Pong": "Pong on two cores",
    "own-tasks": "Default settings on external tasks",
}
"""Of the sections, in their order, by the folder of their tables; its first part is the name of the experiment."""


def section(experiment: Experiment) -> str:
    """An experiment's picture and table."""
    name, provenance = experiment.name, experiment.provenance
    parts = [
        f"## {TITLES[name]}\n",
        f"{capital(FIGURES[experiment.figure].summary)}.\n",
        *(f"![{TITLES[name]}]({picture.relative_to(DOCS).as_posix()})\n" for picture in experiment.pictures),
        own_tasks_section(experiment) if name == "own-tasks" else _returns(experiment),
    ]
    hours, runs = provenance["wall_seconds"] / 3600, sum(made["runs"] for made in provenance["made_with"])
    optimizers = sorted({c.get("rms_prop", "tensorflow") for c in provenance["configurations"].values()})
    parts.append(
        f"`{provenance['command']}`: {runs} runs, {hours:.1f} hours in total: {_machine(provenance['made_with'])}. "
        f"Inner optimizer: {' and '.join(_RMS_PROP[rule] for rule in optimizers)}.\n"
    )
    if provenance["missing"]:
        parts.append(f"Not run yet: {_missing(provenance['missing'])}.\n")
    return "\n".join(parts)


_RMS_PROP = {"pytorch": "PyTorch's RMSProp", "tensorflow": "TensorFlow's RMSProp (`--rms-prop tensorflow`)"}


def _returns(experiment: Experiment) -> str:
    """Final and average returns, and steps to what counts as solved; what a search chose."""
    rows, results = [], experiment.results
    for world in results.worlds():
        for label in results.settings(world):
            final = only(results.summary, world=world, setting=label, quantity="final")
            first = [f"{steps / 1e6:.2f}M" if steps else "–" for steps in steps_to_solve(results, world, label)]
            rows.append(
                (
                    reference_of(world).env,
                    NAMES.get(label, label),
                    str(final.seeds),
                    interval(mean_of(results, world, label, "final")),
                    number(final.interquartile_mean),
                    interval(mean_of(results, world, label, "average")),
                    f"{SOLVED[world]:g}: {', '.join(first)}",
                    count_of(ends_solved(results, world, label)),
                )
            )
    returns = ("Final return", "Its interquartile mean", "Average return")
    headings = ("World", "Setting", "Seeds", *returns, "Steps to solve, by seed", "Seeds that end solved")
    parts = [table(headings, rows, right=(2, 3, 4, 5)) + "\n"]
    chosen = [
        (reference_of(row.world).env, f"`{row.setting}`", number(row.final_return), number(row.average_return))
        for row in results.choices.itertuples()
    ]
    if chosen:
        parts.append(table(("World", "Chosen", "Final return", "Average return"), chosen, right=(2, 3)) + "\n")
    return "\n".join(parts)


def _missing(runs: Sequence[str]) -> str:
    """`WORLD/SETTING seed N` of several seeds together."""
    seeds: dict[str, list[str]] = defaultdict(list)
    for run in runs:
        setting, _, seed = run.rpartition(" seed ")
        seeds[setting].append(seed)
    return "; ".join(f"{setting} (seed{'s' * (len(of) > 1)} {', '.join(of)})" for setting, of in seeds.items())


def _machine(made_with: Sequence[dict]) -> str:
    """Hardware and versions of the runs that tell; those adopted from plain training do not."""
    told = []
    for made in made_with:
        if made["versions"] is None:
            told.append(f"{made['runs']} adopted from `dgvf train`, with no record of the machine")
        else:
            versions = ", ".join(f"{package} {version}" for package, version in made["versions"].items())
            hardware = made["hardware"]
            told.append(f"{made['runs']} on {hardware['processor']}, {hardware['cores']} cores, {versions}")
    return "; ".join(told)


def _claims(experiments: dict[str, Results]) -> str:
    return table(("The paper", "Where", "World", "Here", "What was found"), claim_rows(experiments))


def _levels() -> str:
    return ", ".join(f"{level:g} on {reference_of(world).env}" for world, level in SOLVED.items())


def page(experiments: dict[str, Experiment]) -> str:
    """The Markdown of the page."""
    parts = [
        "<!-- Generated by docs/generate_results_page.py. -->\n\n# Results\n",
        "Every number in a table below is computed from the tables in `docs/results/`, which `dgvf reproduce` wrote.\n"
        "The command, the versions and the machine are given below each table. *Final* is the mean return of the\n"
        "last tenth of training, *average* the area under the curve. Brackets are 95 % bootstrap intervals over\n"
        "seeds. Returns come from evaluation: 64 episodes of the registered environment, with actions sampled from\n"
        "the policy. A seed *gets* to a return with its first evaluation at or above it, and *ends* there if its\n"
        "final return is at or above it. On Atari, returns are unclipped scores of the last 100 whole games of\n"
        "training, over agent steps of 4 frames. [Experiments](experiments.md) describes how to run the experiments,\n"
        "[Deviations](deviations.md) what the paper leaves open.\n",
        "## Claim by claim\n",
        "The verdicts in the column *Here* are computed too. There are three kinds of claims:\n",
        "- One return is larger than another: **yes** if the intervals do not overlap, **in the mean** if they\n"
        "  overlap, **no** if the means are equal or in reverse order, **the reverse** if the intervals then do not\n"
        "  overlap. Of several comparisons the worst counts.\n"
        "- A setting solves a world by the end of training: **yes** if all seeds do, **in part** if some do, **no**\n"
        "  if none does.\n"
        "- A setting solves a world and others fail: **yes** if it always does and they never do, **in part** if it\n"
        "  does more often than they do, **no** otherwise.\n",
        f"A world is solved at a return of {_levels()}.\n",
        _claims({name: experiment.results for name, experiment in experiments.items()}) + "\n",
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
