"""The fused loop runs only where it is the same thing: what changes an environment is seen from the next step on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecMonitor

from dgvf_agents import DGVFA2C
from dgvf_agents.agents.collecting import RolloutCallback
from dgvf_agents.execution.compiling import Compiled
from dgvf_envs.collect_objects import CollectObjectsVectorEnv
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, make_vec

ROLLOUTS = 100


@pytest.fixture(autouse=True)
def simulated_and_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is simulated runs compiled."""
    monkeypatch.setattr(Compiled, "prepare", lambda *arguments, **kwargs: None)
    monkeypatch.setattr(Compiled, "_passes", lambda *arguments: None)


class Doubled(CollectObjectsVectorEnv):
    """Rewards are twice as large."""

    def step(self, actions: np.ndarray) -> Any:
        observations, rewards, *others = super().step(actions)
        return observations, 2 * rewards, *others


def shorter(env: Any) -> None:
    env.set_attr("max_episode_steps", 6)


def by_hand(env: Any) -> None:
    env.unwrapped.env.max_episode_steps = 6


def other_dynamics(env: Any) -> None:
    (dynamics, *_) = env.get_attr("dynamics")
    env.set_attr("dynamics", replace(dynamics, wrong_order="terminate"))


def other_step(env: Any) -> None:
    world = env.unwrapped.env
    step = world.step

    def costly(actions: np.ndarray) -> Any:
        observations, rewards, *others = step(actions)
        return observations, rewards - 1, *others

    world.step = costly


def other_step_of(part: str) -> Callable[[Any], None]:
    """Assigns a step that costs 1 to the monitor or to the adapter."""

    def assign(monitor: Any) -> None:
        env = {"monitor": monitor, "adapter": monitor.venv}[part]
        step_wait = env.step_wait

        def costly() -> Any:
            observations, rewards, dones, infos = step_wait()
            for info in infos:
                if "episode" in info:
                    info["episode"]["r"] -= 1
            return observations, rewards - 1, dones, infos

        env.step_wait = costly

    return assign


class Changing(RolloutCallback):
    """Changes the environment after a third of the rollouts, and ends training after all of them."""

    def __init__(self, change: Callable[[Any], None]) -> None:
        super().__init__()
        self._change, self._rollouts = change, 0

    def _on_rollout_end(self) -> None:
        self._rollouts += 1
        if self._rollouts == ROLLOUTS // 3:
            self._change(self.training_env)
        if self._rollouts == ROLLOUTS:
            raise InterruptedError


def episodes(env: Any, compile: Any, callback: BaseCallback) -> list[tuple[float, int]]:
    model = DGVFA2C("MlpPolicy", env, n_steps=4, auxiliary_task="none", compile=compile, seed=0, device="cpu")
    with suppress(InterruptedError):
        model.learn(10**6, callback)
    return [(info["r"], info["l"]) for info in model.ep_info_buffer or ()]


@pytest.mark.parametrize(
    "change", [shorter, by_hand, other_dynamics, other_step, other_step_of("adapter"), other_step_of("monitor")]
)
def test_a_changed_environment_is_the_one_that_is_stepped(change: Callable[[Any], None]) -> None:
    stepped, simulated = (
        episodes(make_vec("CollectObjectsSmall-v0", 4, 0), mode, Changing(change)) for mode in (False, "auto")
    )
    unchanged = episodes(make_vec("CollectObjectsSmall-v0", 4, 0), False, Changing(lambda env: None))
    assert simulated == stepped
    assert stepped != unchanged


class DoubledByAdapter(GymnasiumVecEnv):
    """The same, in what Stable-Baselines3 steps."""

    def step_wait(self) -> Any:
        observations, rewards, *others = super().step_wait()
        return observations, 2 * rewards, *others


@pytest.mark.parametrize(
    ("world", "adapter"), [(Doubled, GymnasiumVecEnv), (CollectObjectsVectorEnv, DoubledByAdapter)]
)
def test_a_subclass_steps_itself(world: Any, adapter: Any) -> None:
    def env() -> Any:
        return VecMonitor(adapter(world(num_envs=4, autoreset_mode="SameStep")))

    one, other = (episodes(env(), mode, Changing(lambda env: None)) for mode in (False, "auto"))
    assert one == other
    assert {float(reward) for reward, _ in one} <= {0.0, 2.0, 6.0}
