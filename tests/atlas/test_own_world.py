"""A world of one's own, a corridor: with a domain it has a whole atlas."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pygame
import pytest

from dgvf_agents.atlas.captions import describe_question
from dgvf_agents.atlas.domain import Domain, Wording, domain_of, register
from dgvf_agents.atlas.live import live_questions
from dgvf_agents.atlas.metrics import decoded as decoded_target
from dgvf_agents.atlas.page import write_atlas
from dgvf_agents.atlas.report import agent_values, question_values
from dgvf_agents.train.folder import RunFolder
from tests.atlas.corridor import LENGTH, Cells, Corridor, CorridorDomain, CorridorEnv
from tests.atlas.games import tiny_config, trained_run
from tests.atlas.pages import Reader
from tests.atlas.runs import model_of

LIMIT = 20


@pytest.fixture(scope="module")
def env_id() -> Iterator[str]:
    gym.register("Corridor-v0", entry_point=CorridorEnv, max_episode_steps=LIMIT)
    yield "Corridor-v0"
    del gym.registry["Corridor-v0"]


@pytest.fixture(scope="module")
def runs(env_id: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        trained_run(folder / task, tiny_config(task, env=env_id, policy="MlpPolicy", question_discount=0.9))
        for task in ("discovered", "none")
    ]


@pytest.fixture(scope="module")
def page(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    register(Corridor, CorridorDomain)
    return write_atlas(runs[0], runs[1:], tmp_path_factory.mktemp("atlas"), kinds=2)


def test_a_domain_that_does_not_fit_is_refused_before_anything_is_written(runs: list[Path], tmp_path: Path) -> None:
    domain = CorridorDomain(Corridor())
    domain.acting = domain.acting[1:]
    with pytest.raises(ValueError, match=r"CorridorDomain\.acting must be boolean of the shape"):
        write_atlas(runs[0], out=tmp_path / "atlas", domain=domain)
    assert not (tmp_path / "atlas").exists()


def test_the_numbers_are_those_of_the_agent_in_the_world(page: Path, runs: list[Path]) -> None:
    record = json.loads((page.parent / "atlas.json").read_text())
    assert [agent["task"] for agent in record["agents"]] == ["discovered", "none"]
    model, domain = model_of(runs[0]), CorridorDomain(Corridor())
    features = agent_values(model, domain.observations).features
    for target in domain.targets:
        expected = decoded_target(features[:-1], target.values[:-1], np.arange(LENGTH - 1))
        assert record["agents"][0]["moments"][-1][target.key] == pytest.approx(expected)
    values = question_values(model, domain)
    assert np.isnan(values.answers[-1]).all()
    for question in record["questions"]:
        i = question["question"]
        assert question["variation"] == pytest.approx(values.cumulants[:, i].std())
        caption = describe_question(values.cumulants[:, i], values.discounts[:, i], domain)
        assert question["headline"] == caption.headline
        assert f"ighest at cell {values.cumulants[:, i].argmax()}" in caption.facts[1]
    right = np.exp(agent_values(model, domain.observations).log_policy)[:, 1]
    there = np.eye(LENGTH)[0]  # the probability of every cell, forward in time
    for _ in range(LIMIT):
        left = np.append(there[1:-1] * (1 - right[1:-1]), [0.0, 0.0])
        left[0] += there[0] * (1 - right[0])
        moved = np.append(0.0, there[:-1] * right[:-1])
        there = left + moved + there * (np.arange(LENGTH) == LENGTH - 1)
    assert there.sum() == pytest.approx(1.0)
    assert record["agents"][0]["expected_return"] == pytest.approx(there[-1])


def test_a_domain_may_be_passed_or_found_by_type(runs: list[Path], tmp_path: Path) -> None:
    class Longer(Corridor):
        pass

    assert isinstance(domain_of(Longer()), CorridorDomain)
    domain = CorridorDomain(Corridor())
    domain.wording = Wording(points="places passed by hand")
    page = write_atlas(runs[0], out=tmp_path, kinds=1, checkpoints=1, domain=domain)
    assert "places passed by hand" in page.read_text()


def test_a_question_is_drawn_over_the_map_of_a_window(page: Path, runs: list[Path]) -> None:
    overlay = live_questions(model_of(runs[0]), RunFolder(runs[0]).read_config())
    drawn = overlay.values(Cells(2))
    assert drawn.values.shape == (1, LENGTH)
    overlay.on_key(pygame.K_DOWN)
    assert np.isnan(overlay.values(Cells(2)).values[0, -1])  # answers: none in the last cell


def test_a_domain_needs_no_more_than_its_points(runs: list[Path], tmp_path: Path) -> None:
    """Without landmarks, targets, axes, distances and transitions there is a page, too; it claims less."""

    class Bare(Domain):
        def __init__(self) -> None:
            whole = CorridorDomain(Corridor())
            self.layout = dataclasses.replace(whole.layout, axes=())
            self.observations, self.acting = whole.observations, whole.acting

        def name(self, point: int) -> str:
            return str(point)

    page = write_atlas(runs[0], out=tmp_path, kinds=1, checkpoints=1, domain=Bare())
    reader = Reader(page.read_text())
    assert "No name" in reader.text
    assert "return lost" not in reader.text
    assert not any("ticks" in (found.get("class") or "") for found in reader.attributes)
    record = json.loads((tmp_path / "atlas.json").read_text())
    assert record["agents"][0]["expected_return"] is None
