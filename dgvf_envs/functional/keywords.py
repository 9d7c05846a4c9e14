"""Helpful errors for misspelled keyword arguments."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

Init = TypeVar("Init", bound=Callable[..., None])


def checked_keywords(init: Init) -> Init:
    """Decorate an `__init__` so that an unknown keyword argument is reported with the valid ones.

    Python's own message names only the unknown argument, which is little help in `gymnasium.make(id, **kwargs)`, where
    the signature is out of sight.

    Raises:
        TypeError: (when the decorated function is called) a keyword argument is unknown.
    """
    allowed = [name for name in inspect.signature(init).parameters if name != "self"]

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for name, value in kwargs.items():
            if name not in allowed:
                nearest = difflib.get_close_matches(name, allowed, n=1)
                hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
                raise TypeError(
                    f"{type(self).__name__} got an unexpected keyword argument {name}={value!r}{hint} "
                    f"Valid arguments are: {', '.join(allowed)}"
                )
        init(self, *args, **kwargs)

    return cast(Init, checked)
