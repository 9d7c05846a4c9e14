"""What a world is: spaces, and pure functions over a batch of states.

Everything here is free of hidden state. A world is a frozen record of constants; its `reset`, `step` and `observe` take
arrays and return new ones, with the randomness passed in. They are written with operators and the names that NumPy and
torch share, so that the same lines run on NumPy arrays (the Gymnasium shells) and on tensors (a compiled rollout on a
device).
"""

from __future__ import annotations

import copy
import importlib
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np

Array = Any
"""A NumPy array or a torch tensor."""

State = TypeVar("State", bound=tuple)


class Transition(NamedTuple):
    """What one step of a batch of B worlds yields."""

    state: Any
    """The states after the step; every field `[B]`."""
    reward: Array
    """`[B]` floating point, R_{t+1}."""
    terminated: Array
    """`[B]` boolean: the episode ended by the world's own rules (never by a time limit)."""
    success: Array
    """`[B]` boolean: it ended and the task was solved."""


class Dynamics(ABC, Generic[State]):
    """A world as pure functions over a batch of B states.

    A state is a `NamedTuple` of arrays, each with the batch as leading axis. Uniform random numbers in [0, 1) come in
    as arrays: `reset_draws` of them for every reset and `step_draws` for every step, so whoever calls decides where
    they come from.
    """

    xp: ModuleType = np
    """The namespace of the arrays: `numpy`, or `torch` after `on(torch)`."""
    constants: Any
    """A `NamedTuple` of the arrays that the functions need, in the namespace `xp`."""
    observation_space: gym.Space
    """The space of one observation."""
    action_space: gym.spaces.Discrete
    """The space of one action."""
    reset_draws: int
    """How many uniform numbers one reset consumes."""
    step_draws: int
    """How many uniform numbers one step consumes."""

    @abstractmethod
    def reset(self, uniforms: Array) -> State:
        """Draw starting states.

        Args:
            uniforms: `[B, reset_draws]` in [0, 1).
        """

    @abstractmethod
    def step(self, state: State, action: Array, uniforms: Array) -> Transition:
        """Advance every world by one step.

        Args:
            state: fields `[B]`.
            action: `[B]` integer.
            uniforms: `[B, step_draws]` in [0, 1).
        """

    @abstractmethod
    def observe(self, state: State) -> Array:
        """The observations of the states, `[B, ...]`, newly allocated."""

    def on(self, xp: ModuleType, *, dtype: Any = None, device: Any = None) -> Dynamics[State]:
        """The same world with its constants in another namespace.

        Args:
            xp: `numpy` or `torch`.
            dtype: the floating-point type of positions and rewards; `xp.float32` when left out.
            device: for torch, where the constants live.

        >>> import torch
        >>> world = PuddleWorld().on(torch, device="cuda")  # doctest: +SKIP
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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "xp": self.xp.__name__}  # modules are not pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, xp=importlib.import_module(state["xp"]))


def select(xp: ModuleType, mask: Array, chosen: State, otherwise: State) -> State:
    """The states `chosen` where `mask` is true and `otherwise` elsewhere; all fields `[B]`, `mask` `[B]`.

    The pure way to reset some copies of a batch inside a compiled rollout.
    """
    return type(otherwise)(*(xp.where(mask, new, old) for new, old in zip(chosen, otherwise, strict=True)))
