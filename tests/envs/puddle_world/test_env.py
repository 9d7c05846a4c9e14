"""PuddleWorld and its puddles against literal transcriptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dgvf_envs.puddle_world import PuddleWorld, PuddleWorldState
from dgvf_envs.puddle_world.dynamics import (
    DEGRIS_2012,
    PUDDLE_SETS,
    SUTTON_1996,
    CapsulePuddle,
    GaussianPuddle,
    Puddle,
)
from tests.oracles import PuddleWalk, Rewarder, degris_reward, gaussian_penalty, segment_distance, sutton_reward

units = st.floats(0.0, 1.0)
points = st.tuples(units, units)
draws = st.floats(0.0, 1.0, exclude_max=True)
widths = st.floats(0.02, 1.0)
gaussians = st.builds(GaussianPuddle, units, units, widths, widths, st.floats(0.0, 10.0))
capsules = st.builds(CapsulePuddle, points, points, widths, st.floats(0.0, 500.0))

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


@pytest.mark.parametrize("distribution", ["uniform", "normal"])
@pytest.mark.parametrize("u", [0.0, ALMOST_ONE])
@pytest.mark.parametrize("v", [0.0, ALMOST_ONE])
def test_extreme_draws_keep_the_point_in_the_square(distribution: str, u: float, v: float) -> None:
    world = PuddleWorld(noise_distribution=distribution)
    after = world.step(world.reset(np.empty((1, 0))), np.array([4]), np.array([[u, v]]))
    assert all(0.0 <= coordinate[0] <= 1.0 for coordinate in after.state)
    assert np.isfinite(after.reward).all()


@pytest.mark.parametrize(("stay", "actions"), [(True, 5), (False, 4)])
def test_staying_is_optional(stay: bool, actions: int) -> None:
    assert PuddleWorld(stay=stay).action_space.n == actions


def test_the_goal_is_open() -> None:
    """At a distance equal to the threshold the episode continues. Binary fractions: nothing is rounded."""
    world = PuddleWorld(goal=(1.0, 1.0), goal_threshold=0.25)
    inside = world.in_goal(np.array([0.75, 0.875, 0.76, 1.0, 0.875]), np.array([1.0, 0.875, 1.0, 1.0, 0.9]))
    assert inside.tolist() == [False, False, True, True, True]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("noise", -0.1),
        ("noise", "0.1"),
        ("thrust", 0.0),
        ("reward_scale", 0.0),
        ("goal_threshold", float("nan")),
        ("start", "everywhere"),
        ("start", (0.5, 1.5)),
        ("start", (0.97, 0.98)),  # in the goal
        ("goal", (-0.1, 0.5)),
        ("puddles", "deep"),
        ("puddles", [1, 2]),
        ("puddles", 5),
        ("puddles", iter(DEGRIS_2012)),
        ("start", ("0.1", "0.2")),
        ("start", (float("nan"), 0.2)),
        ("puddles", [DEGRIS_2012[0], SUTTON_1996[0]]),
        ("noise_distribution", "cauchy"),
    ],
)
def test_bad_options_are_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must "):
        PuddleWorld(**{name: value})


def penalties(puddles: Sequence[Puddle], points: Sequence[tuple[float, float]]) -> np.ndarray:
    kind = type(puddles[0])
    x, y = np.array(points).T
    return kind.penalty(np, kind.constants(puddles), x, y)


@given(st.lists(gaussians, min_size=1, max_size=4), st.lists(points, min_size=1, max_size=5))
def test_gaussian_puddles_add_up_products_of_normal_densities(
    puddles: list[GaussianPuddle], points: list[tuple[float, float]]
) -> None:
    expected = [sum(p.scale * gaussian_penalty(x, y, p.x, p.y, p.std_x, p.std_y) for p in puddles) for x, y in points]
    np.testing.assert_allclose(penalties(puddles, points), expected, rtol=1e-9, atol=1e-12)


@given(st.lists(capsules, min_size=1, max_size=4), st.lists(points, min_size=1, max_size=5))
@example([CapsulePuddle((0.0, 0.0), (0.0, 3e-159), 1.0, 1.0)], [(0.0, 0.0), (0.5, 0.0)])  # its square is subnormal
def test_the_deepest_capsule_counts(puddles: list[CapsulePuddle], points: list[tuple[float, float]]) -> None:
    expected = [
        max(p.slope * max(0.0, p.radius - segment_distance(point, p.start, p.end)) for p in puddles) for point in points
    ]
    np.testing.assert_allclose(penalties(puddles, points), expected, rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(("puddles", "reward"), [(DEGRIS_2012, degris_reward), (SUTTON_1996, sutton_reward)])
def test_named_sets_are_those_of_the_literature(puddles: Sequence[Puddle], reward: object) -> None:
    axis = np.linspace(0.0, 1.0, 41)
    points = [(x, y) for x in axis for y in axis]
    expected = [reward(x, y) for x, y in points]
    np.testing.assert_allclose(-1.0 - penalties(puddles, points), expected, rtol=1e-12, atol=1e-12)
    assert min(expected) < -30.0  # the grid meets the puddles
    assert puddles in PUDDLE_SETS.values()


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: GaussianPuddle(0.5, 0.5, 0.0, 0.1), "std_x"),
        (lambda: GaussianPuddle(0.5, 0.5, 0.1, -1.0), "std_y"),
        (lambda: GaussianPuddle(0.5, 0.5, float("nan"), 0.1), "std_x"),
        (lambda: GaussianPuddle(0.5, 0.5, 0.1, 0.1, -2.0), "scale"),
        (lambda: CapsulePuddle((0.1, 0.1), (0.2, 0.2), radius=0.0), "radius"),
        (lambda: CapsulePuddle((0.1, 0.1), (0.2, 0.2), slope=-1.0), "slope"),
        (lambda: GaussianPuddle(float("nan"), 0.5, 0.1, 0.1), r"\(x, y\)"),
        (lambda: GaussianPuddle(0.5, 7.0, 0.1, 0.1), r"\(x, y\)"),
        (lambda: GaussianPuddle(0.5, 0.5, 0.1, 0.1, float("inf")), "scale"),
        (lambda: CapsulePuddle((0.1, 0.1, 0.1), (0.2, 0.2)), "start"),  # type: ignore[arg-type]
        (lambda: CapsulePuddle((0.1, 0.1), (0.2, float("inf"))), "end"),
    ],
)
def test_bad_puddles_are_named(build: Callable[[], Puddle], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} must "):
        build()
