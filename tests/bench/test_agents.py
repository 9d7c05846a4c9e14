"""`dgvf bench agents` through its real main, with tiny settings."""

from __future__ import annotations

import importlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from dgvf_agents.bench import reference, training
from dgvf_agents.bench.operations import OperationCounter, longest_operations, times_alone
from dgvf_agents.cli import main

SMALL = ["--threads", "1", "--seconds", "0.05", "--repetitions", "1", "--unroll-lengths", "2", "--questions", "8"]


@pytest.mark.slow
def test_tables_and_report_of_cases_measured_here_and_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the slow test below, without JAX, processes and compilers, which make it slow."""
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    monkeypatch.setattr(reference, "find_spec", lambda name: None)
    monkeypatch.setattr(training.AgentsBenchmark, "isolated", False)
    measure = training.AgentsBenchmark.measure

    def shortened(self: training.AgentsBenchmark, case: dict[str, Any]) -> dict[str, Any]:
        shorter = {"growth": {}, "products": {"seconds": 0.05}}.get(case["measure"], {"unroll_length": 2})
        return measure(self, {**case, **shorter})

    monkeypatch.setattr(training.AgentsBenchmark, "measure", shortened)
    output = tmp_path / "report.json"
    main(["bench", "agents", *SMALL, "--iterations", "10", "--worlds", "PuddleWorld-v0", "--output", str(output)])
    report = json.loads(output.read_text())
    speed, parts, *growth, lasting, operations, products = report["rows"]
    assert set(speed["steps_per_s"]) == {"sb3", "sb3-adapter", "none", "discovered"}
    assert all(rate > 0 for rate in (*speed["steps_per_s"].values(), products["gflops"]))
    assert sum(row["gflop"] for row in operations["operations"]) > 0 < operations["ms_per_update"]
    times = parts["ms_per_iteration"]
    assert list(times) == ["none", "discovered"]
    assert all(list(agent) == ["acting", "update"] and min(agent.values()) > 0 for agent in times.values())
    assert times["discovered"]["update"] > times["none"]["update"]
    assert [(row["unroll_length"], row["questions"], row["storage"]) for row in growth] == [
        (2, 128, "graph"),
        (2, 128, "recompute"),
        (10, 8, "graph"),
    ]
    graph, recompute, _ = growth
    assert graph["copies_mib"] == recompute["copies_mib"] > 0
    assert recompute["gflop_per_update"] > graph["gflop_per_update"] > 0
    assert all(row["ms_per_update"] > 0 for row in growth)
    assert lasting["early_mib"] > 0
    shown = capsys.readouterr().out
    assert "Milliseconds per iteration" in shown
    assert "Growth with unroll length L and questions D" in shown
    assert f"{products['gflops']:.0f} GFLOP/s" in shown


def test_the_page_shows_acting_beside_the_update_where_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    docs = Path(__file__).parents[2] / "docs"
    monkeypatch.syspath_prepend(docs)
    page_of = importlib.import_module("generate_benchmark_page").training
    report = json.loads((docs / "results" / "bench-agents.json").read_text())
    report["rows"] = [row for row in report["rows"] if row["measure"] != "parts"]
    assert "Milliseconds of an iteration" not in page_of(report)
    times = {"none": {"acting": 1.25, "update": 2.5}, "discovered": {"acting": 3.0, "update": 41.0}}
    row = {"measure": "parts", "world": "PuddleWorld-v0", "threads": 2, "ms_per_iteration": times}
    page = page_of({**report, "rows": [*report["rows"], row]})
    assert "Our A2C, acting" in page
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    assert ["PuddleWorld-v0", "2", "1.25", "2.50", "3.00", "41.00"] in shown


def test_operations_are_those_of_the_matrix_products_and_convolutions() -> None:
    """2 m n k of a product of m x k and k x n, and 2 per weight and output position of a convolution."""
    with OperationCounter() as counter:
        torch.randn(3, 4) @ torch.randn(4, 5) + 1.0
    assert counter.total == 2 * 3 * 4 * 5
    with OperationCounter() as counter:
        torch.nn.functional.conv2d(torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3))
    assert counter.total == 2 * (2 * 4 * 4 * 4) * (3 * 3 * 3)


def test_operations_are_repeated_by_themselves() -> None:
    a, weights = torch.randn(6, 4).T, torch.randn(4, 3, 2, 2)
    with OperationCounter() as counter:
        for _ in range(4):
            a @ torch.randn(6, 5)
            torch.nn.functional.conv2d(torch.randn(2, 3, 6, 6), weights, stride=2)
            torch.nn.functional.conv2d(torch.randn(2, 3, 6, 6), weights)
    repeated = {operation: call().shape for operation, call in counter.repeat.items() if operation.name == "mm"}
    assert list(repeated.values()) == [(4, 5)]
    rows = times_alone(counter, 2, 0.001)
    assert [row["ms"] for row in rows] == sorted((row["ms"] for row in rows), reverse=True)
    (product,) = (row for row in rows if row["operation"] == "mm")
    assert (product["calls"], product["shapes"]) == (2, "4×6 6×5")
    assert product["gflop"] == pytest.approx(2e-9 * 2 * 4 * 6 * 5)


def test_short_operations_are_summed_up() -> None:
    times = {"a": 9.5, "b": 0.3, "c": 0.2}
    rows = [{"operation": name, "shapes": "", "calls": 1, "gflop": 0.5, "ms": ms} for name, ms in times.items()]
    longest = longest_operations(rows, 0.05)
    assert [(row["operation"], row["calls"], row["ms"]) for row in longest] == [("a", 1, 9.5), ("others", 2, 0.5)]


def test_the_error_of_a_case_in_a_new_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    case = {"measure": "nothing", "seconds": 0.01, "threads": 1}
    monkeypatch.setattr(training.AgentsBenchmark, "cases", lambda self: [case])
    with pytest.raises(RuntimeError, match=r"(?s)case .*'nothing'.* failed:.*KeyError: 'nothing'"):
        training.AgentsBenchmark().run()


@pytest.mark.slow
def test_the_benchmark_measures_and_writes_its_report(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    small = ["--threads", "1", "--seconds", "0.2", "--repetitions", "1", "--unroll-lengths", "2", "--questions", "8"]
    small += ["--iterations", "10"]
    main(["bench", "agents", *small, "--worlds", "PuddleWorld-v0", "--output", str(output)])
    report = json.loads(output.read_text())
    speed, parts, *growth, lasting, operations, products = report["rows"]
    with_jax = {"jax"} if find_spec("jax") else set()
    assert set(speed["steps_per_s"]) == {"sb3", "sb3-adapter", "none", "discovered"} | with_jax
    assert set(report["versions"]) >= with_jax
    assert all(rate > 0 for rate in speed["steps_per_s"].values())
    assert list(parts["ms_per_iteration"]) == ["none", "discovered"]
    assert all(min(agent.values()) > 0 for agent in parts["ms_per_iteration"].values())  # of simulated rollouts, too
    assert [(row["unroll_length"], row["storage"]) for row in growth] == [(2, "graph"), (2, "recompute"), (10, "graph")]
    assert all(row["copies_mib"] > 0 for row in growth)
    assert all(row["gflops"] > 0 for row in (*growth, products))
    assert operations["ms_per_update"] > 0
    assert 0 < lasting["early_mib"] <= lasting["late_mib"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": 0.0}, "seconds must be > 0, got 0.0"),
        ({"iterations": 9}, "iterations must be >= 10, got 9"),
        ({"repetitions": 0}, "repetitions must be >= 1, got 0"),
        ({"worlds": ("Pong-v5",)}, r"worlds must be among .*got \['Pong-v5'\]"),
    ],
)
def test_bad_settings_are_named(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training.AgentsBenchmark(**changes)
