"""`dgvf` in RL Baselines3 Zoo, through the zoo's own scripts."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.utils import ConstantSchedule, LinearSchedule

from dgvf_agents import DGVFA2C, DGVFPPO, zoo
from dgvf_agents.agents.schedules import checked_value_at
from dgvf_agents.hyperparameters import SCHEDULED, arguments
from dgvf_agents.train.config import WORLDS, preset
from dgvf_agents.train.train import build

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "zoo"
SMALL, PUDDLE = "CollectObjectsSmall-v0", "PuddleWorld-v0"
TINY = ["compile:False", "questions:4", "policy_kwargs:'dict(features_extractor_kwargs=dict(features_dim=16))'"]
TINY_MLP = ["compile:False", "questions:4", "policy_kwargs:'dict(features_extractor_kwargs=dict(hidden=(8,)))'"]

needs_zoo = pytest.mark.skipif(importlib.util.find_spec("rl_zoo3") is None, reason="needs the extra zoo")


@pytest.fixture(scope="module")
def rl_zoo3() -> Iterator[Any]:
    """The zoo. Importing it replaces Gymnasium's `TimeLimit` and patches NumPy; this is undone afterwards."""
    modules = (gym.wrappers, gym.wrappers.common, gym.envs.registration)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        for module in modules:
            patch.setattr(module, "TimeLimit", gym.wrappers.TimeLimit, raising=False)
        patch.setattr(np, "bool8", np.bool_, raising=False)
        warnings.simplefilter("ignore")  # warnings of its imports
        zoo.register()
        import rl_zoo3
        import rl_zoo3.enjoy
        import rl_zoo3.train

        yield rl_zoo3


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def train(env_id: str, steps: int, *options: str, settings: list[str], folder: str = "logs") -> Path:
    """Train with the zoo; returns the run folder."""
    given = ["--env", env_id, "-n", str(steps), "-f", folder, "--seed", "3", "--device", "cpu", "-params", *settings]
    zoo.main(["train", *given, *options])
    return max(Path(folder, zoo.NAME).glob(f"{env_id}_*"), key=lambda path: int(path.name.split("_")[-1]))


NO_EVALUATION = ("--eval-freq", "-1")


@needs_zoo
def test_registering_is_idempotent_and_reaches_all_modules(rl_zoo3: Any) -> None:
    import rl_zoo3.exp_manager

    before = dict(rl_zoo3.ALGOS)
    zoo.register()
    assert before == rl_zoo3.ALGOS
    for module in (rl_zoo3, rl_zoo3.train, rl_zoo3.enjoy, rl_zoo3.exp_manager):
        assert module.ALGOS["dgvf"] is zoo.ZooDGVFA2C
        assert module.ALGOS["a2c"].__name__ == "A2C"


def test_a_missing_zoo_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rl_zoo3", None)
    with pytest.raises(ImportError, match=r"install the extra `zoo`, dgvf\[zoo\]"):
        zoo.register()


@needs_zoo
def test_the_example_holds_the_presets(capsys: pytest.CaptureFixture[str]) -> None:
    import yaml

    zoo.main(["hyperparameters"])
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed) == zoo.hyperparams == zoo.hyperparameters()
    refreshed = "python -m dgvf_agents.zoo hyperparameters > examples/zoo/dgvf.yml"
    assert (EXAMPLE / "dgvf.yml").read_text(encoding="utf-8") == printed, refreshed


@needs_zoo
@pytest.mark.parametrize("world", WORLDS)
def test_settings_are_those_of_dgvf_train(world: Any, rl_zoo3: Any) -> None:
    import yaml

    config = dataclasses.replace(preset(world, "discovered"), compile=False)
    conf = ["--conf-file", str(EXAMPLE / "dgvf.yml")]
    run = train(config.env, 80, *conf, *NO_EVALUATION, settings=["compile:False"])
    model, expected = DGVFA2C.load(run / f"{config.env}.zip"), build(dataclasses.replace(config, seed=3))
    for name in (*(arguments("a2c").keys() - SCHEDULED), "auxiliary_task", "policy_class", "_optimizer"):
        assert getattr(model, name) == getattr(expected, name), name
    for progress in (1.0, 0.7, 0.0):
        for name in ("learning_rate", "ent_coef", "auxiliary_coefficient"):
            weight, wanted = (checked_value_at(name, getattr(one, name), progress) for one in (model, expected))
            assert weight == wanted, name
    saved = yaml.unsafe_load((run / config.env / "config.yml").read_text(encoding="utf-8"))
    assert saved["n_envs"] == config.n_envs == len(list(run.glob("*.monitor.csv")))
    assert saved["n_timesteps"] == config.steps
    assert saved.get("env_kwargs", {}) == config.env_kwargs
    assert [tuple(p.shape) for p in model.policy.parameters()] == [tuple(p.shape) for p in expected.policy.parameters()]


