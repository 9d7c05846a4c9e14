"""The comparison with JAX in benchmarks, with JAX and without it."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest

from dgvf_agents.bench import reference
from dgvf_agents.bench.report import header_of
from dgvf_agents.bench.training import AgentsBenchmark

RATES = {"sb3": 10.0, "sb3-adapter": 20.0, "none": 4_000.0, "discovered": 30_000.0}


def test_ratios_are_ours_to_jax() -> None:
    assert reference.compared({**RATES, "jax": 40_000.0}, "discovered") == {"jax": "40,000", "to_jax": "0.75x"}
    assert reference.compared(RATES, "discovered") == {"jax": "–", "to_jax": "–"}


def test_there_is_no_reference_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "find_spec", lambda name: None)
    assert reference.jax_rates("PuddleWorld-v0", [], 1) == {}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system cannot limit cores")
def test_cores_are_limited_and_given_back() -> None:
    before = os.sched_getaffinity(0)
    with reference.limited_cores(1):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("installed", [True, False])
def test_reports_have_the_versions_of_what_is_installed(monkeypatch: pytest.MonkeyPatch, installed: bool) -> None:
    name = "pytest" if installed else "not-installed"
    monkeypatch.setattr(AgentsBenchmark, "optional_packages", (name,))
    assert (name in header_of("dgvf bench agents", AgentsBenchmark())["versions"]) == installed


def test_the_page_shows_jax_where_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = Path(__file__).parents[2] / "docs"
    monkeypatch.syspath_prepend(docs)
    page_of = importlib.import_module("generate_benchmark_page").training
    report = json.loads((docs / "results" / "bench-agents.json").read_text())
    report["rows"] = [row for row in report["rows"] if row["measure"] != "speed"]

    def page_with(*rates: dict[str, float]) -> str:
        rows = [{"measure": "speed", "world": "PuddleWorld-v0", "threads": 1, "steps_per_s": each} for each in rates]
        return page_of({**report, "rows": [*rows, *report["rows"]]})

    assert "JAX" not in page_with(RATES)
    page = page_with({**RATES, "jax": 40_000.0}, RATES)
    assert "'.[jax]'" in page
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    shown = [row for row in cells if row[0] == "PuddleWorld-v0" and len(row) == 9]
    assert [row[-2:] for row in shown] == [["40,000", "0.75x"], ["–", "–"]]
