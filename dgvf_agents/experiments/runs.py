"""The runs behind an experiment: their folders, how far they are, how they are trained, and what is recorded of them.

A sweep marks a finished run with `finished.json`, written last and atomically.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from filelock import FileLock
from stable_baselines3 import A2C
from stable_baselines3.common.logger import Logger

from dgvf_agents.experiments.records import Record
from dgvf_agents.experiments.settings import Scale, Setting
from dgvf_agents.storage.files import contents_of, write_whole
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import import_named, training_environments
from dgvf_agents.train.folder import STEPS, Origin, ProgressLog, RunFolder, record_origin
from dgvf_agents.train.train import train, train_population

RECORDING_FIELDS = (
    "device",
    "threads",
    "actors",
    "address",
    "checkpoint_every",
    "checkpoints_kept",
    "log_every",
    "evaluate_every",
    "evaluation_episodes",
)
"""Fields on where a run is made and how it is recorded. Of these, the number of actors affects what is learned, through
the policy lag, but may change when a run is resumed."""

REFERENCE = "sb3-a2c"
"""`TrainConfig.task` of Stable-Baselines3's A2C."""

POINTS = 50
"""Of the curve of training returns, where there are no evaluations: the last five are the last tenth of training."""


@final
@dataclass(frozen=True)
class Cell:
    """One run of an experiment."""

    setting: Setting
    """The configuration of the run."""
    seed: int
    """Seed of everything random."""
    config: TrainConfig = field(hash=False)
    """The run's configuration."""
    folder: Path
    """The run's folder; need not exist."""

    @classmethod
    def of(cls, setting: Setting, seed: int, scale: Scale, out: Path, device: str | None = None) -> Cell:
        """The cell of a setting and a seed.

        Args:
            setting: what is run.
            seed: its seed.
            scale: steps and evaluations.
            out: folder of the runs' folders.
            device: of the run; the setting's own if `None`.
        """
        config = setting.config(scale, seed)
        config = config if device is None else dataclasses.replace(config, device=device)
        return cls(setting, seed, config, out / setting.folder_name / f"seed-{seed}")

    @property
    def name(self) -> str:
        """World, method and changes, and seed."""
        return f"{self.setting.folder_name} seed {self.seed}"

    @property
    def mark(self) -> Path:
        """The mark of a finished run."""
        return self.folder / "finished.json"

    def beside(self, ending: Literal["log", "spent"]) -> Path:
        """A file beside the folder: output of its process, or its processor time.

        Raises:
            ValueError: it is a link, whose target would be written to.
        """
        file = self.folder.with_name(f"{self.folder.name}.{ending}")
        if file.is_symlink():
            raise ValueError(f"{file} must be a file of its own, got a link to {file.readlink()}")
        return file

    def found_config(self) -> TrainConfig | None:
        """The configuration of the run in the folder, which may be recorded in another way; `None` if there is no run.

        Raises:
            ValueError: the folder holds a run of another configuration.
        """
        run = RunFolder(self.folder)
        if not run.config_file.is_file():
            return None
        import_named(self.config)
        found = run.read_config()
        if differences := found.differences(self.config, apart_from=RECORDING_FIELDS):
            raise ValueError(
                f"the run in {self.folder} must have the configuration of its cell, got another "
                f"{', '.join(differences)}; choose another --out or remove the folder"
            )
        return found

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete.

        Raises:
            ValueError: the folder holds a run of another configuration.
        """
        return self.found_config() is not None and self.mark.is_file()

    def record(self) -> Record:
        """The record of the finished run."""
        with contents_of(self.mark, 1 << 20) as contents:
            mark = json.loads(contents)
        origin = (str(mark["processor"]), str(mark["code"] or ""), float(mark["core_seconds"]))
        steps, returns = learning_curve(self.folder)
        return Record(self.setting.world, self.setting.name, self.seed, *origin, tuple(steps), tuple(returns))

    def log_failure(self, error: Exception) -> None:
        """Write the reason why the run failed as the last line of its log."""
        with self.beside("log").open("a") as log:
            log.write(f"{type(error).__name__}: {error}\n")


def learning_curve(folder: Path) -> tuple[list[int], list[float]]:
    """Steps and mean returns of a run: its evaluations, or else training returns at `POINTS` equal intervals.

    Raises:
        ValueError: it has no returns.
    """
    run = RunFolder(folder)
    steps, returns = run.learning_curve("eval/mean_reward")
    if steps:
        return steps, returns
    steps, returns = run.learning_curve()
    if not steps:
        raise ValueError(f"a run must have returns, got {folder} without any")
    total = run.read_config().steps
    places = np.minimum(POINTS, np.ceil(np.array(steps) * POINTS / total)).astype(int)
    ends = sorted(set(places.tolist()))
    means = [float(np.mean(np.array(returns)[places == end])) for end in ends]
    return [round(end * total / POINTS) for end in ends], means


def progress(folder: Path) -> tuple[int, float | None]:
    """Steps so far and the latest return; 0 and `None` before the first row."""
    try:
        curves = [RunFolder(folder).learning_curve(m) for m in (STEPS, "rollout/ep_rew_mean", "eval/mean_reward")]
    except (FileNotFoundError, NotADirectoryError):
        return 0, None
    latest = [returns[-1] for _, returns in curves if returns]  # the number of steps is a metric itself
    return (int(latest[0]), latest[-1] if len(latest) > 1 else None) if latest else (0, None)


def run_cells(cells: Sequence[Cell]) -> None:
    """Train cells in this process, several at once as a population, and mark them as finished.

    A finished run is left as it is, an unfinished one continues from its checkpoint. The reason why a cell of several
    fails is the last line of its log file; the others go on.

    Args:
        cells: several fit into one population.

    Raises:
        ValueError: there is one cell, and another process is training it, or its folder holds a run of another
            configuration.
    """
    left: list[Cell] = []
    for cell in cells:
        cell.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            found = cell.found_config()
        except ValueError as error:
            if len(cells) == 1:
                raise
            cell.log_failure(error)
            continue
        if found is not None:
            where: dict[str, Any] = {"actors": cell.config.actors, "address": cell.config.address}
            cell = dataclasses.replace(cell, config=dataclasses.replace(found, **where))
        if found is None or not cell.mark.is_file():
            left.append(cell)
    if left:
        _train(left, alone=len(cells) == 1)


def _train(cells: Sequence[Cell], alone: bool) -> None:
    """Train cells. A file beside each has its share of the processor time for the process that resumes it."""
    failures: list[Exception | None] = [None] * len(cells)
    start, files = sum(os.times()[:4]), [cell.beside("spent") for cell in cells]
    earlier = sum(float(file.read_text()) for file in files if file.exists())
    try:
        if not alone:
            failures = train_population([cell.config for cell in cells], [cell.folder for cell in cells])
        elif cells[0].config.task == REFERENCE:
            train_reference(cells[0].config, cells[0].folder)
        else:
            train(cells[0].config, cells[0].folder, show_progress=False, resume=True)
    finally:
        share = (sum(os.times()[:4]) - start + earlier) / len(cells)
        for file in files:
            write_whole(file, f"{share:.1f}\n".encode())
    for cell, failure in zip(cells, failures, strict=True):
        if failure is not None:
            cell.log_failure(failure)
            continue
        origin = Origin.here(cell.config.device)
        names = [str(origin.hardware[name]) for name in ("processor", "accelerator") if name in origin.hardware]
        mark = {
            "code": origin.code,
            "processor": " + ".join([*names, *filter(None, [os.environ.get("ONEDNN_MAX_CPU_ISA")])]),
            "versions": origin.versions,
            "core_seconds": share,
        }
        write_whole(cell.mark, f"{json.dumps(mark, indent=1)}\n".encode())


def train_reference(config: TrainConfig, path: Path) -> A2C:
    """Train Stable-Baselines3's A2C with its defaults, recorded as by `dgvf train`; a killed run restarts.

    Args:
        config: environment, steps and seed; the agent's settings do not apply.
        path: the run folder.
    """
    folder = RunFolder(path)
    folder.check_links()
    path.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(config.threads)
    with FileLock(folder.lock_file, timeout=0):
        folder.write_config(config)
        record_origin(folder, config.device, 0)
        model = A2C(config.policy, training_environments(config), seed=config.seed, device=config.device)
        model.set_logger(Logger(str(path), [ProgressLog(folder.progress_file)]))
        batch = model.n_steps * model.n_envs
        model.learn(config.steps, log_interval=max(1, round(config.log_every / batch)))
        model.logger.close()
        model.save(path / "model.zip")
    return model


def cell_process(cells: Sequence[Cell]) -> None:
    """`run_cells` as the entry of a new process, whose output goes to the log file of the first cell."""
    os.setsid()  # the sweep handles an interrupt from the keyboard
    threading.Thread(target=_die_with_parent, daemon=True).start()
    cells[0].folder.parent.mkdir(parents=True, exist_ok=True)
    with cells[0].beside("log").open("ab", buffering=0) as file:  # of child processes, too
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    run_cells(cells)


def _die_with_parent() -> None:
    """End with a killed sweep: a process that survived it would write into folders that the next sweep uses."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def setting_fields(config: TrainConfig) -> dict[str, Any]:
    """A configuration without what differs between the runs of a setting, as in JSON."""
    fields = json.loads(json.dumps(dataclasses.asdict(config)))
    return {name: value for name, value in fields.items() if name not in ("seed", "questions_from", *RECORDING_FIELDS)}
