"""The whole discovery loop as one compiled function, for one agent or a population."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.bench.jax_reference.learning import (
    Adam,
    Batch,
    Inner,
    Params,
    Settings,
    act,
    meta_update,
    unroll,
)
from dgvf_agents.bench.jax_reference.worlds import WORLDS, Episodes, World


class Agent(NamedTuple):
    """All that training changes, between two unrolls."""

    inner: Inner
    eta: Params
    adam: Adam
    batch: Batch
    """The first one of the next unroll."""
    episodes: Episodes
    key: Array


def collect(
    world: World, theta: Params, episodes: Episodes, noise: Float[Array, "T B"], uniforms: Float[Array, "T B draws"]
) -> tuple[Batch, Episodes]:
    """T steps under θ.

    Args:
        world: the environment.
        theta: θ.
        episodes: before the first step.
        noise: of the policy.
        uniforms: of the environments.
    """

    def step(episodes: Episodes, draws: tuple[Array, Array]) -> tuple[Episodes, Batch]:
        observations = world.observe(episodes.state)
        actions = act(theta, observations, draws[0])
        episodes, outcome = world.step(episodes, actions, draws[1])
        return episodes, Batch(observations, actions, *outcome)

    episodes, batch = jax.lax.scan(step, episodes, (noise, uniforms))
    return batch, episodes


def started(s: Settings, world: World, num_envs: int, theta: Params, eta: Params, key: Array) -> Agent:
    """An agent before its first unroll."""
    zeros = partial(jax.tree.map, jnp.zeros_like)
    key, drawn = jax.random.split(key)
    episodes = world.start(jax.random.uniform(drawn, (num_envs, world.draws)))
    batch, (episodes, key) = _collected(s, world, theta, (episodes, key))
    return Agent(Inner(theta, zeros(theta)), eta, Adam(jnp.zeros(()), zeros(eta), zeros(eta)), batch, episodes, key)


def _collected(
    s: Settings, world: World, theta: Params, experience: tuple[Episodes, Array]
) -> tuple[Batch, tuple[Episodes, Array]]:
    episodes, key = experience
    key, drawn = jax.random.split(key)
    uniforms = jax.random.uniform(drawn, (s.n_steps, len(episodes.steps), 1 + world.draws))
    batch, episodes = collect(world, theta, episodes, uniforms[..., 0], uniforms[..., 1:])
    return batch, (episodes, key)


def iteration(s: Settings, world: World, agent: Agent) -> Agent:
    """L inner updates with their rollouts, and a meta-update."""

    def loss(eta: Params) -> tuple[Array, tuple[Inner, Batch, Any]]:
        return unroll(s, eta, agent.inner, agent.batch, partial(_collected, s, world), (agent.episodes, agent.key))

    gradient, (inner, batch, (episodes, key)) = jax.grad(loss, has_aux=True)(agent.eta)
    return Agent(inner, *meta_update(s, agent.eta, gradient, agent.adam), batch, episodes, key)


@final
class JaxLoop:
    """Trains agents that start with the parameters of given models."""

    def __init__(self, world: str, models: Sequence[DiscoveryAlgorithm]) -> None:
        """
        Args:
            world: id of their environment.
            models: P models, which differ in parameters only.
        """
        s, made, num_envs = Settings.of(models[0]), WORLDS[world](), models[0].n_envs
        self._steps = len(models) * s.unroll_length * s.n_steps * num_envs
        theta, eta = (
            {name: jnp.stack([jnp.asarray(params[name].numpy(force=True)) for params in each]) for name in each[0]}
            for each in zip(*((model.learner.theta, model.learner.eta) for model in models), strict=True)
        )
        keys = jax.random.split(jax.random.PRNGKey(0), len(models))
        self.agents: Agent = jax.jit(jax.vmap(partial(started, s, made, num_envs)))(theta, eta, keys)
        """Every field has a leading axis of agents."""
        self._iterate = jax.jit(jax.vmap(partial(iteration, s, made)))
        self.run(2)

    def run(self, iterations: int) -> None:
        """Train for a number of meta-updates, and wait."""
        for _ in range(iterations):
            self.agents = self._iterate(self.agents)
        jax.block_until_ready(self.agents)

    def rate(self, seconds: float) -> float:
        """Environment steps per second of all agents together, over whole iterations."""
        iterations, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds or iterations == 0:
            self.run(1)
            iterations += 1
        return iterations * self._steps / elapsed
