"""Training speed and memory on Atari: our agents beside Stable-Baselines3's A2C, each case in a process of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from dgvf_agents.bench import atari_envs
from dgvf_agents.bench.atari_case import AGENTS
from dgvf_agents.bench.own_process import measured_apart
from dgvf_agents.bench.report import write_report
from dgvf_agents.bench.tables import headed
from dgvf_agents.execution.devices import check_device_name, device_named
from dgvf_envs.atari.emulator import title_of


@dataclass(frozen=True)
class AtariBenchmark:
    """Measure training steps per second on a game, where the time goes, and memory as unrolls grow."""

    game: str = "Breakout"
    """The game in Gymnasium's or ALE's spelling."""
    n_envs: int = 32
    """Copies of the game, of every agent (paper: 32)."""
    n_steps: int = 20
    """Steps per copy and update, of every agent (paper: 20)."""
    questions: int = 128
    """D (paper: 128)."""
    unroll_lengths: tuple[int, ...] = (2, 5, 10)
    """L for the growth table; the speed of discovered GVFs is measured at the last (paper: 10)."""
    device: str = "auto"
    """Of all agents: `cpu`, `cuda`, or `auto` for CUDA where there is any."""
    mixed_precision: bool = False
    """Whether our agents' encoders multiply bfloat16 numbers."""
    threads: int = 1
    """Threads of PyTorch, and of our emulators."""
    compile: bool = True
    """Whether our agents' updates are compiled."""
    seconds: float = 20.0
    """How long each of the repetitions trains at least."""
    repetitions: int = 3
    """Repetitions; the median counts. The agents take turns."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none when left out."""

    def __post_init__(self) -> None:
        title_of(self.game)
        check_device_name(self.device)
        if self.seconds <= 0:
            raise ValueError(f"seconds must be > 0, got {self.seconds!r}")
        for name in ("n_envs", "n_steps", "questions", "threads", "repetitions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)!r}")
        if not self.unroll_lengths or min(self.unroll_lengths) < 1:
            raise ValueError(f"unroll_lengths must be >= 1, at least one, got {self.unroll_lengths!r}")


def run(benchmark: AtariBenchmark) -> list[dict[str, Any]]:
    """Measure, print the tables, and write the report; returns all rows.

    Raises:
        ValueError: PyTorch cannot use the device here.
    """
    device_named(benchmark.device)
    console = Console()
    cases = _cases(benchmark)
    rows = [_case(case) for case in track(cases, "measuring", console=console, transient=True)]
    console.print(atari_envs.table([row for row in rows if row["measure"] == "environments"]))
    for table in (_speed_table, _parts_table, _growth_table):
        console.print(table(rows))
    if benchmark.output is not None:
        write_report(benchmark.output, "dgvf bench atari", benchmark, rows)
    return rows


def _cases(benchmark: AtariBenchmark) -> list[dict[str, Any]]:
    names = ("game", "n_envs", "n_steps", "questions", "mixed_precision", "threads", "compile")
    timing = ("seconds", "repetitions")
    common = {name: getattr(benchmark, name) for name in (*names, *timing)}
    common |= {"device": str(device_named(benchmark.device)), "storage": "graph"}
    longest = {**common, "unroll_length": benchmark.unroll_lengths[-1]}
    cases: list[dict[str, Any]] = [{**longest, "measure": measure} for measure in ("environments", "speed")]
    cases += [{**longest, "measure": "parts", "method": method} for method in ("a2c", "discovered")]
    return cases + [
        {**common, "measure": "growth", "unroll_length": length, "storage": storage}
        for length in benchmark.unroll_lengths
        for storage in ("graph", "recompute")
    ]


def _case(case: dict[str, Any]) -> dict[str, Any]:
    """Measure one case in a fresh process."""
    return measured_apart("dgvf_agents.bench.atari_case", case)


def _speed_table(rows: list[dict[str, Any]]) -> Table:
    headings = ("agent", "steps/s", "to SB3's A2C")
    table = headed("Training on Atari, environment steps per second", headings, first_are_names=True)
    for row in rows:
        if row["measure"] == "speed":
            rates = row["steps_per_s"]
            for name, rate in rates.items():
                table.add_row(AGENTS[name], f"{rate:,.0f}", f"{rate / rates['sb3']:.2f}x")
            table.caption = f"A step of discovered GVFs takes {rates['a2c'] / rates['discovered']:.2f}x our A2C's."
    return table


def _parts_table(rows: list[dict[str, Any]]) -> Table:
    of = {row["method"]: row["fractions"] for row in rows if row["measure"] == "parts"}
    table = headed("Where the time goes", ("agent", *next(iter(of.values()))), first_are_names=True)
    for method, fractions in of.items():
        table.add_row(method, *(f"{100 * fraction:.0f}%" for fraction in fractions.values()))
    return table


def _growth_table(rows: list[dict[str, Any]]) -> Table:
    headings = ("L", "storage", "ms per update", "peak MiB over the model's", "of it L copies, MiB")
    table = headed("Growth with the unroll length L", headings)
    for row in rows:
        if row["measure"] == "growth":
            numbers = (f"{row['ms_per_update']:.1f}", f"{row['peak_mib']:.0f}", f"{row['copies_mib']:.0f}")
            table.add_row(str(row["unroll_length"]), row["storage"], *numbers)
    return table
