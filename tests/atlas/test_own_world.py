"""A world of one's own, the example's room with a key: with a domain it has a whole atlas."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgvf_agents.atlas.domain import Domain, Target, Wording, domain_of
from dgvf_agents.atlas.maps import Axis
from dgvf_agents.atlas.page import write_atlas
from dgvf_envs.planning import TransitionTable
from tests.atlas.games import tiny_config, trained_run
from tests.atlas.pages import Reader
from tests.helpers import example_module

example = example_module("key_room")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(env="KeyRoom-v0", policy="MlpPolicy", question_discount=0.9)
    return trained_run(tmp_path_factory.mktemp("runs") / "run", config)


def key_room() -> Any:
    return example.KeyRoomDomain(example.KeyRoom())


class Whole(example.KeyRoomDomain):  # type: ignore[name-defined, misc]
    """Says all that a domain can say."""

    def __init__(self) -> None:
        world = example.KeyRoom()
        super().__init__(world)
        cell, has_key = self.states
        number = {state: i for i, state in enumerate(zip(*map(np.ndarray.tolist, self.states), strict=True))}
        steps = [world.step(self.states, np.full(len(cell), action), np.empty((len(cell), 0))) for action in range(4)]
        following = [[number[state] for state in zip(*map(np.ndarray.tolist, one.state), strict=True)] for one in steps]
        rewards, ends = (np.stack([getattr(one, name) for one in steps], 1) for name in ("reward", "terminated"))
        starts = (has_key == (cell == example.KEY)) / example.CELLS
        self.table = TransitionTable(np.stack(following, 1), rewards, ends, starts)
        self.distance = np.where(has_key, cell, example.CELLS + cell).astype(float)
        self.targets = (Target("row", "row", cell // example.SIDE * 1.0), Target("key", "has the key", has_key))
        axes = (Axis("column", ((0.1, "first column"),)), Axis("row", ((0.1, "first row"),)))
        self.layout = dataclasses.replace(self.layout, axes=axes)


def test_a_domain_may_tell_transitions_targets_and_axes(run: Path, tmp_path: Path) -> None:
    reader = Reader(write_atlas(run, out=tmp_path, kinds=1, checkpoints=1, domain=Whole()).read_text())
    for shown in ("return lost", "first column", "has the key"):
        assert shown in reader.text
    assert any("ticks" in (found.get("class") or "") for found in reader.attributes)
    record = json.loads((tmp_path / "atlas.json").read_text())
    assert 0.0 <= record["agents"][0]["expected_return"] <= 1.0


def test_a_domain_that_does_not_fit_is_refused_before_anything_is_written(run: Path, tmp_path: Path) -> None:
    domain = key_room()
    domain.acting = domain.acting[1:]
    with pytest.raises(ValueError, match=r"KeyRoomDomain\.acting must be boolean of the shape"):
        write_atlas(run, out=tmp_path / "atlas", domain=domain)
    assert not (tmp_path / "atlas").exists()


def test_a_domain_may_be_passed_or_found_by_type(run: Path, tmp_path: Path) -> None:
    class Larger(example.KeyRoom):
        """A room that inherits its domain."""

    assert isinstance(domain_of(Larger()), example.KeyRoomDomain)
    domain = key_room()
    domain.wording = Wording(points="places passed by hand")
    page = write_atlas(run, out=tmp_path, kinds=1, checkpoints=1, domain=domain)
    assert "places passed by hand" in page.read_text()


def test_a_domain_needs_no_more_than_its_points(run: Path, tmp_path: Path) -> None:
    """Without landmarks, targets, axes, distances and transitions there is a page, too; it claims less."""

    class Bare(Domain):
        def __init__(self) -> None:
            whole = key_room()
            self.layout, self.observations, self.acting = whole.layout, whole.observations, whole.acting

        def name(self, point: int) -> str:
            return str(point)

    page = write_atlas(run, out=tmp_path, kinds=1, checkpoints=1, domain=Bare())
    reader = Reader(page.read_text())
    assert "No name" in reader.text
    assert "return lost" not in reader.text
    assert not any("ticks" in (found.get("class") or "") for found in reader.attributes)
    record = json.loads((tmp_path / "atlas.json").read_text())
    assert record["agents"][0]["expected_return"] is None
