"""Checks of arguments: helpful errors for misspelled keywords, and what every vector environment takes."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, TypeVar, cast

import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded

Init = TypeVar("Init", bound=Callable[..., None])


def arguments_of(world: type) -> Callable[[Init], Init]:
    """Decorate an `__init__(..., **world)` with the keyword arguments of a world; unknown ones are reported with them.

    Python's own message names only the unknown argument, which is little help in `gymnasium.make(id, **kwargs)`, where
    the signature is out of sight.

    Raises:
        TypeError: (when the decorated function is called) a keyword argument is unknown.
    """
    fields = [field.replace(kind=field.KEYWORD_ONLY) for field in inspect.signature(world).parameters.values()]

    def decorate(init: Init) -> Init:
        *own, _ = inspect.signature(init).parameters.values()  # the last one is `**world`
        signature = inspect.Signature(sorted([*fields, *own], key=lambda parameter: parameter.kind))
        allowed = [name for name in signature.parameters if name != "self"]

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

        checked.__signature__ = signature  # type: ignore[attr-defined]
        return cast(Init, checked)

    return decorate


def check_count(name: str, value: Any) -> None:
    """Check a number of environments, of steps or the like.

    Raises:
        ValueError: it is not an integer of Python or NumPy ≥ 1.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and value >= 1):
        raise ValueError(f"{name} must be {'' if whole else 'an integer '}>= 1, got {value!r}")


def checked_actions(actions: Any, num_envs: int, num_actions: int) -> np.ndarray:
    """The actions as `[N]` int64.

    Raises:
        InvalidAction: the actions have the wrong shape or type, or one is out of range.
    """
    actions = np.asarray(actions)
    if actions.shape != (num_envs,) or actions.dtype.kind not in "iu":
        raise InvalidAction(
            f"actions must be an integer array of shape ({num_envs},), got {actions.dtype} of shape {actions.shape}"
        )
    if actions.min() < 0 or actions.max() >= num_actions:
        wrong = int(np.flatnonzero((actions < 0) | (actions >= num_actions))[0])
        raise InvalidAction(f"actions must lie in [0, {num_actions - 1}], got {actions[wrong]} for environment {wrong}")
    return actions.astype(np.int64, copy=False)  # mixing uint64 with int64 would give floating point


def checked_reset_mask(options: dict[str, Any] | None, num_envs: int, was_reset: bool) -> np.ndarray:
    """`options["reset_mask"]` as `[N]` boolean; all true if it is missing.

    Raises:
        TypeError: the mask is not a boolean array.
        ValueError: the mask has the wrong shape or is all false.
        ResetNeeded: the mask is partial and there was no full reset before.
    """
    mask = (options or {}).get("reset_mask")
    if mask is None:
        return np.ones(num_envs, dtype=np.bool_)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(f"options['reset_mask'] must be a boolean array, got {mask!r}")
    if mask.shape != (num_envs,) or not mask.any():
        raise ValueError(f"options['reset_mask'] must have shape ({num_envs},) and a True entry, got {mask!r}")
    if not was_reset and not mask.all():
        raise ResetNeeded("a partial reset was requested before any full reset(): call reset() first")
    return mask


def checked_seeds(seed: int | Sequence[int | None] | None, num_envs: int) -> list[int | None]:
    """One seed per environment: consecutive ones if `seed` is an integer; `None` where there is none.

    Raises:
        ValueError: these are no seeds, or not N.
    """
    if seed is None:
        return [None] * num_envs
    seeds: Any = [int(seed) + i for i in range(num_envs)] if isinstance(seed, Integral) else seed
    whole = isinstance(seeds, Sequence | np.ndarray) and all(one is None or isinstance(one, Integral) for one in seeds)
    if not whole or len(seeds) != num_envs:
        raise ValueError(f"seed must be None, an integer or {num_envs} integers, got {seed!r}")
    return [None if one is None else int(one) for one in seeds]
