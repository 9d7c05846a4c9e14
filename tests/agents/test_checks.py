"""Errors during training are reported and leave a usable model or run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import SubprocVecEnv, VecMonitor

from dgvf_agents import DGVFA2C
from dgvf_agents.agents.arguments import question_network
from dgvf_agents.agents.collecting import step_watched
from dgvf_agents.cli import main
from dgvf_agents.core.metrics import NotFiniteError
from dgvf_agents.core.tasks import DiscoveredGVFs
from dgvf_agents.core.types import Params
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.recorder import stop_requests
from tests.impala.faulty_worlds import Faulty
from tests.kill_harness import differences
from tests.small_agents import BOX, Samples, small_model


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("fault", ["reward", "observation", "first observation"])
def test_values_that_are_not_finite_are_named_before_the_update(fault: str, value: float) -> None:
    model = small_model(Faulty(fault, value=value))
    with pytest.raises(ValueError, match=rf"(rewards|observations) must be finite, got {value} from environment"):
        model.learn(40)
    assert all(torch.isfinite(p).all() for p in model.policy.parameters())


def test_an_environment_that_raises_leaves_the_model_unchanged(tmp_path: Path) -> None:
    model = small_model(Faulty("error"))
    with pytest.raises(ZeroDivisionError, match="the simulator broke"):
        model.learn(40)
    assert (model.num_timesteps, model._n_updates) == (7, 1)
    model.save(tmp_path / "model")
    for survivor in (model, DGVFA2C.load(tmp_path / "model", Faulty("none"), device="cpu")):
        survivor.set_env(Faulty("none"))
        survivor.learn(20, reset_num_timesteps=False)
        assert survivor.num_timesteps == 27
        assert all(torch.isfinite(p).all() for p in survivor.policy.parameters())


def test_losses_are_checked_when_they_are_logged() -> None:
    model = small_model(learning_rate=1e30, max_grad_norm=None)
    with pytest.raises(NotFiniteError, match=r"must be finite, got (nan|-?inf) in update \d+: a smaller learning_rate"):
        model.learn(2000, log_interval=2)


@pytest.mark.parametrize("updates", [1, 5])
def test_training_that_has_diverged_never_returns(updates: int) -> None:
    """Even if no row is logged, and if the last update makes the parameters not finite."""
    model = small_model(learning_rate=1e38, vf_coef=1e6)
    with pytest.raises(NotFiniteError, match=r"must be finite( after|, got).* updates?.*: a smaller learning_rate"):
        model.learn(updates * 20)


def test_actions_that_are_not_finite_are_no_fault_of_the_environment() -> None:
    model = small_model(Samples(BOX, BOX), "MlpPolicy", learning_rate=1e38, vf_coef=1e6)
    with pytest.raises(NotFiniteError, match=r"^actions must be finite after \d updates"):
        model.learn(100)


def test_an_evaluation_reports_divergence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--policy", "MlpPolicy", "--compile", "False", "--questions", "4", "--n-envs", "2", "--steps", "400"]
    often = ["--log-every", "400", "--evaluate-every", "200", "--learning-rate", "1e38"]
    with pytest.raises(SystemExit):
        main(["train", "collect-objects-small", "discovered", *own, *often, "--out", str(tmp_path / "run")])
    assert " must be finite" in capsys.readouterr().err


class Exploding(DiscoveredGVFs):
    """Questions whose derivative is NaN."""

    def loss(self, answers: torch.Tensor, bootstraps: torch.Tensor, eta: Params, rollout: Any) -> torch.Tensor:
        loss = super().loss(answers, bootstraps, eta, rollout)
        zero = sum(((value - value.detach()) ** 2).sum() for value in eta.values())
        return loss * (1 + torch.sqrt(zero))  # its derivative at 0 is 0/0


def test_a_nan_meta_gradient_is_skipped_and_counted() -> None:
    def task(model: DGVFA2C) -> DiscoveredGVFs:
        return Exploding(question_network(model.policy, model.questions, False))

    model = small_model(auxiliary_task=task, unroll_length=2)
    before = {name: value.clone() for name, value in model.learner.eta.items()}
    model.learn(7 * 20)
    assert (model.meta_updates, model.meta_skipped) == (0, 3)
    assert all(torch.equal(before[name], value) for name, value in model.learner.eta.items())


@contextmanager
def _subprocesses(faults: tuple[str, ...], start_method: str) -> Iterator[SubprocVecEnv]:
    """Environments in processes of their own, which are killed in the end."""
    env = SubprocVecEnv([lambda fault=fault: Faulty(fault) for fault in faults], start_method)
    try:
        yield env
    finally:
        for process, remote in zip(env.processes, env.remotes, strict=True):
            process.kill()
            process.join()
            remote.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("fault", "code", "start_method"),
    [
        ("exit", "7", "fork"),
        ("error", "1", "fork"),
        pytest.param("exit", "7", "forkserver", marks=pytest.mark.slow),  # its workers repeat all imports
    ],
)
def test_a_worker_that_dies_is_named(fault: str, code: str, start_method: str) -> None:
    with _subprocesses(("none", fault, "none"), start_method) as env:
        model = small_model(VecMonitor(env))
        with pytest.raises(RuntimeError, match=rf"worker 1 \(exit code {code}\) of the SubprocVecEnv died"):
            model.learn(100)
        with pytest.raises(RuntimeError, match=r"worker 1 .* died"):
            step_watched(env, np.zeros(3, np.int64))
        assert model._n_updates == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_worker_that_is_killed_while_another_works_is_named() -> None:
    with _subprocesses(("none", "hang", "none"), "fork") as env:
        env.reset()
        for _ in range(7):
            step_watched(env, np.zeros(3, np.int64))
        os.kill(env.processes[0].pid or 0, signal.SIGKILL)
        with pytest.raises(RuntimeError, match=r"worker 0 \(exit code -9\)"):
            step_watched(env, np.zeros(3, np.int64))


RUN_STEPS = 1600
TRAIN = ["train", "puddle-world", "discovered", "--compile", "False", "--questions", "4", "--n-envs", "4"]
TRAIN += ["--log-every", "200", "--steps", f"{RUN_STEPS}"]


def test_ctrl_c_writes_a_checkpoint_and_prints_how_to_resume(tmp_path: Path) -> None:
    run, alone = RunFolder(tmp_path / "a run"), tmp_path / "alone"
    command = [sys.executable, "-c", "from dgvf_agents.cli import main; main()", *TRAIN, "--out", str(run.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (run.progress_file.is_file() and "200" in run.progress_file.read_text()):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "finishing the update" in errors
    assert f"dgvf train --resume '{run.path}'" in errors
    assert "Traceback" not in errors
    (checkpoint,) = run.checkpoints()
    assert 200 <= int(checkpoint.stem) < RUN_STEPS
    assert int(checkpoint.stem) % 20 == 0  # the update was finished
    main(["train", "--resume", str(run.path)])
    main([*TRAIN, "--out", str(alone)])
    checkpoint.unlink()  # the uninterrupted run does not have it
    assert differences(alone, run.path) == []


def test_a_failed_run_prints_how_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(env: Any, actions: Any) -> Any:
        if breaks.steps == 25:  # type: ignore[attr-defined]
            raise ZeroDivisionError("the simulator broke")
        breaks.steps += 1  # type: ignore[attr-defined]
        return env.step(actions)

    breaks.steps = 0  # type: ignore[attr-defined]
    monkeypatch.setattr("dgvf_agents.agents.collecting.step_watched", breaks)
    with pytest.raises(ZeroDivisionError):
        main([*TRAIN, "--out", str(tmp_path), "--checkpoint-every", "40"])
    assert f"To go on from the last checkpoint: dgvf train --resume {tmp_path}" in capsys.readouterr().err
    assert [path.name for path in RunFolder(tmp_path).checkpoints()] == ["0000000040.zip", "0000000080.zip"]


def test_only_the_main_thread_and_a_usual_ctrl_c_are_changed() -> None:
    usual = signal.getsignal(signal.SIGINT)
    with stop_requests() as request:
        assert signal.getsignal(signal.SIGINT) is not usual
        os.kill(os.getpid(), signal.SIGINT)
        assert request.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is usual
