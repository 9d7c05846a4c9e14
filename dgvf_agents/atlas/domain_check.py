"""Whether the arrays of a domain fit each other and what the agent sees."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium as gym
import numpy as np

from dgvf_agents.atlas.domain import Domain
from dgvf_agents.atlas.maps import Maps


def check_domain(domain: Domain, space: gym.Space) -> None:
    """Check a domain before anything is computed at its points.

    Args:
        domain: the domain.
        space: the agent's observation space.

    Raises:
        ValueError: an array has another shape or type than `Domain` says; the message names the attribute.
    """
    name, seen = type(domain).__name__, tuple(np.shape(domain.observations))
    if not seen or seen[1:] != space.shape:
        raise ValueError(
            f"{name}.observations must have the shape (N, {', '.join(map(str, space.shape or ()))}), that of the "
            f"agent's observations at N points, got {seen}"
        )
    points = seen[0]
    for attribute, values in _masks(domain):
        if np.shape(values) != (points,) or np.asarray(values).dtype != np.bool_:
            found = f"{np.asarray(values).dtype} {np.shape(values)}"
            raise ValueError(
                f"{name}.{attribute} must be boolean of the shape ({points},), as observations, got {found}"
            )
    for attribute, values in _numbers(domain):
        if np.shape(values)[:1] != (points,):
            raise ValueError(f"{name}.{attribute} must have {points} rows, as observations, got {np.shape(values)}")
    if isinstance(domain.layout, Maps):
        _check_maps(name, domain.layout, points)


def _masks(domain: Domain) -> Iterator[tuple[str, np.ndarray]]:
    for attribute in ("acting", "arriving", "counted", "evaluated"):
        yield attribute, getattr(domain, attribute)


def _numbers(domain: Domain) -> Iterator[tuple[str, np.ndarray]]:
    yield "groups", domain.groups
    if domain.distance is not None:
        yield "distance", domain.distance
    for i, landmark in enumerate(domain.landmarks):
        yield f"landmarks[{i}].values", landmark.values
    for i, target in enumerate(domain.targets):
        yield f"targets[{i}].values", target.values


def _check_maps(name: str, maps: Maps, points: int) -> None:
    """Every state is on exactly one panel."""
    laid_out = np.sort(np.concatenate([panel.layout[panel.layout >= 0].ravel() for panel in maps.panels]))
    if not np.array_equal(laid_out, np.arange(points)):
        raise ValueError(
            f"{name}.layout must have every state from 0 to {points - 1} on exactly one panel, got {len(laid_out)} "
            f"places of {len(np.unique(laid_out))} states from {laid_out.min(initial=0)} to {laid_out.max(initial=0)}"
        )
