"""The engine beside TorchOpt: one meta-gradient, its time and its memory (`pip install torchopt`).

    python -m examples.engine.torchopt_comparison --output comparison.csv

A network learns a regression with Adam; η weighs the examples of its loss by a network of its own. The outer loss is
the error of the last parameters on other data. Every case runs in a process of its own, on one thread.
"""

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import tyro
from torch import Tensor

from dgvf_agents.bench.harness import Peak
from dgvf_agents.engine import Adam, OptimizerState, meta_gradient

Params = dict[str, Tensor]
RATE, EPSILON, WIDTH, BATCH = 1e-3, 1e-4, 256, 128
CASES = ("torchopt", "engine", "engine recompute", "torchopt compiled", "engine compiled")


@dataclass(frozen=True)
class Settings:
    output: Path | None = None  # CSV
    unroll_lengths: tuple[int, ...] = (5, 50)
    cases: tuple[str, ...] = CASES
    repetitions: int = 5
    run: str | None = None  # one case, in this process


class State(NamedTuple):
    theta: Params
    statistics: OptimizerState


def layers(*widths: int) -> Params:
    return {f"w{i}": torch.randn(n, m) / n**0.5 for i, (n, m) in enumerate(pairwise(widths))}


def network(params: Params, x: Tensor) -> Tensor:
    *hidden, last = params.values()
    for weight in hidden:
        x = torch.tanh(x @ weight)
    return x @ last


def inner_loss(theta: Params, eta: Params, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, targets = batch
    weights = torch.softmax(network(eta, inputs)[:, 0], 0)
    return (weights * ((network(theta, inputs) - targets) ** 2).mean(-1)).sum()


def outer_loss(theta: Params, batch: tuple[Tensor, Tensor]) -> Tensor:
    return ((network(theta, batch[0]) - batch[1]) ** 2).mean()


def engine_loss(state: State, eta: Params, batch: tuple[Tensor, Tensor]) -> Tensor:
    return outer_loss(state.theta, batch)


def engine_step(state: State, eta: Params, batch: tuple[Tensor, Tensor]) -> State:
    gradient = torch.func.grad(inner_loss)(state.theta, eta, batch)
    return State(*Adam(epsilon=EPSILON).step(state.theta, gradient, state.statistics, RATE))


def by_engine(problem: Any, storage: Any, compiled: bool) -> Callable[[], Params]:
    theta, eta, batches, scored = problem
    step = torch.compile(engine_step, fullgraph=True) if compiled else engine_step
    state = State(theta, Adam(epsilon=EPSILON).init(theta))

    def gradient() -> Params:
        options = {"objective": "end", "storage": storage}
        return meta_gradient(step, engine_loss, state, eta, batches, [scored], **options).gradient

    return gradient


def by_torchopt(problem: Any, compiled: bool) -> Callable[[], Params]:
    import torchopt

    theta, eta, batches, scored = problem
    adam = torchopt.adam(RATE, eps=0.0, eps_root=EPSILON**2)  # ε inside the root, as in the engine

    def step(theta: Params, statistics: Any, eta: Params, batch: tuple[Tensor, Tensor]) -> tuple[Params, Any]:
        if compiled:  # the compiler does not trace torch.autograd.grad
            gradient = torch.func.grad(inner_loss)(theta, eta, batch)
        else:
            loss = inner_loss(theta, eta, batch)
            parts = torch.autograd.grad(loss, list(theta.values()), create_graph=True)
            gradient = dict(zip(theta, parts, strict=True))
        updates, statistics = adam.update(gradient, statistics, inplace=False)
        return torchopt.apply_updates(theta, updates, inplace=False), statistics

    take = torch.compile(step) if compiled else step

    def gradient() -> Params:
        leaves = {name: value.clone().requires_grad_() for name, value in eta.items()}
        current = {name: value.clone().requires_grad_() for name, value in theta.items()}
        statistics = adam.init(current)
        for batch in batches:
            current, statistics = take(current, statistics, leaves, batch)
        parts = torch.autograd.grad(outer_loss(current, scored), list(leaves.values()))
        return dict(zip(leaves, parts, strict=True))

    return gradient


def problem_of(unroll_length: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """θ_0, η, the batches of the steps, and the batch of the outer loss."""
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    data = [(torch.randn(BATCH, 64), torch.randn(BATCH, 10)) for _ in range(unroll_length + 1)]
    return layers(64, WIDTH, WIDTH, 10), layers(64, 16, 1), data[:-1], data[-1]


def gradient_of(case: str, problem: tuple[Any, ...]) -> Callable[[], Params]:
    name, *how = case.split()
    if name == "torchopt":
        return by_torchopt(problem, "compiled" in how)
    return by_engine(problem, "recompute" if "recompute" in how else "graph", "compiled" in how)


def one_case(case: str, unroll_length: int, repetitions: int) -> dict[str, Any]:
    """CPU seconds and MiB of one meta-gradient in float32, seconds of the first; the meta-gradient in float64."""
    torch.set_num_threads(1)
    gradient = gradient_of(case, problem_of(unroll_length, torch.float32))
    start = time.process_time()
    gradient()
    first, seconds = time.process_time() - start, []
    for _ in range(repetitions):
        start = time.process_time()
        gradient()
        seconds.append(time.process_time() - start)
    peak = Peak()
    gradient()
    row = {"seconds": median(seconds), "first": first, "mebibytes": peak.mib()}
    found = gradient_of(case, problem_of(unroll_length, torch.float64))()
    return {**row, "gradient": torch.cat([part.flatten() for part in found.values()]).tolist()}


def in_a_process(case: str, unroll_length: int, repetitions: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "examples.engine.torchopt_comparison", "--run", case]
    command += ["--unroll-lengths", str(unroll_length), "--repetitions", str(repetitions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        return {"error": next((line for line in reversed(lines) if "rror:" in line), lines[-1])}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main(settings: Settings) -> list[tuple[Any, ...]]:
    """Time and memory of every case at every length, and the largest relative difference of the meta-gradients."""
    rows: list[tuple[Any, ...]] = [("Steps", "Case", "ms", "MiB", "First call, s", "Relative difference")]
    for length in settings.unroll_lengths:
        expected = None
        for case in settings.cases:
            found = in_a_process(case, length, settings.repetitions)
            if "error" in found:
                rows.append((length, case, "–", "–", "–", "–"))
            else:
                value = torch.tensor(found["gradient"], dtype=torch.float64)
                expected = value if expected is None else expected
                difference = float((value - expected).abs().max() / expected.abs().max())
                measured = f"{1e3 * found['seconds']:.0f}", f"{found['mebibytes']:.0f}", f"{found['first']:.1f}"
                rows.append((length, case, *measured, f"{difference:.0e}"))
            print(*rows[-1], found.get("error", ""), flush=True)
            if settings.output is not None:
                with settings.output.open("w", encoding="utf-8", newline="") as file:
                    csv.writer(file, lineterminator="\n").writerows(rows)
    return rows


if __name__ == "__main__":
    chosen = tyro.cli(Settings)
    if chosen.run is not None:
        print(json.dumps(one_case(chosen.run, chosen.unroll_lengths[0], chosen.repetitions)))
    else:
        main(chosen)
