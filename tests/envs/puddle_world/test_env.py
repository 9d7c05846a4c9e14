from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgvf_envs.puddle_world import PuddleWorld, PuddleWorldEnv, PuddleWorldState
from dgvf_envs.puddle_world.puddles import DEGRIS_2012, SUTTON_1996, CapsulePuddle, GaussianPuddle, Puddle
from tests.oracles import PuddleWalk, Rewarder, gaussian_penalty, segment_distance

units = st.floats(0.0, 1.0)
points = st.tuples(units, units)
draws = st.floats(0.0, 1.0, exclude_max=True)
ALMOST_ONE = math.nextafter(1.0, 0.0)


def reward_of(puddles: list[Puddle]) -> Rewarder:
    """The reward of any puddles, from the definitions of both kinds."""

    def penalty(puddle: Puddle, x: float, y: float) -> float:
        if isinstance(puddle, GaussianPuddle):
            density = gaussian_penalty(x, y, puddle.x, puddle.y, puddle.std_x, puddle.std_y)
            return puddle.scale * density
        return puddle.slope * max(0.0, puddle.radius - segment_distance((x, y), puddle.start, puddle.end))

    def reward(x: float, y: float) -> float:
        costs = [penalty(puddle, x, y) for puddle in puddles]
        if puddles and isinstance(puddles[0], CapsulePuddle):
            return -1.0 - max(costs)
        return -1.0 - sum(costs)

    return reward


PUDDLES: dict[str, list[Puddle]] = {
    "degris-2012": list(DEGRIS_2012),
    "sutton-1996": list(SUTTON_1996),
    "none": [],
    "one gaussian": [GaussianPuddle(0.5, 0.4, 0.2, 0.1, 5.0)],
    "one capsule": [CapsulePuddle((0.7, 0.7), (0.7, 0.7), 0.3, 20.0)],
}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[PuddleWorld, PuddleWalk]:
    """A world with any options, and its literal transcription."""
    common: dict[str, Any] = {
        "goal": draw(points),
        "goal_threshold": draw(st.floats(0.01, 0.5)),
        "thrust": draw(st.floats(0.01, 0.3)),
        "noise": draw(st.floats(0.0, 0.1)),
        "noise_distribution": draw(st.sampled_from(["uniform", "normal"])),
        "reward_scale": draw(st.floats(0.01, 10.0)),
    }
    name = draw(st.sampled_from(list(PUDDLES)))
    puddles = name if name in ("degris-2012", "sutton-1996", "none") else PUDDLES[name]
    world = PuddleWorld(start="random", puddles=puddles, stay=draw(st.booleans()), **common)
    return world, PuddleWalk(reward_of(PUDDLES[name]), **common)


@given(worlds(), st.lists(st.tuples(points, st.integers(0, 4), draws, draws), min_size=1, max_size=6))
def test_step_is_the_literal_transcription(
    both: tuple[PuddleWorld, PuddleWalk], steps: list[tuple[tuple[float, float], int, float, float]]
) -> None:
    world, walk = both
    steps = [(point, action % int(world.action_space.n), u, v) for point, action, u, v in steps]
    x, y = np.array([point for point, *_ in steps]).T
    after = world.step(
        PuddleWorldState(x, y), np.array([s[1] for s in steps]), np.array([(u, v) for *_, u, v in steps])
    )
    for i, ((x_t, y_t), action, u, v) in enumerate(steps):
        x_tp1, y_tp1, reward, terminated = walk.step(x_t, y_t, action, u, v)
        assert after.state.x[i] == pytest.approx(x_tp1, rel=1e-12, abs=1e-12)
        assert after.state.y[i] == pytest.approx(y_tp1, rel=1e-12, abs=1e-12)
        assert after.reward[i] == pytest.approx(reward, rel=1e-9)
        if abs(walk.goal_distance(x_tp1, y_tp1) - world.goal_threshold) > 1e-12:  # rounding decides on the very edge
            assert after.terminated[i] == terminated
        assert after.success[i] == after.terminated[i]


def test_defaults_are_the_papers() -> None:
    """Degris, White & Sutton (2012), transcribed in full: start, five moves, noise, reward, goal."""
    world, rng = PuddleWorld(), np.random.default_rng(0)
    state = world.reset(np.empty((200, 0)))
    x, y = [0.2] * 200, [0.4] * 200
    reached = 0
    for _ in range(60):
        np.testing.assert_allclose((state.x, state.y), (x, y), rtol=1e-12)
        actions, uniforms = rng.choice([0, 1, 1, 1, 2, 3, 3, 3, 4], size=200), rng.random((200, 2))
        after = world.step(state, actions, uniforms)
        for i in range(200):
            x[i], y[i], reward, terminated = PuddleWalk().step(x[i], y[i], int(actions[i]), *uniforms[i])
            assert after.reward[i] == pytest.approx(reward, rel=1e-9)
            assert after.terminated[i] == terminated
            reached += terminated
        state = after.state
    assert reached > 0


def test_the_lowest_reward_is_where_the_documentation_says() -> None:
    world, center, width = PuddleWorld(), (0.5, 0.5), 0.5
    for _ in range(12):  # a grid that closes in on the lowest point
        axes = [np.clip(np.linspace(c - width, c + width, 201), 0.0, 1.0) for c in center]
        x, y = (grid.ravel() for grid in np.meshgrid(*axes))
        rewards = world.reward(x, y)
        lowest = rewards.argmin()
        center, width = (float(x[lowest]), float(y[lowest])), width / 4
    assert rewards[lowest] == pytest.approx(-135.1, abs=0.05)
    assert center == pytest.approx((0.392, 0.592), abs=5e-4)


