"""The trained runs that come with the package, and the names that stand for them where a run folder is asked for."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[1] / "demo"

SHIPPED = {
    "demo": _FOLDER / "puddle-world",
    "demo/collect-objects-small": _FOLDER / "collect-objects-small",
}
"""Their folders, by name. They hold networks only and are never written to."""


def located(run: Path, start: Path = Path()) -> Path:
    """The folder of a run: `run` from `start` if it exists, otherwise the shipped run of this name if there is one."""
    there = start / run
    return there if there.exists() else SHIPPED.get(run.as_posix(), there)


def shipped_name(folder: Path) -> str | None:
    """The name of the shipped run in a folder; `None` if it is a run of the user's."""
    resolved = folder.resolve()
    return next((name for name, path in SHIPPED.items() if path == resolved), None)


def output_folder(folder: Path, what: str) -> Path:
    """Where to write what is made of a run: into its folder, or for a shipped run into the working directory.

    Args:
        folder: the run folder.
        what: name of the folder to write to, which the name of a shipped run is put before: `demo-atlas`.
    """
    name = shipped_name(folder)
    return folder / what if name is None else Path(f"{name.replace('/', '-')}-{what}")
