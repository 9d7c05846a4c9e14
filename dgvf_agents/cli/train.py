"""The commands `dgvf train`."""

from __future__ import annotations

import dataclasses
import importlib
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import tyro
from rich.console import Console
from rich.markup import escape

from dgvf_agents.cli.words import COMMANDS, chosen, show_overview
from dgvf_agents.options import Algorithm, AtariMethod, AtariRules, Method, World
from dgvf_agents.train.config import (
    ATARI_METHODS,
    METHODS,
    WORLDS,
    TrainConfig,
    atari_config,
    impala_config,
    own_config,
    preset,
)

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

_GAMES: dict[str, Callable[[str, AtariMethod, AtariRules], TrainConfig]] = {
    "atari": atari_config,
    "impala": impala_config,
}
"""What stands for a world in `dgvf train`, before the method and --game."""

Imports = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    tyro.conf.arg(
        name="import",
        help="A module of yours that the run's environment or wrapper is in: a run folder has nothing imported.",
    ),
]


def import_modules(modules: Sequence[str]) -> None:
    """Import what `--import` names.

    Raises:
        ValueError: there is no such module.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ValueError(f"import must be a module on Python's path, got {module}: {error}") from error


_SUMMARIES: dict[str, str] = {
    **{world: f"Train on {preset(world, 'a2c').env}." for world in WORLDS},
    "atari": "Train on an Atari game; discovered questions unless a method is named.",
    "impala": "Train IMPALA on an Atari game, jointly with discovered questions unless a method is named.",
    "own": "Train on an environment of your own: its id, and discovered questions unless a method is named.",
    "resume": "Go on with a run that was stopped or killed; `dgvf train --resume RUN` is the same.",
}


def train(given: Sequence[str]) -> None:
    """Run `dgvf train WORLD METHOD`, `atari METHOD --game GAME`, `impala` likewise, `own ENV METHOD`, or `resume RUN`.

    Only the chosen command is parsed: tyro would answer a mistyped option with the options of all commands.

    Args:
        given: the arguments after `train`. The method may be left out after a game or an environment of your own, and
            `--resume RUN` stands for `resume RUN`.
    """
    if given and given[0].split("=")[0] == "--resume":
        given = ["resume", *given[0].split("=")[1:], *given[1:]]
    command: Callable[..., Any]
    world, rest = given[0].replace("_", "-") if given else "", list(given[1:])
    prog = f"dgvf train {world}"
    if world == "resume":
        tyro.cli(_resume, prog=prog, args=rest, description=_SUMMARIES["resume"])
        return
    if world not in _SUMMARIES:
        show_overview(_SUMMARIES, "dgvf train", given, COMMANDS["train"])
    if world == "own" and rest and not rest[0].startswith("-"):
        env, *rest = rest
        method = chosen(rest.pop(0), ATARI_METHODS, f"{prog} {env}") if rest and rest[0][0] != "-" else "discovered"
        command, where = _on_world(own_config(env, method, _algorithm(rest, f"{prog} {env}"))), env
        tyro.cli(command, prog=f"{prog} {env} {method}", args=rest, description=f"Train {method} on {env}.")
        return
    if world == "own":
        tyro.cli(_own, prog=prog, args=rest, description=_SUMMARIES[world])
        return
    methods: tuple[str, ...] = ATARI_METHODS if world in _GAMES else METHODS
    method = rest[0].replace("_", "-") if rest else ""
    if method in methods:
        rest = rest[1:]
    elif world in _GAMES and method not in ("-h", "--help"):
        method = "discovered"
    else:
        where = "an Atari game" if world in _GAMES else preset(cast(World, world), "a2c").env
        show_overview({name: f"Train {name} on {where}." for name in methods}, prog, rest, _SUMMARIES[world])
    if world in _GAMES:
        command, where = _on_game(cast(AtariMethod, method), _GAMES[world]), "an Atari game"
    else:
        config = preset(cast(World, world), cast(Method, method), _algorithm(rest, f"{prog} {method}"))
        command, where = _on_world(config), config.env
    tyro.cli(command, prog=f"{prog} {method}", args=rest, description=f"Train {method} on {where}.")


def _algorithm(rest: Sequence[str], before: str) -> Algorithm:
    """The value of `--algorithm`, which says what the defaults of all other options are."""
    for argument, following in zip(rest, [*rest, ""][1:], strict=True):
        name, _, value = argument.partition("=")
        if name == "--algorithm":
            return cast(Algorithm, chosen(value or following, get_args(Algorithm), f"{before} --algorithm"))
    return "a2c"


def _own(
    env: Annotated[str, tyro.conf.Positional], method: Annotated[AtariMethod, tyro.conf.Positional] = "discovered"
) -> None:
    """Train on an environment of your own. Options follow; `dgvf train own CartPole-v1 --help` lists them.

    Args:
        env: Its id in Gymnasium's registry, as CartPole-v1; module:Id where a module registers it.
        method: The auxiliary task, or a2c for none; discovered when left out.
    """


def _on_world(preset: TrainConfig) -> Callable[..., None]:
    def command(
        config: tyro.conf.OmitArgPrefixes[TrainConfig] = preset,
        out: Path | None = None,
        resume: bool = False,
        restarts: int = 0,
    ) -> None:
        """Train.

        Args:
            config: Everything else.
            out: The run folder.
            resume: Go on with the run at `out` if there is one.
            restarts: How often to go on from the last checkpoint if the process that trains is killed.
        """
        name = f"{config.env.rpartition(':')[2].replace('/', '-')}-{config.task}-{config.seed}"
        _train(config, out or Path("runs") / name, resume, restarts)

    return command


def _on_game(
    method: AtariMethod, configured: Callable[[str, AtariMethod, AtariRules], TrainConfig]
) -> Callable[..., None]:
    usual = dataclasses.replace(configured("Breakout", method, "paper"), env="")

    def command(
        game: str,
        preset: AtariRules = "paper",
        config: tyro.conf.OmitArgPrefixes[TrainConfig] = usual,
        out: Path | None = None,
        resume: bool = False,
        restarts: int = 0,
    ) -> None:
        """Train.

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
        parts = [config.env, config.task]
        if config.algorithm == "impala":
            parts.append("impala")
        elif config.encoder_mode == "joint" and config.task != "none":
            parts.append("joint")
        if preset != "paper":
            parts.append(preset)
        _train(config, out or Path("runs") / "-".join([*parts, str(config.seed)]), resume, restarts)

    return command


