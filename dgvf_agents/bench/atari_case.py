"""One case of `dgvf bench atari`, in a process of its own: reads a JSON object, prints one."""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from typing import Any

import torch
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.bench import atari_envs
from dgvf_agents.bench.memory import Peak, tensors_mib
from dgvf_agents.bench.stopwatch import Stopwatch, wait_for
from dgvf_agents.bench.until_clock import learn_for, rate
from dgvf_agents.core.unroll import Unroll
from dgvf_agents.runs.atari_config import AtariMethod, atari_config
from dgvf_agents.runs.config import TrainConfig
from dgvf_agents.runs.environments import training_environments
from dgvf_agents.runs.train import build

AGENTS = {
    "sb3": "SB3 A2C",
    "sb3-adapter": "SB3 A2C, our environments",
    "a2c": "our A2C",
    "a2c-bfloat16": "our A2C, bfloat16 encoder",
    "discovered": "discovered GVFs",
}
"""The agents whose speed is measured, and what tables call them. Where the encoders of all of ours multiply bfloat16
numbers, the one that stands for that is left out."""
PARTS = ("environment", "acting", "inner updates", "inner updates with a meta-loss", "meta-gradient")
"""Of training; what is left is bookkeeping: episodes, callbacks, batches put together.

While questions are discovered with summed meta-losses, an update is compiled together with the meta-loss of the
parameters that it begins with, from the same batch.
"""


def speed(case: dict[str, Any]) -> dict[str, Any]:
    """Steps per second of SB3's A2C, our A2C and discovered GVFs; same networks, batches and threads.

    SB3's A2C runs twice: on `make_atari_env`, as its users have it, and on our vector environment (`sb3-adapter`).
    """
    agents = {name: _agent(name, case) for name in AGENTS if name != "a2c-bfloat16" or not case["mixed_precision"]}
    rates: dict[str, list[float]] = {name: [] for name in agents}
    for agent in agents.values():
        _warm_up(agent)
    for _ in range(case["repetitions"]):
        for name, agent in agents.items():
            rates[name].append(rate(agent, case["seconds"], _updates(agent)))
    return {"steps_per_s": {name: statistics.median(found) for name, found in rates.items()}}


def parts(case: dict[str, Any]) -> dict[str, Any]:
    """Where the time of training goes: the fraction of each of `PARTS`, and what is left."""
    model = _ours(case["method"], case)
    watch = Stopwatch(model.device)
    watch.around(model.env, "step", "environment")
    watch.around(model._collector.actor, "actions", "acting")
    watch.around(model, "train", "inner updates")
    watch.around(model.learner, "_meta_update", "meta-gradient")
    begin = model.learner._new_unroll

    def begin_watched() -> Unroll:
        unroll = begin()
        for method in ("score", "gradient"):
            watch.around(unroll, method, "meta-gradient")
        watch.around(unroll, "score_and_update", "inner updates with a meta-loss")
        return unroll

    vars(model.learner)["_new_unroll"] = begin_watched
    _warm_up(model)
    watch.seconds.clear()
    start = time.perf_counter()
    learn_for(model, case["seconds"], _updates(model))
    total = time.perf_counter() - start
    fractions = {part: watch.seconds[part] / total for part in PARTS}
    return {"fractions": {**fractions, "rest": 1.0 - sum(fractions.values())}}


def growth(case: dict[str, Any]) -> dict[str, Any]:
    """Time per update, and the peak of memory over what the warm, idle model takes."""
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


def environments(case: dict[str, Any]) -> dict[str, Any]:
    """Environment steps per second without any agent."""
    return {**atari_envs.measure(*(case[name] for name in ("game", "n_envs", "threads", "seconds", "repetitions")))}


def _config(method: AtariMethod, case: dict[str, Any]) -> TrainConfig:
    names = ("n_envs", "n_steps", "unroll_length", "questions", "storage", "device", "mixed_precision", "threads")
    return dataclasses.replace(
        atari_config(case["game"], method), compile=case["compile"], **{name: case[name] for name in names}
    )


def _ours(method: AtariMethod, case: dict[str, Any]) -> DGVFA2C:
    return build(_config(method, case))


def _agent(name: str, case: dict[str, Any]) -> OnPolicyAlgorithm:
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
    """Updates after which everything that an agent does was done once."""
    return agent.unroll_length if isinstance(agent, DGVFA2C) and agent.task.discovers else 1


def _learn(agent: OnPolicyAlgorithm, updates: int) -> None:
    agent.learn(updates * agent.n_envs * agent.n_steps, reset_num_timesteps=False)
    wait_for(agent.device)


def _warm_up(agent: OnPolicyAlgorithm) -> None:
    """Until all is compiled: the meta-update comes with the first batch after an unroll, and once more for good."""
    _learn(agent, 2 * _updates(agent) + 1)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    torch.set_num_threads(given["threads"])
    measures = {"speed": speed, "parts": parts, "growth": growth, "environments": environments}
    print(json.dumps(measures[given["measure"]](given)))
