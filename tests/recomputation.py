"""Recompute numbers of the results page from the records with pandas and SciPy alone, as an independent look at it.

python -m tests.recomputation docs/results/records
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.stats

SOLVED = {"collect-objects": 2.9, "collect-objects-small": 2.9, "puddle-world": -45.0}
SHORT = ["evaluate_every=40000", "steps=1000000"]
"""Of figures 4 and 5 in the rooms."""
TASKS = pd.read_csv(Path(__file__).parents[1] / "dgvf_agents" / "experiments" / "tasks.csv", index_col="name")
OWN_TASKS = TASKS.index[:11]
"""The rest are tasks of searches, and games."""
JOINT = [
    *("discovered,auxiliary_coefficient=0.001", "random,auxiliary_coefficient=0.0001"),
    "reward-prediction,auxiliary_coefficient=0.0001",
]
"""With the coefficients that the searches of `joint` chose."""


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
    files = sorted(store.glob("*.csv"))
    runs = pd.concat([pd.read_csv(file).assign(world=file.stem.replace("~", "/")) for file in files]).reset_index()
    numbers = runs[["returns", "steps"]].astype(str).map(lambda text: np.array(text.split(), float))
    returns, steps = numbers["returns"], numbers["steps"]
    runs["final"] = [np.mean(one[-5:]) for one in returns]
    # of straight lines between the points, with the first return from the start on
    bins = [np.diff(one, prepend=0.0) for one in steps]
    lines = [(np.concatenate([one[:1], one[:-1]]) + one) / 2 for one in returns]
    runs["average"] = [np.average(line, weights=width) for line, width in zip(lines, bins, strict=True)]
    tasks = TASKS.reindex(runs["world"]).set_index(runs.index)
    for name in ("final", "average"):
        runs[f"normalized {name}"] = (runs[name] - tasks["random"]) / (tasks["solved"] - tasks["random"])
    return runs.assign(solved=1.0 * (runs["final"] >= runs["world"].map(SOLVED).fillna(np.inf)))


def effects(runs: pd.DataFrame) -> pd.DataFrame:
    """Differences of the first setting of a claim, or of an auxiliary task, and each other one, with 95% intervals."""
    objectives = ["discovered", "discovered,objective=end"]
    figures = {
        "figure-2.4": ([], ["discovered", "random", "reward-prediction"], "solved"),
        "figure-4.1": (SHORT, objectives, "solved"),
        "figure-4.2": (SHORT, objectives, "average"),
        "figure-5.1": (SHORT, ["discovered", "discovered,unroll_length=1", "discovered,unroll_length=2"], "solved"),
        "figure-5.4": (SHORT, ["discovered", "discovered,horizon=myopic"], "solved"),
    }
    rows = []
    for claim, (shorter, settings, measure) in figures.items():
        rooms = [",".join([name, *sorted([*changes, *shorter])]) for name, *changes in (x.split(",") for x in settings)]
        rows += _effects(claim, runs, {"puddle-world": settings, "collect-objects": rooms}, measure)
    for number, other in enumerate(["none", "none", *JOINT[1:]], 1):
        games = {game: [JOINT[0], other] for game in TASKS.index[-5:]}
        rows += _effects(f"joint.{number}", runs, games, f"normalized {'average' if number == 1 else 'final'}")
    for setting in sorted(one for one in set(runs["setting"]) if one.endswith("auxiliary_weighting=fixed")):
        claim, settings = "own-tasks.1" if setting.startswith("discovered") else setting, [setting, "none"]
        rows += _effects(claim, runs, dict.fromkeys(OWN_TASKS, settings), "normalized final")
    return pd.DataFrame(rows, columns=["claim", "other", "effect", "low", "high"])


def _effects(claim: str, runs: pd.DataFrame, names: dict[str, list[str]], measure: str) -> list[tuple]:
    """Over seeds that one processor has in all settings."""
    compare = {"solved": _fractions, "average": _improvement}.get(measure, _interquartile)
    strata = []
    for world, settings in names.items():
        table = runs[runs["world"] == world].pivot_table(measure, ["processor", "seed"], "setting")[settings].dropna()
        table = table[~table.index.get_level_values("seed").duplicated()]
        processors = table.index.get_level_values("processor")
        alone = ~processors.duplicated(keep=False)
        several = processors.where(~alone, processors[~alone].min())  # a seed that is alone counts with another's
        strata += [(part.to_numpy().T, len(part) / len(table)) for _, part in table.groupby(several)]
    others = list(enumerate(next(iter(names.values()))))[1:]
    pairs = {other: [(values[[0, i]], weight / len(names)) for values, weight in strata] for i, other in others}
    return [(claim, other, *compare(pair)) for other, pair in pairs.items()]


def _fractions(strata: list[tuple[np.ndarray, float]]) -> tuple[float, float, float]:
    """Weighted difference of fractions, its interval from Wilson's of each fraction (Newcombe 1998)."""
    z, effect, below, above = 1.959964, 0.0, 0.0, 0.0
    for values, weight in strata:
        p, n = values.mean(axis=1), values.shape[1]
        center, half = p + z**2 / 2 / n, z * np.sqrt(p * (1 - p) / n + z**2 / 4 / n**2)
        low, high = (center - half) / (1 + z**2 / n), (center + half) / (1 + z**2 / n)
        effect += weight * (p[0] - p[1])
        below += weight**2 * ((p[0] - low[0]) ** 2 + (high[1] - p[1]) ** 2)
        above += weight**2 * ((high[0] - p[0]) ** 2 + (p[1] - low[1]) ** 2)
    return effect, effect - below**0.5, effect + above**0.5


def _interquartile(strata: list[tuple[np.ndarray, float]]) -> tuple[float, float, float]:
    """Difference of interquartile means of all runs."""

    def difference(parts: list[np.ndarray]) -> np.ndarray:
        first, second = scipy.stats.trim_mean(np.concatenate(parts, axis=-1), 0.25, axis=-1)
        return first - second

    return _bootstrapped(difference, strata)


def _improvement(strata: list[tuple[np.ndarray, float]]) -> tuple[float, float, float]:
    """Weighted probability that the first one's run is better than the second one's, above 1/2 (Mann-Whitney's U)."""

    def excess(parts: list[np.ndarray]) -> np.ndarray:
        u = [scipy.stats.mannwhitneyu(*part, axis=-1).statistic / part.shape[-1] ** 2 for part in parts]
        return sum(weight * (share - 0.5) for (_, weight), share in zip(strata, u, strict=True))

    return _bootstrapped(excess, strata)


def _bootstrapped(
    difference: Callable[[list[np.ndarray]], np.ndarray], strata: list[tuple[np.ndarray, float]]
) -> tuple[float, float, float]:
    """A statistic with its interval; both runs of a seed are resampled together, within strata."""
    samples, generator = [values for values, _ in strata], np.random.default_rng(1)
    resampled = [of[:, generator.integers(of.shape[1], size=(2_000, of.shape[1]))] for of in samples]
    low, high = np.percentile(difference(resampled), [2.5, 97.5])
    return float(difference(samples)), low, high


if __name__ == "__main__":
    store = Path(sys.argv[1])
    print(recompute(store).to_string(index=False), effects(read(store)).round(2).to_string(index=False), sep="\n\n")
