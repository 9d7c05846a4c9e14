"""Simulated rollouts and episodes against acting and stepping in turn, in environments that change, too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecCheckNan, VecEnv, VecFrameStack, VecMonitor

from dgvf_agents import DGVFA2C, DGVFImpala
from dgvf_agents.agents.collecting import RolloutCallback
from dgvf_agents.agents.simulation import MAX_STEPS, Simulation
from dgvf_agents.execution import compiling
from dgvf_agents.execution.compiling import Compiled
from dgvf_agents.storage.state import get_random_states
from dgvf_agents.train.evaluate import Evaluator, episodes_of
from dgvf_envs.collect_objects import CollectObjectsVectorEnv
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, make_vec
from tests.helpers import assert_same

B = 4


@pytest.fixture(autouse=True)
def simulated_and_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollouts are simulated as in long training, and nothing runs compiled."""
    monkeypatch.setattr(compiling, "LONG_ENOUGH", 1)
    monkeypatch.setattr(compiling, "FIRST_COMPILED_UPDATE", 2)
    monkeypatch.setattr(Compiled, "prepare", lambda *arguments, **kwargs: None)
    monkeypatch.setattr(Compiled, "_passes", lambda *arguments: None)


def without_time(info: dict[str, Any]) -> dict[str, Any]:
    """An info without the wall time of its episode."""
    episode = {key: value for key, value in info.get("episode", {}).items() if key != "t"}
    return {**info, "episode": episode}


def world() -> VecEnv:
    """Short episodes."""
    return make_vec("PuddleWorld-v0", B, 1, env_kwargs={"start": "random", "max_episode_steps": 9})


def rooms() -> VecEnv:
    """Episodes that terminate in their last step or run out of time."""
    return make_vec("CollectObjects-v0", B, 1, env_kwargs={"layout": ["S12"], "max_episode_steps": 2})


SMALL: dict[str, Any] = {
    "auxiliary_task": "discovered",
    "questions": 2,
    "unroll_length": 2,
    "device": "cpu",
    "policy_kwargs": {"features_extractor_kwargs": {"hidden": (8,)}},
}


class Meddling(RolloutCallback):
    """Resets the environments between rollouts, whose observations the agent still acts on."""

    def _on_rollout_start(self) -> None:
        if self.num_timesteps == 3 * self.model.n_steps * B:  # type: ignore[attr-defined]
            self.training_env.reset()


@pytest.mark.parametrize(
    ("agent", "n_steps", "at_once", "meddling"),
    [
        pytest.param(DGVFA2C, 5, 5, True, id="with a reset"),
        pytest.param(DGVFA2C, 12, 6, False, id="two parts a rollout"),
        pytest.param(DGVFA2C, 11, 1, False, id="no divisor of a prime number of steps"),
        pytest.param(DGVFImpala, 12, 6, False, id="with log-probabilities and features"),
    ],
)
def test_simulated_rollouts_train_the_same_agent(agent: Any, n_steps: int, at_once: int, meddling: bool) -> None:
    """A wrapper that changes nothing hides the world, which is then not simulated."""

    def trained(wrap: bool) -> Any:
        env = world() if agent is DGVFA2C else rooms()
        model = agent(
            "PaperMlpPolicy", VecCheckNan(env) if wrap else env, n_steps=n_steps, seed=0, **SMALL, learning_rate=1e-2
        )
        return model.learn(6 * n_steps * B, Meddling() if meddling else None)

    simulated, in_turn = trained(False), trained(True)
    assert simulated._collector._simulation is not None
    assert simulated._collector._simulation.steps == at_once
    assert in_turn._collector._simulation is None
    torch.testing.assert_close(simulated._rollout.given(), in_turn._rollout.given())
    torch.testing.assert_close(simulated.policy.state_dict(), in_turn.policy.state_dict())


# --- callbacks --------------------------------------------------------------------------------------------------------


class EveryStep(BaseCallback):
    """Looks at every step, which changes nothing."""

    def _on_step(self) -> bool:
        return True


