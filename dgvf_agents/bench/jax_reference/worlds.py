"""PuddleWorld-v0 and CollectObjects-v0 as pure JAX functions over a batch of B environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, final

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from dgvf_envs.collect_objects import CollectObjects

State = tuple[Array, ...]


class Episodes(NamedTuple):
    """B episodes in progress."""

    state: State
    """Every field is `[B]`."""
    steps: Int[Array, " B"]
    """Steps so far."""


class Outcome(NamedTuple):
    """One step of B environments, with the field names of `Rollout`."""

    rewards: Float[Array, " B"]
    terminated: Bool[Array, " B"]
    truncated: Bool[Array, " B"]
    next_observations: Float[Array, " B *obs"]


class World(ABC):
    """An environment with autoreset: the observation after the end of an episode is the first one of the next."""

    step_draws: int
    """Uniform draws per step."""
    draws: int
    """Uniform draws per step and reset."""
    limit: int
    """The time limit in steps."""

    @abstractmethod
    def reset(self, uniforms: Float[Array, "B n"]) -> State:
        """Initial states."""

    @abstractmethod
    def transition(
        self, state: State, actions: Int[Array, " B"], uniforms: Float[Array, "B m"]
    ) -> tuple[State, Float[Array, " B"], Bool[Array, " B"]]:
        """The next states, rewards, and whether they are terminal."""

    @abstractmethod
    def observe(self, state: State) -> Float[Array, " B *obs"]:
        """The observations of states."""

    def start(self, uniforms: Float[Array, "B draws"]) -> Episodes:
        """New episodes."""
        state = self.reset(uniforms[:, self.step_draws :])
        return Episodes(state, jnp.zeros(len(uniforms), jnp.int32))

    def step(
        self, episodes: Episodes, actions: Int[Array, " B"], uniforms: Float[Array, "B draws"]
    ) -> tuple[Episodes, Outcome]:
        """Step every environment, and start a new episode where one ends."""
        state, rewards, terminated = self.transition(episodes.state, actions, uniforms[:, : self.step_draws])
        steps = episodes.steps + 1
        ended = terminated | (steps >= self.limit)
        outcome = Outcome(rewards, terminated, ended & ~terminated, self.observe(state))
        new = self.reset(uniforms[:, self.step_draws :])
        state = tuple(jnp.where(ended, *fields) for fields in zip(new, state, strict=True))
        return Episodes(state, jnp.where(ended, 0, steps)), outcome


@final
class PuddleWorld(World):
    """PuddleWorld-v0; the state is a point (x, y)."""

    step_draws, draws, limit = 2, 2, 5000

    def reset(self, uniforms: Float[Array, "B n"]) -> State:
        return jnp.full(len(uniforms), 0.2), jnp.full(len(uniforms), 0.4)

    def transition(
        self, state: State, actions: Int[Array, " B"], uniforms: Float[Array, "B m"]
    ) -> tuple[State, Float[Array, " B"], Bool[Array, " B"]]:
        moves = 0.05 * jnp.array([[-1.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0, 0.0]])
        x, y = (
            jnp.clip(place + moves[axis][actions] + 0.05 * (uniforms[:, axis] - 0.5), 0.0, 1.0)
            for axis, place in enumerate(state)
        )
        return (x, y), self._reward(x, y), abs(1.0 - x) + abs(1.0 - y) < 0.1

    def observe(self, state: State) -> Float[Array, "B 2"]:
        return jnp.stack(state, -1)

    def _reward(self, x: Float[Array, " B"], y: Float[Array, " B"]) -> Float[Array, " B"]:
        """-1 minus twice a sum of normal densities."""
        mean_x, mean_y = jnp.array([[0.3], [0.4], [0.8]]), jnp.array([[0.6], [0.5], [0.9]])
        std_x, std_y = jnp.array([[0.1], [0.03], [0.03]]), jnp.array([[0.03], [0.1], [0.1]])
        exponent = 0.5 * (((x - mean_x) / std_x) ** 2 + ((y - mean_y) / std_y) ** 2)
        return -1.0 - (jnp.exp(-exponent) / (jnp.pi * std_x * std_y)).sum(0)


@final
class FourRooms(World):
    """CollectObjects-v0; the state is the agent's cell, and whether the first and the second object are present.

    Maps and observations are tables of `dgvf_envs`.
    """

    step_draws, draws, limit = 0, 1, 40

    def __init__(self) -> None:
        world = CollectObjects()
        self._first, self._second = world.first_cell, world.second_cell
        self._next_cell, self._starts = (np.asarray(t, np.int32) for t in world.constants[:2])
        self._observations = world.constants.observations

    def reset(self, uniforms: Float[Array, "B n"]) -> State:
        starts = jnp.asarray(self._starts)
        agent = starts[(uniforms[:, 0] * len(starts)).astype(jnp.int32)]
        return agent, agent >= 0, agent >= 0

    def transition(
        self, state: State, actions: Int[Array, " B"], uniforms: Float[Array, "B m"]
    ) -> tuple[State, Float[Array, " B"], Bool[Array, " B"]]:
        agent, first, second = state
        agent = jnp.asarray(self._next_cell)[agent * 4 + actions]
        at_first = (agent == self._first) & first
        solved = (agent == self._second) & second & ~first
        return (agent, first & ~at_first, second & ~solved), 1.0 * at_first + 2.0 * solved, solved

    def observe(self, state: State) -> Float[Array, "B 3 rows columns"]:
        agent, first, second = state
        return jnp.asarray(self._observations)[agent * 4 + first * 2 + second].astype(float)


WORLDS: dict[str, type[World]] = {"PuddleWorld-v0": PuddleWorld, "CollectObjects-v0": FourRooms}
"""By id."""
