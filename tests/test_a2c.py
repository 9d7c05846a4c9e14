"""DGVFA2C as a Stable-Baselines3 algorithm, and as Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import ClipReward
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv
from torch.utils._pytree import tree_map_only

from dgvf_agents import DGVFA2C, DGVFPPO, DGVFImpala
from dgvf_agents.agents.collecting import RolloutCallback
from dgvf_agents.core.flat import builder, template
from dgvf_agents.core.vjp import PullBack, vjp
from dgvf_agents.execution import compiling
from dgvf_agents.execution.compiling import Compiled
from dgvf_agents.options import Task
from dgvf_envs.sb3_adapter import make_vec
from tests.compile_keys import recorded_keys
from tests.small_agents import BATCH, SMALL, SaveAt, small_model, weights_of


@pytest.mark.parametrize("task", [task for task in get_args(Task) if task != "pixel-control"])
def test_every_task_trains_and_moves_the_encoder(task: str) -> None:
    model = small_model(auxiliary_task=task)
    before = {name: p.detach().clone() for name, p in model.policy.named_parameters()}
    model.learn(20 * BATCH)
    assert model.num_timesteps == 20 * BATCH
    for name, parameter in model.policy.named_parameters():
        assert torch.isfinite(parameter).all(), name
        assert not torch.equal(parameter, before[name]), name
    assert model.meta_updates == (6 if task == "discovered" else 0)  # batches 4, 7, … complete the unrolls


@pytest.mark.parametrize("task", ["discovered", "random", "reward-prediction"])
@pytest.mark.parametrize("kind", [DGVFA2C, DGVFPPO, DGVFImpala])
def test_an_auxiliary_task_without_weight_changes_nothing(kind: Any, task: str) -> None:
    """Random draws, optimizer and clipping are those of an agent without a task."""
    own = {"n_steps": 32, "batch_size": 16, "n_epochs": 2} if kind is DGVFPPO else {"n_steps": 4, "compile": False}

    def trained(task: str) -> torch.Tensor:
        weightless = {"auxiliary_task": task, "auxiliary_coefficient": 0.0, "unroll_length": 3, "questions": 4}
        env = make_vec_env("CartPole-v1", 2, seed=0)
        model = kind("MlpPolicy", env, seed=0, device="cpu", **own, **weightless)
        return weights_of(model.learn(256))

    torch.testing.assert_close(trained(task), trained("none"), rtol=0, atol=1e-6)


ROOM = ("#" * 20, *["#" + " " * 18 + "#"] * 18, "#" * 20)


@pytest.mark.parametrize(
    ("options", "answers"),
    [
        ({"observation": "rgb", "layout": ROOM, "objects": ((2, 10), (9, 10))}, None),
        ({}, 13 * 13 * 4),  # a cell for every pixel of a binary image
    ],
)
def test_pixel_control_trains_on_images(options: dict[str, Any], answers: int | None) -> None:
    env = make_vec("CollectObjects-v0", 2, 0, env_kwargs=options)
    model = DGVFA2C("PaperCnnPolicy", env, **{**SMALL, "auxiliary_task": "pixel-control"})
    before = {name: value.clone() for name, value in model.policy.features_extractor.state_dict().items()}
    model.learn(20)
    assert answers in (None, model.task.num_answers)
    assert model.metrics is not None
    assert model.metrics.answer_loss > 0
    for name, value in model.policy.features_extractor.state_dict().items():
        assert value.isfinite().all(), name
        assert not torch.equal(value, before[name]), name


def test_the_same_seed_is_bitwise_the_same_run_and_another_is_not() -> None:
    runs = [weights_of(small_model(seed=seed).learn(15 * BATCH)) for seed in (3, 3, 4)]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    "id": lambda: "PuddleWorld-v0",
    "gymnasium env": lambda: gym.make("PuddleWorld-v0"),
    "vector env, next step": lambda: gym.make_vec("PuddleWorld-v0", 3),
    "vector env, same step": lambda: gym.make_vec("PuddleWorld-v0", 3, autoreset_mode=AutoresetMode.SAME_STEP),
    "sync vector env": lambda: gym.make_vec("PuddleWorld-v0", 3, vectorization_mode="sync"),
    "VecEnv": lambda: make_vec_env("PuddleWorld-v0", 3),
    "DummyVecEnv": lambda: DummyVecEnv([lambda: gym.make("PuddleWorld-v0")]),
}


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_any_kind_of_environment_can_be_learned_in(kind: str) -> None:
    model = small_model(ENVIRONMENTS[kind]()).learn(60)
    assert model.num_timesteps >= 60
    assert model.n_envs == {"id": 4, "gymnasium env": 1, "DummyVecEnv": 1}.get(kind, 3)


def test_a_vector_env_that_cannot_reset_in_part_is_made_anew_with_its_arguments() -> None:
    envs = gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point", max_episode_steps=8)
    with pytest.warns(UserWarning, match=r"^CartPoleVectorEnv cannot reset .* SyncVectorEnv is used for CartPole-v1$"):
        model = DGVFA2C("PaperMlpPolicy", envs, auxiliary_task="discovered", questions=4, compile=False, seed=0)
    model.learn(4 * 5 * 8)
    assert model.n_envs == 4
    assert max(info["l"] for info in model.ep_info_buffer) == 8
    with pytest.raises(ValueError, match=r"^env must autoreset"):
        DGVFA2C("PaperMlpPolicy", ClipReward(gym.make_vec("CartPole-v1", 4), -1.0, 1.0))


def test_callbacks_loggers_schedules_and_the_progress_bar_work(tmp_path: Path) -> None:
    seen = []

    class Count(BaseCallback):
        def _on_step(self) -> bool:
            seen.append(self.num_timesteps)
            return True

    model = small_model(learning_rate=lambda remaining: 1e-3 * remaining)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    evaluation = EvalCallback(
        make_vec("PuddleWorld-v0", 1, env_kwargs={"max_episode_steps": 20}), eval_freq=10, n_eval_episodes=1, verbose=0
    )
    model.learn(10 * BATCH - 3, [Count(), evaluation], log_interval=5)  # the last rollout exceeds the total
    model.logger.close()
    assert seen == list(range(4, 10 * BATCH + 1, 4))
    header = (tmp_path / "progress.csv").read_text().splitlines()[0].split(",")
    expected = {"time/fps", "train/n_updates", "train/explained_variance", "train/entropy_loss", "train/policy_loss"}
    expected |= {"train/value_loss", "train/learning_rate", "train/answer_loss", "questions/cumulant_variance"}
    expected |= {"questions/discount_median", "meta/gradient_norm", "meta/loss", "meta/skipped"}
    assert expected <= set(header)


class StandIn:
    """In the place of a compiled function, without a compiler: its updates differ from eager ones by rounding."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], differentiable: int) -> None:
        self._function, self._arguments, self._differentiable = function, builder(template(arguments)), differentiable

    def __call__(self, leaves: list[torch.Tensor]) -> Any:
        return self._function(*self._arguments(leaves))

    def vjp(self, leaves: list[torch.Tensor]) -> tuple[Any, PullBack]:
        results, pull_back = vjp(self._function, self._arguments(leaves), self._differentiable)
        return tree_map_only(torch.Tensor, lambda value: value * (1 + 1e-6), results), pull_back


