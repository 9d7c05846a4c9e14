"""One case of `dgvf bench agents`, in a process of its own: reads a JSON object, prints one."""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import torch
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.bench.memory import Peak, resident_mib, tensors_mib
from dgvf_agents.bench.stopwatch import Stopwatch
from dgvf_agents.bench.until_clock import learn_for, rate
from dgvf_agents.sb3.policies import GridCNNExtractor, MLPExtractor
from dgvf_envs.sb3_adapter import make_vec

WARM_UP_STEPS = 3_200
PAPER: dict[str, Any] = {"auxiliary_weighting": "fixed", "ent_coef": 0.01, "max_grad_norm": None}
"""Settings of the gridworld presets that are not defaults."""
_MODES: dict[str, Any] = {"none": "joint", "discovered": "auxiliary"}


def speed(case: dict[str, Any]) -> dict[str, Any]:
    """Steps per second of SB3's A2C, our A2C and discovered GVFs; same networks, worlds and threads.

    SB3's A2C runs twice: on its own `DummyVecEnv`, as its users have it, and on our vector environment (`sb3-adapter`).
    """
    agents = {name: _agent(name, case) for name in ("sb3", "sb3-adapter", "none", "discovered")}
    for agent in agents.values():
        agent.learn(WARM_UP_STEPS)
    rates: dict[str, list[float]] = {name: [] for name in agents}
    for _ in range(case["repetitions"]):
        for name, agent in agents.items():
            rates[name].append(rate(agent, case["seconds"]))
    return {"steps_per_s": {name: statistics.median(found) for name, found in rates.items()}}


def _agent(name: str, case: dict[str, Any]) -> OnPolicyAlgorithm:
    env: VecEnv = make_vec(case["world"], 16, seed=0) if name != "sb3" else make_vec_env(case["world"], 16, seed=0)
    if not name.startswith("sb3"):
        return DGVFA2C(
            case["policy"], env, auxiliary_task=name, encoder_mode=_MODES[name], seed=0, device="cpu", **PAPER
        )
    extractor = MLPExtractor if case["policy"] == "PaperMlpPolicy" else GridCNNExtractor
    network: dict[str, Any] = {"features_extractor_class": extractor, "net_arch": []}
    return A2C("MlpPolicy", env, policy_kwargs=network, ent_coef=0.01, seed=0, device="cpu")


def parts(case: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds per iteration that our agents take to act, all steps of a rollout, and to learn from it."""
    return {"ms_per_iteration": {name: _parts_of(name, case) for name in ("none", "discovered")}}


def _parts_of(name: str, case: dict[str, Any]) -> dict[str, float]:
    model, watch = _agent(name, case), Stopwatch()
    assert isinstance(model, DGVFA2C)
    watch.around(model._collector.actor, "actions", "acting")
    watch.around(model, "train", "update")
    model.learn(WARM_UP_STEPS)
    watch.seconds.clear()
    before = model._n_updates
    learn_for(model, case["seconds"], model.unroll_length)  # as many have one meta-update among them
    return {part: 1e3 * watch.seconds[part] / (model._n_updates - before) for part in ("acting", "update")}


def growth(case: dict[str, Any]) -> dict[str, Any]:
    """Time and arithmetic per update, and the peak of resident memory over what the warm, idle model takes."""
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


def lasting(case: dict[str, Any]) -> dict[str, Any]:
    """Resident memory after the first tenth of many meta-updates, and after all of them."""
    model = _discovering(case)
    a_tenth = case["iterations"] // 10 * case["unroll_length"] * 80
    model.learn(a_tenth)
    early = resident_mib()
    model.learn(9 * a_tenth, reset_num_timesteps=False)
    return {"early_mib": early, "late_mib": resident_mib()}


def _discovering(case: dict[str, Any], compile: bool = True) -> DGVFA2C:
    env = make_vec(case["world"], 16, seed=0)
    settings = {name: case[name] for name in ("unroll_length", "questions", "storage")}
    return DGVFA2C(
        case["policy"], env, seed=0, device="cpu", compile=compile, encoder_mode="auxiliary", **PAPER, **settings
    )


def _operations_per_update(case: dict[str, Any]) -> float:
    """Floating-point operations of the matrix products and convolutions, acting included, as PyTorch counts them."""
    model = _discovering(case, compile=False)
    model.learn((case["unroll_length"] + 1) * 80)
    with _Operations() as counter:
        model.learn(case["unroll_length"] * 80, reset_num_timesteps=False)
    return counter.total / case["unroll_length"]


class _Operations(TorchDispatchMode):
    """Adds up floating-point operations; PyTorch's own `FlopCounterMode` hooks modules, which `torch.func` forbids."""

    total = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        count = flop_registry.get(function.overloadpacket)
        self.total += count(*args, **(kwargs or {}), out_val=result) if count is not None else 0
        return result


def products(case: dict[str, Any]) -> dict[str, Any]:
    """GFLOP/s of the matrix products behind the 512-unit layer on CollectObjects-v0, batch 80."""
    batch, inputs, outputs = 80, 1936, 512
    a, b = torch.randn(batch, inputs), torch.randn(inputs, outputs)
    steps, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < case["seconds"]:
        a @ b
        steps += 1
    return {"gflops": 2e-9 * batch * inputs * outputs * steps / elapsed}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    torch.set_num_threads(given["threads"])
    measures = {"speed": speed, "parts": parts, "growth": growth, "lasting": lasting, "products": products}
    print(json.dumps(measures[given["measure"]](given)))
