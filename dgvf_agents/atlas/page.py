"""`dgvf atlas`: from run folders to an HTML page with everything in it, its numbers and its pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from matplotlib.figure import Figure
from matplotlib.image import imread

from dgvf_agents.atlas.captions import NAMED
from dgvf_agents.atlas.domain import Domain, check_domain
from dgvf_agents.atlas.domains import Game
from dgvf_agents.atlas.episode import record
from dgvf_agents.atlas.figures import COLORS, HEIGHT, EpisodeFigures, MapFigures
from dgvf_agents.atlas.maps import Maps, data_uri
from dgvf_agents.atlas.metrics import SAME_KIND
from dgvf_agents.atlas.report import RunReport, evaluated_world, question_task, read_run
from dgvf_agents.core.argument_checks import check_counts
from dgvf_agents.storage.files import write_whole
from dgvf_agents.train.checkpoint import load_model
from dgvf_agents.train.folder import RunFolder, output_folder, shipped_name

GAME_STEPS = 1000
"""Steps after which the recording of a game stops by default: a bit more than a minute of an Atari game."""


def write_atlas(
    run: Path,
    beside: Sequence[Path] = (),
    out: Path | None = None,
    kinds: int = 8,
    checkpoints: int = 8,
    game_seed: int = 0,
    game_steps: int = GAME_STEPS,
    domain: Domain | None = None,
) -> Path:
    """Write the question atlas of a run: `index.html` with everything in it, `atlas.json`, and `pictures/` as PNG.

    In a world with a domain it covers every state; on images, such as Atari games, the moments of a recorded game.

    Args:
        run: a run folder, or the name of a shipped run, whose agent has questions.
        beside: other runs on the same world, to compare representations with.
        out: the folder to write to; if `None`, `RUN/atlas`, or for a shipped run `demo-atlas`.
        kinds: how many kinds of questions to show large ≥ 1.
        checkpoints: how many checkpoints to evaluate, at most, ≥ 1.
        game_seed: of the game that is recorded, if the run is on images.
        game_steps: steps after which its recording stops ≥ 1.
        domain: where to ask the questions; the one registered for the run's world, or a recorded game, if `None`.

    Returns:
        The page.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: the run has no questions, its world has neither a domain nor images, the arrays of the domain do
            not fit, the runs are on different worlds, or a number is out of its range.
    """
    check_counts(kinds=kinds, checkpoints=checkpoints, game_steps=game_steps)
    own = RunFolder.existing(run)
    config = own.read_config()
    for path in beside:
        other = RunFolder.existing(path).read_config()
        if (other.env, other.evaluation_kwargs) != (config.env, config.evaluation_kwargs):
            raise ValueError(f"beside must be runs on {config.env}, got {path} on {other.env}")
    domain, horizon = _where_to_ask(own, game_seed, game_steps, domain)
    on_maps = isinstance(domain.layout, Maps)
    report = read_run(run, domain, horizon, checkpoints, untrained=on_maps)
    others = [read_run(path, domain, horizon, checkpoints if on_maps else 1, untrained=on_maps) for path in beside]
    figures = (MapFigures if on_maps else EpisodeFigures)(report, others, kinds)
    folder = output_folder(own.path, "atlas") if out is None else out
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)

    def shown(png: bytes, name: str) -> str:
        """The address of a picture in the page, which also lies beside it."""
        (pictures / f"{name}.png").write_bytes(png)  # hundreds, which need not reach the disk one by one
        return data_uri(png)

    templates = Environment(
        loader=PackageLoader("dgvf_agents.atlas"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["shown"] = shown
    questions = report.asked()
    named = [i for i in questions.ranking.kinds_first if questions.captions[i].named]
    paragraph = templates.get_template("lead.txt").render(
        report=report, questions=questions, named=named, threshold=NAMED
    )
    lead = " ".join(paragraph.split())
    numbers = _record([report, *others], figures, lead)
    write_whole(folder / "atlas.json", (json.dumps(numbers, indent=1) + "\n").encode())
    page = templates.get_template(figures.template).render(
        run=shipped_name(own.path) or own.path.resolve().name,
        report=report,
        agents=[report, *others],
        colors=COLORS,
        questions=questions,
        ranking=questions.ranking,
        kinds=questions.ranking.kinds[:kinds],
        figures=figures,
        episode=figures.episode,
        height=HEIGHT,
        wording=report.domain.wording,
        same_kind=SAME_KIND,
        named=NAMED,
        lead=lead,
        principal=questions.principal,
    )
    write_whole(folder / "index.html", page.encode())
    return folder / "index.html"


def draw_question(run: Path, path: Path) -> None:
    """Draw the cumulant of the first question of a run's atlas under its caption, over the maps or along a game.

    Args:
        run: see `write_atlas`.
        path: the PNG file.

    Raises:
        ValueError: see `write_atlas`.
    """
    domain, horizon = _where_to_ask(RunFolder.existing(run))
    questions = read_run(run, domain, horizon, checkpoints=1, untrained=False).asked()
    first = questions.ranking.kinds_first[0]
    cumulant = questions.values.cumulants[:, first]
    figure = Figure(figsize=(4.8, 3.4), layout="constrained")
    axes = figure.add_subplot()
    if isinstance(domain.layout, Maps):
        axes.imshow(imread(io.BytesIO(domain.layout.draw("cumulant", cumulant).png)))
        axes.set_axis_off()
    else:
        axes.plot(cumulant)
        axes.set(xlabel="step of a game", ylabel="cumulant")
    axes.set_title(f"Question {first}: {questions.captions[first].headline}", fontsize=9, wrap=True)
    figure.savefig(path, dpi=150)


def _where_to_ask(
    run: RunFolder, game_seed: int = 0, game_steps: int = GAME_STEPS, domain: Domain | None = None
) -> tuple[Domain, int]:
    """The domain of an atlas and the time limit of an episode; see `write_atlas`."""
    config = run.read_config()
    model = load_model(config, run.latest_checkpoint(), mixed_precision=False)
    question_task(model)
    known, horizon = evaluated_world(config)
    domain = domain or known or Game(record(model, config, game_seed, game_steps))
    check_domain(domain, model.observation_space)
    return domain, horizon


def _record(agents: Sequence[RunReport], figures: MapFigures | EpisodeFigures, lead: str) -> dict[str, Any]:
    """The numbers of the page, for programs; the agent that it is about comes first."""
    report, questions, ranking = agents[0], agents[0].asked(), agents[0].asked().ranking
    shares, _, nearest, correlations = questions.principal
    return {
        "env": report.config.env,
        "lead": lead,
        "agents": [
            {
                "task": agent.config.task,
                "seed": agent.config.seed,
                "steps": agent.steps,
                "expected_return": agent.exact_return,
                "moments": [one.numbers for one in agent.history],
            }
            for agent in agents
        ],
        **({"game": figures.record()} if isinstance(figures, EpisodeFigures) else {}),
        "kinds": [kind._asdict() for kind in ranking.kinds],
        "principal": [
            {"share": share, "nearest": question, "correlation": r, "headline": caption.headline}
            for share, question, r, caption in zip(
                *(part.tolist() for part in (shares, nearest, correlations)), questions.principal_names, strict=True
            )
        ],
        "questions": [
            {
                "question": i,
                "score": float(ranking.score[i]),
                "variation": float(ranking.variation[i]),
                "policy_reliance": float(questions.reliance.policy[i]),
                "value_reliance": float(questions.reliance.value[i]),
                **figures.question_record(i),
                **questions.captions[i]._asdict(),
            }
            for i in ranking.order.tolist()
        ],
    }