def _resume(
    run: Annotated[Path, tyro.conf.Positional],
    device: str | None = None,
    address: str | None = None,
    steps: int | None = None,
    imports: Imports = (),
) -> None:
    """Go on with a run.

    Args:
        run: The run folder.
        device: Where to go on; where the run was so far when left out.
        address: Of the Ray cluster for the run's actors, or auto; this machine when left out. Folders hold none.
        steps: Another total of environment steps, which schedules follow from here on; the run's when left out.
        imports: See `Imports`.
    """
    from dgvf_agents.train.folder import RunFolder, located, shipped_name

    import_modules(imports)
    folder = RunFolder.existing(run)
    config = folder.read_config()
    if steps is not None and steps != config.steps:
        from dgvf_agents.train.train import annealed, set_steps

        was, config = config.steps, set_steps(folder, steps)
        changing = ", ".join(annealed(config)) or "nothing"
        told = f"{steps:,} steps in place of {was:,}; annealed over all of them: {changing}"
        Console().print(told, highlight=False, soft_wrap=True)
    config = dataclasses.replace(config, device=device or config.device, address=address)
    if config.questions_from and not folder.checkpoints():  # otherwise they are in the checkpoint
        source = located(Path(config.questions_from), folder.path)
        if not (shipped_name(source) or source.resolve().is_relative_to(folder.path.resolve())):
            raise ValueError(
                f"{folder.config_file} must not choose what is read outside its folder, got questions_from "
                f"{config.questions_from}: start the run again, with --questions-from, --out and --resume"
            )
    if config.actors and address is None:
        told = f"{config.actors} actors are on this machine; --address names a cluster, which a run folder does not"
        Console(stderr=True).print(told, soft_wrap=True)
    _train(config, folder.path, resume=True)


def _train(config: TrainConfig, path: Path, resume: bool, restarts: int = 0) -> None:
    from dgvf_agents.storage.files import DamagedFileError
    from dgvf_agents.train.checkpoint import NothingToResumeError
    from dgvf_agents.train.environments import modules_of
    from dgvf_agents.train.folder import RunFolder
    from dgvf_agents.train.learners import train_in_processes
    from dgvf_agents.train.recorder import TrainingInterruptedError
    from dgvf_agents.train.train import train

    named = shlex.join([str(path), *(word for module in modules_of(config) for word in ("--import", module))])
    how = f"dgvf train --resume {named}"
    how += f" --address {shlex.quote(config.address)}" if config.address else ""
    _check_out(path)
    print_rules(config)
    folder = RunFolder(path)
    folder.check_links()
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
        if not isinstance(error, FileExistsError | NothingToResumeError | DamagedFileError) and folder.checkpoints():
            Console(stderr=True).print(f"To go on from the last checkpoint: {how}", markup=False, soft_wrap=True)
        raise
    if finished:
        Console().print(f"The run has its {config.steps:,} steps already.")
    lies = f"The run lies in [bold]{escape(str(path))}[/bold], its curve is learning-curve.png there. Next:"
    Console().print(lies, soft_wrap=True)
    for command in _next_commands(config, named):
        Console().print(f"  {command}", markup=False, highlight=False, soft_wrap=True)


def _check_out(path: Path) -> None:
    try:
        path.lstat()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise ValueError(f"out must be the path of a folder, got {path}: {error.strerror}") from error


def _next_commands(config: TrainConfig, path: str) -> list[str]:
    """Commands to try next with a trained agent; of the atlas where it knows all states, or the game."""
    from dgvf_envs.sb3_adapter import of_this_package, spec_of

    shown = config.atari is not None or of_this_package(spec_of(config.env))
    asks = shown and config.task in ("discovered", "random") and config.question_encoder == "independent"
    watch = f"dgvf watch {path}{' --questions' if asks and config.atari is None else ''}"
    return [f"dgvf evaluate {path}", watch, *([f"dgvf atlas {path}"] if asks else [])]


def print_rules(config: TrainConfig, games_only: bool = False) -> None:
    """Print the rules of a game; in other worlds how training differs from evaluation, unless `games_only`."""
    from dgvf_agents.train.environments import worlds_of

    rules = config.atari.describe() if config.atari is not None else None if games_only else worlds_of(config)
    if rules is not None:
        Console().print(f"{config.env}: {rules}", markup=False, highlight=False, soft_wrap=True)
