"""How processes of `dgvf` end: their exit statuses, and errors in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from rich.console import Console

INTERRUPTED = 130
"""After Ctrl-C, as shells have it."""
PIPE_CLOSED = 141
"""If nobody reads the output any longer, as in shells."""


def exit_on_error(command: Callable[[], None]) -> None:
    """Run a command; bad input or divergence ends the process with one line and status 2."""
    try:
        try:
            command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # what read the output, as `head` does, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for Python's own flush at exit
        sys.exit(PIPE_CLOSED)
    except Exception as error:
        from gymnasium.error import Error

        if not isinstance(error, ValueError | OSError | Error | FloatingPointError):
            raise
        Console(stderr=True).print(f"dgvf: {error}", markup=False)
        sys.exit(2)
