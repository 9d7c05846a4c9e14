"""`dgvf atlas`: from run folders to an HTML page with everything in it, its numbers and its pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import pandas as pd
import torch
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.ticker import EngFormatter
from scipy.spatial.distance import cdist

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.atlas.captions import NAMED
from dgvf_agents.atlas.domain import Domain, check_domain
from dgvf_agents.atlas.game import Game, record
from dgvf_agents.atlas.maps import Maps, Picture, data_uri, limits_of, png_of, scale_of
from dgvf_agents.atlas.metrics import SAME_KIND
from dgvf_agents.atlas.report import (
    QuestionValues,
    RunReport,
    evaluated_world,
    lines_of,
    question_task,
    question_values,
    read_run,
)
from dgvf_agents.core.argument_checks import check_counts
from dgvf_agents.storage.files import write_bytes
from dgvf_agents.train.checkpoint import load_model
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.folder import RunFolder, output_folder, shipped_name
from dgvf_agents.train.recorder import dress
from dgvf_envs.rendering import DIVERGING, colors

HEIGHT = 100
"""Units of a chart's height; it is stretched to any size."""


@final
class Chart(NamedTuple):
    """Lines on one scale."""

    paths: tuple[str, ...]
    """The `d` of a path for each line; x is the moment, y runs from 0 (high) to `HEIGHT` (low)."""
    low: float
    """Value at the bottom."""
    high: float
    """Value at the top."""


def chart(*lines: np.ndarray, first: int = 0) -> Chart:
    """Lines `[T + 1]` on a common scale, which values from moment `first` on decide; NaN leaves a gap."""
    low, high = limits_of(np.concatenate([line[first:] for line in lines]))
    return Chart(tuple(_path(HEIGHT * (high - line) / (high - low)) for line in lines), low, high)


def _path(heights: np.ndarray) -> str:
    drawn = ~np.isnan(heights)
    begins = drawn & ~np.append(False, drawn[:-1])
    moments = np.flatnonzero(drawn).tolist()
    return "".join(f"{'M' if begins[t] else 'L'}{t} {heights[t]:.1f}".removesuffix(".0") for t in moments)


def rounded(values: np.ndarray, digits: int = 6) -> list[float | None]:
    """Values `[T]` for JSON, which has no NaN."""
    return [None if np.isnan(value) else float(f"{value:.{digits}g}") for value in values.tolist()]


STEPS = 200
"""Steps after which a recording stops."""


def follow(
    model: DiscoveryAlgorithm, config: TrainConfig, domain: Domain, seed: int = 0
) -> tuple[Game, QuestionValues, np.ndarray]:
    """Record T steps of an agent, with actions drawn from its policy, and evaluate its D questions along them.

    Returns:
        the episode; the questions, `[T + 1, D]` each; and `[T + 1]` integer, the points of the domain where the agent
        was: the nearest ones, if observations are continuous.
    """
    episode = record(model, config, seed, STEPS, pictures=False)
    seen, known = (one.reshape(len(one), -1) for one in (episode.observations, domain.observations))
    return episode, question_values(model, episode), cdist(seen, known).argmin(axis=1)


COLORS = ("#c0392b", "#2c69b0", "#7a54be", "#3a945c", "#b7791f", "#26282c")
"""Of the agents, in their order."""
_STRIP_SIDE = 110
_BESIDE = 4
"""Questions shown of every agent beside."""


