"""The files of a training run.

RUN/config.json         the configuration
RUN/origin.json         commit of the code, versions and machine of every process that trained the run
RUN/progress.csv        metrics, one row per log interval; TensorBoard events next to it
RUN/evaluations.csv.gz  return and length of every evaluation episode
RUN/checkpoints/        models by number of environment steps; the last few are complete, older ones hold networks only
RUN/learning-curve.png
RUN/evaluation.json     in shipped runs: what `dgvf evaluate` finds
RUN/.lock               held by the training process

Every file is replaced as a whole, so a process that is killed leaves complete files.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import os
import subprocess
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, final
from urllib.parse import unquote, urlsplit

import numpy as np
import pandas as pd
from stable_baselines3.common.logger import Figure, HParam, Image, KVWriter, Video, filter_excluded_keys

from dgvf_agents.execution.devices import device_named, hardware, versions
from dgvf_agents.storage.files import DamagedFileError, contents_of, damage_in, write_bytes
from dgvf_agents.storage.model_file import ModelFile, read_model_file
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import check_names

_DEMO = Path(__file__).resolve().parents[1] / "demo"

SHIPPED = {"demo": _DEMO / "puddle-world", "demo/collect-objects-small": _DEMO / "collect-objects-small"}
"""Folders of the runs that come with the package, by name. They hold networks only and are never written to."""


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


@final
class _File:
    """The path of a file in a run folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, owner: type) -> Path:
        return folder.path / self._name


@final
@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path
    """Path of the folder."""

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        """The run at `path`, or the shipped run of this name.

        Raises:
            FileNotFoundError: there is no run.
            ValueError: see `check_links`.
        """
        folder = cls(located(path))
        if not folder.config_file.is_file():
            raise FileNotFoundError(
                f"run must be a folder that `dgvf train` wrote, or a shipped run ({', '.join(SHIPPED)}), got {path} "
                "without a config.json"
            )
        folder.check_links()
        return folder

    def check_links(self) -> None:
        """Refuse links to other places, whose files would be read, replaced or thinned as this run's.

        Raises:
            ValueError: a link in the folder leads out of it. The folder itself may be one.
        """
        root = os.path.realpath(self.path)
        for path in () if shipped_name(self.path) else self.path.rglob("*"):
            if path.is_symlink() and not Path(target := os.path.realpath(path)).is_relative_to(root):
                raise ValueError(f"{path} must not lead out of its run folder, got a link to {target}: link the folder")

    config_file = _File("config.json")
    """The configuration."""
    progress_file = _File("progress.csv")
    """The metrics."""
    origin_file = _File("origin.json")
    """Where the run comes from."""
    evaluations_file = _File("evaluations.csv.gz")
    """All evaluation episodes."""
    curve_file = _File("learning-curve.png")
    """The learning curve."""
    lock_file = _File(".lock")
    """Held by the training process."""

    def checkpoint_file(self, steps: int) -> Path:
        """The checkpoint after a number of environment steps."""
        return self.path / "checkpoints" / f"{steps:010d}.zip"

    def checkpoints(self) -> list[Path]:
        """The checkpoints, by number of environment steps."""
        return sorted(file for file in (self.path / "checkpoints").glob("*.zip") if file.stem.isdecimal())

    def undamaged(self, tell: bool = True) -> Iterator[tuple[Path, ModelFile]]:
        """The checkpoints that can be read, the latest first.

        Args:
            tell: whether to warn of each other one on the way.
        """
        for path in reversed(self.checkpoints()):
            try:
                yield path, read_model_file(path)
            except DamagedFileError as error:
                if tell:
                    warnings.warn(f"checkpoint {path} is skipped: {error}", stacklevel=3)

    def latest_checkpoint(self) -> Path:
        """The checkpoint with the most steps; damaged ones are skipped with a warning.

        Raises:
            FileNotFoundError: there is no undamaged checkpoint.
        """
        for path, _ in self.undamaged():
            return path
        raise FileNotFoundError(
            f"run must have a checkpoint, got {self.path} without one: dgvf train --resume starts it again"
        )

    def is_finished(self) -> bool:
        """Whether the run has reached its steps: the checkpoint of the last step exists and is not damaged."""
        steps = self._stored_config().steps if self.checkpoints() else 0
        return any(int(path.stem) >= steps for path, _ in self.undamaged(tell=False))

    def remove_unfinished(self) -> None:
        """Remove the temporary files of a killed process."""
        for path in self.path.rglob(".*.tmp*"):
            path.unlink(missing_ok=True)

    def write_config(self, config: TrainConfig) -> None:
        """Write the configuration atomically, without the address: a folder does not decide what is connected to."""
        _write_json(self.config_file, dataclasses.asdict(dataclasses.replace(config, address=None)))

    def read_config(self) -> TrainConfig:
        """Read the configuration.

        Raises:
            DamagedFileError: it is malformed, or names environments that `check_names` refuses.
        """
        config = self._stored_config()
        with damage_in(str(self.config_file)):
            check_names(config)
        return config

    def _stored_config(self) -> TrainConfig:
        with contents_of(self.config_file, _MAX_SETTINGS) as contents:
            return TrainConfig.from_fields(json.loads(contents) | {"address": None})

    def learning_curve(self, metric: str = "rollout/ep_rew_mean") -> tuple[list[int], list[float]]:
        """Environment steps, and a metric at each of them: the mean return of the last 100 training episodes."""
        with contents_of(self.progress_file, _MAX_TABLE) as contents:
            table = _table(contents)
            rows = table[table[metric] != ""] if metric in table else table[:0]
            return [int(float(step)) for step in rows[STEPS]], [float(value) for value in rows.get(metric, ())]


