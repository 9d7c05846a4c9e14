"""What the scripts that generate pages share."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent
"""The folder of the documentation."""


def main(pages: Callable[[bool], Mapping[Path, str]], renew: str, description: str | None) -> None:
    """Write pages; with `--check`, exit with a message unless every page is up to date.

    Args:
        pages: what each page should hold; whether it will be written.
        renew: the command that renews them.
        description: of the command.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="fail unless the pages are up to date; write nothing")
    checks, problems = parser.parse_args().check, []
    for path, text in pages(not checks).items():
        if not checks:
            path.write_text(text, encoding="utf-8")
        elif text != (committed := path.read_text(encoding="utf-8") if path.exists() else ""):
            diff = difflib.unified_diff(committed.splitlines(), text.splitlines(), path.name, lineterm="", n=1)
            problems.append("\n".join([f"{path.name} is out of date", *diff]))
    if problems:
        sys.exit("\n".join([*problems, f"renew with: {renew}"]))


def renewed(page: Path, part: Callable[[str], str]) -> str:
    """A page written by hand, with `part(NAME)` between `<!-- results/NAME -->` and `<!-- end -->`."""
    block = re.compile(r"(<!-- results/([\w.-]+) -->\n).*?(<!-- end -->)", re.S)
    return block.sub(lambda found: found[1] + part(found[2]) + found[3], page.read_text(encoding="utf-8"))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table; the columns `right` are aligned to the right."""
    rule = ["---:" if i in right else "---" for i in range(len(headings))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rule, *rows))
