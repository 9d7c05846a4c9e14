"""What all benchmarks share: cases that are measured one by one, tables of the results, and a report.

Run as a module with a pickled benchmark and case as input, it measures that case and prints the result as JSON.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console, RenderableType
from rich.progress import track
from rich.table import Table

from dgvf_agents.bench.report import Report, Row, header_of


class Benchmark(ABC):
    """A benchmark; the dataclasses derived from it hold its settings."""

    name: ClassVar[str]
    """In `dgvf bench`."""
    isolated: ClassVar[bool] = True
    """Whether every case is measured in a new process, so that none pays for the memory of another."""
    optional_packages: ClassVar[tuple[str, ...]] = ()
    """Packages that it measures where they are installed; reports have their versions."""
    output: Path | None

    @abstractmethod
    def cases(self) -> Sequence[Row]:
        """What is measured, in the order of the report."""

    @abstractmethod
    def measure(self, case: Row) -> Row:
        """The result of a case, of numbers and texts only."""

    @abstractmethod
    def tables(self, rows: Sequence[Row]) -> Iterable[RenderableType]:
        """What is printed."""

    def run(self) -> list[Row]:
        """Measure, print the tables, and write the report; returns its rows: each case with its result.

        With an output file, a benchmark that was stopped continues after its last case.

        Raises:
            RuntimeError: a case failed in its process; the message has its errors.
        """
        console, cases = Console(), self.cases()
        measure = self._measure_in_subprocess if self.isolated else self.measure
        report = None if self.output is None else Report(self.output, header_of(f"dgvf bench {self.name}", self), cases)
        rows = [] if report is None else list(report.rows)
        if rows:
            console.print(f"continuing after {len(rows)} of {len(cases)} cases")
        for case in track(cases[len(rows) :], "measuring", console=console, transient=True):
            rows.append({**case, **measure(case)})
            if report is not None:
                report.add(rows[-1])
        for table in self.tables(rows):
            console.print(table)
        return rows

    def _measure_in_subprocess(self, case: Row) -> Row:
        command = [sys.executable, "-m", __name__]
        finished = subprocess.run(command, input=pickle.dumps((self, case)), capture_output=True, check=False)
        if finished.returncode:
            raise RuntimeError(f"case {case} failed:\n{finished.stderr.decode(errors='replace')[-2000:]}")
        return json.loads(finished.stdout.splitlines()[-1])


def make_table(title: str, rows: Iterable[Row], columns: Sequence[tuple[str, str]]) -> Table:
    """A table to print.

    Args:
        title: above the table.
        rows: the results.
        columns: headings, and replacement fields for the entries of a row, as `"{steps:,}"`. Those with a format are
            numbers, aligned right.
    """
    table = Table(title=title)
    for heading, entry in columns:
        table.add_column(heading, justify="right" if ":" in entry else "left")
    for row in rows:
        table.add_row(*(entry.format(**row) for _, entry in columns))
    return table


def check_at_least(settings: Any, least: int, *names: str) -> None:
    """Check fields of a benchmark, integers or tuples of integers, and that its `seconds`, if any, are > 0."""
    if getattr(settings, "seconds", 1.0) <= 0:
        raise ValueError(f"seconds must be > 0, got {settings.seconds!r}")
    for name in names:
        value = getattr(settings, name)
        if any(number < least for number in (value if isinstance(value, tuple) else (value,))):
            raise ValueError(f"{name} must be >= {least}, got {value!r}")


if __name__ == "__main__":
    benchmark, given = pickle.load(sys.stdin.buffer)
    print(json.dumps(benchmark.measure(given)))
