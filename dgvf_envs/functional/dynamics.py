"""The dynamics of an environment: spaces, and pure functions over a batch of states.

Dynamics are frozen records without hidden state: `reset`, `step` and `observe` take arrays, random draws included, and
return new arrays. They use only operators and functions that NumPy and torch share, so the same code runs on NumPy
arrays (in the Gymnasium environments) and on torch tensors (in compiled rollouts on a device).
"""

from __future__ import annotations

import copy
import importlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np

Array = Any
"""A NumPy array or a torch tensor."""

State = TypeVar("State", bound=tuple)


class Transition(NamedTuple):
    """The outcome of one step in B environments."""

    state: Any
    """The states after the step; every field is `[B]`."""
    reward: Array
    """`[B]` floating point, R_{t+1}."""
    terminated: Array
    """`[B]` boolean: a terminal state was reached. Time limits do not count."""
    success: Array
    """`[B]` boolean: the episode terminated and the task was solved."""


class Dynamics(ABC, Generic[State]):
    """The dynamics of an environment, as pure functions over a batch of B states.

    A state is a `NamedTuple` of arrays whose leading axis is the batch. The caller passes uniform draws from [0, 1):
    `reset_draws` for every reset and `step_draws` for every step.
    """

    xp: ModuleType = np
    """The array namespace: `numpy`, or `torch` after `on(torch)`.

    :meta hide-value:
    """
    constants: Any
    """A `NamedTuple` of the arrays that the functions use, in the namespace `xp`."""
    observation_space: gym.Space
    """The space of one observation."""
    action_space: gym.spaces.Discrete
    """The space of one action."""
    reset_draws: int
    """The number of uniform draws that one reset consumes."""
    step_draws: int
    """The number of uniform draws that one step consumes."""

    @abstractmethod
    def reset(self, uniforms: Array) -> State:
        """Draw initial states.

        Args:
            uniforms: `[B, reset_draws]` in [0, 1).
        """

    @abstractmethod
    def step(self, state: State, action: Array, uniforms: Array) -> Transition:
        """Step every environment.

        Args:
            state: the states; every field is `[B]`.
            action: `[B]` integer.
            uniforms: `[B, step_draws]` in [0, 1).
        """

    @abstractmethod
    def observe(self, state: State) -> Array:
        """The observations of the states, a new array `[B, ...]`."""

    def on(self, xp: ModuleType, *, dtype: Any = None, device: Any = None) -> Dynamics[State]:
        """The same dynamics with the constants in another namespace.

        Args:
            xp: `numpy` or `torch`.
            dtype: the floating-point type of states and rewards; `xp.float32` if `None`.
            device: the torch device of the constants.

        >>> import torch
        >>> dynamics = PuddleWorld().on(torch, device="cuda")  # doctest: +SKIP
        """
        placement = {} if device is None else {"device": device}

        def converted(constant: Array) -> Array:
            if isinstance(constant, tuple):
                return type(constant)(*map(converted, constant))
            array = np.asarray(constant)
            kind = dtype or xp.float32 if array.dtype.kind == "f" else getattr(xp, array.dtype.name)
            return xp.asarray(array, dtype=kind, **placement)

        other = copy.copy(self)
        object.__setattr__(other, "xp", xp)
        object.__setattr__(other, "constants", converted(self.constants))
        return other

    def state_from(self, fields: Sequence[np.ndarray]) -> State:
        """A state made of copies of its fields `[B]`, as NumPy arrays.

        Raises:
            TypeError: they are not the fields of B states of these dynamics.
        """
        example: Any = self.reset(np.zeros((1, self.reset_draws)))
        expected = [((len(fields[0]), *part.shape[1:]), part.dtype) for part in map(np.asarray, example)]
        found = [(np.shape(field), getattr(field, "dtype", None)) for field in fields]
        if found != expected or not all(np.isfinite(field).all() for field in fields):
            raise TypeError(f"state must have finite fields {expected}, got {found}")
        return type(example)(*(np.array(field) for field in fields))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "xp": self.xp.__name__}  # modules cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, xp=importlib.import_module(state["xp"]))


def select(xp: ModuleType, mask: Array, chosen: State, otherwise: State) -> State:
    """The states `chosen` where `mask` is true and `otherwise` elsewhere; the mask and all fields are `[B]`.

    In a compiled rollout, this resets part of a batch.
    """
    return type(otherwise)(*(xp.where(mask, new, old) for new, old in zip(chosen, otherwise, strict=True)))


def with_rows(state: State, rows: Any, values: State) -> State:
    """A NumPy state with other values in some rows. The former one does not change: others may hold it.

    Args:
        state: every field is `[N]`.
        rows: `[K]` integer: the rows.
        values: the new rows; every field is `[K]`.
    """
    whole = type(state)(*(field.copy() for field in state))
    for field, new in zip(whole, values, strict=True):
        field[rows] = new
    return whole
