"""Random numbers for many copies of a world, one independent stream each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_BUFFER_NUMBERS = 1 << 22
"""How many numbers all copies together may keep drawn ahead (32 MiB)."""


class UniformStreams:
    """Uniform numbers in [0, 1) from one `numpy.random.Generator` per copy, handed out in batches.

    Copy i receives exactly the sequence that `generators[i].random()` would give call by call, however its draws are
    grouped: a generator's doubles do not depend on how many are drawn at once. Drawing ahead into a buffer therefore
    changes the speed and nothing else.
    """

    def __init__(self, generators: Sequence[np.random.Generator], most: int) -> None:
        """
        Args:
            generators: one per copy, N in all.
            most: the largest number of draws that `peek` or `take` will be asked for at once.
        """
        self.generators = list(generators)
        self._most = most
        n = len(self.generators)
        self._length = int(np.clip(_BUFFER_NUMBERS // max(n, 1), 16 * max(most, 1), 1024))
        self._buffer = np.empty((n, self._length))
        self._offsets = np.arange(n) * self._length
        self._cursors = np.full(n, self._length)  # everything is used up

    def reseed(self, row: int, generator: np.random.Generator) -> None:
        """Start copy `row` afresh from `generator`."""
        self.generators[row] = generator
        self._cursors[row] = self._length

    def positions(self) -> list[dict[str, Any]]:
        """Where every copy's stream stands: the state that its generator would have had it been asked call by call."""
        unread = self._length - self._cursors
        return [_rewound(g, int(ahead)) for g, ahead in zip(self.generators, unread, strict=True)]

    def go_to(self, positions: Sequence[dict[str, Any]]) -> None:
        """Go on from where `positions` was taken."""
        for row, position in enumerate(positions):
            self.reseed(row, generator_at(position))
        self._refill(np.arange(len(self.generators)))  # `advance` may be asked for before any number is

    def peek(self, count: int) -> np.ndarray:
        """The next `count` numbers of every copy, `[N, count]`, without consuming them."""
        if count == 0:
            return np.empty((len(self._cursors), 0))
        self._refill(np.flatnonzero(self._cursors > self._length - self._most))
        return self._gather(self._offsets + self._cursors, count)

    def ahead(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Drawn numbers of every copy, `[N, M]`, and which comes next, `[N]`: `count` at least are there from it on.

        Both are this object's own, to be read only, and read before it hands out more.

        Raises:
            ValueError: `count` is more than are ever drawn ahead.
        """
        if count > self._length:
            raise ValueError(f"count must be at most the {self._length} numbers that are drawn ahead, got {count!r}")
        self._refill(np.flatnonzero(self._cursors > self._length - count))
        return self._buffer, self._cursors

    def advance(self, count: int | np.ndarray, mask: np.ndarray | None = None) -> None:
        """Consume `count` numbers (one count, or one per copy) of every copy, or of those where `mask` is true."""
        self._cursors += count if mask is None else count * mask

    def take(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Consume the next `count` numbers of the copies `rows`, `[len(rows), count]`."""
        if count == 0:
            return np.empty((len(rows), 0))
        self._refill(rows[self._cursors[rows] > self._length - self._most])
        numbers = self._gather(self._offsets[rows] + self._cursors[rows], count)
        self._cursors[rows] += count
        return numbers

    def _gather(self, positions: np.ndarray, count: int) -> np.ndarray:
        flat = self._buffer.reshape(-1)
        return np.stack([flat.take(positions + k) for k in range(count)]).T

    def _refill(self, rows: np.ndarray) -> None:
        for row in rows:
            used = self._cursors[row]
            unread = self._length - used
            self._buffer[row, :unread] = self._buffer[row, used:].copy()
            self.generators[row].random(out=self._buffer[row, unread:])
            self._cursors[row] = 0


def generator_at(position: dict[str, Any]) -> np.random.Generator:
    """A generator in a given state, which is what `generator.bit_generator.state` gives.

    Raises:
        ValueError: it is not the state of a PCG64, the only kind that Gymnasium makes.
    """
    if not isinstance(position, dict) or position.get("bit_generator") != "PCG64":
        raise ValueError(f"position must be the state of a PCG64 generator, got {position!r}")
    generator = np.random.Generator(np.random.PCG64(0))
    generator.bit_generator.state = position
    return generator


def _rewound(generator: np.random.Generator, numbers: int) -> dict[str, Any]:
    """The state of a generator `numbers` doubles ago."""
    state: dict[str, Any] = generator.bit_generator.state  # type: ignore[assignment]
    earlier = generator_at(state)
    earlier.bit_generator.advance(-numbers)  # type: ignore[attr-defined]  # a double takes one output
    return {**state, "state": earlier.bit_generator.state["state"]}
