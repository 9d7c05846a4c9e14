"""The reader's script that recomputes results from episodes agrees with the tables, and notices what does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dgvf_agents.experiments.tables import Results, make_table

SCRIPT = Path(__file__).parents[2] / "docs" / "recompute_results.py"


def tables(folder: Path, wrong: float = 0.0) -> None:
    """Two seeds on PuddleWorld with evaluations of two episodes each; the second seed ends unsolved."""
    random = np.random.default_rng(0)
    episodes, cells = [], []
    for seed, level in enumerate((-40.0, -60.0)):
        returns = level + random.normal(size=(10, 2))
        for k, pair in enumerate(returns.tolist()):
            episodes += [("puddle-world", "a2c", seed, 10 * (k + 1), " ".join(map(repr, pair)), "7 7")]
        means = returns.mean(axis=1)
        average = (10 * means[0] + 10 * ((means[1:] + means[:-1]) / 2).sum()) / 100
        cells.append(("puddle-world", "a2c", seed, 100, "evaluation", means[-1] + wrong, average))
    Results(make_table("cells", cells), evaluations=make_table("evaluations", episodes)).write(folder, {})


def printed(folder: Path) -> list[str]:
    command = [sys.executable, str(SCRIPT), str(folder)]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()


@pytest.mark.parametrize("wrong", [0.0, 0.5])
def test_numbers_are_recomputed_from_episodes(wrong: float, tmp_path: Path) -> None:
    tables(tmp_path, wrong)
    numbers, deviation = printed(tmp_path)
    assert numbers.startswith("puddle-world a2c: final ")
    assert numbers.endswith("1 of 2 seeds end solved")
    assert float(deviation.rpartition(" ")[2]) == pytest.approx(wrong, abs=1e-6)