class Ends(RolloutCallback):
    """What a callback finds at the end of rollouts."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def _on_rollout_end(self) -> None:
        values = [self.locals[name] for name in ("actions", "new_obs", "rewards", "dones")]
        infos = [without_time(info) for info in self.locals["infos"]]
        monitor, model = self.training_env, self.model
        counts = [monitor.episode_returns.copy(), monitor.episode_lengths.copy(), monitor.episode_count]  # type: ignore[attr-defined]
        episodes = [(episode["r"], episode["l"]) for episode in model.ep_info_buffer]  # type: ignore[union-attr]
        successes = list(model.ep_success_buffer)  # type: ignore[arg-type]
        self.seen.append((*values, infos, *counts, episodes, successes, model.num_timesteps))


def assert_equal_learners(one: DGVFA2C, other: DGVFA2C, **tolerance: float) -> None:
    states = (model.learner.get_state() for model in (one, other))
    torch.testing.assert_close(*((s.theta, s.statistics, s.eta) for s in states), **tolerance)


@pytest.mark.parametrize(("make", "n_steps"), [(world, 5), (world, 12), (rooms, 12)])
def test_rollouts_that_are_simulated_at_once_are_those_taken_step_by_step(
    make: Callable[[], VecEnv], n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take = Simulation.take
    monkeypatch.setattr(Simulation, "take", lambda *given: (taken.append(1) or part for part in take(*given)))

    def trained(stepwise: bool) -> tuple[DGVFA2C, list[Any], int]:
        model = DGVFA2C("PaperMlpPolicy", make(), n_steps=n_steps, seed=0, **SMALL)
        ends, before = Ends(), len(taken)
        model.learn(6 * n_steps * B, [ends, EveryStep()] if stepwise else ends)
        return model, ends.seen, len(taken) - before

    (one, seen, parts), (other, seen_by_step, none) = trained(False), trained(True)
    assert (parts, none) == (6 * n_steps // (5 if n_steps == 5 else 6), 0)
    assert_same(seen, seen_by_step)
    assert seen[-1][8]  # episodes ended
    assert_equal_learners(one, other, rtol=1e-5, atol=1e-6)
    assert one.env is not None
    assert other.env is not None
    assert_same(one.env.reset_infos, other.env.reset_infos)


def test_training_goes_on_from_the_end_of_a_rollout_that_was_simulated_at_once(tmp_path: Path) -> None:
    class Save(RolloutCallback):
        def _on_rollout_end(self) -> None:
            if self.num_timesteps == 3 * 5 * B:
                self.model.save(tmp_path / "model")

    model = DGVFA2C("PaperMlpPolicy", world(), seed=0, **SMALL).learn(30 * B, Save())
    resumed = DGVFA2C.load(tmp_path / "model", world(), device="cpu")
    resumed.learn(15 * B, reset_num_timesteps=False)
    assert_equal_learners(resumed, model, rtol=0.0, atol=0.0)


def test_a_reward_that_is_not_finite_ends_training() -> None:
    env = make_vec("PuddleWorld-v0", B, 1, env_kwargs={"reward_scale": 1e38})
    model = DGVFA2C("PaperMlpPolicy", env, auxiliary_task="discovered", questions=2, seed=0, device="cpu")
    with pytest.raises(ValueError, match=r"rewards must be finite, got -inf from environment \d"):
        model.learn(30 * B)


# --- evaluations ------------------------------------------------------------------------------------------------------

SEED, EVALUATED = 7, 3


def evaluated(num_envs: int = EVALUATED) -> VecEnv:
    return make_vec("PuddleWorld-v0", num_envs, 1, env_kwargs={"start": "random", "max_episode_steps": 21})


def agent_after(updates: int) -> DGVFA2C:
    model = DGVFA2C(
        "MlpPolicy", evaluated(2), n_steps=5, seed=0, auxiliary_task="discovered", questions=2, unroll_length=1
    )
    return model.learn(2 * 5 * updates)


def episodes_in_turn(model: DGVFA2C, env: VecEnv, episodes: int) -> tuple[list[float], list[int]]:
    """The episodes that Stable-Baselines3's `evaluate_policy` counts, as its monitor sees them."""
    generator, act = np.random.default_rng(SEED), model.learner.functions.packed.act
    env.seed(SEED)
    observations, found, t = env.reset(), [], 0
    left = [(episodes + i) // env.num_envs for i in range(env.num_envs)]
    while any(left):
        if t % MAX_STEPS == 0:
            noise = torch.from_numpy(model._distribution.draw_noise(generator, MAX_STEPS, env.num_envs))
        observed = torch.from_numpy(observations)  # type: ignore[arg-type]
        actions = act(model._policy_theta, observed, noise[t % MAX_STEPS]).actions
        observations, _, dones, infos = env.step(actions.numpy())
        for i in np.flatnonzero(dones):
            if left[i]:
                left[i] -= 1
                found.append((infos[i]["episode"]["r"], infos[i]["episode"]["l"]))
        t += 1
    return [r for r, _ in found], [n for _, n in found]


def generators(model: DGVFA2C) -> list[Any]:
    """States of the global random number generators, and of the actor's."""
    python, of_numpy, of_torch, _ = get_random_states(model.device)
    return [python, of_numpy, of_torch.numpy(), model._collector.get_state()["generator"].bit_generator.state]


@pytest.mark.parametrize("updates", [1, 4])
def test_evaluations_do_not_disturb_training(updates: int) -> None:
    """Neither step by step nor simulated."""
    model, evaluator = agent_after(updates), Evaluator(evaluated(), 4, SEED)
    before = generators(model)
    evaluator.episodes_of(model)
    assert_same(generators(model), before)


@pytest.mark.parametrize(("updates", "episodes"), [(1, 6), (4, 1), (4, 8)])
def test_evaluations_are_simulated_once_updates_are_compiled(updates: int, episodes: int) -> None:
    model, evaluator = agent_after(updates), Evaluator(evaluated(), episodes, SEED)
    found = evaluator.episodes_of(model)
    assert_same(evaluator.episodes_of(model), found)  # from the same seed
    if updates == 1:
        expected = episodes_of(model, evaluated(), episodes, SEED)
    else:
        expected = tuple(map(np.asarray, episodes_in_turn(model, evaluated(), episodes)))  # type: ignore[assignment]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_other_worlds_are_evaluated_step_by_step() -> None:
    given: dict[str, Any] = {"auxiliary_task": "discovered", "unroll_length": 1, "seed": 0, "device": "cpu"}
    model = DGVFA2C("MlpPolicy", VecFrameStack(evaluated(2), 2), n_steps=5, **given).learn(40)
    assert model._collector.episodes_in(VecFrameStack(evaluated(), 2)) is None
    assert_same(
        Evaluator(VecFrameStack(evaluated(), 2), 4, SEED).episodes_of(model),
        episodes_of(model, VecFrameStack(evaluated(), 2), 4, SEED),
    )


# --- changed environments ---------------------------------------------------------------------------------------------

ROLLOUTS = 60


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


def other_step(part: str) -> Callable[[Any], None]:
    """Assigns a step that costs 1 to the world, the adapter or the monitor."""

    def assign(monitor: Any) -> None:
        env, name = {"world": (monitor.unwrapped.env, "step"), "adapter": (monitor.venv, "step_wait")}.get(
            part, (monitor, "step_wait")
        )
        step = getattr(env, name)

        def costly(*actions: np.ndarray) -> Any:
            observations, rewards, *others = step(*actions)
            if part == "monitor":
                for info in others[-1]:
                    if "episode" in info:
                        info["episode"]["r"] -= 1
            return observations, rewards - 1, *others

        setattr(env, name, costly)

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


unchanged = cache(lambda: episodes(make_vec("CollectObjectsSmall-v0", 4, 0), False, Changing(lambda env: None)))


@pytest.mark.parametrize(
    "change", [shorter, by_hand, other_dynamics, other_step("world"), other_step("adapter"), other_step("monitor")]
)
def test_a_changed_environment_is_the_one_that_is_stepped(change: Callable[[Any], None]) -> None:
    stepped, simulated = (
        episodes(make_vec("CollectObjectsSmall-v0", 4, 0), mode, Changing(change)) for mode in (False, "auto")
    )
    assert simulated == stepped
    assert stepped != unchanged()


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
