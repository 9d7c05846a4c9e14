from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dgvf_envs.collect_objects import CollectObjects
from dgvf_envs.planning import expected_return, mean_return, plan_puddle_world
from dgvf_envs.puddle_world import PuddleWorld, PuddleWorldState
from tests.helpers import COLLECT_IDS, TINY_MAP, own_vector_env, random_policy, registered_world, rooms_of
from tests.oracles import Room, Rooms

each_collect = pytest.mark.parametrize("env_id", COLLECT_IDS)


def chain_return(rules: Rooms, horizon: int = 40, discount: float = 1.0) -> float:
    """Expected return of random actions: the rules as an absorbing Markov chain, whose distribution moves on."""
    starts = rules.starts()
    distribution: dict[Room, float] = dict.fromkeys(starts, 1 / len(starts))
    expected, factor = 0.0, 1.0
    for _ in range(horizon):
        following: dict[Room, float] = defaultdict(float)
        for state, probability in distribution.items():
            for action in range(4):
                target, reward, terminated, _ = rules.step(state, action)
                expected += factor * probability / 4 * reward
                if not terminated:
                    following[target] += probability / 4
        distribution, factor = following, factor * discount
    return expected


def random_play(env_id: str, episodes: int) -> tuple[float, float]:
    """Mean return and its standard error over the first episodes of a vector environment."""
    env = own_vector_env(env_id, episodes)
    env.reset(seed=0)
    policy, returns, running = random_policy(env, seed=0), np.zeros(episodes), np.ones(episodes, dtype=bool)
    while running.any():
        _, rewards, terminated, truncated, _ = env.step(policy(None))
        returns += rewards * running
        running &= ~(terminated | truncated)
    return float(returns.mean()), float(returns.std(ddof=1) / np.sqrt(episodes))


@pytest.mark.parametrize("wrong_order", ["ignore", "remove", "terminate"])
@pytest.mark.parametrize(("horizon", "discount"), [(1, 1.0), (7, 0.9), (40, 0.99)])
def test_random_return_under_any_rules(wrong_order: str, horizon: int, discount: float) -> None:
    world = CollectObjects(TINY_MAP, wrong_order=wrong_order)
    exact = chain_return(rooms_of(world), horizon, discount)
    assert expected_return(world, "random", horizon, discount) == pytest.approx(exact, abs=1e-10)


@each_collect
def test_every_start_can_be_solved_in_time(env_id: str) -> None:
    world = registered_world(env_id)
    rules = rooms_of(world)
    lengths = [rules.solution_length(cell) for cell, _, _ in rules.starts()]
    assert max(lengths) <= 40
    assert expected_return(world, "optimal") == pytest.approx(3.0, abs=1e-9)
    assert expected_return(world, "optimal", horizon=max(lengths)) == pytest.approx(3.0, abs=1e-9)
    assert expected_return(world, "optimal", horizon=max(lengths) - 1) < 3.0 - 1e-6


@each_collect
def test_the_discounted_optimum_is_the_shortest_way(env_id: str) -> None:
    world, discount = registered_world(env_id), 0.99
    rules = rooms_of(world)
    values = [
        discount ** (rules.distances_from(cell)[rules.first] - 1) + 2 * discount ** (rules.solution_length(cell) - 1)
        for cell, _, _ in rules.starts()
    ]
    assert expected_return(world, "optimal", discount=discount) == pytest.approx(np.mean(values), abs=1e-10)


def test_the_reference_numbers_of_the_default_map() -> None:
    world = CollectObjects()
    lengths = [rooms_of(world).solution_length(cell) for cell, _, _ in rooms_of(world).starts()]
    assert max(lengths) == 27
    assert np.mean(lengths) == pytest.approx(18.1, abs=0.05)
    assert expected_return(world, "optimal", discount=0.99) == pytest.approx(2.610, abs=5e-4)
    assert expected_return(world, "random") == pytest.approx(0.156, abs=5e-4)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ValueError, match=r"^policy must be 'random' or 'optimal', got 'greedy'"):
        expected_return(CollectObjects(), "greedy")


def test_the_optimal_return_of_puddle_world() -> None:
    """Value iteration, then play: the documented -36.8 lies within one standard error."""
    mean, error = mean_return(plan_puddle_world(PuddleWorld()), episodes=1000, seed=0)
    assert 0.01 < error < 0.2
    assert abs(mean + 36.8) < error


def test_the_random_return_of_puddle_world() -> None:
    """About -12,900, in full episodes of up to 5000 steps."""
    mean, error = random_play("PuddleWorld-v0", episodes=1000)
    assert error < 500
    assert abs(mean + 12_900) < 3 * error


def test_a_plan_without_noise_or_puddles_is_the_straight_way() -> None:
    """From (.5, .5) to an L1 distance below .1 of the corner, .04 at a time: 23 moves."""
    world = PuddleWorld(noise=0.0, puddles="none", thrust=0.04, start=(0.5, 0.5))
    plan = plan_puddle_world(world)
    assert mean_return(plan, episodes=3, seed=0) == (pytest.approx(-23.0), pytest.approx(0.0))
    assert set(plan.act(PuddleWorldState(np.array([0.5, 0.2]), np.array([0.5, 0.2]))).tolist()) <= {1, 3}
    assert plan.values.shape == (101, 101)
    assert plan.values[50, 50] == pytest.approx(-23.0, abs=1.0)  # the grid interpolates


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (lambda: plan_puddle_world(PuddleWorld(), resolution=1), "resolution"),
        (lambda: plan_puddle_world(PuddleWorld(), resolution=3, tolerance=0.0), "tolerance"),
        (lambda: plan_puddle_world(PuddleWorld(thrust=1e-6, noise=0.0), resolution=3), "tolerance"),
        (lambda: mean_return(plan_puddle_world(PuddleWorld(), resolution=11), episodes=0, seed=0), "episodes"),
        (lambda: expected_return(CollectObjects(), "optimal", horizon=-3), "horizon"),
        (lambda: expected_return(CollectObjects(), "optimal", discount=2.0), "discount"),
    ],
)
def test_what_planning_cannot_do_is_named(plan: Callable[[], Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must "):
        plan()


def test_planning_needs_uniform_noise() -> None:
    with pytest.raises(ValueError, match=r"^noise_distribution must be 'uniform', got 'normal'"):
        plan_puddle_world(PuddleWorld(noise_distribution="normal"))
