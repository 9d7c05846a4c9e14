"""`dgvf atlas`: from run folders to a page and its pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgvf_agents.atlas.agent_atlas import AgentAtlas, Questions, lists_its_states, read_run
from dgvf_agents.atlas.curves import curves_png
from dgvf_agents.atlas.game_atlas import GAME_STEPS, read_game
from dgvf_agents.atlas.page import AtlasPictures, Strip, render_page
from dgvf_agents.atlas.pictures import Picture, heat_map, limits_of, policy_map, world_map
from dgvf_agents.atlas.write_game_atlas import write_game_atlas
from dgvf_agents.runs.folder import RunFolder
from dgvf_agents.storage.atomic import write_whole

_STRIP_SIDE, _MOST_IN_STRIP = 110, 6
_BESIDE = 4
"""Questions shown of every agent beside."""


def write_atlas(
    run: Path,
    beside: Sequence[Path] = (),
    out: Path | None = None,
    kinds: int = 8,
    checkpoints: int = 8,
    game_seed: int = 0,
    game_steps: int = GAME_STEPS,
) -> Path:
    """Write the question atlas of a run: `index.html` with everything in it, `atlas.json`, and `pictures/` as PNG.

    In a gridworld it goes over every state; on images, as those of Atari games, over the moments of a recorded game.

    Args:
        run: a run folder whose agent has questions.
        beside: other runs on the same world, to compare representations with.
        out: the folder to write to; `RUN/atlas` when left out.
        kinds: how many kinds of questions to show large ≥ 1.
        checkpoints: how many checkpoints to look at, at most, ≥ 1.
        game_seed: of the game that is recorded, where the run is on images.
        game_steps: steps after which its recording stops ≥ 1.

    Returns:
        The page.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: the run has no questions, its world has neither a map nor images, the runs are on different worlds,
            or a number is out of its range.
    """
    for name, value in (("kinds", kinds), ("checkpoints", checkpoints), ("game_steps", game_steps)):
        if value < 1:
            raise ValueError(f"{name} must be >= 1, got {value!r}")
    folder = run / "atlas" if out is None else out
    if not lists_its_states(RunFolder.existing(run).read_config()):
        return write_game_atlas(read_game(run, beside, kinds, checkpoints, game_seed, game_steps), folder)
    agent = read_run(run, checkpoints)
    if agent.questions is None:
        raise ValueError(f"run must have questions (discovered or random), got the task {agent.config.task!r}")
    others = [read_run(path, checkpoints) for path in beside]
    for other in others:
        if other.states.world != agent.states.world:
            raise ValueError(f"beside must be runs on {agent.states.world!r}, got {other.path} on {other.config.env}")
    pictures = _draw(agent, agent.questions, others, kinds)
    _write_pictures(folder / "pictures", pictures)
    write_whole(folder / "atlas.json", (json.dumps(_record(agent, others), indent=1) + "\n").encode())
    page = folder / "index.html"
    write_whole(page, render_page(agent, others, pictures, kinds).encode())
    return page


def _draw(agent: AgentAtlas, questions: Questions, others: Sequence[AgentAtlas], kinds: int) -> AtlasPictures:
    states, maps = agent.states, questions.maps
    count = maps.cumulants.shape[1]
    return AtlasPictures(
        world=world_map(states),
        policy=policy_map(states, agent.agent.values, np.exp(agent.agent.log_policy)),
        cumulants=tuple(heat_map(states, maps.cumulants[:, i]) for i in range(count)),
        answers=tuple(heat_map(states, maps.answers[:, i]) for i in range(count)),
        discounts=tuple(
            heat_map(states, maps.discounts[:, i]) if np.ptp(maps.discounts[:, i]) > 0 else None for i in range(count)
        ),
        strips={kind.leader: _strip(agent, kind.leader) for kind in questions.ranking.kinds[:kinds]},
        beside=tuple(_some_questions(other) for other in others),
        curves=curves_png([agent, *others]),
    )


def _strip(agent: AgentAtlas, question: int) -> Strip:
    """A question's cumulant over training; the moments are spread evenly, first and last among them.

    The color scale spans what it does at last, and moves with the mean: adding a constant asks nothing new.
    """
    places = np.unique(np.linspace(0, len(agent.moments) - 1, _MOST_IN_STRIP).round().astype(int))
    moments = [agent.moments[place] for place in places]
    asked = [moment.cumulants[:, question] for moment in moments if moment.cumulants is not None]
    low, high = limits_of(asked[-1])
    shifts = [float(cumulant.mean() - asked[-1].mean()) for cumulant in asked]
    drawn = (
        heat_map(agent.states, cumulant, (low + shift, high + shift), _STRIP_SIDE)
        for cumulant, shift in zip(asked, shifts, strict=True)
    )
    return Strip(tuple(moment.steps for moment in moments), tuple(drawn))


def _some_questions(agent: AgentAtlas) -> tuple[tuple[int, Picture], ...]:
    if agent.questions is None:
        return ()
    maps = agent.questions.maps.cumulants
    chosen = [kind.leader for kind in agent.questions.ranking.kinds[:_BESIDE]]
    return tuple((question, heat_map(agent.states, maps[:, question])) for question in chosen)


def _write_pictures(folder: Path, pictures: AtlasPictures) -> None:
    files = {"world": pictures.world, "policy": pictures.policy}
    for name, drawn in (
        ("cumulant", pictures.cumulants),
        ("answer", pictures.answers),
        ("discount", pictures.discounts),
    ):
        files |= {f"question-{i:03d}-{name}": picture for i, picture in enumerate(drawn) if picture is not None}
    for name, picture in files.items():
        write_whole(folder / f"{name}.png", picture.png)
    for question, strip in pictures.strips.items():
        for steps, picture in zip(strip.steps, strip.pictures, strict=True):
            write_whole(folder / f"question-{question:03d}-cumulant-{steps:010d}.png", picture.png)
    write_whole(folder / "evolution.png", pictures.curves)


def _record(agent: AgentAtlas, others: Sequence[AgentAtlas]) -> dict[str, Any]:
    """The numbers of the page, for programs."""
    questions = agent.questions
    assert questions is not None
    lost = questions.reliance.return_lost
    return {
        "env": agent.config.env,
        "agents": [_agent_record(one) for one in (agent, *others)],
        "kinds": [kind._asdict() for kind in questions.ranking.kinds],
        "questions": [
            {
                "question": i,
                "score": float(questions.ranking.score[i]),
                "variation": float(questions.ranking.variation[i]),
                "policy_reliance": float(questions.reliance.policy[i]),
                "value_reliance": float(questions.reliance.value[i]),
                "return_lost": None if lost is None else float(lost[i]),
                **questions.captions[i]._asdict(),
            }
            for i in questions.ranking.order.tolist()
        ],
    }


def _agent_record(agent: AgentAtlas) -> dict[str, Any]:
    moments = []
    for moment in agent.moments:
        record: dict[str, Any] = {"steps": moment.steps, **moment.representation._asdict()}
        if moment.cumulants is not None:
            record |= {"variation": moment.variation, "effective_questions": moment.distinct}
        moments.append(record)
    return {
        "task": agent.config.task,
        "seed": agent.config.seed,
        "steps": agent.steps,
        "expected_return": agent.exact_return,
        "moments": moments,
    }
