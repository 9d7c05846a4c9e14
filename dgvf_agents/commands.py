"""The commands of `dgvf`."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from dgvf_agents.bench.commands import bench
from dgvf_agents.command_help import COMMANDS, DESCRIPTION
from dgvf_agents.command_names import ExperimentName
from dgvf_agents.command_tree import CommandGroup
from dgvf_agents.exit_status import INTERRUPTED, exit_on_error
from dgvf_agents.experiments.grid import Grid
from dgvf_agents.experiments.reproduction import Reproduction
from dgvf_agents.experiments.worlds import game_of_world
from dgvf_agents.runs import config as train_config
from dgvf_agents.runs.atari_config import ATARI_METHODS, AtariMethod, AtariRules, atari_config
from dgvf_agents.runs.config import Method, TrainConfig, World
from dgvf_agents.runs.impala_config import impala_config
from dgvf_agents.runs.shipped import SHIPPED
from dgvf_envs.atari import GAMES, human_normalized_score

File = Annotated[Path, tyro.conf.Positional]
Run = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(help=f"The run folder, or a run that comes with the package: {', '.join(SHIPPED)}."),
]

ATARI = "atari"
"""What stands for a world in `dgvf train`, before the method and --game."""
IMPALA = "impala"
"""Likewise, for IMPALA on an Atari game."""

app = CommandGroup()


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
        _train_supervised(config, out or Path("runs") / f"{config.env}-{config.task}-{config.seed}", resume, restarts)

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
        kind = "impala" if config.algorithm == "impala" else "joint" if config.encoder_mode == "joint" else None
        parts = [config.env, config.task, *([kind] if kind else [])]
        name = "-".join([*parts, *([preset] if preset != "paper" else []), str(config.seed)])
        _train_supervised(config, out or Path("runs") / name, resume, restarts)

    return command


def _train_supervised(config: TrainConfig, path: Path, resume: bool, restarts: int) -> None:
    """Train here, or with restarts in another process."""
    from dgvf_agents.runs.restarts import lasting_cluster, supervise

    if restarts < 0:
        raise ValueError(f"restarts must be >= 0, got {restarts!r}")
    if not restarts:
        _train(config, path, resume)
        return
    with lasting_cluster(config):
        status = supervise(partial(_learner, config, path), restarts, resume)
    if status:
        sys.exit(status)


def _learner(config: TrainConfig, path: Path, resume: bool) -> None:
    exit_on_error(lambda: _train(config, path, resume))


def _train(config: TrainConfig, path: Path, resume: bool) -> None:
    from dgvf_agents.runs.checkpoint import NothingToResumeError
    from dgvf_agents.runs.folder import RunFolder
    from dgvf_agents.runs.interrupts import TrainingInterruptedError
    from dgvf_agents.runs.train import train
    from dgvf_agents.runs.train_learners import train_learners

    how = f"dgvf train --resume {shlex.quote(str(path))}"
    _check_out(path)
    _tell_rules(config)
    folder = RunFolder(path)
    finished = resume and folder.config_file.exists() and folder.is_finished()
    try:
        if config.learners > 1:
            train_learners(config, path, resume=resume)
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
    Console().print(f"The run lies in [bold]{path}[/bold]; its learning curve is learning-curve.png. Next:")
    for command in _next_commands(config, shlex.quote(str(path))):
        Console().print(f"  {command}", markup=False, highlight=False, soft_wrap=True)


def _next_commands(config: TrainConfig, path: str) -> list[str]:
    """What can be done with a trained agent."""
    asks = config.task in ("discovered", "random")
    on_map = asks and config.atari is None
    commands = [f"dgvf evaluate {path}", f"dgvf watch {path}{' --questions' if on_map else ''}"]
    return [*commands, f"dgvf atlas {path}"] if asks else commands


def _check_out(path: Path) -> None:
    try:
        path.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ValueError(f"out must be the path of a folder, got {path}: {error.strerror}") from error


def _tell_rules(config: TrainConfig) -> None:
    """What a game is played under, wherever one is played, and how training differs from evaluation elsewhere."""
    from dgvf_agents.runs.environments import worlds_of

    rules = worlds_of(config) if config.atari is None else config.atari.describe()
    if rules is not None:
        Console().print(f"{config.env}: {rules}", markup=False, highlight=False, soft_wrap=True)


def _tell_game(config: TrainConfig) -> None:
    """What a game is played under; of other worlds nothing, where no returns are compared."""
    if config.atari is not None:
        _tell_rules(config)


def _resume(run: File, device: str | None = None) -> None:
    """Go on with a run that was stopped or killed; `dgvf train --resume RUN` is the same.

    Args:
        run: The run folder.
        device: Where to go on; where the run was so far when left out.
    """
    from dgvf_agents.runs.folder import RunFolder

    folder = RunFolder.existing(run)
    config = folder.read_config()
    _train(config if device is None else dataclasses.replace(config, device=device), folder.path, resume=True)


def _train_app() -> CommandGroup:
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


app.command("train", COMMANDS["train"])(_train_app())


@app.command("warm-up")
def _warm_up(world: Annotated[World, tyro.conf.Positional], method: Annotated[Method, tyro.conf.Positional]) -> None:
    """Compile what training on a world with a method needs, into the cache that all processes share."""
    from dgvf_agents.runs.warm_up import warm_up

    warm_up(train_config.preset(world, method))
    Console().print("Training starts compiled now.")


@app.command("evaluate")
def _evaluate(
    run: Run, episodes: int = 100, deterministic: bool = False, seed: int = 10_000, device: str | None = None
) -> None:
    """Mean return of a run's latest checkpoint; on Atari the mean score of whole games, unclipped."""
    from dgvf_agents.runs.evaluate import evaluate
    from dgvf_agents.runs.folder import RunFolder

    config = RunFolder.existing(run).read_config()
    _tell_rules(config)
    what, of = ("return", "episodes") if config.atari is None else ("score", "whole games")
    for as_trained in (False, True) if config.env_kwargs != config.evaluation_kwargs else (False,):
        mean, deviation = evaluate(run, episodes, deterministic, seed, device, as_trained)
        where = ", in the environments of training" if as_trained else ""
        Console().print(f"{what} {mean:.3f} ± {deviation:.3f} (standard deviation) over {episodes} {of}{where}")
    if config.atari is not None and config.env in GAMES:
        normalized = human_normalized_score(config.env, mean)
        Console().print(f"human-normalized {normalized:.3f} (0 random, 1 human; Wang et al. 2016)")


