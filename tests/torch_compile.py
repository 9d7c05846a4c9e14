"""Compares our compilation with `torch.compile` on the graphs of PuddleWorld's update; a script, run in turns.

python -m tests.torch_compile ARTIFACTS

Prints seconds of the first call, milliseconds of a call with its pull-back, and the largest difference of results. If
the file ARTIFACTS exists, `torch.compiler.load_cache_artifacts` reads it first; otherwise it is written at the end.
`TORCHINDUCTOR_CACHE_DIR` must be an empty folder, since `torch.compile` keeps what it compiled there.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgvf_agents.core.flat import flatten
from dgvf_agents.core.vjp import first_result
from dgvf_agents.execution.compiling import Compiled
from dgvf_agents.execution.trace import Passes, trace
from dgvf_agents.train.config import preset
from dgvf_agents.train.train import train

CALLS, PAIRS = 300, 9


def update_and_arguments() -> tuple[Compiled[Any], tuple[Any, ...]]:
    """The compiled update of a short run, and the arguments of its first call."""
    calls, vjp = [], Compiled.vjp

    def record(function: Compiled[Any], *arguments: Any) -> Any:
        calls.append((function, (*arguments, *function._last)))
        return vjp(function, *arguments)

    Compiled.vjp = record  # type: ignore[method-assign]
    config = dataclasses.replace(preset("puddle-world", "discovered"), steps=2_000, compile=True)
    train(config, Path(tempfile.mkdtemp()) / "run", show_progress=False)
    return calls[0]


def main(artifacts: Path) -> None:
    """Compare, and print."""
    update, arguments = update_and_arguments()
    leaves, leading = flatten(arguments), len(flatten(arguments[: update._differentiable]))
    ours = next(iter(update._compiled.values()))
    graphs = trace(update._function, arguments, update._differentiable)
    if artifacts.is_file():
        torch.compiler.load_cache_artifacts(artifacts.read_bytes())
    forward, backward = (
        torch.compile(graph, fullgraph=True, options={"pattern_matcher": False})
        for graph in (graphs.forward, graphs.backward)
    )
    theirs = Passes(
        lambda given: list(forward(*given)), lambda given: list(backward(*given)), graphs.interface, graphs.result
    )

    def call(passes: Passes) -> list[Tensor]:
        with torch.no_grad():
            result, pull_back = passes.vjp(leaves)
            cotangents = [torch.ones_like(output) for output in first_result(result)]
            products = pull_back(cotangents, [torch.zeros_like(leaf) for leaf in leaves[:leading]])
        return [*flatten(result), *(product for product in products if product is not None)]

    def milliseconds(passes: Passes) -> float:
        start = time.perf_counter()
        for _ in range(CALLS):
            call(passes)
        return (time.perf_counter() - start) / CALLS * 1e3

    start = time.perf_counter()
    found = call(theirs)
    print(f"first call {time.perf_counter() - start:.1f} s")
    pairs = zip(found, call(ours), strict=True)
    print(f"largest difference {max(float((one - other).abs().max()) for one, other in pairs):.1e}")
    medians = map(
        statistics.median, zip(*((milliseconds(ours), milliseconds(theirs)) for _ in range(PAIRS)), strict=True)
    )
    print("ours {:.2f} ms, torch.compile {:.2f} ms".format(*medians))
    if not artifacts.is_file() and (saved := torch.compiler.save_cache_artifacts()):
        artifacts.write_bytes(saved[0])
        print(f"{len(saved[0]):,} bytes of artifacts")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
