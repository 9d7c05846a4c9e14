"""Learners in several processes, connected by PyTorch's `torch.distributed`.

`torch.nn.parallel.DistributedDataParallel` averages the gradients of `Tensor.backward`. Here the average is inside of
the update, and the meta-gradient passes through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar, final

import torch
import torch.distributed as dist
from torch import Tensor

from dgvf_agents.core.averaging import Averaging
from dgvf_agents.execution.devices import CPU

Value = TypeVar("Value")


class LearnerGroupError(RuntimeError):
    """The processes of `torch.distributed` are not the learners of a model."""


@final
@dataclass(frozen=True)
class LearnerGroup(Averaging):
    """The processes of the default process group of `torch.distributed`, one learner each.

    Every method is a collective: all learners call it, in the same order. If a learner's process has died, or does not
    come within the time that the process group was initialized with, the others raise a `RuntimeError`.
    """

    learners: int
    """P."""
    device: torch.device = CPU
    """Device of the model."""

    def mean(self, vector: Tensor) -> Tensor:
        return _mean(vector)

    def all(self, condition: bool) -> bool:
        """Whether a condition holds in every learner."""
        holds = torch.full((), int(condition), device=self.device)
        dist.all_reduce(holds, dist.ReduceOp.MIN)
        return bool(holds)

    def from_first(self, value: Value) -> Value:
        """The value of learner 0. Tensors must be on the CPU."""
        return self._from(0, value)

    def of_each(self, value: Value) -> list[Value]:
        """The value of every learner, learner 0 first."""
        return [self._from(learner, value) for learner in range(self.learners)]

    def _from(self, learner: int, value: Value) -> Value:
        values = [value]
        dist.broadcast_object_list(values, learner, device=self.device)
        return values[0]


def rank() -> int:
    """Index of this process in the process group, 0 without one."""
    return dist.get_rank() if _initialized() else 0


def check_group(learners: int) -> None:
    """
    Raises:
        LearnerGroupError: `torch.distributed` does not connect so many processes.
    """
    found = dist.get_world_size() if _initialized() else None
    if found != learners:
        what = "none is initialized" if found is None else f"it has {found}"
        raise LearnerGroupError(
            f"learners = {learners} needs a process group of torch.distributed with {learners} processes, but {what}: "
            "call torch.distributed.init_process_group() in every process first, as in a script started by torchrun, "
            "or pass another number of learners"
        )


def _initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


@torch.library.custom_op("dgvf::mean_over_learners", mutates_args=())
def _mean(vector: Tensor) -> Tensor:
    """The mean over all processes, as one operation for autograd."""
    total = vector.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total / dist.get_world_size()


@_mean.register_fake
def _(vector: Tensor) -> Tensor:
    return torch.empty_like(vector, memory_format=torch.contiguous_format)


def _backward(context: Any, cotangent: Tensor) -> Tensor:
    return _mean(cotangent)


_mean.register_autograd(_backward)
