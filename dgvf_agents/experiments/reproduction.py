"""The options of `dgvf reproduce`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, final

import tyro

from dgvf_agents.execution.devices import check_device_name
from dgvf_agents.experiments.outside_tasks import OWN_TASKS
from dgvf_agents.experiments.settings import ScaleName
from dgvf_agents.experiments.sweep import processes_on
from dgvf_agents.experiments.worlds import GAME_ORDER, world_of_game
from dgvf_agents.options import ExperimentName
from dgvf_agents.train.config import WORLDS

COMMITTED = Path("docs/results/records")
"""Where a checkout has its records."""


@final
@dataclass(frozen=True)
class Reproduction:
    """Train the runs of an experiment that have no record yet, add their records, and draw its figure."""

    experiment: Annotated[ExperimentName, tyro.conf.Positional]
    """Which one."""
    scale: ScaleName = "full"
    """`full` as declared, `small` a quarter of the steps and 2 seeds, `demo` minutes on the smallest world, `tiny` a
    smoke test."""
    seeds: int | None = None
    """Seeds per setting; the experiment's and the scale's if `None`."""
    steps: int | None = None
    """Environment steps of every run; the setting's and the scale's if `None`."""
    worlds: tuple[str, ...] | None = None
    """Worlds, or tasks of `own-tasks` as CartPole-v1; the declared ones if `None`. Not on Atari."""
    settings: tuple[str, ...] = ()
    """Labels of the settings to run, or what stands before a label's colon, as joint of `atari`; all if empty."""
    game: tuple[str, ...] = ()
    """Games of `atari`, as Breakout or ms_pacman."""
    games: int | None = None
    """In place of games by name: the first N of the 57 games, in the order of `worlds.GAME_ORDER`."""
    actors: int = 0
    """Distributed actors of every run, IMPALA only; see `dgvf train impala`."""
    address: str | None = None
    """Address of the Ray cluster that actors join, or `auto`; a Ray on this machine if `None`."""
    jobs: int | None = None
    """Parallel processes, one thread each; if `None`, as many as there are cores, and one on a GPU that `device`
    names. Runs that are faster at once share one."""
    device: str | None = None
    """`cpu`, `cuda`, or `auto` for CUDA if available; the presets' if `None`. On a GPU, all networks of the
    gridworlds train in populations."""
    out: Path | None = None
    """Folder of the run folders, from which unfinished runs continue; runs/SCALE if `None`."""
    records: Path | None = None
    """Folder of the records and the figure; if `None`, docs/results/records in a checkout at full scale, otherwise
    OUT/records."""
    merge: tuple[Path, ...] = ()
    """Folders of records to add, as other machines made them."""
    run: bool = True
    """Whether runs without a record are trained."""

    def __post_init__(self) -> None:
        if self.device is not None:
            check_device_name(self.device)
        known = tuple(OWN_TASKS) if self.experiment == "own-tasks" else WORLDS
        unknown = ", ".join(world for world in self.worlds or () if world not in known)
        unused = f"must be left out for {self.experiment}"
        for failed, message in (
            (self.jobs is not None and self.jobs < 1, f"jobs must be >= 1, got {self.jobs!r}"),
            (self.worlds == (), f"worlds must name a world, got {self.worlds!r}"),
            (
                self.on_atari and bool(self.game) == (self.games is not None),
                f"game must name a game for {self.experiment}, as --game Breakout, or --games must be given in its "
                f"place, got game {self.game!r} and games {self.games!r}",
            ),
            (
                self.games is not None and not 1 <= self.games <= len(GAME_ORDER),
                f"games must be in 1 ... {len(GAME_ORDER)}, got {self.games!r}",
            ),
            (self.address and not self.actors, f"address must be left out without actors, got {self.address!r}"),
            (self.on_atari and self.worlds, f"worlds {unused}, got {self.worlds!r}"),
            (self.game and not self.on_atari, f"game {unused}, which is not on Atari, got {self.game!r}"),
            (self.games and not self.on_atari, f"games {unused}, which is not on Atari, got {self.games!r}"),
            (unknown, f"worlds of {self.experiment} must be among {', '.join(known)}, got {unknown}"),
        ):
            if failed:
                raise ValueError(message)

    @property
    def processes(self) -> int:
        """Number of parallel processes."""
        return processes_on(self.device, self.jobs)

    @property
    def on_atari(self) -> bool:
        """Whether the experiment is on Atari."""
        return self.experiment == "atari"

    @property
    def game_worlds(self) -> tuple[str, ...]:
        """The worlds of the games, each once.

        Raises:
            ValueError: ALE has no such game.
        """
        names = self.game if self.games is None else GAME_ORDER[: self.games]
        return tuple(dict.fromkeys(world_of_game(game) for game in names))

    @property
    def runs_folder(self) -> Path:
        """Folder of the run folders."""
        return self.out or Path("runs") / self.scale

    @property
    def records_folder(self) -> Path:
        """Folder of the records."""
        is_declared = self.scale == "full" and self.steps is None and COMMITTED.is_dir()
        return self.records or (COMMITTED if is_declared else self.runs_folder / "records")
