"""What benchmarks share: processes, reports, tables, timing, and the examples that they run."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

import pytest
import torch

from dgvf_agents import DGVFA2C
from dgvf_agents.bench import harness
from dgvf_agents.bench.harness import Benchmark, Peak, Row, formatted, tables, with_ratios
from dgvf_agents.bench.training import training_rate


@final
@dataclass(frozen=True, kw_only=True)
class Exits(Benchmark):
    """Whether the process of the case before has ended properly, which stops what it left running."""

    name: ClassVar[str] = "exits"
    folder: Path

    def cases(self) -> list[Row]:
        return [{"table": "Exits", "number": 1}, {"table": "Exits", "number": 2}]

    def measure(self, case: Row) -> list[Row]:
        if not self.folder.is_dir():
            raise ValueError("the lamp is broken")
        atexit.register((self.folder / str(case["number"])).touch)
        return [{"process": os.getpid(), "ended": " ".join(path.name for path in self.folder.iterdir())}]


@pytest.mark.slow
def test_every_case_has_its_own_process_which_ends_before_the_next(tmp_path: Path) -> None:
    first, second = Exits(folder=tmp_path).run("")
    assert (first["number"], second["number"]) == (1, 2)
    assert len({os.getpid(), first["process"], second["process"]}) == 3
    assert (first["ended"], second["ended"]) == ("", "1")
    with pytest.raises(RuntimeError, match=r"case .*'number': 1.* failed: ValueError\('the lamp is broken'\)"):
        Exits(folder=tmp_path / "nothing").run("")


def test_tables_leave_out_what_was_not_measured() -> None:
    rows = [{"A": 1, "C": 0.123, "X": None}, with_ratios({"A": 2_000, "C": 12.34, "D": 247.4}, {"D/C": ("D", "C")})]
    assert "D/C" not in with_ratios(rows[0], {"D/C": ("D", "C")})
    made = tables([{"table": "T", **row} for row in rows] + [{"table": "U", "Y": "y"}])
    assert [list(one) for one in made.values()] == [["A", "C", "D", "D/C"], ["Y"]]
    assert formatted(made["T"]).to_numpy().tolist() == [["1", "0.12", "–", "–"], ["2,000", "12.3", "247", "20.0"]]


@pytest.mark.parametrize(("task", "multiple"), [("none", 1), ("discovered", 4)])
def test_whole_meta_updates_are_timed_without_the_first_updates(
    task: str, multiple: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock of which the first ten updates take 100 s each, others 1 s."""
    settings = {"n_envs": 2, "unroll_length": 4, "compile": False, "device": "cpu", "seed": 0}
    model = DGVFA2C("MlpPolicy", "PuddleWorld-v0", auxiliary_task=task, **settings)
    clock, train = {"now": 0.0}, model.train

    def timed() -> None:
        clock["now"] += 100.0 if model._n_updates < 10 else 1.0
        train()

    monkeypatch.setattr(model, "train", timed)
    monkeypatch.setattr("dgvf_agents.bench.training.time.perf_counter", lambda: clock["now"])
    assert training_rate(model, 10, 6.5) == pytest.approx(model.n_envs * model.n_steps)
    timed_updates = model._n_updates - 10
    assert timed_updates % multiple == 0
    assert 6.5 <= timed_updates < 6.5 + multiple


def test_the_peak_is_over_what_there_was() -> None:
    kept = torch.ones(2**20)
    peak = Peak()
    del kept
    assert peak.mib() < 8
    more = torch.ones(16 * 2**20)
    assert 40 < peak.mib() < 80
    del more
    assert peak.mib() > 40


def test_examples_are_measured_where_they_are_with_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "find_spec", lambda name: True)
    monkeypatch.setattr(harness, "EXAMPLES", tmp_path)
    assert harness.jax_rates("W", 1, 1, "cpu") == {}  # no checkout
    example = tmp_path / "discovery_in_jax.py"
    printed = "{'steps_per_s': [os.environ['JAX_PLATFORMS'], *sys.argv[1:]]}"
    example.write_text(f"import json, os, sys; print(json.dumps({printed}))")
    (rate,) = harness.jax_rates("W", 2, 1, "cuda").values()
    assert rate(0.5) == ["cuda", "--world=W", "--agents=2", "--threads=1", "--seconds=0.5"]
    example.write_text("raise ValueError('no such device')")
    with pytest.raises(RuntimeError, match=r"(?s)discovery_in_jax.py failed:.*no such device"):
        rate(0.5)
