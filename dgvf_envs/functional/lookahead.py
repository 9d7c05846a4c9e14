"""The lookahead cache: simulated steps that the environment has not returned yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from dgvf_envs.functional.simulation import SimulatedRollout


@final
class LookaheadCache:
    """The remaining steps of a simulated rollout, as NumPy arrays."""

    def __init__(self) -> None:
        """Start empty."""
        self._rollout: SimulatedRollout | None = None
        self._t = 0

    def __bool__(self) -> bool:
        return self._rollout is not None

    def fill(self, rollout: SimulatedRollout) -> None:
        """Replace the content by a whole rollout."""
        self._rollout, self._t = rollout, 0

    def clear(self) -> None:
        """Drop all remaining steps."""
        self._rollout = None

    def pop(self, actions: Any) -> SimulatedRollout | None:
        """Remove and return the next step, without the time axis. If its actions differ: clear, and return `None`."""
        rollout, t = self._rollout, self._t
        if rollout is None or not np.array_equal(actions, rollout.actions[t]):
            self.clear()
            return None
        self._t += 1
        if self._t == len(rollout.actions):
            self.clear()
        state = type(rollout.states)(*(field[t] for field in rollout.states))
        return SimulatedRollout(rollout.actions[t], state, *(field[t] for field in rollout[2:]))

    def arrays(self) -> list[np.ndarray] | None:
        """Copies of the remaining steps, one array per field, the state's fields included; `None` if empty."""
        if self._rollout is None:
            return None
        fields = [self._rollout.actions, *self._rollout.states, *self._rollout[2:]]
        return [field[self._t :].copy() for field in fields]

    def restore(self, arrays: Sequence[np.ndarray] | None, state_type: type) -> None:
        """Restore the result of `arrays`; `state_type` is the class of the environment's state."""
        self.clear()
        if arrays is not None:
            actions, *fields = (np.array(field) for field in arrays)
            end = len(fields) - (len(SimulatedRollout._fields) - 2)  # the other fields follow those of the state
            self.fill(SimulatedRollout(actions, state_type(*fields[:end]), *fields[end:]))
