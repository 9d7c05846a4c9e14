"""The whole loop in JAX computes what `DGVFA2C` and our environments do, in float64."""

from __future__ import annotations

import json
import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dgvf_agents import DGVFA2C
from dgvf_agents.agents.rollout import bootstrap_positions
from dgvf_agents.bench.training import PAPER, POLICIES
from dgvf_agents.core.types import Rollout
from dgvf_envs.functional.simulation import simulate_rollout
from dgvf_envs.puddle_world import PuddleWorld
from dgvf_envs.sb3_adapter import make_vec
from tests.helpers import WORLD_IDS, example_module, registered_world, run_python
from tests.random_rollouts import random_rollout

jax = pytest.importorskip("jax")

L, QUESTIONS, NORM = 2, 7, 0.002
"""The norm is small enough to clip every meta-gradient here."""
NAMES = {
    "encoder.extractor.encoder.layers.0": "layer1",
    "encoder.extractor.encoder.layers.2": "layer2",
    "encoder.extractor.encoder.layers.5": "layer3",
    "action_net": "policy",
    "value_net": "value",
}
pytestmark = [pytest.mark.usefixtures("double_precision_in_jax"), pytest.mark.slow]  # JAX compiles
each_world = pytest.mark.parametrize("world", WORLD_IDS)


example = example_module("discovery_in_jax")


def _model(world: str) -> DGVFA2C:
    settings: dict[str, Any] = {**PAPER, "auxiliary_task": "discovered", "encoder_mode": "auxiliary"}
    settings |= {"questions": QUESTIONS, "unroll_length": L}
    return DGVFA2C(POLICIES[world], make_vec(world, 4, seed=0), **settings, seed=0, device="cpu", compile=False)


