"""How long the parts of a program take, measured from outside."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, final

import torch

from dgvf_agents.execution.devices import CPU


@final
class Stopwatch:
    """Seconds spent in methods, by the part that each belongs to; what one takes is not counted in those around it.

    It waits for the device before it looks at the clock, so that work counts where it is asked for.
    """

    def __init__(self, device: torch.device = CPU) -> None:
        self._device = device
        self.seconds: dict[str, float] = defaultdict(float)
        """By part."""
        self._open: list[str] = []
        self._since = 0.0

    def around(self, owner: Any, method: str, part: str) -> None:
        """Count what `owner.method` takes towards `part` from now on."""
        function = getattr(owner, method)

        def timed(*arguments: Any, **keywords: Any) -> Any:
            self._turn()
            self._open.append(part)
            try:
                return function(*arguments, **keywords)
            finally:
                self._turn()
                self._open.pop()

        setattr(owner, method, timed)

    def _turn(self) -> None:
        """Give the time since the last turn to the innermost part."""
        wait_for(self._device)
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


def wait_for(device: torch.device) -> None:
    """Until the device has done all that it was asked to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
