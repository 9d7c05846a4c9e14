"""What benchmarks share: cases and reports, tables, rates, memory, and other people's frameworks."""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar, TypeVar, final

import pandas as pd
import torch
from rich.console import Console
from rich.progress import track
from torch.utils.benchmark import Timer

from dgvf_agents.core.argument_checks import check_device_name
from dgvf_agents.execution.devices import CPU, device_named, hardware, versions
from dgvf_agents.storage.files import write_bytes

K = TypeVar("K")

Row = dict[str, Any]
"""A case of a benchmark, or its result: a row of the table that `table` names, with numbers and texts by heading."""
Rate = Callable[[float], float]
"""Environment steps per second of something that trains for at least the given seconds."""

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
"""There in a checkout, not in an installed wheel."""
_PACKAGES = ("ale-py", "dgvf", "gymnasium", "numpy", "stable-baselines3", "torch")


@dataclass(frozen=True, kw_only=True)
class Benchmark(ABC):
    """A benchmark; the dataclasses derived from it hold its settings."""

    name: ClassVar[str]
    """In `dgvf bench`."""
    isolated: ClassVar[bool] = True
    """Whether every case is measured in a new process, so that none pays for the memory of another."""
    optional_packages: ClassVar[tuple[str, ...]] = ()
    """Packages that it measures where they are installed; reports have their versions."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            for number in value if isinstance(value, tuple) else (value,):
                if type(number) in (int, float) and (number < 0 or (number == 0 and name != "actors")):
                    raise ValueError(f"{name} must be > 0, got {value!r}")
        check_device_name(getattr(self, "device", "cpu"))

    @abstractmethod
    def cases(self) -> Sequence[Row]:
        """The cases, in the order of the report."""

    @abstractmethod
    def measure(self, case: Row) -> Sequence[Row]:
        """The results of a case, without what the case says."""

    def run(self, command: str) -> list[Row]:
        """Measure, print the tables, and write the report; returns its rows: each case with its result.

        Args:
            command: for the report.

        Raises:
            RuntimeError: a case failed; the error is its cause.
        """
        console, cases, rows = Console(), self.cases(), list[Row]()
        for i, case in enumerate(track(cases, "measuring", console=console, transient=True), 1):
            if not console.is_terminal:  # no bar is shown
                console.print(f"measuring {i} of {len(cases)}")
            try:
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:  # starts when it is used
                    measured = pool.submit(self.measure, case).result() if self.isolated else self.measure(case)
                rows += [{**case, **row} for row in measured]
            except Exception as error:
                raise RuntimeError(f"case {case} failed: {error!r}") from error
        for title, table in tables(rows).items():
            text = formatted(table).to_string(index=False)
            console.print(f"{title}\n{text}\n", markup=False, highlight=False, soft_wrap=True)
        if self.output is not None:
            installed = [name for name in self.optional_packages if find_spec(name) is not None]
            report = {
                "command": command,
                "settings": {name: value for name, value in vars(self).items() if name != "output"},
                "versions": versions((*_PACKAGES, *installed)),
                "hardware": hardware(device_named(getattr(self, "device", "cpu"))),
                "rows": rows,
            }
            write_bytes(self.output, f"{json.dumps(report, indent=1, default=str)}\n".encode())
        return rows


def combinations(**values: Sequence[Any]) -> list[Row]:
    """A case for each combination of values by heading; the last heading changes fastest."""
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


def tables(rows: Sequence[Row]) -> dict[str, pd.DataFrame]:
    """Results by title of their table; columns without a value are left out."""
    return {
        str(title): of.drop(columns="table").dropna(axis=1, how="all").convert_dtypes()
        for title, of in pd.DataFrame(rows).groupby("table", sort=False)
    }


def with_ratios(row: Row, ratios: Mapping[str, tuple[str, str]]) -> Row:
    """A row with ratios by heading, of the numbers under two headings, where both are there."""
    return row | {name: row[one] / row[other] for name, (one, other) in ratios.items() if {one, other} <= row.keys()}


def formatted(made: pd.DataFrame) -> pd.DataFrame:
    """A table with its numbers as text, three digits of small ones, and "–" where there is none."""

    def text(value: Any) -> str:
        if pd.isna(value):
            return "–"
        if isinstance(value, float):
            return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    return made.astype(object).map(text)


def median_rates(rates: Mapping[K, Rate], seconds: float, repetitions: int) -> dict[K, float]:
    """The median rate of each of several things, which take turns."""
    rounds = [{name: rate(seconds) for name, rate in rates.items()} for _ in range(repetitions)]
    return {name: statistics.median(found[name] for found in rounds) for name in rates}


def compared(rates: Mapping[str, Rate], seconds: float, repetitions: int, ratios: Mapping[str, tuple[str, str]]) -> Row:
    """The median rate of each of several things, which take turns, and ratios of these; see `with_ratios`."""
    return with_ratios(dict(median_rates(rates, seconds, repetitions)), ratios)


def seconds_per_call(call: Callable[[], object], seconds: float) -> float:
    """Mean seconds of a call, of as many as take at least `seconds`; waits for the device."""
    timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
    return timer.blocked_autorange(min_run_time=seconds).mean


@final
class Peak:
    """Peak memory since construction, above the memory in use then."""

    def __init__(self, device: torch.device = CPU) -> None:
        """
        Args:
            device: whose memory; on a CUDA device, PyTorch's tensors.
        """
        self._device = device
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what the C library keeps would hide what is allocated next
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            self._idle = torch.cuda.memory_allocated(device) / 2**20
        else:
            self._idle = resident_mib()
            Path("/proc/self/clear_refs").write_text("5")

    def mib(self) -> float:
        """In MiB, so far."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) / 2**20 - self._idle
        return resident_mib("VmHWM") - self._idle


def resident_mib(name: str = "VmRSS") -> float:
    """Resident memory of this process; with `"VmHWM"`, its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) / 1024  # from KiB


def jax_rates(world: str, agents: int, threads: int, device: str) -> dict[str, Rate]:
    """`{"JAX": rate}`: as many agents with discovered questions in JAX, the whole loop compiled; see `example_rates`.

    Args:
        world: id of the environment.
        agents: number of agents.
        threads: number of cores.
        device: type of JAX's device.
    """
    settings = {"world": world, "agents": agents, "threads": threads}
    # otherwise JAX takes most of a GPU's memory
    variables = {"JAX_PLATFORMS": device, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return example_rates("discovery_in_jax.py", ("jax",), {"JAX": settings}, variables)


def example_rates(
    example: str, packages: Sequence[str], variants: Mapping[str, Row], variables: Mapping[str, str] | None = None
) -> dict[str, Rate]:
    """A rate for each variant of an example, which runs as a process.

    Args:
        example: name of the file.
        packages: what it needs.
        variants: its options.
        variables: environment variables of the process.

    Returns:
        an empty dict if a package is not installed, or this is no checkout.
    """
    path = EXAMPLES / example
    if not path.is_file() or any(find_spec(package) is None for package in packages):
        return {}

    def rate(options: Row, seconds: float) -> float:
        given = [f"--{name.replace('_', '-')}={value}" for name, value in {**options, "seconds": seconds}.items()]
        environment = {**os.environ, **(variables or {})}
        finished = subprocess.run([sys.executable, path, *given], env=environment, capture_output=True, text=True)
        if finished.returncode:
            raise RuntimeError(f"{example} failed:\n{finished.stderr[-2000:]}")
        return json.loads(finished.stdout.splitlines()[-1])["steps_per_s"]

    return {name: partial(rate, options) for name, options in variants.items()}
