"""What the scripts that generate pages share."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
"""The folder of the documentation."""


def write(pages: Mapping[Path, str]) -> None:
    """Write every page."""
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def check(pages: Mapping[Path, str], renew: str, others: Sequence[Path] = ()) -> None:
    """Exit with a message unless every page is what it should be and the other files are there.

    Args:
        pages: what each page should hold.
        renew: the command that renews them.
        others: files that the pages need.
    """
    problems = [f"{path.relative_to(DOCS.parent)} is missing" for path in others if not path.exists()]
    for path, text in pages.items():
        name = str(path.relative_to(DOCS.parent))
        committed = path.read_text(encoding="utf-8") if path.exists() else ""
        if committed != text:
            diff = difflib.unified_diff(committed.splitlines(), text.splitlines(), name, "generated", lineterm="", n=1)
            problems.append("\n".join([f"{name} is out of date", *diff]))
    if problems:
        sys.exit("\n".join([*problems, f"renew with: {renew}"]))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """A Markdown table; the columns `right` are aligned to the right."""
    rule = ["---:" if i in right else "---" for i in range(len(headings))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (headings, rule, *rows))


def capital(words: str) -> str:
    """With a capital first letter, all others as they are."""
    return words[:1].upper() + words[1:]


def measured(report: Mapping[str, Any]) -> str:
    """With what command, on what hardware and with which versions a report was made."""
    versions = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    hardware = report["hardware"]
    accelerator = f" and {hardware['accelerator']}" if "accelerator" in hardware else ""
    return f"""Measured with `{report["command"]}` on {hardware["processor"]} ({hardware["cores"]} cores){accelerator}:
{versions}."""
