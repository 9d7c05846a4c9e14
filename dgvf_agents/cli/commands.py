"""The commands of `dgvf`, but for `dgvf train`."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import tyro
from rich.console import Console
from rich.markup import escape

from dgvf_agents.cli.train import INTERRUPTED, print_rules
from dgvf_agents.cli.words import COMMANDS, chosen, show_overview
from dgvf_agents.experiments.reproduce import Grid, Reproduction, draw, print_table, reproduce, sweep
from dgvf_agents.experiments.settings import game_of_world
from dgvf_agents.options import ExperimentName, Method, World
from dgvf_agents.train.config import atari_config, preset
from dgvf_agents.train.folder import SHIPPED, RunFolder
from dgvf_envs.atari import GAMES, human_normalized_score

File = Annotated[Path, tyro.conf.Positional]
Run = Annotated[
    Path,
    tyro.conf.Positional,
    tyro.conf.arg(help=f"The run folder, or a run that comes with the package: {', '.join(SHIPPED)}."),
]


def _warm_up(world: Annotated[World, tyro.conf.Positional], method: Annotated[Method, tyro.conf.Positional]) -> None:
    from dgvf_agents.train.train import warm_up

    warm_up(preset(world, method))
    Console().print("Training starts compiled now.")


def _evaluate(
    run: Run, episodes: int = 100, deterministic: bool = False, seed: int = 10_000, device: str | None = None
) -> None:
    """Evaluate a run.

    Args:
        run: See `Run`.
        episodes: Number of episodes.
        deterministic: Take the most likely action instead of sampling from the policy.
        seed: Seed of the environments and the actions.
        device: Device of the network; the run's when left out, or the CPU if that is unavailable.
    """
    from dgvf_agents.train.evaluate import evaluate

    config = RunFolder.existing(run).read_config()
    print_rules(config)
    what, of = ("return", "episodes") if config.atari is None else ("score", "whole games")
    for as_trained in (False, True) if config.env_kwargs != config.evaluation_kwargs else (False,):
        mean, deviation = evaluate(run, episodes, deterministic, seed, device, as_trained)
        where = ", in the environments of training" if as_trained else ""
        Console().print(f"{what} {mean:.3f} ± {deviation:.3f} (standard deviation) over {episodes} {of}{where}")
    if config.atari is not None and config.env in GAMES:
        normalized = human_normalized_score(config.env, mean)
        Console().print(f"human-normalized {normalized:.3f} (0 random, 1 human; Wang et al. 2016)")


def _watch(
    run: Run,
    episodes: int = 10,
    deterministic: bool = False,
    seed: int | None = None,
    questions: bool = False,
    question: int | None = None,
    video: Path | None = None,
) -> None:
    """Watch a run.

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
    from dgvf_agents.train.watch import watch

    print_rules(RunFolder.existing(run).read_config(), games_only=True)
    drawn = questions or question is not None
    overlay = partial(live_questions, first=question, keys=video is None) if drawn else None
    try:
        watch(run, episodes, deterministic, seed, overlay, video, tell=partial(Console().print, highlight=False))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _atlas(
    run: Run,
    beside: tuple[Path, ...] = (),
    out: Path | None = None,
    kinds: int = 8,
    checkpoints: int = 8,
    game_seed: int = 0,
    game_steps: int = 1000,
) -> None:
    """Draw a run's questions.

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

    print_rules(RunFolder.existing(run).read_config(), games_only=True)
    page = write_atlas(run, beside, out, kinds, checkpoints, game_seed, game_steps)
    Console().print(f"The atlas is [bold]{escape(str(page))}[/bold].")


def _export(run: Run, folder: File, episodes: int = 100) -> None:
    """Export a run.

    Args:
        run: See `Run`.
        folder: The folder to write, new or empty.
        episodes: Episodes of the evaluation.
    """
    from dgvf_agents.export import export

    Console().print(f"The card is [bold]{escape(str(export(run, folder, episodes)))}[/bold].")


def _probe(run: Run, seed: int = 20_000, device: str | None = None) -> None:
    """Measure a run's stability.

    Args:
        run: See `Run`.
        seed: Seed of the environments and the actions.
        device: Device of the updates; the run's when left out, or the CPU if that is unavailable.
    """
    from dgvf_agents.train.stability import probe

    rows = [(f"{one.steps:,}", f"{one.spectral_radius:.3f}", f"{one.gain:.3g}") for one in probe(run, seed, device)]
    heads = ["steps", "spectral radius", "gain over L updates"]
    print_table(pd.DataFrame(rows, columns=heads), Console())


def _reproduce(reproduction: tyro.conf.OmitArgPrefixes[Reproduction]) -> None:
    if reproduction.experiment == "atari":
        names = ", ".join(str(game_of_world(world)) for world in reproduction.all_worlds)
        print_rules(dataclasses.replace(atari_config("Pong", "a2c"), env=names))
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


def _sweep(grid: tyro.conf.OmitArgPrefixes[Grid]) -> None:
    _train_all(lambda: sweep(grid))


def _aggregate(file: File) -> None:
    """Aggregate scores.

    Args:
        file: CSV with columns game, score and optionally seed and agent; or games and a column per agent, mean ± std.
    """
    from dgvf_agents.experiments.scores import aggregate, read_scores

    rows = []
    for agent, games in read_scores(file).items():
        scores = {name.replace("_", " "): str(value) for name, value in aggregate(games).items()}
        rows.append({"agent": agent, "games": len(games), "runs": sum(map(len, games.values())), **scores})
    print_table(pd.DataFrame(rows), Console())
    Console().print(f"Of {len(GAMES)} games; 0 random, 1 human (Wang et al. 2016). 95% intervals over seeds.")


def _draw(experiment: Annotated[ExperimentName, tyro.conf.Positional], results: File) -> None:
    Console().print(f"The picture is [bold]{escape(str(draw(experiment, results)))}[/bold].")


_FUNCTIONS: dict[str, Callable[..., None]] = {
    "warm-up": _warm_up,
    "evaluate": _evaluate,
    "watch": _watch,
    "atlas": _atlas,
    "export": _export,
    "probe": _probe,
    "reproduce": _reproduce,
    "sweep": _sweep,
    "aggregate": _aggregate,
    "draw": _draw,
}


def run(name: str, given: Sequence[str]) -> None:
    """Run a command. Only this one is parsed, so that a mistyped option is answered with its options alone.

    Args:
        name: its name.
        given: the arguments after it.
    """
    function, prog, description = _FUNCTIONS.get(name), f"dgvf {name}", COMMANDS[name]
    if function is None:
        from dgvf_agents.bench import BENCHMARKS

        summaries = {kind: inspect.getdoc(found) or "" for kind, found in BENCHMARKS.items()}
        if not given or given[0].startswith("-"):
            show_overview(summaries, prog, given, description)
        name = chosen(given[0], summaries, prog)
        benchmark: Any = BENCHMARKS[name]
        prog, given = f"{prog} {name}", given[1:]
        tyro.cli(benchmark, prog=prog, args=given, description=summaries[name]).run(" ".join([prog, *given]))
        return
    tyro.cli(function, prog=prog, args=given, description=description)
