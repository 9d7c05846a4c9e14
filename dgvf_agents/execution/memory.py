"""Keep freed memory in the process."""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGEST = 1 << 30


@cache
def keep_freed_memory() -> None:
    """Let the C library reuse freed memory instead of returning it to the operating system; does nothing on others.

    By default, glibc maps and unmaps the memory of large tensors, so every update of a wide network asks for its pages
    anew.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return
    for parameter in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
        mallopt(parameter, _LARGEST)
