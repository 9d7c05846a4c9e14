from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, InvalidAction, ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from dgvf_envs.atari import MODERN, PAPER, AtariPreset, GamesVectorEnv, make_atari, make_atari_vec

START = replace(PAPER, max_noops=0)
"""The paper's rules with starts that are known."""
QUICK = replace(START, frame_size=20)

DIFFERENT_PIXELS, DIFFERENT_LEVELS = 25, 2
"""ALE's own tests let this many pixels of a batch differ between its C++ and Gymnasium's wrappers, by this many grey
levels: two builds of OpenCV may round the mean over an area differently."""


@pytest.fixture(scope="module")
def running() -> Iterator[GamesVectorEnv]:
    """Two games for tests that leave them as they are; making one loads its ROM, which takes long."""
    env = games()
    env.reset(seed=0)
    yield env
    env.close()


def games(preset: AtariPreset = QUICK, n: int = 2, game: str = "Breakout") -> GamesVectorEnv:
    return make_atari_vec(game, n, preset, threads=1)


def assert_same_frames(actual: np.ndarray, expected: np.ndarray) -> None:
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    difference = np.abs(actual.astype(np.int16) - expected)
    assert np.count_nonzero(difference) <= DIFFERENT_PIXELS
    assert difference.max() <= DIFFERENT_LEVELS


def assert_same_infos(actual: dict[str, Any], expected: dict[str, Any], of: np.ndarray) -> None:
    for key in ("lives", "episode_frame_number", "frame_number"):
        np.testing.assert_array_equal(actual[key][of], expected[key][of], err_msg=key)


def assert_same_ends(actual: dict[str, Any], expected: dict[str, Any], done: np.ndarray) -> int:
    """Last observations, last infos and scores of the episodes that ended; how many games ended with them."""
    assert ("final_obs" in actual) == ("final_obs" in expected) == done.any()
    if not done.any():
        return 0
    for key in ("_final_obs", "_final_info"):
        np.testing.assert_array_equal(actual[key], expected[key])
    for i in np.flatnonzero(done):
        assert_same_frames(actual["final_obs"][i], expected["final_obs"][i])
    assert_same_infos(last := actual["final_info"], expected["final_info"], done)
    np.testing.assert_array_equal(last["_lives"], expected["final_info"]["_lives"])
    over = expected["final_info"].get("_episode", np.zeros_like(done))
    np.testing.assert_array_equal(last.get("_episode", np.zeros_like(done)), over)
    if over.any():
        for key in ("r", "l"):
            np.testing.assert_array_equal(last["episode"][key], expected["final_info"]["episode"][key])
    return int(over.sum())