@app.command("watch")
def _watch(
    run: Run,
    episodes: int = 10,
    deterministic: bool = False,
    seed: int | None = None,
    questions: bool = False,
    question: int | None = None,
    video: Path | None = None,
) -> None:
    """Show the agent of a run's latest checkpoint in a window.

    Args:
        run: See `Run`.
        episodes: Number of episodes; Ctrl-C ends earlier.
        deterministic: Take the most likely action instead of sampling from the policy.
        seed: Seed of the environment.
        questions: Draw the agent's questions over the map; the arrow keys choose.
        question: Number of the question to draw first, as in the atlas.
        video: Record without a window: all episodes in a file that ends in .mp4, or a file each in a folder. Needs
            moviepy.
    """
    from dgvf_agents.atlas.live import live_questions
    from dgvf_agents.runs.folder import RunFolder
    from dgvf_agents.runs.watch import watch

    _tell_game(RunFolder.existing(run).read_config())
    drawn = questions or question is not None
    overlay = partial(live_questions, first=question, keys=video is None) if drawn else None
    try:
        watch(run, episodes, deterministic, seed, overlay, video, partial(Console().print, highlight=False))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


@app.command("atlas")
def _atlas(
    run: Run,
    beside: tuple[Path, ...] = (),
    out: Path | None = None,
    kinds: int = 8,
    checkpoints: int = 8,
    game_seed: int = 0,
    game_steps: int = 1000,
) -> None:
    """Show what a run's questions ask, over every state of its world or along a game, as one HTML page with pictures.

    Args:
        run: See `Run`.
        beside: Other runs on the same world, to compare representations with.
        out: The folder to write to; when left out RUN/atlas, or demo-atlas here for a run of the package.
        kinds: Kinds of questions to show large, at most.
        checkpoints: Checkpoints to look at, at most.
        game_seed: Seed of the game that is recorded, where the run is on images.
        game_steps: Steps after which its recording stops.
    """
    from dgvf_agents.atlas.page import write_atlas
    from dgvf_agents.runs.folder import RunFolder

    _tell_game(RunFolder.existing(run).read_config())
    page = write_atlas(run, beside, out, kinds, checkpoints, game_seed, game_steps)
    Console().print(f"The atlas is [bold]{page}[/bold].")


