"""A benchmark's report: rows with their settings, versions and hardware."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

from dgvf_agents.execution.devices import device_named, hardware, versions
from dgvf_agents.storage.files import replacing

Row = dict[str, Any]
"""A case of a benchmark, or its result."""

_PACKAGES = ("ale-py", "dgvf", "gymnasium", "numpy", "stable-baselines3", "torch")


def header_of(command: str, settings: Any) -> Row:
    """The head of a report: the whole command, its settings, versions and hardware.

    Args:
        command: without its options.
        settings: the benchmark's dataclass.
    """
    recorded = {name: value for name, value in dataclasses.asdict(settings).items() if name != "output"}
    device = device_named(getattr(settings, "device", "cpu"))
    header = {
        "command": " ".join([command, *options(settings, recorded)]),
        "settings": recorded,
        "versions": versions((*_PACKAGES, *_installed(getattr(settings, "optional_packages", ())))),
        "hardware": hardware(device),
    }
    return json.loads(json.dumps(header, default=str))


@final
class Report:
    """The rows of a benchmark in a JSON file. Those of a benchmark that was stopped are kept beside it.

    Args:
        path: the report; its folder is made.
        header: see `header_of`.
        cases: of all rows.
    """

    def __init__(self, path: Path, header: Row, cases: Sequence[Row]) -> None:
        self._path, self._unfinished, self._header = path, path.with_suffix(".unfinished.json"), header
        self._cases = [json.loads(json.dumps(case)) for case in cases]
        self.rows: list[Row] = self._measured() if self._unfinished.is_file() else []
        """Those measured so far, in the order of the cases."""

    def _measured(self) -> list[Row]:
        """The rows that an earlier process has measured with the same command, versions and hardware."""
        found = json.loads(self._unfinished.read_text())
        rows = found.pop("rows")
        alike = found == self._header and all(
            case.items() <= row.items() for case, row in zip(self._cases, rows, strict=False)
        )
        return rows if alike else []

    def add(self, row: Row) -> None:
        """Write a row, atomically; the report itself is written with the last one."""
        self.rows.append(row)
        finished = len(self.rows) == len(self._cases)
        with replacing(self._path if finished else self._unfinished) as unfinished:
            unfinished.write_text(json.dumps({**self._header, "rows": self.rows}, indent=1, default=str) + "\n")
        if finished:
            self._unfinished.unlink(missing_ok=True)


def options(settings: Any, names: Iterable[str]) -> list[str]:
    """The command-line options of these fields of a dataclass, those that differ from their defaults."""
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}
    words = []
    for name in names:
        value, option = getattr(settings, name), name.replace("_", "-")
        if value == defaults[name]:
            continue
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", *map(str, value if isinstance(value, tuple) else (value,))]
    return words


def _installed(packages: Sequence[str]) -> list[str]:
    return [name for name in packages if find_spec(name) is not None]
