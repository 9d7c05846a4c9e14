"""Training speed and memory: our agents beside Stable-Baselines3's A2C, each case in a subprocess.

Run as a module with a case as JSON, it measures that case and prints the result as JSON.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.bench.memory import Peak, resident_mib, tensors_mib
from dgvf_agents.bench.report import Row, check_at_least, make_table, measure_in_subprocess, write_report
from dgvf_agents.bench.timing import Stopwatch, learn_for, median_rates, training_rate
from dgvf_agents.sb3.policies import GridCNNExtractor, MLPExtractor
from dgvf_envs.sb3_adapter import make_vec

POLICIES = {"PuddleWorld-v0": "PaperMlpPolicy", "CollectObjects-v0": "CnnPolicy"}
"""By environment."""
WARM_UP_STEPS = 3_200
PAPER: dict[str, Any] = {"auxiliary_weighting": "fixed", "ent_coef": 0.01, "max_grad_norm": None}
"""Settings of the gridworld presets that are not defaults."""
_MODES: dict[str, Any] = {"none": "joint", "discovered": "auxiliary"}


@dataclass(frozen=True)
class AgentsBenchmark:
    """Measure training steps per second and memory."""

    threads: tuple[int, ...] = (1, 2)
    """Numbers of PyTorch threads."""
    seconds: float = 5.0
    """Duration of each repetition."""
    repetitions: int = 3
    """Repetitions; the median counts. The agents take turns."""
    unroll_lengths: tuple[int, ...] = (5, 10, 25, 50)
    """L for the growth table."""
    questions: tuple[int, ...] = (8, 32, 128)
    """D for the growth table."""
    iterations: int = 1_000
    """Meta-updates over which memory must not grow, on the first of the worlds."""
    worlds: tuple[str, ...] = tuple(POLICIES)
    """Ids of the environments."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "repetitions")
        check_at_least(self, 10, "iterations")
        if unknown := set(self.worlds) - set(POLICIES):
            raise ValueError(f"worlds must be among {sorted(POLICIES)}, got {sorted(unknown)}")


def run(benchmark: AgentsBenchmark) -> list[Row]:
    """Measure, print the tables, and write the report; returns its rows."""
    console = Console()
    rows = [_measure(case) for case in track(cases(benchmark), "measuring", console=console, transient=True)]
    of = {measure: [row for row in rows if row["measure"] == measure] for measure in MEASURES}
    for table in (_speed_table(of["speed"]), _parts_table(of["parts"]), _growth_table(of["growth"])):
        console.print(table)
    (lasting,) = of["lasting"]
    console.print(
        f"resident memory after {benchmark.iterations // 10} and {benchmark.iterations} meta-updates: "
        f"{lasting['early_mib']:.0f} and {lasting['late_mib']:.0f} MiB"
    )
    for row in of["products"]:
        gflops = f"{row['gflops']:.0f} GFLOP/s"
        console.print(f"{row['threads']} thread(s): matrix products of the 512-unit layer at {gflops}")
    if benchmark.output is not None:
        write_report(benchmark.output, "dgvf bench agents", benchmark, rows)
    return rows


def cases(benchmark: AgentsBenchmark) -> list[Row]:
    """All cases in the order of the report."""

    def case(measure: str, world: str, threads: int, **settings: Any) -> Row:
        return {"measure": measure, "world": world, "policy": POLICIES[world], "threads": threads, **settings}

    timing = {"seconds": benchmark.seconds, "repetitions": benchmark.repetitions}
    first, last = benchmark.worlds[0], benchmark.worlds[-1]
    growth = [(length, 128, storage) for length in benchmark.unroll_lengths for storage in ("graph", "recompute")]
    growth += [(10, questions, "graph") for questions in benchmark.questions]
    names = ("unroll_length", "questions", "storage")
    return [
        *(
            case(measure, world, threads, **timing)
            for measure in ("speed", "parts")
            for world, threads in itertools.product(benchmark.worlds, benchmark.threads)
        ),
        *(case("growth", last, 1, **dict(zip(names, settings, strict=True))) for settings in growth),
        case("lasting", first, 1, **dict(zip(names, (10, 128, "graph"), strict=True)), iterations=benchmark.iterations),
        *({"measure": "products", "seconds": 1.0, "threads": threads} for threads in benchmark.threads),
    ]


def _measure(case: Row) -> Row:
    return measure_in_subprocess("dgvf_agents.bench.training", case)


def speed(case: Row) -> Row:
    """Steps per second of SB3's A2C, our A2C and discovered GVFs; same networks, worlds and threads.

    SB3's A2C runs twice: on its own `DummyVecEnv`, as its users have it, and on our vector environment (`sb3-adapter`).
    """
    agents = {name: _agent(name, case) for name in ("sb3", "sb3-adapter", "none", "discovered")}
    for agent in agents.values():
        agent.learn(WARM_UP_STEPS)
    seconds = case["seconds"]
    return {"steps_per_s": median_rates(agents, lambda agent: training_rate(agent, seconds), case["repetitions"])}


def _agent(name: str, case: Row) -> OnPolicyAlgorithm:
    env: VecEnv = make_vec(case["world"], 16, seed=0) if name != "sb3" else make_vec_env(case["world"], 16, seed=0)
    if not name.startswith("sb3"):
        return DGVFA2C(
            case["policy"], env, auxiliary_task=name, encoder_mode=_MODES[name], seed=0, device="cpu", **PAPER
        )
    extractor = MLPExtractor if case["policy"] == "PaperMlpPolicy" else GridCNNExtractor
    network: dict[str, Any] = {"features_extractor_class": extractor, "net_arch": []}
    return A2C("MlpPolicy", env, policy_kwargs=network, ent_coef=0.01, seed=0, device="cpu")


