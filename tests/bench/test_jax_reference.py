"""The JAX reference computes what our learner and our environments do, in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from dgvf_agents import DGVFA2C
from dgvf_agents.bench.training import PAPER, discovering_agent
from dgvf_agents.core.types import Rollout
from dgvf_agents.rollout.builder import bootstrap_positions
from dgvf_envs.functional.simulation import simulate_rollout
from dgvf_envs.puddle_world import PuddleWorld
from dgvf_envs.sb3_adapter import make_vec
from tests.helpers import WORLD_IDS, registered_world
from tests.random_rollouts import random_rollout

jax = pytest.importorskip("jax")

from dgvf_agents.bench.jax_reference import learning, loop, worlds  # noqa: E402, after the skip

RATE = 0.002
L, POLICIES = 2, dict(zip(WORLD_IDS, ("PaperMlpPolicy", "CnnPolicy"), strict=True))
each_world = pytest.mark.parametrize("world", WORLD_IDS)


@pytest.fixture(scope="module", autouse=True)
def double_precision_in_jax(double_precision: None) -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def _model(world: str, seed: int = 0) -> DGVFA2C:
    settings: dict[str, Any] = {**PAPER, "encoder_mode": "auxiliary", "questions": 7, "unroll_length": L}
    env = make_vec(world, 4, seed=seed)
    return DGVFA2C(POLICIES[world], env, **settings, seed=seed, device="cpu", compile=False)


def _arrays(params: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {name: jax.numpy.asarray(value.numpy()) for name, value in params.items()}


def _rollouts(world: str, count: int) -> list[Rollout]:
    """Batches in which episodes end in every way, once in an environment or not at all."""
    shape, actions = registered_world(world).observation_space.shape, registered_world(world).action_space.n
    found = []
    for seed in range(count):
        drawn = random_rollout(seed, steps=5, num_envs=5, shape=shape, actions=int(actions), ends=False)
        terminated, truncated = torch.zeros(5, 5, dtype=torch.bool), torch.zeros(5, 5, dtype=torch.bool)
        truncated[2, 0] = truncated[4, 1] = truncated[0, 2] = True
        terminated[1, 0] = terminated[3, 2] = terminated[4, 3] = True
        # encoders of Stable-Baselines3's kind round observations to float32
        observations, final = drawn.observations.float().double(), drawn.next_observations.roll(1, 1).float().double()
        ended = (terminated | truncated).reshape(5, 5, *(1 for _ in shape))
        following = torch.where(ended, final, drawn.next_observations.float().double())
        index, slot = map(torch.from_numpy, bootstrap_positions(truncated.numpy()))
        found.append(Rollout(observations, drawn.actions, drawn.rewards, terminated, truncated, following, index, slot))
    return found


@pytest.mark.slow  # JAX compiles for half a minute
@pytest.mark.parametrize("world", WORLD_IDS)
def test_two_iterations_give_the_parameters_and_moments_of_our_learner(world: str) -> None:
    """Unroll, clipped meta-gradient and Adam: θ, RMSProp's moments, η and Adam's moments after 2 L updates."""
    model, rollouts = _model(world), _rollouts(world, 2 * L + 1)
    batches = [learning.Batch(*(jax.numpy.asarray(field.numpy()) for field in rollout[:6])) for rollout in rollouts]
    stacked = jax.tree.map(lambda *fields: jax.numpy.stack(fields), *batches)
    s = learning.Settings.of(model)._replace(
        learning_rate=RATE, meta_learning_rate=0.05, max_norm=0.002, skip_norm=math.inf
    )
    learner = model.learner
    learner.settings = learner.settings.__class__(unroll_length=L, max_grad_norm=0.002, skip_norm=math.inf)

    @jax.jit
    def iterate(inner: Any, eta: Any, adam: Any, k: Any) -> Any:
        def at(number: Any) -> Any:
            return jax.tree.map(lambda field: field[number], stacked)

        def loss(eta: Any) -> Any:
            return learning.unroll(s, eta, inner, at(k), lambda theta, number: (at(number), number + 1), k + 1)

        gradient, (inner, _, k) = jax.grad(loss, has_aux=True)(eta)
        return inner, *learning.meta_update(s, eta, gradient, adam), k - 1

    theta, eta = _arrays(learner.theta), _arrays(learner.eta)
    zeros = {name: 0.0 * value for name, value in eta.items()}
    inner = learning.Inner(theta, {name: 0.0 * value for name, value in theta.items()})
    found = iterate(inner, eta, learning.Adam(jax.numpy.zeros(()), zeros, zeros), 0)
    inner, eta, adam, k = iterate(*found)
    assert k == 2 * L
    for rollout in rollouts:  # one update more, which makes the second meta-update
        before, moments = learner.theta, learner.statistics["second_moment"]
        learner.step(rollout, RATE, 0.05)
    assert learner.meta_updates == 2
    assert float(learner.meta_gradient_norm) > 0.002  # clipped
    _assert_equal(inner.theta, before)
    _assert_equal(inner.moments, moments)
    _assert_equal(eta, learner.eta)
    (state,) = learner.meta_optimizer_state["state"].values()
    for ours, theirs in (("exp_avg", adam.first), ("exp_avg_sq", adam.second)):
        _assert_equal(theirs, learner.functions.packed.eta.unpack({"packed": state[ours]}))


def _assert_equal(theirs: dict[str, Any], ours: dict[str, torch.Tensor]) -> None:
    assert set(theirs) == set(ours)
    for name, value in ours.items():
        scale = float(value.abs().max())
        np.testing.assert_allclose(np.asarray(theirs[name]), value, rtol=1e-8, atol=1e-9 * scale, err_msg=name)


@each_world
def test_settings_are_those_of_the_benchmark(world: str) -> None:
    model = discovering_agent({"world": world, "policy": POLICIES[world]}, seed=0)
    expected = (0.99, 0.9, 0.5, 0.01, 0.03, 0.99, pytest.approx(1e-10), 7e-4, 3e-4, 1e-8, 1.0, 1e3, 10, 5)
    assert learning.Settings.of(model) == expected


def test_a_meta_gradient_that_is_too_large_or_not_finite_is_skipped() -> None:
    s = learning.Settings.of(_model("PuddleWorld-v0"))._replace(skip_norm=2.0)
    eta = {"a": jax.numpy.ones(2)}
    adam = learning.Adam(jax.numpy.zeros(()), eta, eta)
    for value, moved in ((1.0, True), (2.0, False), (np.nan, False)):
        after, statistics = learning.meta_update(s, eta, {"a": jax.numpy.full(2, value)}, adam)
        assert bool((after["a"] != eta["a"]).all()) == moved
        assert float(statistics.steps) == moved


def _episodes(world: str, count: int) -> tuple[Any, np.ndarray]:
    """A state of our dynamics from which episodes soon end in every way, and the steps of the episodes."""
    rng, ours = np.random.default_rng(0), registered_world(world)
    if isinstance(ours, PuddleWorld):
        points = rng.uniform(0.6, 1.0, (2, count))
        return ours.state_from(list(points)), 5000 - rng.integers(1, 90, count)
    cells = rng.integers(len(ours.map.cells), size=count)
    return ours.state_from([cells, rng.random(count) < 0.5, np.ones(count, bool)]), rng.integers(0, 39, count)


def _in_jax(state: Any, elapsed: np.ndarray) -> worlds.Episodes:
    fields = (field.astype(np.int32) if field.dtype == np.int64 else field for field in state)
    return worlds.Episodes(tuple(map(jax.numpy.asarray, fields)), jax.numpy.asarray(elapsed, np.int32))


@each_world
def test_steps_are_those_of_our_environments(world: str) -> None:
    count, steps = 512, 100
    ours, theirs, rng = registered_world(world), worlds.WORLDS[world](), np.random.default_rng(1)
    state, elapsed = _episodes(world, count)
    episodes = _in_jax(state, elapsed)
    step, observe = jax.jit(theirs.step), jax.jit(theirs.observe)
    ends = []
    for _ in range(steps):
        actions, uniforms = rng.integers(ours.action_space.n, size=count), rng.random((count, theirs.draws))
        one = simulate_rollout(
            ours, lambda *_, a=actions: a, state, elapsed, uniforms, np.zeros(count, int), 1, theirs.limit
        )
        episodes, outcome = step(episodes, actions, uniforms)
        state, elapsed = type(state)(*(field[0] for field in one.states)), one.elapsed_steps[0]
        truncated = one.truncated[0] & ~one.terminated[0]
        for name, expected in (("terminated", one.terminated[0]), ("truncated", truncated)):
            np.testing.assert_array_equal(getattr(outcome, name), expected, name)
        np.testing.assert_allclose(outcome.rewards, one.rewards[0], rtol=1e-10)
        np.testing.assert_allclose(outcome.next_observations, one.final_observations[0], rtol=1e-6)
        np.testing.assert_allclose(observe(episodes.state), one.observations[0], rtol=1e-6)
        np.testing.assert_array_equal(episodes.steps, elapsed)
        ends.append((one.terminated.sum(), truncated.sum()))
    assert np.all(np.sum(ends, 0) > 10)


@each_world
def test_actions_and_the_layout_of_a_batch_are_ours(world: str) -> None:
    model, theirs = _model(world), worlds.WORLDS[world]()
    rng, ours = np.random.default_rng(2), model.learner.functions.packed
    noise, uniforms = rng.random((5, 64)), rng.random((5, 64, theirs.draws))
    state, elapsed = _episodes(world, 64)
    episodes = _in_jax(state, elapsed)
    batch, last = jax.jit(loop.collect, static_argnums=0)(
        theirs, _arrays(model.learner.theta), episodes, noise, uniforms
    )
    for t in range(5):
        observations = torch.from_numpy(np.array(batch.observations[t]))
        theta = model.learner.packed_state.theta
        expected = ours.act(theta, observations, torch.from_numpy(noise[t])).actions
        np.testing.assert_array_equal(batch.actions[t], expected)
    ended = np.asarray(batch.terminated | batch.truncated)[:-1]
    assert ended.any()
    within = np.asarray(batch.next_observations)[:-1][~ended]
    np.testing.assert_array_equal(within, np.asarray(batch.observations)[1:][~ended])
    going_on = ~np.asarray(batch.terminated | batch.truncated).any(0)
    np.testing.assert_array_equal(last.steps[going_on], (elapsed + 5)[going_on])


@pytest.mark.slow
def test_a_population_has_agents_of_their_own() -> None:
    models = [_model("PuddleWorld-v0", seed) for seed in range(2)]
    trained = loop.JaxLoop("PuddleWorld-v0", models)
    assert trained.rate(0.0) > 0
    for i, model in enumerate(models):
        for parameters, initial in (
            (trained.agents.eta, model.learner.eta),
            (trained.agents.inner.theta, model.learner.theta),
        ):
            for name, value in initial.items():
                found = np.asarray(parameters[name][i])
                assert 0.0 < np.abs(found - value.numpy()).max() < 0.1, name
    first, second = np.asarray(trained.agents.batch.observations)
    assert not np.array_equal(first, second)