@pytest.mark.parametrize("compiler", ["stand-in", pytest.param("real", marks=pytest.mark.slow)])
def test_auto_switches_at_a_fixed_update_and_resumes_bitwise_on_both_sides_of_it(
    compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiler == "stand-in":
        monkeypatch.setattr(Compiled, "prepare", lambda *arguments, **kwargs: None)
        monkeypatch.setattr(
            Compiled, "_compile", lambda self, _, arguments: StandIn(self._function, arguments, self._differentiable)
        )
    monkeypatch.setattr(compiling, "FIRST_COMPILED_UPDATE", 7)  # within the unroll of updates 6, 7 and 8
    monkeypatch.setattr(compiling, "LONG_ENOUGH", 14)
    batch = 4 * 2  # with more steps, the functions take much longer to compile
    total = 14 * batch

    def learned(compile: str | bool, steps: int, callback: BaseCallback | None = None) -> torch.Tensor:
        return weights_of(small_model(compile=compile, n_steps=2).learn(steps, callback))

    eager = learned(False, total)
    saved = (3, 6, 8, 9, 11)
    saving = [SaveAt(tmp_path / f"{updates}.zip", updates * batch + 4) for updates in saved]  # within a rollout
    expected = learned("auto", total, CallbackList(saving))
    np.testing.assert_allclose(expected, eager, atol=1e-4)
    assert not np.array_equal(expected, eager)
    assert np.array_equal(learned("auto", 13 * batch), learned(False, 13 * batch))
    for updates in saved:
        model = DGVFA2C.load(tmp_path / f"{updates}.zip", make_vec("PuddleWorld-v0", 4), device="cpu")
        assert model.compile == "auto"
        model.learn(total - model.num_timesteps, reset_num_timesteps=False)
        np.testing.assert_array_equal(weights_of(model), expected, err_msg=f"saved after {updates} updates")


NUMBERS: dict[str, Any] = {
    "gamma": 0.5,
    "vf_coef": 0.1,
    "ent_coef": 0.1,
    "auxiliary_coefficient": 1.0,
    "max_grad_norm": 2.0,
    "rms_prop_eps": 1e-3,
    "learning_rate": 1e-3,
    "meta_learning_rate": 1e-3,
    "meta_max_grad_norm": 0.1,
    "seed": 1,
}


def test_models_that_differ_in_numbers_share_compiled_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded_keys(monkeypatch, 8)

    def keys(**changes: Any) -> set[str]:
        asked.clear()
        small_model(compile="auto", **changes).learn(8 * BATCH)
        return set(asked)

    expected = keys()
    assert len(expected) == 3  # acting, the inner update with the meta-loss before it, and the last meta-loss
    assert keys(**NUMBERS) == expected
    assert not keys(n_steps=4) & expected


def test_numpy_numbers_and_the_matching_n_envs_are_accepted() -> None:
    whole = {"questions": np.int64(4), "unroll_length": np.int32(2), "n_steps": np.int64(5), "n_envs": np.int64(4)}
    broken = {"gamma": np.float32(0.9), "vf_coef": np.float64(0.5), "learning_rate": np.float32(1e-3)}
    model = small_model(make_vec("PuddleWorld-v0", 4, 0), **whole, **broken).learn(3 * BATCH)
    assert model.meta_updates + model.meta_skipped == 1


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("ent_coef", 0.2, 0.0),
        ("auxiliary_coefficient", 0.4, 0.1),
        ("meta_learning_rate", 1e-2, 0.0),
    ],
)
def test_numbers_may_be_annealed(name: str, start: float, end: float, tmp_path: Path) -> None:
    """A constant function equals the number, and a schedule equals numbers that are set before every update."""
    schedule, steps = LinearSchedule(start, end, 1.0), 8 * BATCH
    task = "discovered" if name == "meta_learning_rate" else "random"

    class SetNow(RolloutCallback):
        def _on_rollout_end(self) -> None:
            setattr(self.model, name, schedule(1.0 - self.num_timesteps / steps))

    def trained(value: Any, callback: BaseCallback | None = None) -> DGVFA2C:
        model = small_model(auxiliary_task=task, encoder_mode="auxiliary", unroll_length=2, **{name: value})
        return model.learn(steps, callback)

    constant, annealed = weights_of(trained(start)), trained(schedule)
    np.testing.assert_array_equal(weights_of(trained(lambda progress: start)), constant)
    np.testing.assert_allclose(weights_of(annealed), weights_of(trained(start, SetNow())), rtol=1e-5, atol=1e-7)
    assert not np.allclose(weights_of(annealed), constant, rtol=1e-5, atol=1e-7)
    annealed.save(tmp_path / "model.zip")
    loaded = getattr(DGVFA2C.load(tmp_path / "model.zip", device="cpu"), name)
    assert [loaded(progress) for progress in (1.0, 0.5)] == [start, (start + end) / 2]


@pytest.mark.parametrize(
    ("env_id", "num_envs"), [("PuddleWorld-v0", 16), ("dgvf_envs:CollectObjectsSmall-v0", 16), ("CartPole-v1", 1)]
)
def test_the_default_number_of_environments(env_id: str, num_envs: int) -> None:
    policy = "PaperCnnPolicy" if "Collect" in env_id else "PaperMlpPolicy"
    assert DGVFA2C(policy, env_id, compile=False).n_envs == num_envs
    assert DGVFA2C(policy, env_id, compile=False, n_envs=3).n_envs == 3
