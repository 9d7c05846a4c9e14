"""Write the table of environments that the wheel was used in, from what `make wheel-check` left in `results/`.

With `--check`, fail unless the table is up to date.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from generated import DOCS, check, table, write

REPORT = DOCS / "results" / "wheel.json"
TABLE = REPORT.with_suffix(".txt")
COMMAND = "python docs/generate_wheel_table.py"


def wheel_table(report: dict[str, Any]) -> str:
    """A column for each environment, a row for each library."""
    rows = report["rows"]
    names = list(dict.fromkeys(name for row in rows for name in row["versions"] if name != "python"))
    headings = ("", *(f"Python {row['versions']['python']}, {row['libraries']}" for row in rows))
    lines = [(name, *(row["versions"].get(name, "–") for row in rows)) for name in names]
    results = ("**result**", *("failed" if row["failure"] else "passed" for row in rows))
    hardware = report["hardware"]
    return f"""{table(headings, [*lines, results], right=range(1, len(headings)))}

Tried with `{report["command"]}` on {hardware["processor"]} ({hardware["cores"]} cores).
"""


def pages() -> dict[Path, str]:
    return {TABLE: wheel_table(json.loads(REPORT.read_text(encoding="utf-8")))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail unless the table is up to date; write nothing")
    if parser.parse_args().check:
        check(pages(), COMMAND)
    else:
        write(pages())


if __name__ == "__main__":
    main()
