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
        self._steps: list[SimulatedRollout] = []  # the last one first

    def __bool__(self) -> bool:
        return bool(self._steps)

    def fill(self, rollout: SimulatedRollout) -> list[SimulatedRollout]:
        """Replace the content by a whole rollout.

        Returns:
            its steps, without the time axis.
        """
        steps = rollout.steps()
        self._steps = steps[::-1]
        return steps

    def clear(self) -> None:
        """Drop all remaining steps."""
        self._steps = []

    def pop(self, actions: Any) -> SimulatedRollout | None:
        """Remove and return the next step. If its actions differ: clear, and return `None`."""
        if not self._steps:
            return None
        planned = self._steps[-1].actions
        if actions is not planned and not np.array_equal(actions, planned):
            self.clear()
            return None
        return self._steps.pop()

    def arrays(self) -> list[np.ndarray] | None:
        """Copies of the remaining steps, one array per field, the state's fields included; `None` if empty."""
        if not self._steps:
            return None
        fields = zip(*([step.actions, *step.states, *step[2:]] for step in reversed(self._steps)), strict=True)
        return [np.stack(field) for field in fields]

    def restore(self, arrays: Sequence[np.ndarray] | None, state_type: type) -> None:
        """Restore the result of `arrays`; `state_type` is the class of the environment's state."""
        self.clear()
        if arrays is not None:
            actions, *fields = (np.array(field) for field in arrays)
            end = len(fields) - (len(SimulatedRollout._fields) - 2)  # the other fields follow those of the state
            self.fill(SimulatedRollout(actions, state_type(*fields[:end]), *fields[end:]))
