"""The section of the results page about `dgvf reproduce own-tasks`: default settings beside A2C's, task by task."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from generated import table
from result_tables import ExperimentTables

from dgvf_agents.experiments.evidence import improvement_over, interval, mean_of, number, p_value, returns_of
from dgvf_agents.experiments.figures import NAMES
from dgvf_agents.experiments.outside_tasks import OWN_TASK_METHODS, OWN_TASKS
from dgvf_agents.experiments.statistics import Estimate, difference_test
from dgvf_agents.experiments.tables import Results, where
from dgvf_agents.experiments.worlds import reference_of

REFERENCE = "sb3-a2c"
OURS = "discovered"


def own_tasks_section(experiment: ExperimentTables) -> str:
    """Final returns by task, their ratio to A2C's, and all tasks together."""
    headings = ("Task", "Steps", "Seeds", *(NAMES[method] for method in OWN_TASK_METHODS), "Ratio", "p")
    parts = [
        "Every method uses its defaults, the same on every task: 8 environments, batches of 40 steps, `MlpPolicy`.\n"
        "The return of a run is the mean return of the last 100 training episodes, averaged over the last tenth of\n"
        "training. *Ratio* is the default's mean return divided by A2C's, both normalized to 0 for the uniformly\n"
        "random policy and 1 for the return that counts as solved. There is no ratio if A2C learns nothing, that is,\n"
        "if its normalized return is below 0.02. p is that of the difference of these two means.\n"
        "`auxiliary_coefficient` was chosen between 0.03 and 0.1 on CartPole-v1, which is among these tasks.\n",
        table(headings, _rows(experiment), right=(1, 2)) + "\n",
        "All tasks together, in normalized returns, with 95 % bootstrap intervals over seeds within tasks.\n"
        "*Discovered is better* is the probability that a run with discovered questions has the larger final return,\n"
        "averaged over tasks. Wall times include compilation. Two runs went on in parallel, some of them beside other\n"
        "programs, so compare wall times with care:\n",
        table(
            ("Method", "Interquartile mean", "Mean", "Discovered is better", "Wall time of a run"), _overall(experiment)
        )
        + "\n",
    ]
    return "\n".join(parts)


def _rows(experiment: ExperimentTables) -> list[tuple[str, ...]]:
    rows, results = [], experiment.results
    for task in results.worlds():
        found = {method: mean_of(results, task, method, "final") for method in results.settings(task)}
        returns = [interval(found[method]) if method in found else "–" for method in OWN_TASK_METHODS]
        seeds = sorted(where(results.summary, world=task, quantity="final")["seeds"].unique())
        ratio = _ratio(task, found[OURS].value, found[REFERENCE].value) if {OURS, REFERENCE} <= set(found) else "–"
        counts = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
        steps, p = f"{OWN_TASKS[task].steps:,}", _difference(results, task)
        rows.append((task, steps, counts, *returns, ratio, p))
    return rows


def _difference(results: Results, task: str) -> str:
    ours, theirs = (returns_of(results, task, method, "final") for method in (OURS, REFERENCE))
    return p_value(difference_test(ours, theirs).p) if min(len(ours), len(theirs)) > 1 else "–"


def _ratio(task: str, ours: float, theirs: float) -> str:
    ours, theirs = (reference_of(task).normalized(value) for value in (ours, theirs))
    return f"{ours / theirs:.2f}" if theirs >= 0.02 else f"– ({ours:.2f} and {theirs:.2f})"


def _overall(experiment: ExperimentTables) -> list[tuple[str, ...]]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for run in experiment.provenance["runs"]:
        seconds[run["run"].split("/")[1].split(" ")[0]].append(run["wall_seconds"])
    rows: list[tuple[str, ...]] = []
    for row in where(experiment.results.summary, world="all", quantity="final").itertuples():
        better = "–"
        if row.setting != OURS:
            better = interval(improvement_over(experiment.results, "all", row.setting, "final"))
        middle = Estimate(row.interquartile_mean, row.interquartile_mean_low, row.interquartile_mean_high)
        mean = interval(mean_of(experiment.results, "all", row.setting, "final"))
        wall = f"{number(float(np.mean(seconds[row.setting])))} s"
        rows.append((NAMES[row.setting], interval(middle), mean, better, wall))
    return rows
