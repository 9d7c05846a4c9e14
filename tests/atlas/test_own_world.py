"""A world of one's own, the example's room with a key: with a domain it has a whole atlas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dgvf_agents.atlas.domain import Domain, Wording, domain_of
from dgvf_agents.atlas.page import write_atlas
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
