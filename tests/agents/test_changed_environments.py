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

CALLS = 100


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


def changing(kind: type[BaseCallback], change: Callable[[Any], None]) -> BaseCallback:
    """Changes the environment after a third of the calls, and ends training after all of them."""

    class Changing(kind):  # type: ignore[misc, valid-type]
        calls = 0

        def called(self) -> bool:
            self.calls += 1
            if self.calls == CALLS // 3:
                change(self.training_env)
            return self.calls < CALLS

        if kind is BaseCallback:

            def _on_step(self) -> bool:
                return self.called()

        else:

            def _on_rollout_end(self) -> None:
                if not self.called():
                    raise InterruptedError

    return Changing()


def episodes(env: Any, compile: Any, callback: BaseCallback) -> list[tuple[float, int]]:
    model = DGVFA2C("MlpPolicy", env, n_steps=4, auxiliary_task="none", compile=compile, seed=0, device="cpu")
    with suppress(InterruptedError):
        model.learn(10**6, callback)
    return [(info["r"], info["l"]) for info in model.ep_info_buffer or ()]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (shorter, BaseCallback),
        (by_hand, RolloutCallback),
        (other_dynamics, RolloutCallback),
        (other_step, BaseCallback),
    ],
    ids=["time limit", "attribute", "dynamics", "method"],
)
def test_a_changed_environment_is_the_one_that_is_stepped(
    change: Callable[[Any], None], kind: type[BaseCallback]
) -> None:
    stepped, simulated = (
        episodes(make_vec("CollectObjectsSmall-v0", 4, 0), mode, changing(kind, change)) for mode in (False, "auto")
    )
    unchanged = episodes(make_vec("CollectObjectsSmall-v0", 4, 0), False, changing(kind, lambda env: None))
    assert simulated == stepped
    assert stepped != unchanged


def test_a_subclass_steps_itself() -> None:
    def env() -> Any:
        return VecMonitor(GymnasiumVecEnv(Doubled(num_envs=4, autoreset_mode="SameStep")))

    one, other = (episodes(env(), mode, changing(RolloutCallback, lambda env: None)) for mode in (False, "auto"))
    assert one == other
    assert {float(reward) for reward, _ in one} <= {0.0, 2.0, 6.0}
