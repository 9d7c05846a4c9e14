"""What a picture shows of an episode."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, final

from dgvf_envs.functional.dynamics import State


@final
@dataclass(frozen=True)
class EpisodeSnapshot(Generic[State]):
    """One environment at one time step."""

    state: State
    """The current state; every field is a scalar."""
    step: int
    """Steps since the episode began."""
    episode_return: float
    """Undiscounted sum of the rewards so far."""
    reward: float | None
    """The last reward; `None` before the first step."""
    trail: tuple[State, ...]
    """The states visited in this episode, oldest first; the current state is last."""

    @classmethod
    def at_start(cls, states: State, row: int) -> EpisodeSnapshot[State]:
        """The snapshot of row `row` of a batch of states at the start of an episode."""
        state = _row(states, row)
        return cls(state, 0, 0.0, None, (state,))

    def after_step(self, states: State, row: int, reward: float, max_trail: int = 400) -> EpisodeSnapshot[State]:
        """The snapshot one step later; the trail keeps the last `max_trail` states."""
        state = _row(states, row)
        trail = (*self.trail[-max_trail + 1 :], state)
        return EpisodeSnapshot(state, self.step + 1, self.episode_return + reward, reward, trail)


def _row(states: State, row: int) -> State:
    return type(states)(*(values[row].item() for values in states))
