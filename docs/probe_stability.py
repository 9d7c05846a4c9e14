"""Train and probe the runs of the page on exploding meta-gradients, and write its tables to `results/stability/`.

python docs/probe_stability.py FOLDER

The runs are in the folder; unfinished ones continue.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from dgvf_agents.cli import main as dgvf
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.stability import probe

TABLES = Path(__file__).parent / "results" / "stability"
EARLIER_PRESET = {
    "learning-rate": "0.0007",
    "ent-coef": "1.5",
    "final-ent-coef": "0.015",
    "auxiliary-coefficient": "0.01",
    "final-auxiliary-coefficient": "None",
    "max-episode-steps": "200",
}
FAST = {"auxiliary-coefficient": "0.03", "learning-rate": "0.001", "ent-coef": "0.3", "final-ent-coef": "0.003"}
RUNS: dict[str, dict[str, str]] = {
    "c = 0.03, constant rate 0.001": {**FAST, "final-learning-rate": "None"},
    "c = 0.03, rate 0.001 to 0": FAST,
    "c = 0.03, rate 0.001 to 0, seed 1": {**FAST, "seed": "1"},
    "c = 0.01, rate 0.001 to 0": {**FAST, "auxiliary-coefficient": "0.01"},
    "c = 0.01, rate 0.0007 to 0": {},
    "c = 0.3, rate 0.0007 to 0": {"auxiliary-coefficient": "0.3"},
}
"""Options of the runs besides the earlier preset's, on PuddleWorld-v0 with discovered questions."""


def train(name: str, folder: Path) -> pd.DataFrame:
    """A row for each checkpoint, with the last evaluation and the last meta-gradient before it."""
    if (folder / "config.json").exists():
        dgvf(["train", "--resume", str(folder)])
    else:
        given = [f"--{option}={value}" for option, value in {**EARLIER_PRESET, **RUNS[name]}.items()]
        checkpoints = ("--checkpoint-every", "500_000", "--checkpoints-kept", "10")
        dgvf(["train", "puddle-world", "discovered", *checkpoints, *given, "--out", str(folder)])
    probe(folder)
    measured = pd.read_csv(folder / "stability.csv").sort_values("steps")
    progress = pd.read_csv(RunFolder(folder).progress_file).ffill()
    columns = {"time/total_timesteps": "steps", "eval/mean_reward": "return", "meta/gradient_norm": "meta-gradient"}
    known = progress[list(columns)].rename(columns=columns).dropna(subset="steps").astype({"steps": int})
    found = pd.merge_asof(measured[["steps", "spectral_radius", "gain"]], known, on="steps")
    return found[["steps", "return", "spectral_radius", "gain", "meta-gradient"]].assign(run=name)


def write(rows: pd.DataFrame) -> None:
    """Write all checkpoints, and a row for each run."""
    summary = rows.groupby("run", sort=False).agg(
        **{
            "median radius": ("spectral_radius", "median"),
            "largest radius": ("spectral_radius", "max"),
            "median gain": ("gain", "median"),
            "largest gain": ("gain", "max"),
            "final return": ("return", "last"),
        }
    )
    TABLES.mkdir(exist_ok=True)
    summary.to_csv(TABLES / "summary.csv", float_format="%.3g")
    rows.set_index("run").to_csv(TABLES / "checkpoints.csv", float_format="%.4g")


if __name__ == "__main__":
    write(pd.concat([train(name, Path(sys.argv[1]) / str(i)) for i, name in enumerate(RUNS)]))
