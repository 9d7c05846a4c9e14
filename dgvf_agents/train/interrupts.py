"""Graceful Ctrl-C: training finishes the update and writes a checkpoint."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import final


@final
class TrainingInterruptedError(KeyboardInterrupt):
    """Ctrl-C stopped training; a checkpoint was written."""

    def __init__(self, run: Path) -> None:
        super().__init__(f"training in {run} was interrupted; a checkpoint was written")
        self.run = run
        """The run folder."""


@final
@dataclass
class StopRequest:
    """Whether training should stop."""

    asked: bool = False


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Turn the first Ctrl-C into a request to stop; the second one interrupts as usual.

    Only the main thread receives signals. A process that ignores Ctrl-C still does.
    """
    request = StopRequest()
    usual = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not usual:
        yield request
        return

    def ask(number: int, frame: FrameType | None) -> None:
        request.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(2, b"\nfinishing the update and writing a checkpoint; Ctrl-C again stops at once\n")

    signal.signal(signal.SIGINT, ask)
    try:
        yield request
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
