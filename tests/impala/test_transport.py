"""Frame stacks travel as unique frames, without loss."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dgvf_agents.impala.transport import decode, encode


def _frames(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    return rng.integers(0, 256, (count, size, size), np.uint8)


def _episodes(
    rng: np.random.Generator, steps: int, done: np.ndarray, channels: int, size: int, pad: str
) -> tuple[np.ndarray, np.ndarray]:
    """Stacks of episodes that end where `done` `[T, B]` says: observations `[T + 1, B, ...]` and finals."""
    num_envs = done.shape[1]

    def first() -> np.ndarray:
        newest = _frames(rng, 1, size)
        older = np.zeros((channels - 1, size, size), np.uint8) if pad == "zeros" else np.repeat(newest, channels - 1, 0)
        return np.concatenate([older, newest])

    stacks = [first() for _ in range(num_envs)]
    observations, finals = [np.stack(stacks)], []
    for t in range(steps):
        for b in range(num_envs):
            stacks[b] = np.concatenate([stacks[b][1:], _frames(rng, 1, size)])
            if done[t, b] and t < steps - 1:
                finals.append(stacks[b])
                stacks[b] = first()
        observations.append(np.stack(stacks))
    return np.stack(observations), np.stack(finals) if finals else np.zeros((0, *first().shape), np.uint8)


@given(st.integers(2, 8), st.integers(1, 3), st.integers(2, 4), st.sampled_from(["zeros", "repeat"]), st.data())
def test_stacks_of_several_episodes_are_restored(
    steps: int, num_envs: int, channels: int, pad: str, data: st.DataObject
) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=steps * num_envs, max_size=steps * num_envs))
    done = np.array(flags).reshape(steps, num_envs)
    observations, finals = _episodes(np.random.default_rng(0), steps, done, channels, 3, pad)
    parts, positions, ends = encode(observations, finals, True)
    for start in (0, 1):
        out = np.zeros((steps, num_envs + 2, channels, 3, 3), np.uint8)
        decode(parts, positions[start : start + steps], out[:, 1:-1])
        np.testing.assert_array_equal(out[:, 1:-1], observations[start : start + steps])
        assert not out[:, [0, -1]].any()  # other columns of the batch
    np.testing.assert_array_equal(parts[ends], finals)
    frames = np.concatenate([observations.reshape(-1, 9), finals.reshape(-1, 9)])
    unique = len(np.unique(frames, axis=0))
    assert parts.shape == ((unique, 3, 3) if 2 * unique <= len(frames) else (len(frames) // channels, channels, 3, 3))


def test_a_rollout_of_one_environment_is_a_third_as_large() -> None:
    """20 steps of four frames of 84 x 84 bytes: 21 stacks have 24 frames between them."""
    frames = _frames(np.random.default_rng(0), 24, 84)
    observations = np.stack([frames[t : t + 4] for t in range(21)])[:, None]
    packed = encode(observations, observations[0, :0], True)
    assert observations.nbytes == 21 * 4 * 84 * 84 == 592_704
    assert packed.parts.nbytes == 24 * 84 * 84 == 169_344
    assert sum(array.nbytes for array in packed) < 170_000