@needs_zoo
def test_ppo_has_the_zoos_hyperparameters(rl_zoo3: Any) -> None:
    given = ["--algo", "dgvf-ppo", "--env", "CartPole-v1", "-n", "512", "-f", "logs", "--seed", "3", "--device", "cpu"]
    zoo.main(["train", *given, *NO_EVALUATION, "-params", "auxiliary_task:'random'", "questions:4"])
    (file,) = Path("logs", "dgvf-ppo").glob("CartPole-v1_1/CartPole-v1.zip")
    model = DGVFPPO.load(file)
    assert (model.n_steps, model.n_envs, model.batch_size, model.n_epochs) == (32, 8, 256, 20)  # of its ppo.yml
    assert checked_value_at("clip_range", model.clip_range, 0.5) == pytest.approx(0.1)  # lin_0.2
    assert model.task.num_answers == 4


@needs_zoo
@pytest.mark.slow
def test_the_zoos_own_command_trains_and_enjoys(rl_zoo3: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("custom_envs.py", "dgvf.yml"):
        shutil.copy(EXAMPLE / name, name)
    command = [sys.executable, "-m", "rl_zoo3.train", "--algo", "dgvf", "--env", PUDDLE, "--conf-file", "dgvf.yml"]
    evaluated = ["--eval-freq", "160", "--eval-env-kwargs", "max_episode_steps:9"]
    options = ["-n", "480", "--save-freq", "160", "--num-threads", "1", *evaluated, "-params", *TINY_MLP]
    subprocess.run([*command, *options], check=True, capture_output=True, timeout=300)
    run = Path("logs", "dgvf", f"{PUDDLE}_1")
    assert np.load(run / "evaluations.npz")["timesteps"].tolist() == [160, 320, 480]
    assert len(list(run.glob("rl_model_*_steps.zip"))) == 3
    assert DGVFA2C.load(run / "best_model.zip").num_timesteps in (160, 320, 480)
    model = DGVFA2C.load(run / f"{PUDDLE}.zip")  # warnings, for example about a pickle, are errors
    assert (model.num_timesteps, model.questions, model.compile) == (480, 4, False)

    capsys.readouterr()
    enjoy = ["enjoy", "--env", PUDDLE, "-f", "logs", "--device", "cpu"]
    zoo.main([*enjoy, "-n", "5"])  # renders, without a display
    zoo.main([*enjoy, "-n", "1010", "--no-render"])
    printed = [float(value) for value in re.findall(r"Episode Reward: (.*)", capsys.readouterr().out)]
    assert len(set(printed)) >= 2


@needs_zoo
def test_the_zoos_own_settings_work(rl_zoo3: Any) -> None:
    wrapper = "env_wrapper:'gymnasium.wrappers.FlattenObservation'"
    settings = [*TINY_MLP, "policy:'PaperMlpPolicy'", "n_envs:2", "normalize:True", "frame_stack:2", wrapper]
    evaluated = ("--eval-freq", "20", "--eval-episodes", "1")
    run = train(SMALL, 40, *evaluated, settings=settings)
    model = DGVFA2C.load(run / f"{SMALL}.zip")
    assert model.observation_space.shape == (2 * 3 * 9 * 9,)
    assert next(model.policy.parameters()).shape == (8, 2 * 3 * 9 * 9)
    assert model.n_envs == 2
    assert (run / SMALL / "vecnormalize.pkl").is_file()
    zoo.main(["enjoy", "--env", SMALL, "-f", "logs", "-n", "5", "--no-render", "--load-best", "--device", "cpu"])


@needs_zoo
def test_a_search_tries_questions_unroll_lengths_and_meta_learning_rates(
    rl_zoo3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import optuna

    names = ("questions", "unroll_length", "meta_learning_rate")
    trained: list[dict[str, Any]] = []
    learn = zoo.ZooDGVFA2C.learn

    def spied(model: Any, *arguments: Any, **settings: Any) -> Any:
        trained.append({name: getattr(model, name) for name in names})
        return learn(model, *arguments, **settings)

    monkeypatch.setattr(zoo.ZooDGVFA2C, "learn", spied)
    search = ("-optimize", "--n-trials", "3", "--n-evaluations", "1", "--eval-episodes", "1", "--pruner", "none")
    study = ("--storage", "study.log", "--study-name", "s")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        train(SMALL, 240, *search, *study, "--no-optim-plots", settings=TINY)
        backend = optuna.storages.journal.JournalFileBackend("study.log")
        trials = optuna.load_study(study_name="s", storage=optuna.storages.JournalStorage(backend)).trials
        assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
        assert [trial.params for trial in trials] == trained
        for name, bounds in zip(names, (zoo.QUESTIONS, zoo.UNROLL_LENGTHS, zoo.META_LEARNING_RATES), strict=True):
            values = [trial.params[name] for trial in trials]
            assert len(set(values)) == 3, name
            assert all(bounds[0] <= value <= bounds[1] for value in values), name
        run = train(SMALL, 80, *study, "--trial-id", "2", *NO_EVALUATION, settings=[TINY[0], TINY[2]])
    model = DGVFA2C.load(run / f"{SMALL}.zip")
    assert {name: getattr(model, name) for name in names} == trials[2].params


def test_a_search_prunes_a_run_that_diverges() -> None:
    small = {"features_extractor_kwargs": {"hidden": (8,)}}
    settings = {"ent_coef": 0.01, "auxiliary_task": "discovered", "questions": 2, "unroll_length": 2}
    settings |= {"compile": False, "device": "cpu"}
    model = zoo.ZooDGVFA2C("PaperMlpPolicy", PUDDLE, learning_rate=1e30, policy_kwargs=small, seed=0, **settings)
    with pytest.raises(ValueError, match="must be finite"):
        model.learn(800, log_interval=1)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"learning_rate": ConstantSchedule(0.1), "final_learning_rate": 0.01}, (0.1, 0.055, 0.01)),
        ({"learning_rate": ConstantSchedule(0.1)}, (0.1, 0.1, 0.1)),
        ({"learning_rate": 0.2, "final_learning_rate": None}, (0.2, 0.2, 0.2)),
        ({"learning_rate": 1, "final_learning_rate": 0}, (1.0, 0.5, 0.0)),
    ],
)
def test_schedules(settings: dict[str, Any], expected: tuple[float, ...]) -> None:
    known = zoo.with_schedules(settings)
    assert list(known) == ["learning_rate"]
    rate = known["learning_rate"]
    rates = [rate(progress) if callable(rate) else rate for progress in (1.0, 0.5, 0.0)]
    assert rates == pytest.approx(expected, rel=1e-12)


@needs_zoo
def test_a_schedule_of_the_zoo_is_written_without_a_pickle(rl_zoo3: Any) -> None:
    run = train(SMALL, 80, *NO_EVALUATION, settings=[*TINY, "learning_rate:'lin_0.002'"])
    schedule = DGVFA2C.load(run / f"{SMALL}.zip").learning_rate
    assert [schedule(progress) for progress in (1.0, 0.5, 0.0)] == pytest.approx([0.002, 0.001, 0.0], abs=1e-15)


def test_final_values_without_a_start_are_refused() -> None:
    with pytest.raises(ValueError, match=r"ent_coef must be given"):
        zoo.with_schedules({"final_ent_coef": 0.1})
    with pytest.raises(ValueError, match="learning_rate must be a number"):
        zoo.with_schedules({"learning_rate": LinearSchedule(1.0, 0.0, 1.0), "final_learning_rate": 0.1})
