from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dgvf_envs.functional.random_streams import UniformStreams

MAX_DRAWS = 3


def call_by_call(seed: int) -> Iterator[float]:
    """The draws of a stream, one per call."""
    generator = np.random.default_rng(seed)
    while True:
        yield float(generator.random())


def take_next(sequences: list[Iterator[float]], row: int, count: int) -> list[float]:
    return [next(sequences[row]) for _ in range(count)]


@st.composite
def plans(draw: st.DrawFn) -> tuple[int, list[tuple[Any, ...]]]:
    """A number of streams and a sequence of calls; repetitions exhaust the buffers."""
    n = draw(st.integers(1, 4))
    counts, repeats = st.integers(0, MAX_DRAWS), st.integers(1, 150)
    masks = st.lists(st.booleans(), min_size=n, max_size=n)
    operations = st.one_of(
        st.tuples(st.just("peek"), counts, st.just(1)),
        st.tuples(st.just("advance"), counts, repeats, st.none() | masks),
        st.tuples(st.just("take"), counts, repeats, masks),
        st.tuples(
            st.just("look ahead"), st.integers(1, 60), repeats, st.lists(st.integers(0, 60), min_size=n, max_size=n)
        ),
        st.tuples(st.just("reseed"), st.integers(0, n - 1), st.just(1), st.integers(0, 99)),
    )
    return n, draw(st.lists(operations, max_size=25))


@settings(max_examples=60)
@given(plans())
def test_every_stream_is_the_sequence_of_its_generator(plan: tuple[int, list[tuple[Any, ...]]]) -> None:
    n, operations = plan
    streams = UniformStreams([np.random.default_rng(1000 + i) for i in range(n)], MAX_DRAWS)
    sequences = [call_by_call(1000 + i) for i in range(n)]
    ahead: list[list[float]] = [[] for _ in range(n)]  # seen by peek, not consumed

    def upcoming(row: int, count: int) -> list[float]:
        ahead[row] += take_next(sequences, row, count - len(ahead[row]))
        return ahead[row][:count]

    for name, number, repeats, *rest in operations:
        for _ in range(repeats):
            if name == "reseed":
                streams.reseed(number, np.random.default_rng(rest[0]))
                sequences[number], ahead[number] = call_by_call(rest[0]), []
                continue
            if name == "look ahead":
                buffer, cursors = streams.prefetch(number)
                used = np.minimum(rest[0], number)
                for row, cursor in enumerate(cursors.tolist()):
                    assert buffer[row, cursor : cursor + number].tolist() == upcoming(row, number)
                    del ahead[row][: used[row]]
                streams.advance(used)
                continue
            if name in ("peek", "advance"):
                seen = streams.peek(number)
                assert seen.tolist() == [upcoming(row, number) for row in range(n)]
            rows = range(n)
            if name == "advance":
                mask = rest[0]
                streams.advance(number, None if mask is None else np.array(mask))
                rows = [row for row in range(n) if mask is None or mask[row]]
            if name == "take":
                rows = np.flatnonzero(rest[0])
                assert streams.take(rows, number).tolist() == [upcoming(int(row), number) for row in rows]
            if name != "peek":
                for row in rows:
                    del ahead[row][:number]


def test_returned_draws_are_copies() -> None:
    streams = UniformStreams([np.random.default_rng(0)], 2)
    first = streams.take(np.array([0]), 2)
    before = first.copy()
    first_peek = streams.peek(2)
    first_peek[...] = -1.0
    for _ in range(2000):
        assert streams.take(np.array([0]), 2).min() >= 0.0
    np.testing.assert_array_equal(first, before)
