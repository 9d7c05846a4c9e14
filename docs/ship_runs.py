"""Ship runs that `make demo` trained: `python docs/ship_runs.py FOLDER`; without it, only write the table of them.

Takes their settings, records and networks, and what `dgvf evaluate` finds of them.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

from dgvf_agents.storage.files import write_bytes
from dgvf_agents.storage.model_file import networks_only, read_model_file
from dgvf_agents.train.environments import REFERENCE_RETURNS
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import SHIPPED, RunFolder, read_evaluations

MAX_BYTES = 1 << 20
"""Of all checkpoints of a run together, unless the latest alone is larger."""


def ship(run: RunFolder, shipped: RunFolder) -> None:
    """Replace a shipped run by a trained one, without what only training needs."""
    networks = {path: networks_only(read_model_file(path)).to_bytes() for path in run.checkpoints()}
    shutil.rmtree(shipped.path, ignore_errors=True)
    *_, latest = networks.values()
    apart = -(-len(networks) // max(1, MAX_BYTES // len(latest)))
    for path in list(networks)[::-1][::apart]:
        write_bytes(shipped.path / path.relative_to(run.path), networks[path])
    for path in (run.config_file, run.origin_file, run.progress_file, run.evaluations_file):
        shutil.copyfile(path, shipped.path / path.name)
    mean, deviation = evaluate(shipped.path)
    (shipped.path / "evaluation.json").write_text(json.dumps({"mean": mean, "deviation": deviation}, indent=1) + "\n")


def row(name: str) -> list[str]:
    """A shipped run in the table."""
    run = RunFolder.existing(SHIPPED[name])
    config, found = run.read_config(), json.loads((run.path / "evaluation.json").read_text())
    reference = REFERENCE_RETURNS[config.env]
    means = read_evaluations(run.evaluations_file).groupby("steps")["return"].mean()
    worst = means[means.index > config.steps / 2].min()
    numbers = (found["mean"], found["deviation"], reference.optimal, reference.random, worst)
    return [f"`{name}`", config.env, str(config.seed), f"{config.steps:,}", *(f"{number:,.2f}" for number in numbers)]


def main() -> None:
    for name, path in SHIPPED.items() if len(sys.argv) > 1 else ():
        ship(RunFolder.existing(Path(sys.argv[1]) / path.name), RunFolder(path))
        print(name)
    headings = ["Run", "Environment", "Seed", "Steps", "Return", "± std", "Optimal", "Random", "Worst later"]
    with (Path(__file__).parent / "results" / "shipped-runs.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([headings, *map(row, SHIPPED)])


if __name__ == "__main__":
    main()
