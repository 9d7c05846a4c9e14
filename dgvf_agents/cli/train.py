"""The commands `dgvf train`."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import tyro
from rich.console import Console
from rich.markup import escape

from dgvf_agents.cli.words import COMMANDS, chosen, show_overview
from dgvf_agents.hyperparameters import record
from dgvf_agents.options import Algorithm, AtariMethod, AtariRules, World
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

_SUMMARIES: dict[str, str] = {
    **{world: f"Train on {preset(world, 'a2c').env}." for world in WORLDS},
    "atari": "Train on an Atari game; discovered questions unless a method is named.",
    "impala": "Train IMPALA on an Atari game, jointly with discovered questions unless a method is named.",
    "own": "Train on an environment of your own: its id, then a method (a2c by default), or --help for options.",
    "resume": "Go on with a run that was stopped or killed; `dgvf train --resume RUN` is the same.",
}


@dataclasses.dataclass(frozen=True)
class _Options:
    """The options of `dgvf train WORLD METHOD`."""

    config: tyro.conf.OmitArgPrefixes[TrainConfig]
    """Everything else."""
    out: Path | None = None
    """The run folder."""
    resume: bool = False
    """Go on with the run at `out` if there is one."""
    restarts: int = 0
    """How often to go on from the last checkpoint if the process that trains is killed."""

    def config_and_name(self, method: AtariMethod) -> tuple[TrainConfig, str]:
        """The configuration of the run, and the name of its folder unless `out` is given."""
        return self.config, f"{self.config.env.rpartition(':')[2].replace('/', '-')}-{self.config.task}"


@dataclasses.dataclass(frozen=True)
class _GameOptions(_Options):
    """The options of `dgvf train atari METHOD`."""

    game: str = tyro.MISSING
    """The game in Gymnasium's or ALE's spelling, as Breakout or ms_pacman."""
    preset: AtariRules = "paper"
    """Rules: `paper` (Mnih et al. 2015), or `modern` (sticky actions, Machado et al. 2018)."""

    def config_and_name(self, method: AtariMethod) -> tuple[TrainConfig, str]:
        if self.config.env:
            raise ValueError(f"env must be left out on Atari, where --game names the game, got {self.config.env!r}")
        rules = atari_config(self.game, method, self.preset)
        config = dataclasses.replace(self.config, env=rules.env, atari=rules.atari)
        joint = "joint" if config.encoder_mode == "joint" and config.task != "none" else ""
        kind = "impala" if config.algorithm == "impala" else joint
        return config, "-".join(filter(None, (config.env, config.task, kind, self.preset.replace("paper", ""))))


def train(given: Sequence[str]) -> None:
    """Run `dgvf train WORLD METHOD`, `atari METHOD --game GAME`, `impala` likewise, `own ENV METHOD`, or `resume RUN`.

    Only the chosen command is parsed: tyro would answer a mistyped option with the options of all commands.

    Args:
        given: the arguments after `train`. The method may be left out after a game or an environment of your own, and
            `--resume RUN` stands for `resume RUN`.
    """
    if given and given[0].split("=")[0] == "--resume":
        given = ["resume", *given[0].split("=")[1:], *given[1:]]
    world, rest = given[0].replace("_", "-") if given else "", list(given[1:])
    prog = f"dgvf train {world}"
    if world not in _SUMMARIES:
        show_overview(_SUMMARIES, "dgvf train", given, COMMANDS["train"])
    is_word = bool(rest) and not rest[0].startswith("-")
    if world == "resume" or (world == "own" and not is_word):
        tyro.cli(_resume if world == "resume" else _own, prog=prog, args=rest, description=_SUMMARIES[world])
        return
    where, methods = "an Atari game", ATARI_METHODS
    if world == "own":
        where = rest.pop(0)
        prog, is_word = f"{prog} {where}", bool(rest) and not rest[0].startswith("-")
    elif world not in _GAMES:
        where, methods = preset(cast(World, world), "a2c").env, METHODS
    if not is_word and world != "own" and (world not in _GAMES or rest[:1] in (["-h"], ["--help"])):
        show_overview({name: f"Train {name} on {where}." for name in methods}, prog, rest, _SUMMARIES[world])
    method: Any = chosen(rest.pop(0), methods, prog) if is_word else "a2c" if world == "own" else "discovered"
    prog = f"{prog} {method}"
    if world in _GAMES:
        usual = _GAMES[world]("Breakout", method, "paper")
        options: _Options = _GameOptions(dataclasses.replace(usual, env=""))
    elif world == "own":
        options = _Options(own_config(where, method, _algorithm(rest, prog)))
    else:
        options = _Options(preset(cast(World, world), method, _algorithm(rest, prog)))
    about = f"Train {method} on {where}."
    parsed = tyro.cli(type(options), default=options, prog=prog, args=rest, description=about)
    algorithm = parsed.config.algorithm
    if algorithm == "ppo" and parsed.config.compile is True:
        raise ValueError("compile must be left out for the algorithm ppo, got True")
    for field in record().keys() - record(algorithm).keys():  # a preset may hold values of theirs
        if (value := getattr(parsed.config, field)) != getattr(options.config, field):
            raise ValueError(f"{field} must be left out for the algorithm {algorithm}, got {value!r}")
    config, name = parsed.config_and_name(method)
    _train(config, parsed.out or Path("runs") / f"{name}-{config.seed}", parsed.resume, parsed.restarts)


def _algorithm(rest: Sequence[str], before: str) -> Algorithm:
    """The value of `--algorithm`, which says what the defaults of all other options are."""
    for argument, following in zip(rest, [*rest, ""][1:], strict=True):
        name, _, value = argument.partition("=")
        if name == "--algorithm":
            return cast(Algorithm, chosen(value or following, get_args(Algorithm), f"{before} --algorithm"))
    return "a2c"


def _own(
    env: Annotated[str, tyro.conf.Positional], method: Annotated[AtariMethod, tyro.conf.Positional] = "a2c"
) -> None:
    """Train on an environment of your own. Options follow; `dgvf train own CartPole-v1 --help` lists them.

    Args:
        env: Its id in Gymnasium's registry, as CartPole-v1; module:Id where a module registers it.
        method: The auxiliary task, or a2c for none, as when left out.
    """


def _resume(
    run: Annotated[Path, tyro.conf.Positional],
    device: str | None = None,
    address: str | None = None,
    steps: int | None = None,
) -> None:
    """Go on with a run.

    Args:
        run: The run folder.
        device: Where to go on; where the run was so far when left out.
        address: Of the Ray cluster for the run's actors, or auto; this machine when left out. Folders hold none.
        steps: Another total of environment steps, which schedules follow from here on; the run's when left out.
    """
    from dgvf_agents.train.folder import RunFolder, located, shipped_name

    folder = RunFolder.existing(run)
    config = folder.read_config()
    if steps is not None and steps != config.steps:
        from dgvf_agents.train.train import annealed, set_steps

        was, config = config.steps, set_steps(folder, steps)
        changing = ", ".join(annealed(config)) or "nothing"
        message = f"{steps:,} steps in place of {was:,}; annealed over all of them: {changing}"
        Console().print(message, highlight=False, soft_wrap=True)
    config = dataclasses.replace(config, device=device or config.device, address=address)
    if config.questions_from and not folder.checkpoints():  # otherwise they are in the checkpoint
        source = located(Path(config.questions_from), folder.path)
        if not (shipped_name(source) or source.resolve().is_relative_to(folder.path.resolve())):
            raise ValueError(
                f"{folder.config_file} must not choose what is read outside its folder, got questions_from "
                f"{config.questions_from}: start the run again, with --questions-from, --out and --resume"
            )
    if config.actors and address is None:
        message = f"{config.actors} actors are on this machine; --address names a cluster, which a run folder does not"
        Console(stderr=True).print(message, soft_wrap=True)
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


def _next_commands(config: TrainConfig, path: str) -> list[str]:
    """Commands to try next with a trained agent; of the atlas where it knows all states, or the game."""
    from dgvf_agents.train.environments import can_be_shown
    from dgvf_agents.train.watch import may_have_display
    from dgvf_envs.sb3_adapter import of_this_package, spec_of

    shown = config.atari is not None or of_this_package(spec_of(config.env))
    asks = shown and config.task in ("discovered", "random") and config.question_encoder == "independent"
    watch = f"dgvf watch {path}{' --questions' if asks and config.atari is None else ''}"
    if not may_have_display():
        watch += " --video watch.mp4"
    watches = [watch] if can_be_shown(config) else []
    return [f"dgvf evaluate {path}", *watches, *([f"dgvf atlas {path}"] if asks else [])]


def print_rules(config: TrainConfig, games_only: bool = False) -> None:
    """Print the rules of a game; in other worlds how training differs from evaluation, unless `games_only`."""
    from dgvf_agents.train.environments import worlds_of

    rules = config.atari.describe() if config.atari is not None else None if games_only else worlds_of(config)
    if rules is not None:
        Console().print(f"{config.env}: {rules}", markup=False, highlight=False, soft_wrap=True)
