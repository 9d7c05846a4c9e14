"""The committed tables of an experiment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from generated import DOCS

from dgvf_agents.experiments.tables import Results, read_provenance

RESULTS = DOCS / "results"


def experiment_of(name: str) -> str:
    """The experiment whose tables are in a folder of `results/`."""
    return name.split("/")[0]


@dataclass(frozen=True)
class ExperimentTables:
    """The tables of one experiment."""

    name: str
    """Of its folder."""
    results: Results
    provenance: dict

    @classmethod
    def read(cls, name: str) -> ExperimentTables | None:
        """The committed tables; `None` if there are none."""
        folder = RESULTS / name
        if not (folder / "cells.csv").exists():
            return None
        return cls(name, Results.read(folder), read_provenance(folder))

    @property
    def experiment(self) -> str:
        """Its name in `dgvf reproduce`."""
        return experiment_of(self.name)

    @property
    def pictures(self) -> list[Path]:
        """The experiment's own first."""
        return sorted((RESULTS / self.name).glob(f"{self.experiment}*.png"), key=lambda path: len(path.name))
