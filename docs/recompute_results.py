"""Recompute returns and solved seeds from records with pandas alone, as an independent look at the pages.

python docs/recompute_results.py docs/results/records
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

SOLVED = {"collect-objects": 2.9, "collect-objects-small": 2.9, "puddle-world": -45.0}


def recompute(store: Path) -> pd.DataFrame:
    """Seeds, solved seeds and the mean final return of every setting."""
    tables = []
    for file in sorted(store.glob("*.csv")):
        runs = pd.read_csv(file)
        returns = runs["returns"].str.split(expand=True).astype(float)
        runs["final"] = returns.apply(lambda row: row.dropna().iloc[-5:].mean(), axis=1)
        runs["solved"] = runs["final"] >= SOLVED.get(file.stem, float("inf"))
        found = runs.groupby("setting").agg(seeds=("seed", "size"), solved=("solved", "sum"), final=("final", "mean"))
        tables.append(found.reset_index().assign(world=file.stem))
    return pd.concat(tables) if tables else pd.DataFrame(columns=["setting", "seeds", "solved", "final", "world"])


if __name__ == "__main__":
    print(recompute(Path(sys.argv[1])).to_string(index=False))
