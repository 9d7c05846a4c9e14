"""Training speed and memory on Atari: our agents beside Stable-Baselines3's A2C, each case in a subprocess.

Run as a module with a case as JSON, it measures that case and prints the result as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.bench.environments import game_table, measure_game
from dgvf_agents.bench.memory import Peak, tensors_mib
from dgvf_agents.bench.report import Row, check_at_least, make_table, measure_in_subprocess, write_report
from dgvf_agents.bench.timing import Stopwatch, learn_for, median_rates, synchronize, training_rate
from dgvf_agents.core.unroll import Unroll
from dgvf_agents.execution.devices import check_device_name, device_named
from dgvf_agents.runs.atari_config import AtariMethod, atari_config
from dgvf_agents.runs.config import TrainConfig
from dgvf_agents.runs.environments import training_environments
from dgvf_agents.runs.train import build
from dgvf_envs.atari.emulator import title_of

AGENTS = {
    "sb3": "SB3 A2C",
    "sb3-adapter": "SB3 A2C, our environments",
    "a2c": "our A2C",
    "a2c-bfloat16": "our A2C, bfloat16 encoder",
    "discovered": "discovered GVFs",
}
"""The agents whose speed is measured, with their names in tables. `a2c-bfloat16` is left out where all of our encoders
use bfloat16."""
PARTS = ("environment", "acting", "inner updates", "inner updates with a meta-loss", "meta-gradient")
"""Of training; the rest is bookkeeping: episodes, callbacks, assembling batches.

With summed meta-losses, an update is compiled together with the meta-loss of the parameters before it, from the same
batch.
"""


@dataclass(frozen=True)
class AtariBenchmark:
    """Measure training steps per second on a game, where the time goes, and memory as unrolls grow."""

    game: str = "Breakout"
    """The game in Gymnasium's or ALE's spelling."""
    n_envs: int = 32
    """Parallel games of every agent (paper: 32)."""
    n_steps: int = 20
    """Steps per game and update of every agent (paper: 20)."""
    questions: int = 128
    """D (paper: 128)."""
    unroll_lengths: tuple[int, ...] = (2, 5, 10)
    """L for the growth table; the speed of discovered GVFs is measured at the last (paper: 10)."""
    device: str = "auto"
    """Of all agents: `cpu`, `cuda`, or `auto` for CUDA if available."""
    mixed_precision: bool = False
    """Whether our agents' encoders use bfloat16."""
    threads: int = 1
    """Threads of PyTorch, and of our emulators."""
    compile: bool = True
    """Whether our agents' updates are compiled."""
    seconds: float = 20.0
    """Minimum duration of each repetition."""
    repetitions: int = 3
    """Repetitions; the median counts. The agents take turns."""
    output: Path | None = None
    """JSON file for the results, hardware and versions; none if `None`."""

    def __post_init__(self) -> None:
        title_of(self.game)
        check_device_name(self.device)
        if not self.unroll_lengths:
            raise ValueError(f"unroll_lengths must have a value, got {self.unroll_lengths!r}")
        check_at_least(self, 1, "n_envs", "n_steps", "questions", "unroll_lengths", "threads", "repetitions")


def run(benchmark: AtariBenchmark) -> list[Row]:
    """Measure, print the tables, and write the report; returns its rows.

    Raises:
        ValueError: PyTorch cannot use the device here.
    """
    device_named(benchmark.device)
    console = Console()
    rows = [_measure(case) for case in track(cases(benchmark), "measuring", console=console, transient=True)]
    of = {measure: [row for row in rows if row["measure"] == measure] for measure in MEASURES}
    for table in (
        game_table(of["environments"]),
        _speed_table(of["speed"][0]["steps_per_s"]),
        _parts_table(of["parts"]),
        _growth_table(of["growth"]),
    ):
        console.print(table)
    if benchmark.output is not None:
        write_report(benchmark.output, "dgvf bench atari", benchmark, rows)
    return rows


def cases(benchmark: AtariBenchmark) -> list[Row]:
    """All cases in the order of the report."""
    names = ("game", "n_envs", "n_steps", "questions", "mixed_precision", "threads", "compile")
    common = {name: getattr(benchmark, name) for name in (*names, "seconds", "repetitions")}
    common |= {"device": str(device_named(benchmark.device)), "storage": "graph"}
    longest = {**common, "unroll_length": benchmark.unroll_lengths[-1]}
    return [
        *({**longest, "measure": measure} for measure in ("environments", "speed")),
        *({**longest, "measure": "parts", "method": method} for method in ("a2c", "discovered")),
        *(
            {**common, "measure": "growth", "unroll_length": length, "storage": storage}
            for length in benchmark.unroll_lengths
            for storage in ("graph", "recompute")
        ),
    ]


def _measure(case: Row) -> Row:
    return measure_in_subprocess("dgvf_agents.bench.atari", case)


def environments(case: Row) -> Row:
    """Environment steps per second without any agent."""
    return measure_game(*(case[name] for name in ("game", "n_envs", "threads", "seconds", "repetitions")))


