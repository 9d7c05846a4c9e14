"""From a game atlas to a page, its pictures and its numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dgvf_agents.atlas.game_atlas import GameAtlas
from dgvf_agents.atlas.game_page import render_game_page
from dgvf_agents.atlas.game_pictures import GamePictures, draw_game
from dgvf_agents.storage.atomic import write_whole


def write_game_atlas(atlas: GameAtlas, folder: Path) -> Path:
    """Write `index.html` with everything in it, `atlas.json`, and `pictures/` as PNG.

    Returns:
        The page.
    """
    pictures = draw_game(atlas)
    for name, png in _files(atlas, pictures).items():
        write_whole(folder / "pictures" / f"{name}.png", png)
    write_whole(folder / "atlas.json", (json.dumps(_record(atlas), indent=1) + "\n").encode())
    page = folder / "index.html"
    write_whole(page, render_game_page(atlas, pictures).encode())
    return page


def _files(atlas: GameAtlas, pictures: GamePictures) -> dict[str, bytes]:
    files = {"all-cumulants": pictures.overview}
    for number, (highest, lowest) in pictures.extremes.items():
        files[f"question-{number:03d}-highest"] = highest
        files[f"question-{number:03d}-lowest"] = lowest
        files[f"question-{number:03d}"] = pictures.sheets[number]
    for number in atlas.gradients:
        for moment in atlas.traces.extremes(number):
            files[f"frame-{moment:05d}"] = pictures.frames[moment]
    return files


def _record(atlas: GameAtlas) -> dict[str, Any]:
    """The numbers of the page, for programs."""
    episode, traces = atlas.episode, atlas.traces
    return {
        "env": atlas.config.env,
        "task": atlas.config.task,
        "seed": atlas.config.seed,
        "steps": atlas.steps,
        "game": {
            "seed": atlas.seed,
            "steps": episode.steps,
            "score": episode.score,
            "over": episode.over,
            "rewards": episode.rewards.tolist(),
            "terminated": episode.terminated.tolist(),
            "actions": episode.actions.tolist(),
            "values": [_number(value) for value in traces.values.tolist()],
        },
        "kinds": [kind._asdict() for kind in atlas.ranking.kinds],
        "looks": [look._asdict() for look in atlas.looks],
        "questions": [_question(atlas, i) for i in atlas.ranking.order.tolist()],
    }


def _question(atlas: GameAtlas, i: int) -> dict[str, Any]:
    traces, found = atlas.traces, atlas.gradients.get(i)
    return {
        "question": i,
        "score": float(atlas.ranking.score[i]),
        "variation": float(atlas.ranking.variation[i]),
        "policy_reliance": float(atlas.reliance.policy[i]),
        "value_reliance": float(atlas.reliance.value[i]),
        "answers_explain": _number(float(traces.truth[i])),
        **atlas.captions[i]._asdict(),
        "cumulants": [_number(value) for value in traces.cumulants[:, i].tolist()],
        "discounts": [_number(value) for value in traces.discounts[:, i].tolist()],
        "answers": [_number(value) for value in traces.answers[:, i].tolist()],
        "outcomes": [_number(value) for value in traces.outcomes[:, i].tolist()],
        "gradient_by_channel": None if found is None else found.share.tolist(),
    }


def _number(value: float) -> float | None:
    """JSON has no NaN."""
    return None if np.isnan(value) else float(f"{value:.6g}")
