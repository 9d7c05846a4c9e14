"""Simulated rollouts against acting and stepping in turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecCheckNan, VecEnv, VecFrameStack, VecMonitor
from torch import Tensor

from dgvf_agents import DGVFA2C, DGVFImpala
from dgvf_agents.agents.collecting import RolloutCallback
from dgvf_agents.agents.simulation import Simulation, simulated_world
from dgvf_agents.core.types import Params, SampledActions
from dgvf_agents.execution import compiling
from dgvf_agents.execution.compiling import Compilation, Compiled
from dgvf_agents.execution.fused import FusedSteps
from dgvf_envs.sb3_adapter import GymnasiumVecEnv, make_vec
from tests.helpers import TINY_MAP, assert_same, own_vector_env

B = 4


@pytest.fixture(autouse=True)
def simulated_and_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollouts are simulated as in long training, and nothing runs compiled."""
    monkeypatch.setattr(compiling, "LONG_ENOUGH", 1)
    monkeypatch.setattr(Compiled, "prepare", lambda *arguments, **kwargs: None)


def act(theta: Params, observations: Tensor, noise: Tensor) -> SampledActions:
    """Actions that depend on observations, parameters and noise, and log-probabilities that tell which step it was."""
    seen = observations.flatten(1).double() @ theta["weights"]
    return SampledActions(((torch.sin(1000.0 * seen) + 4.0 * noise).abs() % 4.0).long(), seen + noise)


def simulator_of(env: VecEnv, n_steps: int) -> Simulation:
    """A simulator of rollouts in which `act` acts."""
    found = simulated_world(env)
    assert found is not None
    world, monitors, adapter = found
    fused = FusedSteps(act, world.dynamics, world.max_episode_steps, torch.device("cpu"))
    return Simulation(fused, world, n_steps, Compilation(False), monitors, adapter)


def without_time(info: dict[str, Any]) -> dict[str, Any]:
    """An info without the wall time of its episode."""
    episode = {key: value for key, value in info.get("episode", {}).items() if key != "t"}
    return {**info, "episode": episode}


def test_an_episode_that_ends_at_its_time_limit_is_terminated_and_not_truncated() -> None:
    env = make_vec("PuddleWorld-v0", 300, 0, env_kwargs={"start": "random", "max_episode_steps": 1})
    observations = env.reset()
    theta = {"weights": torch.rand(int(np.prod(observations.shape[1:])), dtype=torch.float64)}
    simulation = simulator_of(env, 5)
    step = simulation.take_rollout(theta, torch.rand(5, 300), observations, False)  # type: ignore[arg-type]
    assert step is not None
    rollout = simulation.rollout({})
    assert rollout.terminated.any()
    assert torch.equal(rollout.truncated, ~rollout.terminated)
    late = [[info["TimeLimit.truncated"] for info in infos] for infos, _ in step[-1]]
    assert rollout.truncated.tolist() == late


def test_only_worlds_without_wrappers_are_simulated() -> None:
    env = make_vec("PuddleWorld-v0", B)
    assert simulated_world(env) == (env.venv.env, [env], env.venv)
    assert simulated_world(VecFrameStack(env, 2)) is None
    assert simulated_world(make_vec("CartPole-v1", B)) is None
    other = own_vector_env("PuddleWorld-v0", B, AutoresetMode.NEXT_STEP)
    assert simulated_world(VecMonitor(GymnasiumVecEnv(other))) is None


def world() -> VecEnv:
    """Short episodes."""
    return make_vec("PuddleWorld-v0", B, 1, env_kwargs={"start": "random", "max_episode_steps": 9})


def rooms() -> VecEnv:
    """Episodes that terminate early."""
    return make_vec("CollectObjects-v0", B, 1, env_kwargs={"layout": TINY_MAP, "wrong_order": "terminate"})


SMALL: dict[str, Any] = {
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


@pytest.mark.parametrize("n_steps", [5, 12])
def test_rollouts_that_are_simulated_at_once_are_those_taken_step_by_step(
    n_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take_part = Simulation.take_part
    monkeypatch.setattr(Simulation, "take_part", lambda *given: taken.append(1) or take_part(*given))

    def trained(stepwise: bool) -> tuple[DGVFA2C, list[Any], int]:
        model = DGVFA2C("PaperMlpPolicy", world(), n_steps=n_steps, seed=0, **SMALL)
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
    model = DGVFA2C("PaperMlpPolicy", env, questions=2, seed=0, device="cpu")
    with pytest.raises(ValueError, match=r"rewards must be finite, got -inf from environment \d"):
        model.learn(30 * B)
