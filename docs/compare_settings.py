"""Compare two settings, or the seeds of several, across experiments: means of returns and a permutation test.

python docs/compare_settings.py WORLD EXPERIMENT:SETTING[+EXPERIMENT:SETTING ...] EXPERIMENT:SETTING[+...]

Experiments are folders of tables in docs/results/. Settings that are joined by + count as one, with the seeds of all:
use them for settings that are equal except in their seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from result_tables import ExperimentTables

from dgvf_agents.experiments.evidence import returns_of
from dgvf_agents.experiments.statistics import difference_test, probability_of_improvement
from dgvf_agents.experiments.tables import QUANTITIES, Quantity


def returns(world: str, settings: str, quantity: Quantity) -> np.ndarray:
    """[seeds] returns of settings joined by +.

    Raises:
        ValueError: one is not `EXPERIMENT:SETTING`, or was not run on the world.
    """
    parts = []
    for part in settings.split("+"):
        name, colon, label = part.partition(":")
        experiment = ExperimentTables.read(name) if colon else None
        if experiment is None or label not in experiment.results.settings(world):
            raise ValueError(f"settings must be EXPERIMENT:SETTING with tables of {world}, got {part!r}")
        parts.append(returns_of(experiment.results, world, label, quantity))
    return np.concatenate(parts)


def comparison(world: str, first: str, other: str) -> list[str]:
    """A line for each quantity."""
    lines = []
    for quantity in QUANTITIES:
        ours, theirs = returns(world, first, quantity), returns(world, other, quantity)
        test = difference_test(ours, theirs)
        larger = float(probability_of_improvement(ours, theirs))
        lines.append(
            f"{quantity}: means {ours.mean():.1f} and {theirs.mean():.1f} ({len(ours)} and {len(theirs)} seeds), "
            f"p = {test.p:.2g}; a run of the first is larger with probability {larger:.2f}"
        )
    return lines


def main(arguments: Sequence[str]) -> None:
    if len(arguments) != 3:
        raise SystemExit(__doc__)
    print("\n".join(comparison(*arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