@pytest.mark.parametrize(
    ("game", "n", "preset", "steps", "least_ends", "least_games"),
    [
        ("Breakout", 2, START, 200, 8, 1),
        pytest.param("Qbert", 1, START, 480, 4, 1, marks=pytest.mark.slow),
        pytest.param("MsPacman", 1, START, 420, 2, 0, marks=pytest.mark.slow),
        ("Breakout", 1, MODERN, 260, 1, 1),
        ("Pong", 1, replace(MODERN, frame_skip=1, stack=2, frame_size=50, max_frames=35), 80, 2, 2),
        ("Breakout", 2, replace(QUICK, max_frames=120, clip_rewards=False), 70, 6, 4),
    ],
)
def test_the_same_as_gymnasiums_wrappers(
    game: str, n: int, preset: AtariPreset, steps: int, least_ends: int, least_games: int
) -> None:
    """Frames, rewards, ends, lives, scores: through lost lives, games that are over, and games that are cut off."""
    env, everywhere = games(preset, n, game), np.ones(n, dtype=bool)
    reference = SyncVectorEnv([lambda: make_atari(game, preset)] * n, autoreset_mode=AutoresetMode.SAME_STEP)
    assert env.single_observation_space == reference.single_observation_space
    assert env.single_action_space == reference.single_action_space
    assert env.observation_space == reference.observation_space
    (observation, infos), (expected, expected_infos) = env.reset(seed=5), reference.reset(seed=5)
    assert_same_frames(observation, expected)
    assert_same_infos(infos, expected_infos, everywhere)
    rng, ended, over = np.random.default_rng(0), 0, 0
    for _ in range(steps):
        actions = rng.integers(env.single_action_space.n, size=n)
        observation, *results, infos = env.step(actions)
        expected, *expected_results, expected_infos = reference.step(actions)
        assert_same_frames(observation, expected)
        for one, other in zip(results, expected_results, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        done = results[1] | results[2]
        assert_same_infos(infos, expected_infos, everywhere)
        ended += int(done.sum())
        over += assert_same_ends(infos, expected_infos, done)
    assert (ended >= least_ends, over >= least_games) == (True, True), (ended, over)
    env.close()
    reference.close()


@pytest.mark.parametrize(("game", "first_frame"), [("Breakout", 0), ("Surround", 1)])
def test_starts_have_one_to_thirty_no_ops(game: str, first_frame: int) -> None:
    """ALE alone would draw 0 to 29, and counts some games' frames from elsewhere than 0."""
    for most, lowest, highest in ((3, 1, 3), (30, 6, 25)):
        env = games(replace(QUICK, max_noops=most), 2, game)
        env.reset(seed=0)
        counts = np.concatenate([env.reset()[1]["episode_frame_number"] for _ in range(25)]) - first_frame
        assert 1 <= counts.min() <= lowest
        assert highest <= counts.max() <= most
        env.close()


@pytest.mark.parametrize("preset", [replace(QUICK, max_noops=30), replace(MODERN, frame_size=20)], ids=["paper", "own"])
def test_seeds_decide_everything(preset: AtariPreset) -> None:
    def play(seed: Any) -> np.ndarray:
        env = games(preset)
        observations = [env.reset(seed=seed)[0]]
        observations += [env.step(np.array([k % 4, k % 3]))[0] for k in range(25)]
        env.close()
        return np.stack(observations)

    first, other = play(1), play([7, 2])
    np.testing.assert_array_equal(first[:, 1], other[:, 1])
    assert (first[:, 0] != other[:, 0]).any()


def test_some_games_may_be_reset() -> None:
    env = games(n=3)
    env.reset(seed=0)
    for _ in range(5):
        observation, *_ = env.step(np.array([1, 1, 1]))
    fresh, infos = env.reset(options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(fresh[[0, 2]], observation[[0, 2]])
    assert (fresh[1, :3] == 0).all()
    assert infos["episode_frame_number"].tolist() == [20, 0, 20]
    assert env._steps.tolist() == [5, 0, 5]
    env._lives = np.full(3, 9)  # as after extra lives
    env.reset()
    assert not env.step(np.zeros(3, dtype=int))[2].any(), "a new game has lost no life"
    env.close()


@pytest.mark.parametrize("actions", [np.array([0, 4]), np.zeros(3, dtype=int)])
def test_wrong_actions_are_refused(actions: np.ndarray, running: GamesVectorEnv) -> None:
    """The emulators would wait forever."""
    with pytest.raises(InvalidAction, match=r"^actions must"):
        running.step(actions)
    running.step(np.array([1, 2], dtype=np.uint8))


def test_steps_before_a_reset_and_after_the_end() -> None:
    env = games()
    with pytest.raises(ResetNeeded, match=r"^step\(\) was called before reset\(\)"):
        env.step(np.zeros(2, dtype=int))
    with pytest.raises(ResetNeeded, match=r"^a partial reset"):
        env.reset(options={"reset_mask": np.array([True, False])})
    env.close()
    env.close()
    with pytest.raises(ClosedEnvironmentError, match=r"^step\(\) was called after close\(\)"):
        env.step(np.zeros(2, dtype=int))
    with pytest.raises(ClosedEnvironmentError, match=r"^reset\(\) was called after close\(\)"):
        env.reset()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seed": -1}, "got -1"),
        ({"seed": 2**31 - 1}, "got 2147483648"),
        ({"options": {"reset_mask": np.array([True])}}, "shape"),
    ],
)
def test_wrong_resets_are_refused(arguments: dict[str, Any], message: str, running: GamesVectorEnv) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        running.reset(**arguments)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("Breakout", 0), "num_envs"),
        (("Breakout", 2, "paper", -1), "threads"),
        (("Breakout", 2, "new"), "preset"),
        (("Brekout", 2), "game"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must "):
        make_atari_vec(*arguments)