@app.command("probe")
def _probe(run: Run, seed: int = 20_000, device: str | None = None) -> None:
    """Spectral radius of the inner updates of a run's checkpoints, and what L of them multiply a meta-gradient by."""
    from dgvf_agents.runs.probe import probe

    table = Table("steps", "spectral radius", "gain over L updates")
    for row in probe(run, seed, device):
        table.add_row(f"{row.steps:,}", f"{row.spectral_radius:.3f}", f"{row.gain:.3g}")
    Console().print(table)


@app.command("reproduce")
def _reproduce(reproduction: tyro.conf.OmitArgPrefixes[Reproduction]) -> None:
    """Run an experiment of the paper, or what is left of it, and write its tables and its picture."""
    from dgvf_agents.experiments.reproduce import reproduce

    if worlds := reproduction.game_worlds:
        names = ", ".join(str(game_of_world(world)) for world in worlds)
        _tell_rules(dataclasses.replace(atari_config("Pong", "a2c"), env=names))
    _train_all(lambda: reproduce(reproduction))


def _train_all(train: Callable[[], list[Any]]) -> None:
    """Train cells; the exit status tells whether some are missing."""
    try:
        missing = train()
    except KeyboardInterrupt:
        Console(stderr=True).print("dgvf: stopped; the same command goes on from here", markup=False)
        sys.exit(INTERRUPTED)
    if missing:
        sys.exit(1)


@app.command("sweep")
def _sweep(grid: tyro.conf.OmitArgPrefixes[Grid]) -> None:
    """Train a method with every combination of settings, for several seeds; write a table and a picture."""
    from dgvf_agents.experiments.grid_sweep import sweep

    _train_all(lambda: sweep(grid))


@app.command("aggregate")
def _aggregate(file: File) -> None:
    """Median, interquartile mean and mean of human-normalized scores on Atari, from a table of anyone's scores.

    Args:
        file: CSV with columns game, score and optionally seed and agent; or games and a column per agent, mean ± std.
    """
    from dgvf_agents.experiments.evidence import interval
    from dgvf_agents.experiments.scores import aggregate, read_scores
    from dgvf_agents.experiments.statistics import AGGREGATES

    table = Table("agent", box=None)
    for heading in ("games", "runs", *AGGREGATES):
        table.add_column(heading.replace("_", " "), justify="right", no_wrap=True)
    for agent, games in read_scores(file).items():
        runs = sum(map(len, games.values()))
        table.add_row(agent, str(len(games)), str(runs), *map(interval, aggregate(games).values()))
    Console().print(table)
    Console().print(f"Of {len(GAMES)} games; 0 random, 1 human (Wang et al. 2016). 95 % intervals over seeds.")


@app.command("draw")
def _draw(experiment: Annotated[ExperimentName, tyro.conf.Positional], results: File) -> None:
    """Draw an experiment's picture from the folder with its tables alone."""
    from dgvf_agents.experiments.reproduce import draw

    Console().print(f"The picture is [bold]{draw(experiment, results)}[/bold].")


app.command("bench", COMMANDS["bench"])(bench)


def run(arguments: list[str]) -> None:
    """Run a command.

    Args:
        arguments: of the process, the command's name first.
    """
    given = list(arguments)
    on_game = given[:2] in (["train", ATARI], ["train", IMPALA])
    if on_game and given[2:3] not in (["-h"], ["--help"]) and not {*given[2:]} & {*ATARI_METHODS}:
        given.insert(2, "discovered")
    if given[:1] == ["train"] and len(given) > 1 and given[1].split("=")[0] == "--resume":
        given[1:2] = ["resume", *given[1].split("=", 1)[1:]]
    app.cli(prog="dgvf", description=DESCRIPTION, args=given)
