"""What `DGVFImpala` does in each of several learners' processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

from dgvf_agents import DGVFImpala
from dgvf_agents.core.types import Rollout
from dgvf_agents.execution.learner_group import rank
from dgvf_agents.learner import LearnerState
from dgvf_envs.sb3_adapter import make_vec
from tests.test_whole_runs import Noise

N_ENVS, N_STEPS, L = 2, 3, 2
STEPS = 2 * N_ENVS * N_STEPS
"""Steps of one update of two learners."""


def make_noise(num_envs: int, seed: int | None) -> VecEnv:
    env = DummyVecEnv([Noise] * num_envs)
    env.seed(seed)
    return env


def make_puddles(num_envs: int, seed: int | None) -> VecEnv:
    return make_vec("PuddleWorld-v0", num_envs, seed, env_kwargs={"start": "random"})


def make_normalized(num_envs: int, seed: int | None) -> VecEnv:
    return VecNormalize(make_noise(num_envs, seed))


def model_of(learners: int = 2, **changes: Any) -> DGVFImpala:
    settings = {
        "n_envs": N_ENVS, "n_steps": N_STEPS, "unroll_length": L, "questions": 4, "learning_rate": 7e-3,
        "auxiliary_weighting": "gradient-norm", "auxiliary_coefficient": 0.1, "meta_learning_rate": 3e-2,
        "rms_prop": "pytorch", "rms_prop_eps": 0.1, "meta_epsilon": 1e-3, "max_grad_norm": 1.0,
        "policy_kwargs": {"features_extractor_kwargs": {"hidden": (6,)}}, "seed": 0, "device": "cpu",
    }  # fmt: skip
    return DGVFImpala("PaperMlpPolicy", **{"env": make_noise, "learners": learners, **settings, **changes})


class Watcher(BaseCallback):
    """Keeps the batches that updates learn from, and θ; may stop one learner, or save it in the middle of a rollout."""

    def __init__(self, stops: bool = False, save_to: Path | None = None) -> None:
        super().__init__()
        self.rollouts: list[Rollout] = []
        self.thetas: list[torch.Tensor] = []
        self._stops, self._save_to = stops, save_to

    def _on_step(self) -> bool:
        if self._save_to is not None and self.n_calls == N_STEPS + 1:
            self.model.save(self._save_to)
        return not (self._stops and self.n_calls == N_STEPS + 1)

    def _on_rollout_end(self) -> None:
        self.rollouts.append(self.model._rollout)
        self.thetas.append(torch.cat([p.detach().flatten() for p in self.model.policy.parameters()]))


def state_of(model: DGVFImpala) -> LearnerState:
    return model.learner.get_state()._replace(unroll=None)


def error_of(model: DGVFImpala, steps: int = STEPS) -> str:
    try:
        model.learn(steps)
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def loaded_by_first(file: Path) -> DGVFImpala:
    """Of learner 0 the model in a file, of the other a new one."""
    return model_of(env=make_puddles) if rank() else DGVFImpala.load(file, make_puddles, device="cpu")


def scenarios(folder: Path) -> dict[str, Any]:
    """Everything that the tests look at, of one learner of two."""
    torch.set_default_dtype(torch.float64)
    first = rank() == 0
    found: dict[str, Any] = {}

    model, watcher = model_of(seed=None if rank() else 0, verbose=1), Watcher()
    found["start"] = state_of(model)
    model.learn(3 * STEPS, watcher)
    found["after three"] = model.learner.unroll_updates
    model.learn(2 * STEPS, watcher, reset_num_timesteps=False)
    found["trained"], found["rollouts"], found["thetas"] = state_of(model), watcher.rollouts, watcher.thetas
    found["steps"], found["updates"] = model.num_timesteps, model._n_updates
    found["outputs of the log"] = len(model.logger.output_formats)

    torch.set_default_dtype(torch.float32)  # files are of single precision
    model, watcher = model_of(env=make_puddles), Watcher()
    model.learn(5 * STEPS, watcher)
    found["earlier rollouts"] = watcher.rollouts
    if first:
        model.save(folder / "first.zip")
    model = loaded_by_first(folder / "first.zip")
    watcher = Watcher(save_to=folder / "middle.zip" if first else None)
    model.learn(3 * STEPS, watcher, reset_num_timesteps=False)
    found["resumed"], found["resumed steps"] = state_of(model), model.num_timesteps
    found["resumed rollouts"] = watcher.rollouts

    model = loaded_by_first(folder / "middle.zip")
    found["middle steps"] = model.num_timesteps
    model.learn(2 * STEPS, reset_num_timesteps=False)
    found["after middle"], found["after middle steps"] = state_of(model), model.num_timesteps

    stopped = model_of()
    stopped.learn(9 * STEPS, Watcher(stops=not first))
    found["stopped"] = stopped._n_updates
    with torch.no_grad():
        if first:
            stopped.policy.action_net.weight += 1.0  # type: ignore[operator]
    stopped.learn(STEPS, reset_num_timesteps=False)
    found["written"] = state_of(stopped)

    found["errors"] = [
        error_of(model_of(n_envs=2 + rank())),
        error_of(model_of(), STEPS * (1 + rank())),
        error_of(model_of(3)),
        error_of(model_of(env=make_normalized)),
    ]
    return found
