from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import DependencyNotInstalled
from gymnasium.utils.env_checker import check_env

from dgvf_envs.atari import MODERN, PAPER, make_atari
from dgvf_envs.atari.scalar_env import life_lost

QUICK = replace(PAPER, max_noops=0, frame_size=36)
"""The paper's rules with small frames and starts that are known."""


def lose_a_life(env: gym.Env) -> tuple[Any, ...]:
    """The step in which it is lost, after random actions."""
    rng = np.random.default_rng(0)
    for _ in range(1500):
        result = env.step(int(rng.integers(env.action_space.n)))
        if result[2]:
            return result
    raise AssertionError("no life was lost in 1500 steps")


@pytest.mark.parametrize(("preset", "actions"), [("paper", 4), ("modern", 18)])
def test_spaces(preset: str, actions: int) -> None:
    env = make_atari("Breakout", preset)
    assert env.observation_space == gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    assert env.action_space == gym.spaces.Discrete(actions)
    observation, info = env.reset(seed=0)
    assert observation in env.observation_space
    assert (observation[:3] == 0).all()
    assert (observation[3] != 0).any()
    assert info["lives"] == 5
    env.close()


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
def test_gymnasium_has_no_complaints() -> None:
    check_env(make_atari("Breakout", replace(MODERN, frame_size=36)), skip_render_check=True, skip_close_check=True)


def test_a_lost_life_ends_an_episode_and_not_the_game() -> None:
    env = make_atari("Breakout", QUICK)
    env.reset(seed=0)
    observation, _, terminated, truncated, info = lose_a_life(env)
    assert (terminated, truncated) == (True, False)
    assert info["lives"] < 5
    assert "episode" not in info
    again, reset_info = env.reset()
    np.testing.assert_array_equal(again, observation)
    assert reset_info["lives"] == info["lives"]
    following, *_, next_info = env.step(0)
    np.testing.assert_array_equal(following[:3], observation[1:])  # the stack continues
    assert next_info["episode_frame_number"] == info["episode_frame_number"] + 4
    env.close()


@pytest.mark.parametrize("arguments", [{"seed": 3}, {"options": {"anything": 1}}, {}])
def test_resets_that_start_a_new_game(arguments: dict[str, Any]) -> None:
    """Those that ask for something, and those in the middle of a life."""
    env = make_atari("Breakout", QUICK)
    env.reset(seed=0)
    lose_a_life(env)
    if not arguments:
        env.reset()
        env.step(0)
    _, info = env.reset(**arguments)
    assert (info["lives"], info["episode_frame_number"]) == (5, 0)
    env.close()


def test_scores_are_of_whole_games_and_unclipped() -> None:
    """Rewards of 10 and more, summed on the bare emulator with the same actions."""
    env = make_atari("MsPacman", QUICK)
    bare = gym.make("ALE/MsPacman-v5", frameskip=4, repeat_action_probability=0.0, obs_type="ram")
    env.reset(seed=0)
    bare.reset(seed=0)
    rng, score, steps, pieces, over = np.random.default_rng(0), 0.0, 0, 0, False
    while not over:
        action = int(rng.integers(env.action_space.n))
        _, reward, terminated, truncated, info = env.step(action)
        _, raw_reward, bare_over, _, _ = bare.step(action)
        assert -1.0 <= reward <= 1.0
        assert reward == np.sign(raw_reward)
        score, steps, over = score + raw_reward, steps + 1, "episode" in info
        assert over == bare_over
        if terminated or truncated:
            pieces += 1
            env.reset()
    assert pieces == 3
    assert (info["episode"]["r"], info["episode"]["l"]) == (score, steps)
    assert score > 30
    env.close()
    bare.close()


def test_games_are_cut_off_on_time() -> None:
    env = make_atari("Pong", replace(QUICK, max_frames=40, max_noops=7))
    env.reset(seed=0)
    results = [env.step(0) for _ in range(10)]
    assert [(terminated, truncated) for _, _, terminated, truncated, _ in results] == [(False, False)] * 9 + [
        (False, True)
    ]
    assert results[-1][4]["episode"]["l"] == 10
    env.close()


def test_starts_have_no_ops() -> None:
    env = make_atari("Surround", replace(QUICK, max_noops=3))  # whose frames count from 1
    env.reset(seed=0)
    assert {env.reset()[1]["episode_frame_number"] - 1 for _ in range(20)} == {1, 2, 3}
    env.close()


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_seeds_that_the_emulator_does_not_take(seed: int) -> None:
    env = make_atari("Pong", QUICK)
    with pytest.raises(ValueError, match=rf"^seed must lie in \[0, 2147483647\], got {seed}"):
        env.reset(seed=seed)
    env.close()


def test_without_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DependencyNotInstalled, match=r"dgvf\[atari\]"):
        make_atari("Pong")


def test_the_last_life_counts_too() -> None:
    """Some games go on for some frames without lives; an extra life is no loss."""
    lost = life_lost(np.array([3, 1, 2, 2, 0]), np.array([2, 0, 2, 3, 0]))
    assert lost.tolist() == [True, True, False, False, False]
