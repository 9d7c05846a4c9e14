from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgvf_envs.collect_objects import CollectObjects
from dgvf_envs.functional.dynamics import Dynamics
from dgvf_envs.puddle_world import PuddleWorld
from tests.helpers import TINY_MAP

BATCH = 64
WORLDS: dict[str, Dynamics] = {
    "gaussian": PuddleWorld(),
    "gaussian, random start, normal noise": PuddleWorld(start="random", noise_distribution="normal", reward_scale=0.1),
    "capsules": PuddleWorld(puddles="sutton-1996", start="random", stay=False),
    "no puddles": PuddleWorld(puddles="none", goal=(0.5, 0.5), goal_threshold=0.2),
    "planes": CollectObjects(),
    "rgb, remove": CollectObjects(layout=TINY_MAP, observation="rgb", wrong_order="remove"),
    "state, terminate": CollectObjects(layout=TINY_MAP, observation="state", wrong_order="terminate"),
}
each_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())


def random_states(world: Dynamics, rng: np.random.Generator) -> Any:
    """Any states of the world, also ones that play does not reach."""
    if isinstance(world, CollectObjects):
        states = world.states()
        rows = rng.integers(len(states.agent), size=BATCH)
        return type(states)(*(field[rows] for field in states))
    return type(world.reset(np.zeros((1, 2))))(*rng.random((2, BATCH)))


def random_step(world: Dynamics, rng: np.random.Generator) -> tuple[Any, np.ndarray, np.ndarray]:
    """The arguments of `step`."""
    actions = rng.integers(int(world.action_space.n), size=BATCH)
    return random_states(world, rng), actions, rng.random((BATCH, world.step_draws))


def to_torch(arrays: Any) -> Any:
    return type(arrays)(*map(torch.from_numpy, arrays))


def assert_close(actual: Any, expected: Any) -> None:
    """Tensors equal arrays: integers and booleans exactly, floating point to 1e-12."""
    for one, other in zip(actual, expected, strict=True):
        if isinstance(other, tuple):
            assert_close(one, other)
        else:
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-12, atol=1e-12)


@each_world
@given(seed=st.integers(0, 2**32 - 1))
def test_torch_and_numpy_agree(world: Dynamics, seed: int) -> None:
    rng = np.random.default_rng(seed)
    states, actions, uniforms = random_step(world, rng)
    starts = rng.random((BATCH, world.reset_draws))
    twin = world.on(torch, dtype=torch.float64)
    after = world.step(states, actions, uniforms)
    assert_close(twin.step(to_torch(states), torch.from_numpy(actions), torch.from_numpy(uniforms)), after)
    assert_close(twin.reset(torch.from_numpy(starts)), world.reset(starts))
    on_torch, on_numpy = twin.observe(to_torch(after.state)), world.observe(after.state)
    np.testing.assert_array_equal(on_torch.numpy(), on_numpy)
    assert str(on_torch.dtype) == f"torch.{on_numpy.dtype}"


@each_world
def test_functions_leave_their_arguments_alone(world: Dynamics) -> None:
    rng = np.random.default_rng(0)
    states, actions, uniforms = random_step(world, rng)
    before = copy.deepcopy((states, actions, uniforms))
    after = world.step(states, actions, uniforms)
    observations = world.observe(states)
    observations[...] = 0
    for field in (*after.state, after.reward, after.terminated):
        field[...] = 0
    np.testing.assert_equal((states, actions, uniforms), before)
    assert world.observe(states).any()  # the cleared ones were the caller's own


@each_world
def test_everything_stays_on_the_chosen_device(world: Dynamics) -> None:
    """The meta device computes nothing, and refuses tensors that were left on the processor."""
    twin = world.on(torch, device="meta")
    state = twin.reset(torch.empty(BATCH, world.reset_draws, device="meta"))
    action = torch.empty(BATCH, dtype=torch.long, device="meta")
    after = twin.step(state, action, torch.empty(BATCH, world.step_draws, device="meta"))
    results = (*after.state, after.reward, after.terminated, after.success, twin.observe(after.state))
    assert {tensor.device.type for tensor in results} == {"meta"}
    assert {len(tensor) for tensor in results} == {BATCH}
    assert after.reward.dtype == torch.float32
    assert (world.xp, type(world.constants[0])) == (np, np.ndarray)  # the copy left it alone
