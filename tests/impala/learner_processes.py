"""Processes that are connected by `torch.distributed`, for tests of several learners."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def together(function: Callable[..., Any], folder: Path, *arguments: Any, learners: int = 2) -> list[Any]:
    """What a function returns in each of several processes; it must be importable, its results `torch.save` writes.

    Raises:
        ProcessRaisedException: it raised in one of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    multiprocessing.start_processes(_process, (learners, function, folder, arguments), learners, start_method="spawn")
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(learners)]


def _process(rank: int, learners: int, function: Callable[..., Any], folder: Path, arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", store, timedelta(seconds=60), learners, rank)
    try:
        torch.save(function(*arguments), folder / f"{rank}.pt")
        dist.barrier()
    finally:
        dist.destroy_process_group()
