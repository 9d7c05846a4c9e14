"""Training speed and memory: our agents beside Stable-Baselines3's A2C, each case in a subprocess."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from rich.console import RenderableType
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from torch.utils.benchmark import Timer

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.agents.policies import GridCNNExtractor, MLPExtractor
from dgvf_agents.bench.harness import Benchmark, check_at_least, make_table
from dgvf_agents.bench.memory import growth_of, resident_mib
from dgvf_agents.bench.operations import OperationCounter, longest_operations, times_alone
from dgvf_agents.bench.reference import PACKAGES, Rate, compared, jax_rates, limited_cores
from dgvf_agents.bench.report import Row
from dgvf_agents.bench.timing import learn_updates, median_rates, parts_of, training_rate, warm_up
from dgvf_envs.sb3_adapter import make_vec

POLICIES = {"PuddleWorld-v0": "PaperMlpPolicy", "CollectObjects-v0": "CnnPolicy"}
"""By environment."""
PAPER: dict[str, Any] = {"auxiliary_weighting": "fixed", "ent_coef": 0.01, "max_grad_norm": None}
"""Settings of the gridworld presets that are not defaults."""
_MODES: dict[str, Any] = {"none": "joint", "discovered": "auxiliary"}
_AGENTS = {"none": "our A2C", "discovered": "discovered GVFs"}


@final
@dataclass(frozen=True)
class AgentsBenchmark(Benchmark):
    """Measure training steps per second and memory."""

    name: ClassVar[str] = "agents"
    optional_packages: ClassVar[tuple[str, ...]] = PACKAGES
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

    def cases(self) -> list[Row]:
        timing = {"seconds": self.seconds, "repetitions": self.repetitions}
        growth = [(length, 128, storage) for length in self.unroll_lengths for storage in ("graph", "recompute")]
        growth += [(10, questions, "graph") for questions in self.questions]
        first, last = self.worlds[0], self.worlds[-1]
        return [
            *(
                _case(measure, world, threads, **timing)
                for measure in ("speed", "parts")
                for world, threads in itertools.product(self.worlds, self.threads)
            ),
            *(_case("growth", last, 1, unroll_length=L, questions=D, storage=storage) for L, D, storage in growth),
            _case("lasting", first, 1, unroll_length=10, questions=128, storage="graph", iterations=self.iterations),
            *(_case("operations", last, threads, unroll_length=10, seconds=self.seconds) for threads in self.threads),
            *({"measure": "products", "seconds": 1.0, "threads": threads} for threads in self.threads),
        ]

    def measure(self, case: Row) -> Row:
        torch.set_num_threads(case["threads"])
        return MEASURES[case["measure"]](case)

    def tables(self, rows: Sequence[Row]) -> Iterator[RenderableType]:
        of = {measure: [row for row in rows if row["measure"] == measure] for measure in MEASURES}
        speeds = [
            {**row, **_ratios(row["steps_per_s"]), **compared(row["steps_per_s"], "discovered")} for row in of["speed"]
        ]
        yield make_table("Training, environment steps per second (ratio to Stable-Baselines3's A2C)", speeds, _SPEED)
        title = "Milliseconds per iteration, all steps of a rollout and its update"
        yield make_table(title, of["parts"], _PARTS)
        yield make_table("Growth with unroll length L and questions D", of["growth"], _GROWTH)
        (lasting,) = of["lasting"]
        yield (
            f"resident memory after {self.iterations // 10} and {self.iterations} meta-updates: "
            f"{lasting['early_mib']:.0f} and {lasting['late_mib']:.0f} MiB"
        )
        for row in of["operations"]:
            yield make_table(_title(row), longest_operations(row["operations"]), _OPERATIONS)
        for row in of["products"]:
            yield f"{row['threads']} thread(s): matrix products of the 512-unit layer at {row['gflops']:.0f} GFLOP/s"


def _case(measure: str, world: str, threads: int, **settings: Any) -> Row:
    return {"measure": measure, "world": world, "policy": POLICIES[world], "threads": threads, **settings}


def speed(case: Row) -> Row:
    """Steps per second of SB3's A2C, our A2C and discovered GVFs; same networks, worlds and threads.

    SB3's A2C runs twice: on its own `DummyVecEnv`, as its users have it, and on our vector environment (`sb3-adapter`).
    Discovered GVFs run in JAX too, if it is installed.
    """
    agents = {name: _agent(name, case) for name in ("sb3", "sb3-adapter", "none", "discovered")}
    for agent in agents.values():
        warm_up(agent)  # compiles on all cores
    rates: dict[str, Rate] = {name: partial(training_rate, agent) for name, agent in agents.items()}
    with limited_cores(case["threads"]):
        reference = jax_rates(case["world"], [discovering_agent(case, seed=0)], case["threads"])
        found = median_rates({**rates, **reference}, lambda rate: rate(case["seconds"]), case["repetitions"])
    return {"steps_per_s": found}


def _agent(name: str, case: Row) -> OnPolicyAlgorithm:
    if not name.startswith("sb3"):
        return _ours(name, case)
    env: VecEnv = make_vec(case["world"], 16, seed=0) if name != "sb3" else make_vec_env(case["world"], 16, seed=0)
    extractor = MLPExtractor if case["policy"] == "PaperMlpPolicy" else GridCNNExtractor
    network: dict[str, Any] = {"features_extractor_class": extractor, "net_arch": []}
    return A2C("MlpPolicy", env, policy_kwargs=network, ent_coef=0.01, seed=0, device="cpu")


def discovering_agent(case: Row, seed: int) -> DGVFA2C:
    """The compiled agent with discovered questions of a case."""
    return _ours("discovered", case, seed)


def _ours(task: str, case: Row, seed: int = 0, **settings: Any) -> DGVFA2C:
    env, mode = make_vec(case["world"], 16, seed=seed), _MODES[task]
    settings = {"compile": True, "device": "cpu", **settings}
    settings |= {name: case[name] for name in ("unroll_length", "questions", "storage", "device") if name in case}
    return DGVFA2C(case["policy"], env, auxiliary_task=task, encoder_mode=mode, seed=seed, **PAPER, **settings)


def parts(case: Row) -> Row:
    """Milliseconds per iteration that our agents take to act, all steps of a rollout, and to learn from it."""
    times = {}
    for name in _AGENTS:
        seconds, updates = parts_of(_ours(name, case), case["seconds"])
        learning = [part for part in seconds if part not in ("environment", "acting", "rest")]
        times[name] = {
            "acting": 1e3 * seconds["acting"] / updates,
            "update": 1e3 * sum(seconds[part] for part in learning) / updates,
        }
    return {"ms_per_iteration": times}


def growth(case: Row) -> Row:
    """Time and arithmetic per update, and peak resident memory above that of the warm, idle model."""
    counter, updates = _operations(case)
    found, gflop = growth_of(discovering_agent(case, seed=0)), 1e-9 * counter.total / updates
    return {**found, "gflop_per_update": gflop, "gflops": 1e3 * gflop / found["ms_per_update"]}


def lasting(case: Row) -> Row:
    """Resident memory after the first tenth of many meta-updates, and after all of them."""
    model = discovering_agent(case, seed=0)
    tenth = case["iterations"] // 10 * case["unroll_length"]
    learn_updates(model, tenth)
    early = resident_mib()
    learn_updates(model, 9 * tenth)
    return {"early_mib": early, "late_mib": resident_mib()}


def operations(case: Row) -> Row:
    """Milliseconds per update of discovered GVFs, and of its matrix products and convolutions by themselves."""
    seconds, updates = parts_of(_ours("discovered", case), case["seconds"])
    counter, counted = _operations(case)
    alone = times_alone(counter, counted, case["seconds"] / 50)
    return {"ms_per_update": 1e3 * sum(seconds.values()) / updates, "operations": alone}


def _operations(case: Row) -> tuple[OperationCounter, int]:
    """The operations of the updates of an unroll, acting included, as eager functions call them; and how many."""
    model = _ours("discovered", case, compile=False)
    learn_updates(model, case["unroll_length"] + 1)
    with OperationCounter() as counter:
        learn_updates(model, case["unroll_length"])
    return counter, case["unroll_length"]


def products(case: Row) -> Row:
    """GFLOP/s of the matrix products of the 512-unit layer on CollectObjects-v0, batch 80."""
    batch, inputs, outputs = 80, 1936, 512
    matrices = {"a": torch.randn(batch, inputs), "b": torch.randn(inputs, outputs)}
    timer = Timer("a @ b", globals=matrices, num_threads=case["threads"])
    duration = timer.blocked_autorange(min_run_time=case["seconds"]).mean
    return {"gflops": 2e-9 * batch * inputs * outputs / duration}


MEASURES = {function.__name__: function for function in (speed, parts, growth, lasting, operations, products)}
"""By name."""


def _title(row: Row) -> str:
    update, alone = row["ms_per_update"], sum(operation["ms"] for operation in row["operations"])
    return (
        f"{row['world']}, {row['threads']} thread(s): an update takes {update:.1f} ms, {update / alone:.2f} times its "
        f"matrix products and convolutions by themselves, {alone:.1f} ms"
    )


def _ratios(rates: dict[str, float]) -> Row:
    to_sb3 = {name: rate / rates["sb3"] for name, rate in rates.items()}
    return {"to_sb3": to_sb3, "discovery": rates["none"] / rates["discovered"]}


_CASE = (("environment", "{world}"), ("threads", "{threads:d}"))
_SPEED = (
    *_CASE,
    ("SB3 A2C", "{steps_per_s[sb3]:,.0f}"),
    ("SB3 A2C, our envs", "{steps_per_s[sb3-adapter]:,.0f}"),
    *((words, f"{{steps_per_s[{name}]:,.0f}} ({{to_sb3[{name}]:.2f}}x)") for name, words in _AGENTS.items()),
    *(("time, discovered / our A2C", "{discovery:.2f}x"), ("JAX", "{jax:s}"), ("discovered / JAX", "{to_jax:s}")),
)
_PARTS = (
    *_CASE,
    *(
        (f"{words}, {part}", f"{{ms_per_iteration[{name}][{part}]:.2f}}")
        for name, words in _AGENTS.items()
        for part in ("acting", "update")
    ),
)
_OPERATIONS = (
    *(("operation", "{operation}"), ("shapes", "{shapes}"), ("calls per update", "{calls:.2f}")),
    *(("GFLOP", "{gflop:.3f}"), ("ms", "{ms:.2f}")),
)
_GROWTH = (
    *(("L", "{unroll_length:d}"), ("D", "{questions:d}"), ("storage", "{storage}")),
    *(("ms per update", "{ms_per_update:.2f}"), ("GFLOP/s", "{gflops:.0f}")),
    *(("peak MiB over the model's", "{peak_mib:.0f}"), ("of it L copies, MiB", "{copies_mib:.0f}")),
)