_MAX_SETTINGS, _MAX_TABLE = 1 << 20, 1 << 25
"""Bytes of JSON, and of a table when it is not compressed, at most."""


def _table(contents: bytes) -> pd.DataFrame:
    """The cells of a CSV file as text."""
    table = pd.read_csv(io.BytesIO(contents), dtype=str, na_filter=False, index_col=False, engine="python")
    if table.isna().any(axis=None):
        raise ValueError("its rows must have all columns")
    return table


def _write_json(path: Path, value: Any) -> None:
    write_bytes(path, f"{json.dumps(value, indent=1)}\n".encode())


# --- metrics ----------------------------------------------------------------------------------------------------------

STEPS = "time/total_timesteps"
"""Column of environment steps, present in every row."""

_PICTURES = (Video, Figure, Image, HParam)


@final
class ProgressLog(KVWriter):
    """Metrics as CSV that resumed runs append to: a row per log interval, the steps first, then other columns in the
    order of first appearance.

    Stable-Baselines3's own writer overwrites the file when it is opened.
    """

    def __init__(self, path: Path, steps: int = 0) -> None:
        """
        Args:
            path: the file. Rows after `steps` are removed.
            steps: environment steps that the run continues from.
        """
        self._path, self._table = path, pd.DataFrame(columns=[STEPS])
        if path.exists():
            with contents_of(path, _MAX_TABLE) as contents:
                table = _table(contents)
                kept = table[table[STEPS].astype(int) <= steps]
                self._table = kept.loc[:, (kept != "").any() | (kept.columns == STEPS)]
        self._replace()

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        values = sorted(filter_excluded_keys(key_values, key_excluded, "csv").items())
        row = {k: str(v) for k, v in values if v is not None and not isinstance(v, _PICTURES)}
        self._table = pd.concat([self._table, pd.DataFrame([row])]).fillna("")
        self._replace()

    def close(self) -> None:
        """Nothing is open between two rows."""

    def _replace(self) -> None:
        write_bytes(self._path, self._table.to_csv(index=False, lineterminator="\n").encode())


# --- evaluation episodes ----------------------------------------------------------------------------------------------

_COLUMNS = {"steps": int, "episode": int, "return": float, "length": int}