@final
class MapFigures:
    """Heat maps of a run's questions and principal questions, and of some questions of the runs beside it; strips over
    training of the kinds that are shown large; the first question along an episode.
    """

    template = "maps.html"

    def __init__(self, report: RunReport, others: Sequence[RunReport], kinds: int) -> None:
        assert isinstance(report.domain.layout, Maps)
        self._report, self.maps, self._questions = report, report.domain.layout, report.asked()
        values, draw = self._questions.values, self.maps.draw
        self._parts = {"cumulant": values.cumulants, "answer": values.answers, "discount": values.discounts}
        self.drawn = {
            name: [draw(name, one) if name != "discount" or np.ptp(one) >= 1e-6 else None for one in part.T]
            for name, part in self._parts.items()
        }
        self.principal = [draw("cumulant", one) for one in self._questions.principal.values.T]
        self.strips = {kind.leader: self._strip(kind.leader) for kind in self._questions.ranking.kinds[:kinds]}
        self.world = self.maps.draw_world()
        self.policy = self.maps.draw_policy(report.values, np.exp(report.agent.log_policy))
        self.curves = curves_png([report, *others])
        self.beside = [(one, self._some_questions(one)) for one in others if one.questions is not None]
        self.episode, along, self._points = follow(report.model, report.config, report.domain)
        self._lines = lines_of(along, self._questions.ranking.kinds_first[0])
        cumulant, _, answer, outcome = self._lines
        self.charts = {"cumulant": chart(cumulant), "answer": chart(outcome, answer)}
        self.path = self.maps.path(self._points.tolist())

    def script_data(self) -> dict[str, Any]:
        """Data of the page's script: the values behind the maps, and the episode."""
        principal, value = self._questions.principal.values, self._report.values[:, None]
        quantities = {**self._parts, "principal": principal, "value": value}
        if not any(self.drawn["discount"]):
            quantities["discount"] = quantities["discount"][:, :0]
        return {
            "x": rounded(self.maps.positions[:, 1]),
            "y": rounded(self.maps.positions[:, 2]),
            "names": [self._report.domain.name(i) for i in range(len(self._report.values))],
            "values": {name: [rounded(one, 3) for one in part.T] for name, part in quantities.items()},
            "points": self._points.tolist(),
            "rewards": self.episode.rewards.tolist(),
            "lines": dict(zip(("u", "g", "y", "came"), (rounded(line, 3) for line in self._lines), strict=True)),
        }

    def _strip(self, question: int) -> list[tuple[int, Picture]]:
        """A question's cumulant at all checkpoints, with their steps, on one color scale."""
        history = self._report.history
        cumulants = [(one.steps, one.cumulants[:, question]) for one in history if one.cumulants is not None]
        scale = scale_of("cumulant", np.concatenate([values for _, values in cumulants]))
        return [(steps, self.maps.draw("cumulant", values, scale, _STRIP_SIDE)) for steps, values in cumulants]

    def _some_questions(self, agent: RunReport) -> list[tuple[int, Picture]]:
        questions = agent.asked()
        leaders = [kind.leader for kind in questions.ranking.kinds[:_BESIDE]]
        return [(one, self.maps.draw("cumulant", questions.values.cumulants[:, one])) for one in leaders]


_CURVES = {
    "variation": "how much cumulants vary over states",
    "effective_questions": "effective number of questions",
    "likeness": "likeness of the questions to the last ones",
    "effective_rank": "effective rank of the features",
}
"""Titles of numbers of a checkpoint."""


