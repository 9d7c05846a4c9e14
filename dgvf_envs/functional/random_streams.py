"""Random draws for a vector environment: one independent stream per environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_MAX_BUFFERED = 1 << 22
"""The maximum number of buffered draws over all streams (32 MiB)."""


class UniformStreams:
    """N streams of uniform draws from [0, 1), each from its own `numpy.random.Generator`, read in batches.

    Stream i is exactly the sequence of `generators[i].random()`, however the draws are grouped, because a generator's
    doubles do not depend on how many are drawn at once. Buffering therefore affects speed only.
    """

    def __init__(self, generators: Sequence[np.random.Generator], max_draws: int) -> None:
        """
        Args:
            generators: one generator per stream, N in total.
            max_draws: the maximum `count` of `peek` and `take`.
        """
        self.generators = list(generators)
        self._max_draws = max_draws
        n = len(self.generators)
        self._length = int(np.clip(_MAX_BUFFERED // max(n, 1), 16 * max(max_draws, 1), 1024))
        self._buffer = np.empty((n, self._length))
        self._offsets = np.arange(n) * self._length
        self._cursors = np.full(n, self._length)  # all buffers are empty

    def reseed(self, row: int, generator: np.random.Generator) -> None:
        """Restart stream `row` with a new generator."""
        self.generators[row] = generator
        self._cursors[row] = self._length

    def positions(self) -> list[dict[str, Any]]:
        """The position of every stream: the state that its generator would have without buffering."""
        unread = self._length - self._cursors
        return [_rewound(g, int(count)) for g, count in zip(self.generators, unread, strict=True)]

    def set_positions(self, positions: Sequence[dict[str, Any]]) -> None:
        """Restore a result of `positions`."""
        for row, position in enumerate(positions):
            self.reseed(row, generator_at(position))
        self._refill(np.arange(len(self.generators)))  # `advance` may be called before any draw is read

    def peek(self, count: int) -> np.ndarray:
        """The next `count` draws of every stream, `[N, count]`, without consuming them."""
        if count == 0:
            return np.empty((len(self._cursors), 0))
        self._refill(np.flatnonzero(self._cursors > self._length - self._max_draws))
        return self._gather(self._offsets + self._cursors, count)

    def prefetch(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The buffer `[N, M]` and the index of each stream's next draw `[N]`, with at least `count` draws left.

        Both are views of internal arrays: do not modify them, and use them before any other call.

        Raises:
            ValueError: `count` is larger than the buffer.
        """
        if count > self._length:
            raise ValueError(f"count must be at most the buffer's length {self._length}, got {count!r}")
        self._refill(np.flatnonzero(self._cursors > self._length - count))
        return self._buffer, self._cursors

    def advance(self, count: int | np.ndarray, mask: np.ndarray | None = None) -> None:
        """Consume draws.

        Args:
            count: of every stream, an integer or `[N]`.
            mask: `[N]` boolean: only of these streams.
        """
        self._cursors += count if mask is None else count * mask

    def take(self, rows: np.ndarray, count: int) -> np.ndarray:
        """Consume and return the next `count` draws of the streams `rows`, `[len(rows), count]`."""
        if count == 0:
            return np.empty((len(rows), 0))
        self._refill(rows[self._cursors[rows] > self._length - self._max_draws])
        draws = self._gather(self._offsets[rows] + self._cursors[rows], count)
        self._cursors[rows] += count
        return draws

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
    """A generator with a given state, a value of `generator.bit_generator.state`.

    Raises:
        ValueError: it is not the state of a PCG64, the only bit generator that Gymnasium uses.
    """
    if not isinstance(position, dict) or position.get("bit_generator") != "PCG64":
        raise ValueError(f"position must be the state of a PCG64 generator, got {position!r}")
    generator = np.random.Generator(np.random.PCG64(0))
    generator.bit_generator.state = position
    return generator


def _rewound(generator: np.random.Generator, count: int) -> dict[str, Any]:
    """The state of a generator before its last `count` doubles."""
    state: dict[str, Any] = generator.bit_generator.state  # type: ignore[assignment]
    earlier = generator_at(state)
    earlier.bit_generator.advance(-count)  # type: ignore[attr-defined]  # each double uses one output
    return {**state, "state": earlier.bit_generator.state["state"]}
