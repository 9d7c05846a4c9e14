"""A domain whose arrays do not fit is refused with the name of the attribute, before anything is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dgvf_agents.atlas.domain import Landmark, Target
from dgvf_agents.atlas.domain_check import check_domain
from dgvf_agents.atlas.maps import Maps
from tests.atlas.corridor import LENGTH, Corridor, CorridorDomain, CorridorEnv

SPACE = CorridorEnv().observation_space


def corridor(**attributes: Any) -> CorridorDomain:
    domain = CorridorDomain(Corridor())
    for name, value in attributes.items():
        setattr(domain, name, value)
    return domain


def layout(*states: int) -> Maps:
    maps = corridor().layout
    assert isinstance(maps, Maps)
    return Maps(maps.view, maps.states, (maps.panels[0]._replace(layout=np.array([states])),), maps.moves)


def test_domains_that_fit_pass() -> None:
    check_domain(corridor(), SPACE)
    check_domain(corridor(landmarks=(), targets=(), distance=None), SPACE)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"observations": np.zeros((LENGTH, 1))}, r"CorridorDomain\.observations must have the shape \(N, .*got \(\d"),
        ({"observations": np.zeros(())}, r"observations must have the shape \(N, .*got \(\)"),
        ({"acting": np.ones(LENGTH - 1, dtype=bool)}, r"acting must be boolean of the shape .*, got bool \("),
        ({"acting": np.ones(LENGTH)}, r"acting must be boolean .*, got float64 \("),
        ({"distance": np.zeros(3)}, r"distance must have \d+ rows, as observations, got \(3,\)"),
        ({"landmarks": (Landmark(np.zeros(2), "a", "b"),)}, r"landmarks\[0\]\.values must have \d+ rows"),
        ({"targets": (Target("a", "a", np.zeros(2)),)}, r"targets\[0\]\.values must have \d+ rows"),
        ({"layout": layout(*range(LENGTH - 1))}, rf"layout must have every state from 0 to {LENGTH - 1} on exactly"),
        ({"layout": layout(0, *range(LENGTH))}, r"layout must have every state .* on exactly one panel"),
        ({"layout": layout(*range(LENGTH + 1))}, r"layout must have every state .* on exactly one panel"),
    ],
)
def test_what_does_not_fit_is_named(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_domain(corridor(**attributes), SPACE)
