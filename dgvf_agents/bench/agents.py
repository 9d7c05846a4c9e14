"""Training speed and memory: our agents beside Stable-Baselines3's A2C, each case in a process of its own."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from dgvf_agents.bench.own_process import measured_apart
from dgvf_agents.bench.report import write_report
from dgvf_agents.bench.tables import headed

WORLDS = {"PuddleWorld-v0": "PaperMlpPolicy", "CollectObjects-v0": "CnnPolicy"}


@dataclass(frozen=True)
class AgentsBenchmark:
    """Measure training steps per second and memory."""

    threads: tuple[int, ...] = (1, 2)
    """Numbers of PyTorch threads to measure with."""
    seconds: float = 5.0
    """How long each of the repetitions trains."""
    repetitions: int = 3
    """Repetitions; the median counts. The agents take turns."""
    unroll_lengths: tuple[int, ...] = (5, 10, 25, 50)
    """L for the growth table."""
    questions: tuple[int, ...] = (8, 32, 128)
    """D for the growth table."""
    iterations: int = 1_000
    """Meta-updates over which memory must not grow, on the first of the worlds."""
    worlds: tuple[str, ...] = tuple(WORLDS)
    """Ids of the environments."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none when left out."""

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"seconds must be > 0, got {self.seconds!r}")
        for name, least in (("repetitions", 1), ("iterations", 10)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be >= {least}, got {getattr(self, name)!r}")
        unknown = set(self.worlds) - set(WORLDS)
        if unknown:
            raise ValueError(f"worlds must be among {sorted(WORLDS)}, got {sorted(unknown)}")


def run(benchmark: AgentsBenchmark) -> list[dict[str, Any]]:
    """Measure, print the tables, and write the report; returns all rows."""
    console = Console()
    speed = _over_worlds("speed", "training speed", benchmark, console)
    parts = _over_worlds("parts", "acting and updates", benchmark, console)
    growth = _growth(benchmark, console)
    lasting = _lasting(benchmark)
    products = [_case({"measure": "products", "seconds": 1.0, "threads": t}) for t in benchmark.threads]
    console.print(_speed_table(speed))
    console.print(_parts_table(parts))
    console.print(_growth_table(growth))
    console.print(
        f"resident memory after {benchmark.iterations // 10} and {benchmark.iterations} meta-updates: "
        f"{lasting['early_mib']:.0f} and {lasting['late_mib']:.0f} MiB"
    )
    for row in products:
        console.print(
            f"{row['threads']} thread(s): matrix products of the 512-unit layer at {row['gflops']:.0f} GFLOP/s"
        )
    rows = [*speed, *parts, *growth, lasting, *products]
    if benchmark.output is not None:
        write_report(benchmark.output, "dgvf bench agents", benchmark, rows)
    return rows


def _over_worlds(measure: str, what: str, benchmark: AgentsBenchmark, console: Console) -> list[dict[str, Any]]:
    """A measure on each of the worlds with each number of threads."""
    cases = list(itertools.product(benchmark.worlds, benchmark.threads))
    rows = []
    for world, threads in track(cases, what, console=console, transient=True):
        answer = _case(
            {
                "measure": measure,
                "world": world,
                "policy": WORLDS[world],
                "threads": threads,
                "seconds": benchmark.seconds,
                "repetitions": benchmark.repetitions,
            }
        )
        rows.append(answer)
    return rows


def _growth(benchmark: AgentsBenchmark, console: Console) -> list[dict[str, Any]]:
    cases = [(length, 128, storage) for length in benchmark.unroll_lengths for storage in ("graph", "recompute")]
    cases += [(10, questions, "graph") for questions in benchmark.questions]
    rows = []
    for length, questions, storage in track(cases, "growth", console=console, transient=True):
        settings = {"unroll_length": length, "questions": questions, "storage": storage}
        world = benchmark.worlds[-1]
        rows.append(_case({"measure": "growth", "world": world, "policy": WORLDS[world], "threads": 1, **settings}))
    return rows


def _lasting(benchmark: AgentsBenchmark) -> dict[str, Any]:
    world = benchmark.worlds[0]
    settings = {"unroll_length": 10, "questions": 128, "storage": "graph", "iterations": benchmark.iterations}
    return _case({"measure": "lasting", "world": world, "policy": WORLDS[world], "threads": 1, **settings})


def _case(case: dict[str, Any]) -> dict[str, Any]:
    """Measure one case in a fresh process."""
    return measured_apart("dgvf_agents.bench.agents_case", case)


def _speed_table(rows: list[dict[str, Any]]) -> Table:
    headings = ("environment", "threads", "SB3 A2C", "SB3 A2C, our envs", "our A2C", "discovered GVFs")
    title = "Training, environment steps per second (ratio to Stable-Baselines3's A2C)"
    table = headed(title, (*headings, "time, discovered / our A2C"), first_are_names=True)
    for row in rows:
        sb3, adapted, a2c, discovered = row["steps_per_s"].values()
        table.add_row(
            row["world"],
            str(row["threads"]),
            f"{sb3:,.0f}",
            f"{adapted:,.0f}",
            f"{a2c:,.0f} ({a2c / sb3:.2f}x)",
            f"{discovered:,.0f} ({discovered / sb3:.2f}x)",
            f"{a2c / discovered:.2f}x",
        )
    return table


def _parts_table(rows: list[dict[str, Any]]) -> Table:
    agents = ("our A2C", "discovered GVFs")
    headings = ("environment", "threads", *(f"{agent}, {part}" for agent in agents for part in ("acting", "update")))
    table = headed("Milliseconds per iteration, all steps of a rollout and its update", headings, first_are_names=True)
    for row in rows:
        times = [f"{ms:.2f}" for agent in row["ms_per_iteration"].values() for ms in agent.values()]
        table.add_row(row["world"], str(row["threads"]), *times)
    return table


def _growth_table(rows: list[dict[str, Any]]) -> Table:
    headings = ("L", "D", "storage", "ms per update", "GFLOP/s", "peak MiB over the model's", "of it L copies, MiB")
    table = headed("Growth with unroll length L and questions D", headings)
    for row in rows:
        table.add_row(
            str(row["unroll_length"]),
            str(row["questions"]),
            row["storage"],
            f"{row['ms_per_update']:.2f}",
            f"{row['gflops']:.0f}",
            f"{row['peak_mib']:.0f}",
            f"{row['copies_mib']:.0f}",
        )
    return table
