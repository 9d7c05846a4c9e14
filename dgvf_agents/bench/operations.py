"""Matrix products and convolutions of an update: how often, their arithmetic, and their time by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import flop_registry

from dgvf_agents.bench.report import Row


class Operation(NamedTuple):
    """An operation on tensors of certain shapes."""

    name: str
    shapes: tuple[tuple[int, ...], ...]


@final
class OperationCounter(TorchDispatchMode):
    """Counts operations with a known number of floating-point operations, those of matrix products and convolutions.

    PyTorch's `FlopCounterMode` hooks modules, which `torch.func` forbids.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Operation, int] = {}
        """Number of calls."""
        self.flop: dict[Operation, int] = {}
        """Floating-point operations of all calls."""
        self.repeat: dict[Operation, Callable[[], Any]] = {}
        """Repeats the first call with other numbers."""

    @property
    def total(self) -> int:
        """Floating-point operations of all calls of all operations."""
        return sum(self.flop.values())

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        count = flop_registry.get(function.overloadpacket)
        if count is not None:
            shapes = tuple(tuple(value.shape) for value in args if isinstance(value, Tensor))
            operation = Operation(function.overloadpacket.__name__, shapes)
            self.calls[operation] = self.calls.get(operation, 0) + 1
            self.flop[operation] = self.flop.get(operation, 0) + count(*args, **(kwargs or {}), out_val=result)
            self.repeat.setdefault(operation, _repeated(function, args, kwargs or {}))
        return result


def _repeated(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Callable[[], Any]:
    """A call with random tensors of the same shapes and strides, made when it is first called."""
    like = tree_map_only(Tensor, lambda value: value.to("meta"), (args, kwargs))
    made: list[Any] = []

    def call() -> Any:
        if not made:
            made.append(tree_map_only(Tensor, _random, like))
        given, named = made[0]
        return function(*given, **named)

    return call


def _random(like: Tensor) -> Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype).normal_()


def times_alone(counter: OperationCounter, updates: int, seconds: float) -> list[Row]:
    """What the operations of an update take by themselves, the longest first.

    Args:
        counter: has counted the operations of some updates.
        updates: how many.
        seconds: duration of the measurement of each operation.
    """
    rows = []
    for operation, calls in counter.calls.items():
        timer = Timer("call()", globals={"call": counter.repeat[operation]}, num_threads=torch.get_num_threads())
        duration = timer.blocked_autorange(min_run_time=seconds).median
        rows.append(
            {
                "operation": operation.name,
                "shapes": " ".join("×".join(map(str, shape)) for shape in operation.shapes),
                "calls": calls / updates,
                "gflop": 1e-9 * counter.flop[operation] / updates,
                "ms": 1e3 * duration * calls / updates,
            }
        )
    return sorted(rows, key=lambda row: -row["ms"])


def longest_operations(rows: Sequence[Row], least: float = 0.01) -> list[Row]:
    """Those of `times_alone` that take at least a share of the time of all, and the sum of the others."""
    limit = least * sum(row["ms"] for row in rows)
    shown, others = [row for row in rows if row["ms"] >= limit], [row for row in rows if row["ms"] < limit]
    sums = {name: sum(row[name] for row in others) for name in ("calls", "gflop", "ms")}
    return [*shown, {"operation": "others", "shapes": "", **sums}]