def curves_png(agents: Sequence[RunReport]) -> bytes:
    """Numbers over training, a line for each agent, as PNG."""
    targets = [target for target in agents[0].domain.targets if target.values.dtype != bool]
    curves = _CURVES | {one.key: f"{one.title} decoded linearly (R²)" for one in targets}
    figure = Figure(figsize=(11.0, 2.7 * -(-len(curves) // 3)), layout="constrained")
    grid = figure.subplots(-(-len(curves) // 3), 3).ravel()
    for agent, color in zip(agents, cycle(COLORS)):
        numbers = pd.DataFrame([one.numbers for one in agent.history]).astype(float).set_index("steps")
        for axes, key in zip(grid, curves, strict=False):
            axes.plot(numbers[key], "o-", color=color, markersize=3.5, linewidth=1.7, label=agent.label)
    for axes, title in zip(grid, curves.values(), strict=False):
        dress(axes, logarithmic=False)
        axes.set_title(title, fontsize=9.5, loc="left")
        axes.set_xlabel("environment steps", fontsize=8.5)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    for axes in grid[len(curves) :]:
        axes.axis("off")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9.5)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=130)
    return file.getvalue()


GRADIENT_MOMENTS = 240
"""Moments of a game at even distances at which gradients are drawn."""
HEAT_LEVELS = 16
"""Steps of brightness: more cannot be told apart and take more room."""
_BATCH = 64
"""Observations at once."""
_FINE = 64
"""Pixels along a side from which on gradients are averaged over cells of 2 x 2."""


def gradients_of(model: DiscoveryAlgorithm, domain: Domain, cumulant: np.ndarray, question: int) -> dict[int, bytes]:
    """Where a question with this cumulant `[T + 1]` looks along an episode: all over it, and at the extremes.

    Returns:
        PNG by moment: |∂u/∂o|, summed over the channels and averaged over small cells if pictures are large.
    """
    steps = len(cumulant) - 1
    even = np.linspace(steps, 1, min(GRADIENT_MOMENTS, steps)).round().astype(int).tolist()
    moments = sorted({*even, *domain.extremes(cumulant)})
    summed = cells(cumulant_saliency(model, domain.observations[moments], question).sum(axis=1))
    peak = peak_of(summed[domain.counted[moments]])
    return {at: png_of(heat_levels(one, peak), HEAT_COLORS) for at, one in zip(moments, summed, strict=True)}


def cumulant_saliency(model: DiscoveryAlgorithm, observations: np.ndarray, question: int) -> np.ndarray:
    """|∂u_i / ∂o| of every pixel in every channel, per full range of a pixel (black to white), `[N, C, H, W]`.

    It says by how much the cumulant would change with a small change of one pixel, all others kept; not which pixels
    make it what it is, nor what happens when an object is gone (Simonyan et al. 2014).

    Args:
        model: the agent.
        observations: o, `[N, C, H, W]` uint8.
        question: i.

    Raises:
        ValueError: the agent has no questions, or they are about more than one observation.
    """
    task, eta, found = question_task(model), model.learner.eta, []
    for part in torch.from_numpy(np.ascontiguousarray(observations)).split(_BATCH):
        seen = part.float().requires_grad_(True)
        cumulants = task.network.ask(eta, seen[None])[0][0]
        (gradient,) = torch.autograd.grad(cumulants[:, question].sum(), seen)
        found.append(gradient.abs())
    return 255.0 * torch.cat(found).numpy()


def cells(saliency: np.ndarray) -> np.ndarray:
    """Means of `[..., H, W]` over 2 x 2 pixels if pictures are large: neighbors differ by the strides of a network."""
    height, width = saliency.shape[-2:]
    if min(height, width) < _FINE or height % 2 or width % 2:
        return saliency
    return saliency.reshape(*saliency.shape[:-2], height // 2, 2, width // 2, 2).mean(axis=(-3, -1))


def peak_of(saliency: np.ndarray) -> float:
    """The gradient of full brightness: the 99.8th percentile over moments and pixels, robust to single ones."""
    return max(float(np.percentile(saliency, 99.8)), 1e-30)


def heat_levels(saliency: np.ndarray, peak: float) -> np.ndarray:
    """Brightness `[H, W]` uint8 in [0, `HEAT_LEVELS`), in proportion to the gradient; full at `peak` and above."""
    return np.round(np.clip(saliency / peak, 0.0, 1.0) * (HEAT_LEVELS - 1)).astype(np.uint8)


_GLOW = ((0, 0, 0), (120, 20, 70), (240, 80, 50), (255, 190, 60), (255, 255, 210))
HEAT_COLORS = colors(_GLOW, np.linspace(0.0, 1.0, HEAT_LEVELS)).round().astype(np.uint8)
"""`[levels, 3]`: what is added to a frame, as light is ("screen"); black adds nothing."""


@final
class EpisodeFigures:
    """Frames of a recorded game, lines along it, and gradients of the questions that lead the kinds shown large."""

    template = "episode.html"

    def __init__(self, report: RunReport, others: Sequence[RunReport], kinds: int) -> None:
        assert isinstance(report.domain, Game)
        self._report, self.episode, questions = report, report.domain, report.asked()
        self._values, first, ranking = questions.values, self.episode.first, questions.ranking
        cumulants = {kind.leader: self._values.cumulants[:, kind.leader] for kind in ranking.kinds[:kinds]}
        self.extremes = {one: self.episode.extremes(cumulant) for one, cumulant in cumulants.items()}
        self.gradients = {one: gradients_of(report.model, self.episode, u, one) for one, u in cumulants.items()}
        self.frames = [png_of(frame) for frame in self.episode.frames]
        self.overview = png_of(overview(self._values.cumulants[1:, ranking.kinds_first], first - 1))
        self.value = chart(report.values, first=first)
        self.principal = [chart(one, first=first) for one in questions.principal.values.T]
        self.every = self.episode.steps <= GRADIENT_MOMENTS

    def charts(self, question: int) -> dict[str, Chart]:
        """The lines of a question: cumulant, answer with outcome, and discount unless it is constant."""
        cumulant, discount, answer, outcome = lines_of(self._values, question)
        first = self.episode.first
        lines = {"cumulant": (cumulant,), "answer": (outcome, answer), "discount": (discount,)}
        if np.ptp(discount[first:]) < 1e-6:
            del lines["discount"]
        return {name: chart(*drawn, first=first) for name, drawn in lines.items()}

    def script_data(self) -> dict[str, Any]:
        """Data of the page's script: frames, actions, rewards and questions."""
        episode, questions = self.episode, {}
        for number, found in self.gradients.items():
            lines = dict(zip("ugy", (rounded(line, 4) for line in lines_of(self._values, number)), strict=False))
            heat = {str(moment): data_uri(png) for moment, png in found.items()}
            questions[str(number)] = {**lines, "heat": heat}
        return {
            "steps": episode.steps,
            "frames": [data_uri(frame) for frame in self.frames],
            "actions": episode.actions.tolist(),
            "names": list(episode.action_names),
            "rewards": episode.rewards.tolist(),
            "ends": episode.terminated.tolist(),
            "questions": questions,
        }

    def record(self) -> dict[str, Any]:
        """The game in `atlas.json`."""
        whole = {name: getattr(self.episode, name) for name in ("seed", "steps", "score", "over")}
        along = {name: getattr(self.episode, name).tolist() for name in ("rewards", "terminated", "actions")}
        return {**whole, **along, "values": rounded(self._report.values)}

    def lines(self, question: int) -> dict[str, Any]:
        """A question along the game in `atlas.json`."""
        return dict(zip(self._values._fields, map(rounded, lines_of(self._values, question)), strict=True))


def overview(cumulants: np.ndarray, first: int = 0) -> np.ndarray:
    """Cumulants `[T, D]` as colors `[D, T, 3]`: white is zero, and the full red or blue of a question is its greatest
    magnitude from time `first` on.
    """
    reach = np.maximum(np.abs(cumulants[first:]).max(axis=0), 1e-9)
    return colors(DIVERGING, 0.5 + 0.5 * (cumulants / reach).T).round().astype(np.uint8)


# --- the page ---------------------------------------------------------------------------------------------------------

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
    text = templates.get_template("lead.txt").render(report=report, questions=questions, named=named, threshold=NAMED)
    lead = " ".join(text.split())
    numbers = _record([report, *others], figures, lead)
    write_bytes(folder / "atlas.json", (json.dumps(numbers, indent=1) + "\n").encode())
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
        same_kind=SAME_KIND,
        named=NAMED,
        lead=lead,
    )
    write_bytes(folder / "index.html", page.encode())
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
    domain = domain or known or record(model, config, game_seed, game_steps)
    check_domain(domain, model.observation_space)
    return domain, horizon


def _record(agents: Sequence[RunReport], figures: MapFigures | EpisodeFigures, lead: str) -> dict[str, Any]:
    """The numbers of the page, for programs; the agent that it is about comes first."""
    report, questions, ranking = agents[0], agents[0].asked(), agents[0].asked().ranking
    shares, _, nearest, correlations = questions.principal
    headlines = [caption.headline for caption in questions.principal_names]
    columns = {"share": shares, "nearest": nearest, "correlation": correlations, "headline": headlines}
    lost, truth = questions.reliance.return_lost, questions.truth
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
        "principal": pd.DataFrame(columns).to_dict("records"),
        "questions": [
            {
                "question": i,
                "score": float(ranking.score[i]),
                "variation": float(ranking.variation[i]),
                "policy_reliance": float(questions.reliance.policy[i]),
                "value_reliance": float(questions.reliance.value[i]),
                "return_lost": None if lost is None else float(lost[i]),
                **(figures.lines(i) if isinstance(figures, EpisodeFigures) else {}),
                "answers_explain": None if truth is None else rounded(truth[[i]])[0],
                **questions.captions[i]._asdict(),
            }
            for i in ranking.order.tolist()
        ],
    }