def add_evaluation(path: Path, steps: int, returns: np.ndarray, lengths: np.ndarray) -> None:
    """Add an evaluation to a file of compressed CSV, in place of all from `steps` on, which a resumed run repeats.

    Args:
        path: the file.
        steps: environment steps of training.
        returns: `[N]`: undiscounted returns of its episodes; scores on Atari.
        lengths: `[N]` integer: their steps.
    """
    found = read_evaluations(path)
    columns = dict(zip(_COLUMNS, (steps, np.arange(len(returns)), returns, lengths), strict=True))
    table = pd.concat([found[found["steps"] < steps], pd.DataFrame(columns)])
    write_bytes(path, gzip.compress(table.to_csv(index=False, lineterminator="\n").encode(), mtime=0))


def read_evaluations(path: Path) -> pd.DataFrame:
    """The evaluation episodes in a file, in their order; none if it does not exist."""
    if not path.exists():
        return pd.DataFrame(columns=list(_COLUMNS)).astype(_COLUMNS)
    with contents_of(path, _MAX_TABLE) as contents:
        text = gzip.GzipFile(fileobj=io.BytesIO(contents)).read(_MAX_TABLE + 1)
        if len(text) > _MAX_TABLE:
            raise ValueError(f"it must take at most {_MAX_TABLE} bytes when it is not compressed")
        return _table(text)[list(_COLUMNS)].astype(_COLUMNS)


# --- origin -----------------------------------------------------------------------------------------------------------

_PACKAGES = ("dgvf", "gymnasium", "numpy", "scipy", "stable-baselines3", "torch")
_CODE = ("dgvf_agents", "dgvf_envs")


@final
@dataclass(frozen=True)
class Origin:
    """Versions and hardware that a process trained a run with."""

    steps: int
    """Environment steps at which the process began."""
    code: str | None
    """Commit of the code, with `+changes` if files differ from it; `None` if that is unknown: the code is neither in
    its repository nor installed from one."""
    versions: dict[str, str]
    """Versions of Python and packages."""
    hardware: dict[str, Any]
    """Processor, number of cores, and accelerator if one is used."""

    @classmethod
    def here(cls, device: str, steps: int = 0) -> Origin:
        """The origin of what this process trains.

        Args:
            device: name of the device.
            steps: environment steps at which it begins.
        """
        return cls(steps, code_version(), versions(_PACKAGES), hardware(device_named(device)))


def record_origin(folder: RunFolder, device: str, steps: int) -> None:
    """Add the origin of this process to the ones in a run folder; those after `steps` are removed.

    Args:
        folder: the run folder.
        device: name of the device.
        steps: environment steps that the run continues from.
    """
    kept = [origin for origin in read_origins(folder) if origin.steps < steps]
    _write_json(folder.origin_file, [dataclasses.asdict(origin) for origin in (*kept, Origin.here(device, steps))])


def read_origins(folder: RunFolder) -> list[Origin]:
    """The origins of all processes that trained a run, in their order."""
    if not folder.origin_file.exists():
        return []
    with contents_of(folder.origin_file, _MAX_SETTINGS) as contents:
        return [Origin(**origin) for origin in json.loads(contents)]


@cache
def code_version() -> str | None:
    """The commit of the code; see `Origin.code`."""
    here = Path(__file__).resolve().parents[2]
    source, root = _installed_from(here)
    if _git(here, "ls-files", "--error-unmatch", *_CODE) is not None:
        root = here
    elif root is None or _git(root, "ls-files", "--error-unmatch", *_CODE) is None:
        return source
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", *_CODE) or any(
        not (root / name).is_file() or file.read_bytes() != (root / name).read_bytes()
        for package in _CODE
        for file in (here / package).rglob("*.py")
        if (name := file.relative_to(here))
    )
    return None if commit is None else commit + ("+changes" if changed else "")


def _installed_from(here: Path) -> tuple[str | None, Path | None]:
    """The commit, or else the folder, that pip says the distribution in a folder was installed from."""
    try:
        installed = distribution("dgvf")
    except PackageNotFoundError:
        return None, None
    if Path(str(installed.locate_file(""))).resolve() != here:
        return None, None
    found = json.loads(installed.read_text("direct_url.json") or "{}")
    url = urlsplit(found.get("url", ""))
    return found.get("vcs_info", {}).get("commit_id"), Path(unquote(url.path)) if url.scheme == "file" else None


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of a command; `None` if it fails."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