def parts(case: Row) -> Row:
    """Milliseconds per iteration that our agents take to act, all steps of a rollout, and to learn from it."""
    return {"ms_per_iteration": {name: _parts_of(name, case) for name in ("none", "discovered")}}


def _parts_of(name: str, case: Row) -> dict[str, float]:
    model, watch = _agent(name, case), Stopwatch()
    assert isinstance(model, DGVFA2C)
    watch.time(model._collector.actor, "actions", "acting")
    watch.time(model, "train", "update")
    model.learn(WARM_UP_STEPS)
    watch.seconds.clear()
    before = model._n_updates
    learn_for(model, case["seconds"], model.unroll_length)  # one meta-update each
    return {part: 1e3 * watch.seconds[part] / (model._n_updates - before) for part in ("acting", "update")}


def growth(case: Row) -> Row:
    """Time and arithmetic per update, and peak resident memory above that of the warm, idle model."""
    model = _discovering(case)
    updates = 2 * case["unroll_length"] + 2
    model.learn(updates * 80)
    model.learner.restart_unroll()
    peak = Peak()
    start = time.perf_counter()
    model.learn(updates * 80, reset_num_timesteps=False)
    elapsed, peak_mib = time.perf_counter() - start, peak.mib()
    copy = tensors_mib([model.learner.theta, model.learner.statistics, model._rollout])
    operations = _operations_per_update(case)
    return {
        "ms_per_update": 1e3 * elapsed / updates,
        "gflop_per_update": 1e-9 * operations,
        "gflops": 1e-9 * operations * updates / elapsed,
        "peak_mib": peak_mib,
        "copies_mib": case["unroll_length"] * copy,
    }


def lasting(case: Row) -> Row:
    """Resident memory after the first tenth of many meta-updates, and after all of them."""
    model = _discovering(case)
    tenth = case["iterations"] // 10 * case["unroll_length"] * 80
    model.learn(tenth)
    early = resident_mib()
    model.learn(9 * tenth, reset_num_timesteps=False)
    return {"early_mib": early, "late_mib": resident_mib()}


def _discovering(case: Row, compile: bool = True) -> DGVFA2C:
    env = make_vec(case["world"], 16, seed=0)
    settings = {name: case[name] for name in ("unroll_length", "questions", "storage")}
    return DGVFA2C(
        case["policy"], env, seed=0, device="cpu", compile=compile, encoder_mode="auxiliary", **PAPER, **settings
    )


def _operations_per_update(case: Row) -> float:
    """Floating-point operations of the matrix products and convolutions, acting included, as PyTorch counts them."""
    model = _discovering(case, compile=False)
    model.learn((case["unroll_length"] + 1) * 80)
    with OperationCounter() as counter:
        model.learn(case["unroll_length"] * 80, reset_num_timesteps=False)
    return counter.total / case["unroll_length"]


class OperationCounter(TorchDispatchMode):
    """Counts floating-point operations; PyTorch's `FlopCounterMode` hooks modules, which `torch.func` forbids."""

    total = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        count = flop_registry.get(function.overloadpacket)
        self.total += count(*args, **(kwargs or {}), out_val=result) if count is not None else 0
        return result


def products(case: Row) -> Row:
    """GFLOP/s of the matrix products of the 512-unit layer on CollectObjects-v0, batch 80."""
    batch, inputs, outputs = 80, 1936, 512
    a, b = torch.randn(batch, inputs), torch.randn(inputs, outputs)
    steps, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < case["seconds"]:
        a @ b
        steps += 1
    return {"gflops": 2e-9 * batch * inputs * outputs * steps / elapsed}


MEASURES = {function.__name__: function for function in (speed, parts, growth, lasting, products)}
"""By name."""


def _speed_table(rows: Sequence[Row]) -> Table:
    headings = ("environment", "threads", "SB3 A2C", "SB3 A2C, our envs", "our A2C", "discovered GVFs")
    cells = []
    for row in rows:
        sb3, adapted, a2c, discovered = row["steps_per_s"].values()
        ours = (f"{rate:,.0f} ({rate / sb3:.2f}x)" for rate in (a2c, discovered))
        rates = (f"{sb3:,.0f}", f"{adapted:,.0f}", *ours, f"{a2c / discovered:.2f}x")
        cells.append((row["world"], str(row["threads"]), *rates))
    title = "Training, environment steps per second (ratio to Stable-Baselines3's A2C)"
    return make_table(title, (*headings, "time, discovered / our A2C"), cells)


def _parts_table(rows: Sequence[Row]) -> Table:
    agents = ("our A2C", "discovered GVFs")
    headings = ("environment", "threads", *(f"{agent}, {part}" for agent in agents for part in ("acting", "update")))
    cells = []
    for row in rows:
        times = [f"{ms:.2f}" for agent in row["ms_per_iteration"].values() for ms in agent.values()]
        cells.append((row["world"], str(row["threads"]), *times))
    return make_table("Milliseconds per iteration, all steps of a rollout and its update", headings, cells)


def _growth_table(rows: Sequence[Row]) -> Table:
    headings = ("L", "D", "storage", "ms per update", "GFLOP/s", "peak MiB over the model's", "of it L copies, MiB")
    cells = [
        (
            *(str(row[name]) for name in ("unroll_length", "questions", "storage")),
            f"{row['ms_per_update']:.2f}",
            *(f"{row[name]:.0f}" for name in ("gflops", "peak_mib", "copies_mib")),
        )
        for row in rows
    ]
    return make_table("Growth with unroll length L and questions D", headings, cells, names=False)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    torch.set_num_threads(given["threads"])
    print(json.dumps(MEASURES[given["measure"]](given)))
