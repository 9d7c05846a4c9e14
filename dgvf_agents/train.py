"""`dgvf train`: one training run, from a configuration to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.atomic import replacing
from dgvf_agents.evaluate import episodes_of
from dgvf_agents.plotting import plot_learning_curve
from dgvf_agents.run_folder import RunFolder
from dgvf_agents.train_config import TrainConfig
from dgvf_envs.sb3_adapter import make_vec


def train(config: TrainConfig, path: Path, show_progress: bool = True) -> DGVFA2C:
    """Train, writing configuration, metrics, checkpoints and the learning curve as it goes.

    Args:
        config: what to do.
        path: the run folder; must not hold a run already.
        show_progress: whether a progress bar is drawn.

    Raises:
        FileExistsError: `path` holds a run.
    """
    folder = RunFolder(path)
    if folder.config_file.exists():
        raise FileExistsError(f"path must not hold a run already, got {path}")
    folder.write_config(config)
    torch.set_num_threads(config.threads)
    model = build(config)
    model.set_logger(configure(str(path), ["csv", "tensorboard"]))
    interval = _log_interval(config)
    try:
        with _RunCallback(config, folder, show_progress) as callback:
            model.learn(config.steps, callback, log_interval=interval)
    finally:
        model.logger.close()
    return model


def _log_interval(config: TrainConfig) -> int:
    """Iterations between rows of metrics."""
    return max(1, round(config.log_every / (config.n_envs * config.n_steps)))


def build(config: TrainConfig) -> DGVFA2C:
    """The untrained model of a configuration."""
    if config.final_learning_rate is None:
        learning_rate: Any = config.learning_rate
    else:
        learning_rate = LinearSchedule(config.learning_rate, config.final_learning_rate)
    return DGVFA2C(
        config.policy,
        make_vec(config.env, config.n_envs, config.seed, env_kwargs=config.env_kwargs),
        learning_rate=learning_rate,
        auxiliary_task=config.task,
        device="cpu",
        **{name: getattr(config, name) for name in _PASSED_ON},
    )


_PASSED_ON = (
    "seed",
    "n_steps",
    "gamma",
    "ent_coef",
    "vf_coef",
    "rms_prop_eps",
    "max_grad_norm",
    "encoder_mode",
    "questions",
    "question_discount",
    "auxiliary_coefficient",
    "unroll_length",
    "objective",
    "horizon",
    "convention",
    "storage",
    "meta_learning_rate",
    "meta_max_grad_norm",
    "compile",
)
"""Fields of `TrainConfig` that are arguments of `DGVFA2C` by the same name."""


_EVALUATION_SEED = 10_000
"""Far from the seeds of training."""


class LinearSchedule:
    """A number that goes linearly from `first` to `last` as training proceeds."""

    def __init__(self, first: float, last: float) -> None:
        self.first, self.last = first, last

    def __call__(self, progress_remaining: float) -> float:
        return self.last + progress_remaining * (self.first - self.last)


class _RunCallback(BaseCallback):
    """Draws the progress bar, evaluates, and writes checkpoints and the learning curve."""

    def __init__(self, config: TrainConfig, folder: RunFolder, show_progress: bool) -> None:
        super().__init__()
        self._config, self._folder = config, folder
        self._next_checkpoint, self._next_evaluation = config.checkpoint_every, config.evaluate_every
        self._evaluation_env = make_vec(
            config.env, config.evaluation_episodes, _EVALUATION_SEED, env_kwargs=config.evaluation_kwargs
        )
        self._bar = Progress(
            TextColumn(f"{config.env} {config.task}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]} steps/s  return {task.fields[mean]}"),
            TimeRemainingColumn(),
            disable=not show_progress,
        )
        self._row = self._bar.add_task("train", total=config.steps, speed="–", mean="–")

    def __enter__(self) -> _RunCallback:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
        self._evaluation_env.close()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        mean = self._mean()
        self._bar.update(
            self._row,
            completed=min(self.num_timesteps, self._config.steps),
            mean="–" if mean is None else f"{mean:.2f}",
            speed=f"{self._bar.tasks[0].speed or 0:,.0f}",
        )
        if self.num_timesteps >= self._next_evaluation:
            self._next_evaluation += self._config.evaluate_every
            self._evaluate()
        if self.num_timesteps >= self._next_checkpoint:
            self._next_checkpoint += self._config.checkpoint_every
            self._save()

    def _on_training_end(self) -> None:
        iterations = self.num_timesteps // (self._config.n_envs * self._config.n_steps)
        if iterations % _log_interval(self._config):  # otherwise the last row is written already
            self.model.dump_logs()
        self._save()

    def _evaluate(self) -> None:
        """Under Stable-Baselines3's names; every evaluation starts from the same seed, so that they compare."""
        assert isinstance(self.model, DGVFA2C)
        returns, lengths = episodes_of(
            self.model, self._evaluation_env, self._config.evaluation_episodes, _EVALUATION_SEED
        )
        self.logger.record("eval/mean_reward", float(returns.mean()))
        self.logger.record("eval/mean_ep_length", float(lengths.mean()))

    def _mean(self) -> float | None:
        episodes = self.model.ep_info_buffer
        return sum(e["r"] for e in episodes) / len(episodes) if episodes else None

    def _save(self) -> None:
        with replacing(self._folder.checkpoint_file(self.num_timesteps)) as unfinished:
            self.model.save(unfinished)
        title = f"{self._config.env}, {self._config.task}, seed {self._config.seed}"
        plot_learning_curve(self._folder.curve_file, *self._folder.learning_curve(), title)