def speed(case: Row) -> Row:
    """Steps per second of SB3's A2C, our A2C and discovered GVFs; same networks, batches and threads.

    SB3's A2C runs twice: on `make_atari_env`, as its users have it, and on our vector environment (`sb3-adapter`).
    """
    agents = {name: _agent(name, case) for name in AGENTS if name != "a2c-bfloat16" or not case["mixed_precision"]}
    for agent in agents.values():
        _warm_up(agent)

    def rate_of(agent: OnPolicyAlgorithm) -> float:
        return training_rate(agent, case["seconds"], _updates(agent))

    return {"steps_per_s": median_rates(agents, rate_of, case["repetitions"])}


def parts(case: Row) -> Row:
    """Where the time of training goes: the fraction of each of `PARTS`, and the rest."""
    model = _ours(case["method"], case)
    watch = Stopwatch(model.device)
    watch.time(model.env, "step", "environment")
    watch.time(model._collector.actor, "actions", "acting")
    watch.time(model, "train", "inner updates")
    watch.time(model.learner, "_meta_update", "meta-gradient")
    new_unroll = model.learner._new_unroll

    def timed_unroll(update: int) -> Unroll:
        unroll = new_unroll(update)
        for method in ("add_meta_loss", "gradient"):
            watch.time(unroll, method, "meta-gradient")
        watch.time(unroll, "update_with_meta_loss", "inner updates with a meta-loss")
        return unroll

    vars(model.learner)["_new_unroll"] = timed_unroll
    _warm_up(model)
    watch.seconds.clear()
    start = time.perf_counter()
    learn_for(model, case["seconds"], _updates(model))
    total = time.perf_counter() - start
    fractions = {part: watch.seconds[part] / total for part in PARTS}
    return {"fractions": {**fractions, "rest": 1.0 - sum(fractions.values())}}


def growth(case: Row) -> Row:
    """Time per update, and peak memory above that of the warm, idle model."""
    model = _ours("discovered", case)
    _warm_up(model)
    model.learner.restart_unroll()
    peak, start = Peak(model.device), time.perf_counter()
    updates = 2 * case["unroll_length"] + 1
    _learn(model, updates)
    elapsed, peak_mib = time.perf_counter() - start, peak.mib()
    copy = tensors_mib([model.learner.theta, model.learner.statistics, model._rollout])
    return {
        "ms_per_update": 1e3 * elapsed / updates,
        "peak_mib": peak_mib,
        "copies_mib": case["unroll_length"] * copy,
    }


MEASURES = {function.__name__: function for function in (environments, speed, parts, growth)}
"""By name."""


def _config(method: AtariMethod, case: Row) -> TrainConfig:
    names = ("n_envs", "n_steps", "unroll_length", "questions", "storage", "device", "mixed_precision", "threads")
    return dataclasses.replace(
        atari_config(case["game"], method), compile=case["compile"], **{name: case[name] for name in names}
    )


def _ours(method: AtariMethod, case: Row) -> DGVFA2C:
    return build(_config(method, case))


def _agent(name: str, case: Row) -> OnPolicyAlgorithm:
    if name == "a2c-bfloat16":
        return _ours("a2c", {**case, "mixed_precision": True})
    if not name.startswith("sb3"):
        return _ours("a2c" if name == "a2c" else "discovered", case)
    config = _config("a2c", case)
    env: VecEnv = training_environments(config)
    if name == "sb3":
        env.close()
        env = VecFrameStack(make_atari_env(f"{config.env}NoFrameskip-v4", config.n_envs, seed=0), 4)
    return A2C("CnnPolicy", env, n_steps=config.n_steps, ent_coef=config.ent_coef, seed=0, device=config.device)


def _updates(agent: OnPolicyAlgorithm) -> int:
    """Updates per meta-update; 1 without meta-updates."""
    return agent.unroll_length if isinstance(agent, DGVFA2C) and agent.task.discovers else 1


def _learn(agent: OnPolicyAlgorithm, updates: int) -> None:
    agent.learn(updates * agent.n_envs * agent.n_steps, reset_num_timesteps=False)
    synchronize(agent.device)


def _warm_up(agent: OnPolicyAlgorithm) -> None:
    """Until all is compiled: the first meta-update comes with the batch after an unroll, and one more follows."""
    _learn(agent, 2 * _updates(agent) + 1)


def _speed_table(rates: dict[str, float]) -> Table:
    cells = [(AGENTS[name], f"{rate:,.0f}", f"{rate / rates['sb3']:.2f}x") for name, rate in rates.items()]
    table = make_table("Training on Atari, environment steps per second", ("agent", "steps/s", "to SB3's A2C"), cells)
    table.caption = f"A step of discovered GVFs takes {rates['a2c'] / rates['discovered']:.2f}x our A2C's."
    return table


def _parts_table(rows: Sequence[Row]) -> Table:
    cells = [(row["method"], *(f"{100 * part:.0f}%" for part in row["fractions"].values())) for row in rows]
    return make_table("Where the time goes", ("agent", *rows[0]["fractions"]), cells)


def _growth_table(rows: Sequence[Row]) -> Table:
    headings = ("L", "storage", "ms per update", "peak MiB over the model's", "of it L copies, MiB")
    cells = [
        (
            *(str(row[name]) for name in ("unroll_length", "storage")),
            *(f"{row['ms_per_update']:.1f}", f"{row['peak_mib']:.0f}", f"{row['copies_mib']:.0f}"),
        )
        for row in rows
    ]
    return make_table("Growth with the unroll length L", headings, cells, names=False)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    torch.set_num_threads(given["threads"])
    print(json.dumps(MEASURES[given["measure"]](given)))
