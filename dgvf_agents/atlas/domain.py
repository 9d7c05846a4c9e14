"""The interface between a world and the atlas: where to ask questions, and how to name and draw values there.

Collect-Objects, PuddleWorld and games on images have their domains. Write one for a world of your own, and register it
for the world's dynamics in the module that defines them, as `examples/key_room.py` does::

    register(KeyRoom, KeyRoomDomain)

`dgvf atlas` and `dgvf watch --questions` then find it; `write_atlas(run, domain=...)` takes one that is not registered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any, NamedTuple, final

import gymnasium as gym
import numpy as np

from dgvf_agents.atlas.maps import Maps, Panel
from dgvf_envs.functional.dynamics import Dynamics
from dgvf_envs.planning import TransitionTable


@final
class Landmark(NamedTuple):
    """A number per point with a name: a room, an object, an event."""

    values: np.ndarray
    """`[N]`."""
    more: str
    """What the agent does where the number is large; completes "will I"."""
    less: str
    """What it does where the number is small."""


@final
class Target(NamedTuple):
    """A quantity that may be decoded linearly from an encoder's features."""

    key: str
    """Its name in `atlas.json`."""
    title: str
    """Its name on the page."""
    values: np.ndarray
    """`[N]` or `[N, K]`, scored by R²; or `[N]` boolean, scored by balanced accuracy."""


@final
class Wording(NamedTuple):
    """Words of a domain for captions and the page."""

    everywhere: str = "everywhere"
    """Completes "the cumulant is the same"."""
    number: str = "+.2f"
    """Format of cumulants."""
    points: str = "states"
    """Noun for the points."""
    landmarks: str = "places"
    """Nouns for the landmarks."""
    task: str = ""
    """A sentence on the task."""
    maps: str = ""
    """A sentence on how the maps belong together."""


class Domain(ABC):
    """N points, at each of which an observation is shown to the agent: states of a world, or moments of an episode."""

    layout: Maps | None = None
    """Where the points lie, for heat maps of a world; `None`: along a game, as lines."""
    observations: np.ndarray
    """`[N, *obs]`."""
    acting: np.ndarray
    """`[N]` boolean: the agent acts there; false in terminal states."""
    landmarks: Sequence[Landmark] = ()
    """Landmarks that captions may refer to."""
    targets: Sequence[Target] = ()
    """Quantities that may be decoded from the features."""
    distance: np.ndarray | None = None
    """`[N]`: how far the end of the task is, if known."""
    table: TransitionTable | None = None
    """Transitions among the points in a finite, deterministic world; returns are then exact."""
    wording: Wording = Wording()
    """Words for captions and the page."""

    @abstractmethod
    def name(self, point: int) -> str:
        """Where a point is; completes "highest at"."""

    @property
    def groups(self) -> np.ndarray:
        """`[N]` integer: points at the same position, held out together in cross-validation; all differ by default."""
        return np.arange(len(self.acting))

    @property
    def arriving(self) -> np.ndarray:
        """`[N]` boolean: some step arrives there, so cumulants and discounts exist; everywhere by default."""
        return np.ones(len(self.acting), dtype=bool)

    @property
    def counted(self) -> np.ndarray:
        """`[N]` boolean: statistics of cumulants include the point; wherever a step arrives by default."""
        return self.arriving

    @final
    @property
    def evaluated(self) -> np.ndarray:
        """`[N]` boolean: statistics of features, policy and value include the point."""
        return self.acting & self.counted

    def panel_of(self, state: Any) -> Panel:
        """The map that a single state is on, every field a scalar; the last one by default."""
        assert isinstance(self.layout, Maps)
        return self.layout.panels[-1]

    def outcomes(self, cumulants: np.ndarray, discounts: np.ndarray, answers: np.ndarray) -> np.ndarray | None:
        """The returns `[N, D]` that answers `[N, D]` predict, if the points are a sample of experience."""
        return None

    @final
    def extremes(self, values: np.ndarray) -> tuple[int, int]:
        """The counted points where values `[N]` are greatest and least."""
        points = np.flatnonzero(self.counted)
        return int(points[values[points].argmax()]), int(points[values[points].argmin()])


@singledispatch
def domain_of(world: Any) -> Domain | None:
    """The domain registered for a world's type or its nearest base class; `None` if there is none."""
    return None


def register(dynamics: type[Dynamics[Any]], domain: Callable[[Any], Domain]) -> None:
    """Show worlds of a type by a domain of your own.

    Args:
        dynamics: the type.
        domain: makes the domain of such a world; a class whose constructor takes the world.
    """
    domain_of.register(dynamics, domain)


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
            f"{name}.observations must have the shape (N, {', '.join(map(str, space.shape or ()))}), the agent's "
            f"observations at N points, got {seen}"
        )
    points, flags = seen[0], ("acting", "arriving", "counted")
    arrays = {attribute: np.asarray(getattr(domain, attribute)) for attribute in flags}
    arrays |= {"groups": domain.groups, "distance": domain.groups if domain.distance is None else domain.distance}
    arrays |= {f"landmarks[{i}].values": one.values for i, one in enumerate(domain.landmarks)}
    arrays |= {f"targets[{i}].values": one.values for i, one in enumerate(domain.targets)}
    for attribute, values in arrays.items():
        found = np.shape(values)
        if attribute in flags and (found != (points,) or values.dtype != np.bool_):
            raise ValueError(f"{name}.{attribute} must be boolean of the shape ({points},), got {values.dtype} {found}")
        if found[:1] != (points,):
            raise ValueError(f"{name}.{attribute} must have {points} rows, as observations, got {found}")
    if isinstance(domain.layout, Maps):
        laid_out = np.sort(np.concatenate([panel.layout[panel.layout >= 0] for panel in domain.layout.panels]))
        if not np.array_equal(laid_out, np.arange(points)):
            raise ValueError(
                f"{name}.layout must have every state from 0 to {points - 1} on exactly one panel, got "
                f"{len(laid_out)} positions of {len(np.unique(laid_out))} states"
            )
