"""Recompute numbers of the results page from the records with pandas and SciPy alone, as an independent look at it.

python -m tests.recomputation docs/results/records
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.stats

SOLVED = {"collect-objects": 2.9, "collect-objects-small": 2.9, "puddle-world": -45.0}
SHORT = ["evaluate_every=40000", "steps=1000000"]
"""Of figures 4 and 5 in the rooms."""
TASKS = pd.read_csv(Path(__file__).parents[1] / "dgvf_agents" / "experiments" / "tasks.csv", index_col="name")


def recompute(store: Path) -> pd.DataFrame:
    """Runs, solved runs with their exact 95% interval, and the mean final return of every setting."""
    found = read(store).groupby(["world", "setting"])
    table = found.agg(runs=("seed", "size"), solved=("solved", "sum"), final=("final", "mean")).reset_index()
    missed = table["runs"] - table["solved"]
    table["low"] = scipy.stats.beta.ppf(0.025, table["solved"], missed + 1)
    table["high"] = scipy.stats.beta.ppf(0.975, table["solved"] + 1, missed)
    return table.fillna({"low": 0.0, "high": 1.0})


def read(store: Path) -> pd.DataFrame:
    """All runs with their final and normalized return, and whether it solves the world, 0 or 1."""
    runs = pd.concat([pd.read_csv(file).assign(world=file.stem) for file in sorted(store.glob("*.csv"))]).reset_index()
    runs["final"] = [np.mean([float(one) for one in text.split()][-5:]) for text in runs["returns"].astype(str)]
    tasks = TASKS.reindex(runs["world"]).set_index(runs.index)
    runs["normalized"] = (runs["final"] - tasks["random"]) / (tasks["solved"] - tasks["random"])
    return runs.assign(solved=1.0 * (runs["final"] >= runs["world"].map(SOLVED).fillna(np.inf)))


def effects(runs: pd.DataFrame) -> pd.DataFrame:
    """Differences of the first setting of a claim, or of an auxiliary task, and each other one, with 95% intervals."""
    figures = {
        "figure-2.4": ([], ["discovered", "random", "reward-prediction"]),
        "figure-4.1": (SHORT, ["discovered", "discovered,objective=end"]),
        "figure-5.1": (SHORT, ["discovered", "discovered,unroll_length=1", "discovered,unroll_length=2"]),
        "figure-5.4": (SHORT, ["discovered", "discovered,horizon=myopic"]),
    }
    rows = []
    for claim, (shorter, settings) in figures.items():
        rooms = [",".join([name, *sorted([*changes, *shorter])]) for name, *changes in (x.split(",") for x in settings)]
        rows += _effects(claim, runs, {"puddle-world": settings, "collect-objects": rooms}, "solved")
    for name, task in {"own-tasks.1": "discovered", "random": "random", "prediction": "reward-prediction"}.items():
        settings = [f"{task},auxiliary_coefficient=0.0001", "none"]
        rows += _effects(name, runs, dict.fromkeys(TASKS.index[:11], settings), "normalized")
    return pd.DataFrame(rows, columns=["claim", "other", "effect", "low", "high"])


def _effects(claim: str, runs: pd.DataFrame, names: dict[str, list[str]], measure: str) -> list[tuple]:
    """Over seeds that one processor has in all settings; the bootstrap stays within world and processor."""
    statistic = _interquartile if measure == "normalized" else _means
    strata = []
    for world, settings in names.items():
        table = runs[runs["world"] == world].pivot_table(measure, ["processor", "seed"], "setting")[settings].dropna()
        table = table[~table.index.get_level_values("seed").duplicated()]
        strata.append([part.to_numpy().T for _, part in table.groupby("processor")])
    rows, generator = [], np.random.default_rng(1)
    for i, other in enumerate(next(iter(names.values()))[1:], start=1):
        pairs = [[part[[0, i]] for part in world] for world in strata]
        resampled = [
            statistic([[[generator.choice(x, len(x)) for x in part] for part in world] for world in pairs])
            for _ in range(1_000)
        ]
        rows.append((claim, other, statistic(pairs), *np.percentile(resampled, [2.5, 97.5])))
    return rows


def _means(strata: list) -> float:
    return float(np.mean([np.subtract(*np.mean(np.concatenate(world, axis=1), axis=1)) for world in strata]))


def _interquartile(strata: list) -> float:
    pooled = np.concatenate([part for world in strata for part in world], axis=1)
    return float(np.subtract(*scipy.stats.trim_mean(pooled, 0.25, axis=1)))


if __name__ == "__main__":
    store = Path(sys.argv[1])
    print(recompute(store).to_string(index=False), effects(read(store)).round(2).to_string(index=False), sep="\n\n")