@given(st.lists(st.tuples(draws, draws), min_size=1, max_size=5))
def test_random_starts_are_the_uniforms_themselves(uniforms: list[tuple[float, float]]) -> None:
    state = PuddleWorld(start="random").reset(np.array(uniforms))
    assert list(zip(state.x, state.y, strict=True)) == uniforms


@pytest.mark.parametrize("start", [(0.3, 0.7), [0.3, 0.7], np.array([0.3, 0.7])], ids=["tuple", "list", "array"])
def test_fixed_starts_need_no_randomness(start: Any) -> None:
    world = PuddleWorld(start=start)
    assert world.reset_draws == 0
    state = world.reset(np.empty((3, 0)))
    np.testing.assert_array_equal((state.x, state.y), [[0.3] * 3, [0.7] * 3])


def noise_samples(distribution: str, count: int = 400_000) -> np.ndarray:
    """`[2, count]`: displacements of points that stay in the middle, in units of the noise's scale."""
    world = PuddleWorld(noise=0.01, noise_distribution=distribution, goal_threshold=0.01)
    middle = PuddleWorldState(np.full(count, 0.5), np.full(count, 0.5))
    uniforms = np.random.default_rng(0).random((count, 2))
    after = world.step(middle, np.full(count, 4), uniforms).state
    return (np.stack(after) - 0.5) / 0.01


@pytest.mark.parametrize(
    ("distribution", "moments"),
    [("uniform", (0.0, 1 / 3, 0.0, 1 / 5)), ("normal", (0.0, 1.0, 0.0, 3.0))],
)
def test_noise_has_the_moments_of_its_distribution(distribution: str, moments: tuple[float, ...]) -> None:
    samples = noise_samples(distribution)
    for axis in samples:
        for power, expected in enumerate(moments, start=1):
            powers = axis**power
            error = powers.std() / math.sqrt(len(axis))
            assert abs(powers.mean() - expected) < 5 * error
    product = samples[0] * samples[1]  # the axes are independent
    assert abs(product.mean()) < 5 * product.std() / math.sqrt(product.size)
    squares = samples[0] ** 2 * samples[1] ** 2
    assert abs(squares.mean() - moments[1] ** 2) < 5 * squares.std() / math.sqrt(squares.size)


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
@pytest.mark.parametrize("u", [0.0, ALMOST_ONE])
@pytest.mark.parametrize("v", [0.0, ALMOST_ONE])
def test_extreme_draws_keep_the_point_in_the_square(distribution: str, u: float, v: float) -> None:
    world = PuddleWorld(noise_distribution=distribution)
    after = world.step(world.reset(np.empty((1, 0))), np.array([4]), np.array([[u, v]]))
    assert all(0.0 <= coordinate[0] <= 1.0 for coordinate in after.state)
    assert np.isfinite(after.reward).all()


def test_the_goal_is_open() -> None:
    """At a distance equal to the threshold the episode continues. Binary fractions: nothing is rounded."""
    world = PuddleWorld(goal=(1.0, 1.0), goal_threshold=0.25)
    inside = world.in_goal(np.array([0.75, 0.875, 0.76, 1.0, 0.875]), np.array([1.0, 0.875, 1.0, 1.0, 0.9]))
    assert inside.tolist() == [False, False, True, True, True]


def test_observations_are_the_position_in_single_precision() -> None:
    world = PuddleWorld()
    observations = world.observe(PuddleWorldState(np.array([0.1, 1.0]), np.array([0.0, 0.7])))
    assert observations.dtype == np.float32
    np.testing.assert_array_equal(observations, np.array([[0.1, 0.0], [1.0, 0.7]], dtype=np.float32))
    assert all(world.observation_space.contains(observation) for observation in observations)


@pytest.mark.parametrize(("stay", "actions"), [(True, 5), (False, 4)])
def test_staying_is_optional(stay: bool, actions: int) -> None:
    assert PuddleWorld(stay=stay).action_space.n == actions
    assert set(PuddleWorldEnv(stay=stay).get_keys_to_action().values()) == set(range(actions))


NAN = float("nan")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": -0.1}, r"noise .* -0\.1"),
        ({"noise": "0.1"}, "noise .* '0.1'"),
        ({"thrust": 0.0}, r"thrust .* 0\.0"),
        ({"reward_scale": 0.0}, r"reward_scale .* 0\.0"),
        ({"goal_threshold": NAN}, "goal_threshold .* nan"),
        ({"start": "everywhere"}, "start .* 'everywhere'"),
        ({"start": (0.5, 1.5)}, r"start .* \(0\.5, 1\.5\)"),
        ({"start": (0.97, 0.98)}, r"start .* goal .* \(0\.97, 0\.98\)"),
        ({"goal": (-0.1, 0.5)}, r"goal .* \(-0\.1, 0\.5\)"),
        ({"puddles": "deep"}, "puddles .*'degris-2012'.* 'deep'"),
        ({"puddles": [1, 2]}, r"puddles .* \[1, 2\]"),
        ({"puddles": [DEGRIS_2012[0], SUTTON_1996[0]]}, r"puddles .* same class.*GaussianPuddle.*CapsulePuddle"),
        ({"noise_distribution": "cauchy"}, "noise_distribution .* 'cauchy'"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        PuddleWorld(**options)
