"""The benchmark harness: cases that are measured one by one, tables of the results, and a report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import rich.table
from rich.console import Console
from rich.progress import track

from dgvf_agents.bench.report import Report, Row, header_of


class Table(NamedTuple):
    """Results to print. Columns without a value are left out."""

    title: str
    columns: Sequence[tuple[str, str]]
    """Headings, and replacement fields for the entries of a row, as `"{steps:,}"`. Those with a format are numbers."""
    rows: Sequence[Row]

    def cells(self) -> list[list[str]]:
        """The columns: heading, then an entry for each row; "–" where a row has no value."""
        columns = [[heading, *(_entry(field, row) for row in self.rows)] for heading, field in self.columns]
        return [column for column in columns if set(column[1:]) - {"–"}]

    def numeric(self, heading: str) -> bool:
        """Whether a column has numbers, which are aligned to the right."""
        return ":" in dict(self.columns)[heading]

    def printed(self) -> rich.table.Table:
        """The table for a terminal."""
        table = rich.table.Table(title=self.title)
        columns = self.cells()
        for heading, *_ in columns:
            table.add_column(heading, justify="right" if self.numeric(heading) else "left")
        for row in zip(*(entries for _, *entries in columns), strict=True):
            table.add_row(*row)
        return table


def _entry(field: str, row: Row) -> str:
    try:
        return field.format(**row)
    except (KeyError, TypeError):  # the row has no such value, or `None`
        return "–"


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
        """The cases, in the order of the report."""

    @abstractmethod
    def measure(self, case: Row) -> Row:
        """The result of a case, of numbers and texts only."""

    @staticmethod
    @abstractmethod
    def tables(rows: Sequence[Row]) -> Iterable[Table]:
        """The results, to print; of a committed report too."""

    def run(self) -> list[Row]:
        """Measure, print the tables, and write the report; returns its rows: each case with its result.

        With an output file, a benchmark that was stopped continues after its last case.

        Raises:
            RuntimeError: a case failed; the error is its cause.
        """
        console, cases = Console(), self.cases()
        measure = self._measure_in_new_process if self.isolated else self.measure
        report = None if self.output is None else Report(self.output, header_of(f"dgvf bench {self.name}", self), cases)
        rows = [] if report is None else list(report.rows)
        if rows:
            console.print(f"continuing after {len(rows)} of {len(cases)} cases")
        for case in track(cases[len(rows) :], "measuring", console=console, transient=True):
            try:
                rows.append({**case, **measure(case)})
            except Exception as error:
                raise RuntimeError(f"case {case} failed: {error!r}") from error
            if report is not None:
                report.add(rows[-1])
        for table in self.tables(rows):
            console.print(table.printed())
        return rows

    def _measure_in_new_process(self, case: Row) -> Row:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            return pool.submit(self.measure, case).result()


def check_at_least(settings: Any, least: int, *names: str) -> None:
    """Check fields of a benchmark, integers or tuples of integers, and that its `seconds`, if any, are > 0."""
    if getattr(settings, "seconds", 1.0) <= 0:
        raise ValueError(f"seconds must be > 0, got {settings.seconds!r}")
    for name in names:
        value = getattr(settings, name)
        if any(number < least for number in (value if isinstance(value, tuple) else (value,))):
            raise ValueError(f"{name} must be >= {least}, got {value!r}")


def ratio(rates: dict[str, float], one: str, other: str) -> float | None:
    """The rate of one thing in multiples of another's, `None` unless both were measured."""
    return rates[one] / rates[other] if one in rates and other in rates else None
