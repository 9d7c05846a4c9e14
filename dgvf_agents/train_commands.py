"""The commands `dgvf train`."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from dgvf_agents.command_rules import tell_rules
from dgvf_agents.command_tree import CommandGroup
from dgvf_agents.exit_status import INTERRUPTED
from dgvf_agents.options import AtariMethod, AtariRules
from dgvf_agents.train import config as train_config
from dgvf_agents.train.config import ATARI_METHODS, TrainConfig, atari_config, impala_config

ATARI = "atari"
"""What stands for a world in `dgvf train`, before the method and --game."""
IMPALA = "impala"
"""Likewise, for IMPALA on an Atari game."""


def _train_command(config: TrainConfig) -> Callable[..., None]:
    def command(
        config: tyro.conf.OmitArgPrefixes[TrainConfig] = config,
        out: Path | None = None,
        resume: bool = False,
        restarts: int = 0,
    ) -> None:
        """
        Args:
            config: Everything else.
            out: The run folder.
            resume: Go on with the run at `out` if there is one.
            restarts: How often to go on from the last checkpoint if the process that trains is killed.
        """
        _train(config, out or Path("runs") / f"{config.env}-{config.task}-{config.seed}", resume, restarts)

    return command


def _train_atari_command(method: AtariMethod, configured: Callable[..., TrainConfig]) -> Callable[..., None]:
    usual = dataclasses.replace(configured("Breakout", method), env="")

    def command(
        game: str,
        preset: AtariRules = "paper",
        config: tyro.conf.OmitArgPrefixes[TrainConfig] = usual,
        out: Path | None = None,
        resume: bool = False,
        restarts: int = 0,
    ) -> None:
        """
        Args:
            game: The game in Gymnasium's or ALE's spelling, as Breakout or ms_pacman.
            preset: Rules: `paper` (Mnih et al. 2015), or `modern` (sticky actions, Machado et al. 2018).
            config: Everything else.
            out: The run folder.
            resume: Go on with the run at `out` if there is one.
            restarts: How often to go on from the last checkpoint if the process that trains is killed.
        """
        if config.env:
            raise ValueError(f"env must be left out on Atari, where --game names the game, got {config.env!r}")
        rules = configured(game, method, preset)
        config = dataclasses.replace(config, env=rules.env, atari=rules.atari)
        kind = (
            "impala"
            if config.algorithm == "impala"
            else "joint"
            if (config.encoder_mode, config.task != "none") == ("joint", True)
            else None
        )
        parts = [config.env, config.task, *([kind] if kind else [])]
        name = "-".join([*parts, *([preset] if preset != "paper" else []), str(config.seed)])
        _train(config, out or Path("runs") / name, resume, restarts)

    return command


def _train(config: TrainConfig, path: Path, resume: bool, restarts: int = 0) -> None:
    from dgvf_agents.train.checkpoint import NothingToResumeError
    from dgvf_agents.train.folder import RunFolder
    from dgvf_agents.train.learners import train_in_processes
    from dgvf_agents.train.recorder import TrainingInterruptedError
    from dgvf_agents.train.train import train

    how = f"dgvf train --resume {shlex.quote(str(path))}"
    _check_out(path)
    tell_rules(config)
    folder = RunFolder(path)
    finished = resume and folder.config_file.exists() and folder.is_finished()
    try:
        if config.learners > 1 or restarts:
            train_in_processes(config, path, resume=resume, restarts=restarts)
        else:
            train(config, path, resume=resume)
    except TrainingInterruptedError:
        Console(stderr=True).print(f"Interrupted, with a checkpoint. To go on: {how}", markup=False, soft_wrap=True)
        sys.exit(INTERRUPTED)
    except Exception as error:
        if not isinstance(error, FileExistsError | NothingToResumeError) and folder.checkpoints():
            Console(stderr=True).print(f"To go on from the last checkpoint: {how}", markup=False, soft_wrap=True)
        raise
    if finished:
        Console().print(f"The run has its {config.steps:,} steps already.")
    Console().print(f"The run lies in [bold]{escape(str(path))}[/bold], its curve is learning-curve.png there. Next:")
    for command in _next_commands(config, shlex.quote(str(path))):
        Console().print(f"  {command}", markup=False, highlight=False, soft_wrap=True)


def _next_commands(config: TrainConfig, path: str) -> list[str]:
    """What can be done with a trained agent."""
    asks = config.task in ("discovered", "random") and config.question_encoder == "independent"
    watch = f"dgvf watch {path}{' --questions' if asks and config.atari is None else ''}"
    return [f"dgvf evaluate {path}", watch, *([f"dgvf atlas {path}"] if asks else [])]


def _check_out(path: Path) -> None:
    try:
        path.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ValueError(f"out must be the path of a folder, got {path}: {error.strerror}") from error


def _resume(run: Annotated[Path, tyro.conf.Positional], device: str | None = None) -> None:
    """Go on with a run that was stopped or killed; `dgvf train --resume RUN` is the same.

    Args:
        run: The run folder.
        device: Where to go on; where the run was so far when left out.
    """
    from dgvf_agents.train.folder import RunFolder

    folder = RunFolder.existing(run)
    config = folder.read_config()
    _train(config if device is None else dataclasses.replace(config, device=device), folder.path, resume=True)


def train_group() -> CommandGroup:
    """`dgvf train WORLD METHOD`, one command per preset; `dgvf train atari METHOD --game GAME`, and `impala`."""
    worlds = CommandGroup()
    for world in train_config.WORLDS:
        methods = worlds.command(world, f"Train on {train_config.preset(world, 'a2c').env}.")(CommandGroup())
        for method in train_config.METHODS:
            config = train_config.preset(world, method)
            methods.command(method, f"Train {method} on {config.env}.")(_train_command(config))
    games, jointly = "Train on an Atari game", "Train IMPALA on an Atari game, jointly with discovered questions"
    worlds.command(ATARI, f"{games}; discovered questions unless a method is named.")(_games_app(atari_config))
    worlds.command(IMPALA, f"{jointly} unless a method is named.")(_games_app(impala_config))
    worlds.command("resume")(_resume)
    return worlds


def _games_app(configured: Callable[..., TrainConfig]) -> CommandGroup:
    """One command per method."""
    games = CommandGroup()
    for method in ATARI_METHODS:
        games.command(method, f"Train {method} on an Atari game.")(_train_atari_command(method, configured))
    return games


def train_arguments(arguments: Sequence[str]) -> list[str]:
    """Arguments of `dgvf train` as its tree of commands has them: a game's method may be left out, and `--resume RUN`
    stands for `resume RUN`.

    Args:
        arguments: those after `train`.
    """
    given = list(arguments)
    on_game = given[:1] in ([ATARI], [IMPALA])
    if on_game and given[1:2] not in (["-h"], ["--help"]) and not {*given[1:2]} & {*ATARI_METHODS}:
        given.insert(1, "discovered")
    if given and given[0].split("=")[0] == "--resume":
        given[:1] = ["resume", *given[0].split("=", 1)[1:]]
    return given
