"""Trees of tensors, such as arguments and results of updates, as flat lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NamedTuple

from torch import Tensor


class Index(NamedTuple):
    """Stands for a tensor in a template."""

    position: int
    """In the list of tensors."""


def flatten(tree: Any) -> list[Tensor]:
    """The tensors of nested tuples, lists and dicts, in their order. PyTorch's `tree_flatten` takes three times longer.

    Raises:
        TypeError: the tree has another leaf than a tensor or `None`.
    """
    leaves: list[Tensor] = []
    _collect(tree, leaves)
    return leaves


def _collect(tree: Any, leaves: list[Tensor]) -> None:
    if isinstance(tree, Tensor):
        leaves.append(tree)
    elif isinstance(tree, dict):
        for part in tree.values():
            _collect(part, leaves)
    elif isinstance(tree, tuple | list):
        for part in tree:
            _collect(part, leaves)
    elif tree is not None:
        raise TypeError(f"a tree must consist of tensors in tuples, lists and dicts, got a {type(tree).__name__}")


def template(tree: Any) -> Any:
    """The tree with an `Index` for every tensor."""
    return _numbered(tree, count())


def _numbered(tree: Any, numbers: Any) -> Any:
    if isinstance(tree, Tensor):
        return Index(next(numbers))
    if isinstance(tree, dict):
        return {key: _numbered(part, numbers) for key, part in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [_numbered(part, numbers) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return None


def size(template: Any) -> int:
    """Number of tensors that a template stands for."""
    if isinstance(template, Index):
        return 1
    parts = template.values() if isinstance(template, dict) else template if isinstance(template, tuple | list) else ()
    return sum(map(size, parts))


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """The tree with a function applied to every tensor."""
    return builder(template(tree))([function(value) for value in flatten(tree)])


def check_layout(wanted: str, tree: Any, like: Any) -> None:
    """Check that a tree has its tensors where another one has them, with the same shapes and data types.

    Args:
        wanted: what the error says, as "gradient must be like eta".
        tree: to check.
        like: the other one.

    Raises:
        TypeError: see `flatten`.
        ValueError: it has not.
    """
    flatten(tree)
    expected, found = dict(_layout(like, "")), dict(_layout(tree, ""))
    if list(expected.items()) != list(found.items()):
        raise ValueError(f"{wanted}, {expected}, got {found}")


def _layout(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Tensor):
        yield path, (tuple(tree.shape), tree.dtype)
        return
    names: Any = [f"[{key!r}]" for key in (tree if isinstance(tree, dict) else range(len(tree or ())))]
    if hasattr(tree, "_fields"):
        names = [f".{name}" for name in tree._fields]
    for name, part in zip(names, tree.values() if isinstance(tree, dict) else tree or (), strict=True):
        yield from _layout(part, path + name)


def builder(template: Any) -> Callable[[list[Tensor]], Any]:
    """The function from a list of tensors to a tree like the template."""
    if isinstance(template, Index):
        position = template.position
        return lambda leaves: leaves[position]
    if isinstance(template, dict):
        by_name = {key: builder(part) for key, part in template.items()}
        return lambda leaves: {key: build(leaves) for key, build in by_name.items()}
    if isinstance(template, tuple | list):
        parts = [builder(part) for part in template]
        kind: Any = type(template)
        if hasattr(kind, "_fields"):
            if template and all(isinstance(part, Index) for part in template):
                start = template[0].position  # consecutive positions, as `template` gives them
                return lambda leaves: kind._make(leaves[start : start + len(parts)])
            return lambda leaves: kind(*[build(leaves) for build in parts])
        return lambda leaves: kind([build(leaves) for build in parts])
    return lambda leaves: None
