"""The puddles of PuddleWorld: the penalty at each position.

The literature has two kinds: sums of Gaussian densities (Degris, White & Sutton 2012) and capsules (Sutton 1996). Both
are pure functions of positions and accept NumPy arrays and torch tensors.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, final

import numpy as np

from dgvf_envs.functional.dynamics import Array


@dataclass(frozen=True)
class Puddle(ABC):
    """One puddle. All puddles of an environment have the same class."""

    @staticmethod
    @abstractmethod
    def constants(puddles: Sequence[Any]) -> tuple:
        """The parameters of P puddles as a `NamedTuple` of float64 arrays, each `[P, 1]`."""

    @staticmethod
    @abstractmethod
    def penalty(xp: ModuleType, constants: Any, x: Array, y: Array) -> Array:
        """The total penalty at each position, which is subtracted from the reward.

        Args:
            xp: the array namespace.
            constants: the result of `constants`, in that namespace.
            x: `[B]`.
            y: `[B]`.

        Returns:
            `[B]`, ≥ 0.
        """


class GaussianConstants(NamedTuple):
    """Parameters of P Gaussian puddles; every field is `[P, 1]`."""

    x: Array
    y: Array
    x_precision: Array
    """1 / (2 σ_x²)"""
    y_precision: Array
    """1 / (2 σ_y²)"""
    peak: Array
    """scale / (2π σ_x σ_y): the penalty at the center."""


@final
@dataclass(frozen=True)
class GaussianPuddle(Puddle):
    """A puddle with penalty `scale · N(·; x, std_x) · N(·; y, std_y)`, N the normal density (Degris et al. 2012)."""

    x: float
    """x of the center, in [0, 1]."""
    y: float
    """y of the center, in [0, 1]."""
    std_x: float
    """Standard deviation σ_x along x, > 0."""
    std_y: float
    """Standard deviation σ_y along y, > 0."""
    scale: float = 2.0
    """Factor applied to the product of the two densities, ≥ 0."""

    def __post_init__(self) -> None:
        for name in ("std_x", "std_y"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)!r}")
        if not self.scale >= 0:
            raise ValueError(f"scale must be >= 0, got {self.scale!r}")

    @staticmethod
    def constants(puddles: Sequence[GaussianPuddle]) -> GaussianConstants:
        columns = [(p.x, p.y, p.std_x, p.std_y, p.scale) for p in puddles]
        x, y, std_x, std_y, scale = np.array(columns, dtype=np.float64).reshape(-1, 5).T[..., None]
        peak = scale / (2.0 * math.pi * std_x * std_y)
        return GaussianConstants(x, y, 0.5 / std_x**2, 0.5 / std_y**2, peak)

    @staticmethod
    def penalty(xp: ModuleType, constants: GaussianConstants, x: Array, y: Array) -> Array:
        dx, dy = x - constants.x, y - constants.y  # [P, B]
        exponent = dx * dx * constants.x_precision + dy * dy * constants.y_precision
        return (constants.peak * xp.exp(-exponent)).sum(0)


class CapsuleConstants(NamedTuple):
    """Parameters of P capsules; every field is `[P, 1]`."""

    x: Array
    """x of the segment's start."""
    y: Array
    """y of the segment's start."""
    dx: Array
    """Extent of the segment along x, end minus start."""
    dy: Array
    """Extent of the segment along y, end minus start."""
    inverse_length: Array
    """1 / length², 0 for a disc."""
    radius: Array
    slope: Array


@final
@dataclass(frozen=True)
class CapsulePuddle(Puddle):
    """A line segment with a radius; the penalty is `slope` times the distance to the nearest edge (Sutton 1996).

    Where capsules overlap, the highest penalty applies.
    """

    start: tuple[float, float]
    """One end of the segment, (x, y)."""
    end: tuple[float, float]
    """The other end, (x, y)."""
    radius: float = 0.1
    """Distance from the segment to the edge, > 0."""
    slope: float = 400.0
    """Penalty per unit of distance to the edge, ≥ 0."""

    def __post_init__(self) -> None:
        if not self.radius > 0:
            raise ValueError(f"radius must be > 0, got {self.radius!r}")
        if not self.slope >= 0:
            raise ValueError(f"slope must be >= 0, got {self.slope!r}")

    @staticmethod
    def constants(puddles: Sequence[CapsulePuddle]) -> CapsuleConstants:
        columns = [(*p.start, p.end[0] - p.start[0], p.end[1] - p.start[1], p.radius, p.slope) for p in puddles]
        x, y, dx, dy, radius, slope = np.array(columns, dtype=np.float64).reshape(-1, 6).T[..., None]
        squared = dx**2 + dy**2
        some_length = squared >= np.finfo(np.float64).tiny  # smaller values have an inverse that may overflow
        inverse = np.divide(1.0, squared, out=np.zeros_like(squared), where=some_length)
        return CapsuleConstants(x, y, dx, dy, inverse, radius, slope)

    @staticmethod
    def penalty(xp: ModuleType, constants: CapsuleConstants, x: Array, y: Array) -> Array:
        c = constants
        along = (((x - c.x) * c.dx + (y - c.y) * c.dy) * c.inverse_length).clip(0.0, 1.0)  # [P, B]
        away_x, away_y = x - c.x - along * c.dx, y - c.y - along * c.dy
        depth = (c.radius - xp.sqrt(away_x * away_x + away_y * away_y)).clip(0.0, None)
        return xp.amax(c.slope * depth, 0)


DEGRIS_2012: tuple[GaussianPuddle, ...] = (
    GaussianPuddle(0.3, 0.6, 0.1, 0.03),
    GaussianPuddle(0.4, 0.5, 0.03, 0.1),
    GaussianPuddle(0.8, 0.9, 0.03, 0.1),
)
"""The three puddles of Degris, White & Sutton (2012)."""

SUTTON_1996: tuple[CapsulePuddle, ...] = (
    CapsulePuddle((0.1, 0.75), (0.45, 0.75)),
    CapsulePuddle((0.45, 0.4), (0.45, 0.8)),
)
"""The two puddles of Sutton (1996)."""

PUDDLE_SETS: dict[str, tuple[Puddle, ...]] = {"degris-2012": DEGRIS_2012, "sutton-1996": SUTTON_1996, "none": ()}
"""The named sets of puddles."""
