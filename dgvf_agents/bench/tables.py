"""The tables that benchmarks print."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table


def headed(title: str, headings: Sequence[str], first_are_names: bool = False) -> Table:
    """A table without rows: numbers to the right, and what is in the first column to the left if these are names."""
    table = Table(title=title)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if first_are_names and place == 0 else "right")
    return table