def _in_jax(params: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Our parameters under the names of the example."""
    renamed = {}
    for name, value in params.items():
        layer, _, kind = name.rpartition(".")
        renamed[f"{NAMES.get(layer, layer)}.{kind}"] = jax.numpy.asarray(value.numpy())
    return renamed


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


@each_world
def test_two_iterations_give_the_parameters_and_moments_of_our_learner(world: str) -> None:
    """Unroll, clipped meta-gradient and Adam: θ, RMSProp's moments, η and Adam's moments after 2 L updates."""
    model, rollouts = _model(world), _rollouts(world, 2 * L + 1)
    batches = [example.Batch(*(jax.numpy.asarray(field.numpy()) for field in rollout[:6])) for rollout in rollouts]
    stacked = jax.tree.map(lambda *fields: jax.numpy.stack(fields), *batches)
    rates = {"learning_rate": 0.002, "meta_learning_rate": 0.05, "meta_max_norm": NORM, "meta_skip_norm": math.inf}
    s = example.Settings(**rates, unroll_length=L, questions=QUESTIONS)
    learner = model.learner
    learner.settings = learner.settings.__class__(unroll_length=L, meta_max_grad_norm=NORM, meta_skip_norm=math.inf)

    @jax.jit
    def iterate(inner: Any, eta: Any, adam: Any, k: Any) -> Any:
        def at(number: Any) -> Any:
            return jax.tree.map(lambda field: field[number], stacked)

        def loss(eta: Any) -> Any:
            return example.unroll(s, eta, inner, at(k), lambda theta, number: (at(number), number + 1), k + 1)

        gradient, (inner, _, k) = jax.grad(loss, has_aux=True)(eta)
        return inner, *example.meta_update(s, eta, gradient, adam), k - 1

    theta, eta = _in_jax(learner.theta), _in_jax(learner.eta)
    zeros = {name: 0.0 * value for name, value in eta.items()}
    inner = example.Inner(theta, {name: 0.0 * value for name, value in theta.items()})
    found = iterate(inner, eta, example.Adam(jax.numpy.zeros(()), zeros, zeros), 0)
    inner, eta, adam, k = iterate(*found)
    assert k == 2 * L
    for rollout in rollouts:  # one update more, which makes the second meta-update
        before, moments = learner.theta, learner.statistics["second_moment"]
        learner.step(rollout, 0.002, 0.05)
    assert learner.meta_updates == 2
    assert float(learner.meta_gradient_norm) > NORM
    (state,) = learner.meta_optimizer_state["state"].values()
    first, second = (learner.functions.packed.eta.unpack({"packed": state[key]}) for key in ("exp_avg", "exp_avg_sq"))
    theirs = (inner.theta, inner.moment, eta, adam.first, adam.second)
    for found, ours in zip(theirs, (before, moments, learner.eta, first, second), strict=True):
        expected = _in_jax(ours)
        assert set(found) == set(expected)
        for name, value in expected.items():
            atol = 1e-9 * float(abs(value).max())
            np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=atol, err_msg=name)


@each_world
def test_rollouts_are_those_of_our_environments_and_our_policy(world: str) -> None:
    """From states from which episodes soon end in every way."""
    count, steps, rng = 512, 100, np.random.default_rng(1)
    limit = {"PuddleWorld-v0": 5000, "CollectObjects-v0": 40}[world]
    ours, theirs, model = registered_world(world), example.WORLDS[world](), _model(world)
    if isinstance(ours, PuddleWorld):
        state: Any = ours.state_from(list(rng.uniform(0.6, 1.0, (2, count))))
        elapsed = limit - rng.integers(1, 90, count)
    else:
        cells = rng.integers(len(ours.map.cells), size=count)
        state = ours.state_from([cells, rng.random(count) < 0.5, np.ones(count, bool)])
        elapsed = rng.integers(0, 39, count)
    draws = theirs.step_draws + theirs.reset_draws
    noise, uniforms = rng.random((steps, count)), rng.random((steps, count, draws))

    def act(t: int, observations: Any, step: int) -> Any:
        given, drawn = torch.as_tensor(observations), torch.from_numpy(noise[t])
        return model.learner.functions.packed.act(model.learner.packed_state.theta, given, drawn).actions.numpy()

    fields = [field.astype(np.int32) if field.dtype == np.int64 else field for field in state]
    episodes = example.Episodes(tuple(map(jax.numpy.asarray, fields)), jax.numpy.asarray(elapsed, np.int32))
    ones = []
    for t in range(steps):  # one by one, because a reset that does not happen leaves its draw to the next step
        act_now, start = partial(act, t), np.zeros(count, int)
        ones.append(simulate_rollout(ours, act_now, state, elapsed, uniforms[t], start, 1, limit))
        state, elapsed = type(state)(*(field[0] for field in ones[-1].states)), ones[-1].elapsed_steps[0]
    names = ("actions", "terminated", "truncated", "rewards", "final_observations", "observations", "elapsed_steps")
    expected = SimpleNamespace(**{name: np.concatenate([getattr(one, name) for one in ones]) for name in names})
    theta, draws_of_both = _in_jax(model.learner.theta), np.concatenate([noise[..., None], uniforms], -1)
    batch, last = jax.jit(partial(example.collect, theirs))(theta, episodes, draws_of_both)
    np.testing.assert_array_equal(batch.actions, expected.actions)
    np.testing.assert_array_equal(batch.terminated, expected.terminated)
    np.testing.assert_array_equal(batch.truncated, expected.truncated & ~expected.terminated)
    np.testing.assert_allclose(batch.rewards, expected.rewards, rtol=1e-10)
    np.testing.assert_allclose(batch.next_observations, expected.final_observations, rtol=1e-6)
    np.testing.assert_allclose(batch.observations[1:], expected.observations[:-1], rtol=1e-6)
    np.testing.assert_allclose(theirs.observe(last.state), expected.observations[-1], rtol=1e-6)
    np.testing.assert_array_equal(last.steps, expected.elapsed_steps[-1])
    assert min(batch.terminated.sum(), batch.truncated.sum()) > 10


def test_agents_train_side_by_side_from_the_command_line() -> None:
    options = ["--world", "PuddleWorld-v0", "--agents", "2", "--seconds", "0.01", "--unroll-length", "2"]
    finished = run_python(example.__file__, *options, "--n-envs", "3", "--questions", "4", check=True)
    found = json.loads(finished.stdout)
    assert found["steps"] % (2 * 2 * 5 * 3) == 0
    assert found["steps_per_s"] == pytest.approx(found["steps"] / found["seconds"])
    assert found["mean_reward"] < -1.0
