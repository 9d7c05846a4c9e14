"""Renew the tables of the page of benchmarks from what the commands of `dgvf bench` left in `results/`.

The page is written by hand. Between `<!-- results/NAME.json -->` and `<!-- end -->` are the tables of that report, and
the command, hardware and versions that it was made with. With `--check`, fail unless they are up to date.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
from generated import DOCS, main, renewed, table

from dgvf_agents.bench import harness

PAGE = DOCS / "benchmarks.md"


def tables(report: dict[str, Any]) -> str:
    """The tables of a report in Markdown, and how it was measured."""
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    hardware = report["hardware"]
    machine = f"{hardware['processor']}, {hardware['cores']} cores"
    if "accelerator" in hardware:
        machine += f", {hardware['accelerator']}"
    shown = "\n\n".join(f"{title}:\n\n{markdown(one)}" for title, one in harness.tables(report["rows"]).items())
    return f"\n{shown}\n\n`{report['command']}` on {machine}: {versions}.\n"


def markdown(made: pd.DataFrame) -> str:
    right = [i for i, kind in enumerate(made.dtypes) if pd.api.types.is_numeric_dtype(kind)]
    return table(list(made.columns), harness.formatted(made).to_numpy().tolist(), right)


def pages(written: bool) -> dict[Path, str]:
    """The page with tables from the reports that it names."""

    def part(name: str) -> str:
        return tables(json.loads((DOCS / "results" / name).read_text(encoding="utf-8")))

    return {PAGE: renewed(PAGE, part)}


if __name__ == "__main__":
    main(pages, "python docs/generate_benchmark_page.py", __doc__)
