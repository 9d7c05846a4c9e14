"""Which rollouts were used before."""

from __future__ import annotations

from typing import final

WINDOW = 1024
"""How far behind the newest rollout of an actor another may arrive; older ones count as used."""


@final
class DuplicateFilter:
    """Lets each rollout of the current incarnation of an actor pass once."""

    def __init__(self) -> None:
        self.incarnation = -1
        """The current incarnation."""
        self._seen: set[int] = set()
        self._newest = -1

    def expect(self, incarnation: int) -> None:
        """Let only rollouts of this incarnation pass from now on."""
        self.incarnation, self._seen, self._newest = incarnation, set(), -1

    def passes(self, incarnation: int, sequence: int) -> bool:
        """Whether a rollout is of the current incarnation, and was not asked about before.

        Args:
            incarnation: of the actor that sent it.
            sequence: number of rollouts of that incarnation before.
        """
        if incarnation != self.incarnation or sequence in self._seen or sequence <= self._newest - WINDOW:
            return False
        self._seen.add(sequence)
        self._newest = max(self._newest, sequence)
        if len(self._seen) > 2 * WINDOW:
            self._seen = {one for one in self._seen if one > self._newest - WINDOW}
        return True
