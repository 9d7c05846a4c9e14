"""`dgvf train`: start or resume a training run."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat

from dgvf_agents.core.optimizers import RMSProp, norm_for_means, rms_prop_for_means
from dgvf_agents.execution.devices import device_named
from dgvf_agents.runs.algorithms import algorithm_of
from dgvf_agents.runs.checkpoint import load_checkpoint, reduce_older, write_checkpoint
from dgvf_agents.runs.config import TrainConfig
from dgvf_agents.runs.environments import evaluation_environments, training_environments
from dgvf_agents.runs.evaluate import episodes_of
from dgvf_agents.runs.folder import RunFolder
from dgvf_agents.runs.interrupts import StopRequest, TrainingInterruptedError, stop_requests
from dgvf_agents.runs.plotting import plot_learning_curve
from dgvf_agents.runs.progress import ProgressLog
from dgvf_agents.sb3.schedules import geometric, linear
from dgvf_agents.synchronous import SynchronousAlgorithm


def train(config: TrainConfig, path: Path, show_progress: bool = True, resume: bool = False) -> SynchronousAlgorithm:
    """Train a model; write the configuration, metrics, checkpoints and the learning curve.

    A run that was stopped or killed can be resumed from its latest checkpoint. On the same machine, the resumed run is
    bitwise equal to an uninterrupted one if the environments can save their state, as those of `dgvf_envs` can. Metrics
    after the checkpoint are removed and written again; only the times differ, and these keep counting. A run is
    finished when the checkpoint of its last step exists (`RunFolder.is_finished`). A finished run does not change. If
    its last checkpoint is damaged, the run continues from the one before.

    Ctrl-C finishes the update and writes a checkpoint. An error before the first step leaves no run folder behind.

    Args:
        config: the configuration.
        path: the run folder. Must not hold a run, unless it is resumed.
        show_progress: whether to show a progress bar.
        resume: whether to continue the run at `path`, whose configuration must be the same except for the device;
            starts the run if there is none.

    Returns:
        the trained model.

    Raises:
        FileExistsError: `path` holds a run, and `resume` is false.
        ValueError: the run at `path` has a different configuration, another process is training it, all checkpoints
            that training could continue from are damaged, or `config.device` is unavailable.
        NotFiniteError: training has diverged.
        TrainingInterruptedError: Ctrl-C stopped training; a checkpoint was written.
    """
    folder = RunFolder(path)
    device = device_named(config.device)
    new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.lock_file)
    try:
        with lock.acquire(timeout=0):
            if folder.config_file.exists() and not resume:
                raise FileExistsError(f"path must not hold a run already, got {path}; --resume continues it")
            try:
                return _train(config, folder, device, show_progress)
            finally:
                if new and not folder.config_file.exists():  # the run was not started
                    folder.lock_file.unlink(missing_ok=True)
                    path.rmdir()
    except Timeout:
        raise ValueError(f"path must not be in use by another training process, got {path}") from None


def _train(config: TrainConfig, folder: RunFolder, device: torch.device, show_progress: bool) -> SynchronousAlgorithm:
    found = folder.read_config() if folder.config_file.exists() else None
    if found is not None:
        _check_same(found, config, folder)
    folder.remove_unfinished()
    torch.set_num_threads(config.threads)
    loaded = load_checkpoint(folder, lambda: training_environments(config), device)
    if loaded is not None and loaded.num_timesteps >= config.steps:
        reduce_older(folder, config.checkpoints_kept)  # killed right after its last checkpoint
        return loaded
    if loaded is not None and loaded._last_obs is None:
        warnings.warn(f"{config.env} cannot save its state: the run continues with new episodes", stacklevel=3)
    if loaded is not None and loaded.trained_on not in (None, device.type):
        warnings.warn(
            f"device was {loaded.trained_on!r} up to step {loaded.num_timesteps} of the run, which continues on "
            f"{device.type!r}: equal up to rounding, not bitwise",
            stacklevel=3,
        )
    model = loaded or build(config)
    with stop_requests() as stop, _RunCallback(config, folder, show_progress, stop) as callback:
        if found is None or found.device != config.device:
            folder.write_config(config)  # also for a new device, which the next resume must find
        _learn(model, config, folder, callback, reset=loaded is None)
    return model


def _learn(
    model: SynchronousAlgorithm, config: TrainConfig, folder: RunFolder, callback: BaseCallback, reset: bool
) -> None:
    """Train for the remaining steps."""
    done = model.num_timesteps
    progress = ProgressLog(folder.progress_file, done)
    model.set_logger(Logger(str(folder.path), [progress, TensorBoardOutputFormat(str(folder.path))]))
    try:
        model.learn(config.steps - done, callback, log_interval=_NEVER, reset_num_timesteps=reset)
    finally:
        model.logger.close()


_NEVER = 1 << 62
"""`learn` logs by its own iteration count, which restarts when a run is resumed; rows follow environment steps."""


def _check_same(found: TrainConfig, wanted: TrainConfig, folder: RunFolder) -> None:
    differing = found.differences(wanted, apart_from=["device"])
    if differing:
        raise ValueError(f"config must be that of the run in {folder.path}, which differs in {', '.join(differing)}")


def build(config: TrainConfig) -> SynchronousAlgorithm:
    """The untrained model of a configuration."""
    kind: Any = algorithm_of(config)
    return kind(config.policy, training_environments(config), **arguments_of(config))


def arguments_of(config: TrainConfig) -> dict[str, Any]:
    """The keyword arguments of an algorithm for a configuration, except for the policy and the environment.

    The presets hold the paper's settings:

    >>> from dgvf_agents.runs.config import preset
    >>> paper = arguments_of(preset("puddle-world", "discovered"))
    >>> paper["encoder_mode"], paper["auxiliary_weighting"]
    ('auxiliary', 'fixed')
    """
    return {
        **{name: getattr(config, name) for name in _PASSED_ON},
        "learning_rate": linear(config.learning_rate, config.final_learning_rate),
        "ent_coef": geometric(config.ent_coef, config.final_ent_coef),
        "meta_learning_rate": linear(config.meta_learning_rate, config.final_meta_learning_rate),
        "auxiliary_task": config.task,
        "encoder_mode": config.encoder_mode_of_task,
        **(_of_impala(config) if config.algorithm == "impala" else _of_a2c(config)),
    }


def _of_impala(config: TrainConfig) -> dict[str, Any]:
    """Settings for summed losses are converted by the algorithm itself."""
    return {"rms_prop": config.rms_prop, "loss_reduction": config.loss_reduction}


def _of_a2c(config: TrainConfig) -> dict[str, Any]:
    return {"inner_optimizer": _inner_optimizer(config), **_for_means(config)}


def _inner_optimizer(config: TrainConfig) -> RMSProp:
    rule = RMSProp.pytorch if config.rms_prop == "pytorch" else RMSProp.tensorflow
    optimizer = rule(config.rms_prop_eps)
    samples = config.n_envs * config.n_steps
    return optimizer if config.loss_reduction == "mean" else rms_prop_for_means(optimizer, samples)


def _for_means(config: TrainConfig) -> dict[str, Any]:
    """Convert settings for summed losses to those for mean losses."""
    if config.loss_reduction == "mean":
        return {}
    samples = config.n_envs * config.n_steps
    norms = {name: getattr(config, name) for name in _NORMS}
    return {
        "meta_epsilon": norm_for_means(_ADAM_EPSILON, samples),
        **{name: None if norm is None else norm_for_means(norm, samples) for name, norm in norms.items()},
    }


_PASSED_ON = (
    "seed",
    "n_steps",
    "gamma",
    "vf_coef",
    "rms_prop_eps",
    "max_grad_norm",
    "questions",
    "question_discount",
    "question_encoder",
    "auxiliary_coefficient",
    "auxiliary_weighting",
    "unroll_length",
    "objective",
    "horizon",
    "convention",
    "storage",
    "meta_max_grad_norm",
    "meta_max_discount_grad_norm",
    "device",
    "mixed_precision",
    "compile",
)
"""Fields of `TrainConfig` that are arguments of the algorithms by the same name."""

_ADAM_EPSILON = 1e-8
"""ε of the meta-optimizer for summed losses: PyTorch's default, since the paper gives none."""

_NORMS = ("max_grad_norm", "meta_max_grad_norm", "meta_max_discount_grad_norm")
"""Maximum gradient norms."""


_EVALUATION_SEED = 10_000
"""Far from the seeds used in training."""


class _RunCallback(BaseCallback):
    """Shows the progress bar, evaluates, and writes metrics, checkpoints and the learning curve.

    All events depend only on the number of environment steps, so a resumed run repeats them.
    """

    model: SynchronousAlgorithm

    def __init__(self, config: TrainConfig, folder: RunFolder, show_progress: bool, stop: StopRequest) -> None:
        super().__init__()
        self._config, self._folder, self._stop = config, folder, stop
        self._next_checkpoint = self._next_evaluation = 0
        self._evaluation_env = evaluation_environments(config, config.evaluation_episodes, _EVALUATION_SEED)
        measure = "return" if config.atari is None else "score"
        self._bar = Progress(
            TextColumn(f"{config.env} {config.task}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]} steps/s  {task.fields[measure]} {task.fields[mean]}"),
            TimeRemainingColumn(),
            disable=not show_progress,
        )
        self._row = self._bar.add_task("train", total=config.steps, speed="–", measure=measure, mean="–")

    def __enter__(self) -> _RunCallback:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
        self._evaluation_env.close()

    def _on_training_start(self) -> None:
        config, done = self._config, self.num_timesteps
        self.model.compilation.tell = self._bar.console.print
        self._next_checkpoint = _next(done, config.checkpoint_every)
        self._next_evaluation = _next(done, config.evaluate_every)
        self.model.start_time -= int(self.model.seconds * 1e9)  # times keep counting
        self.model._num_timesteps_at_start = 0

    def _on_rollout_start(self) -> None:
        """Save between an update and the next rollout, where the state is smallest."""
        due = self.num_timesteps >= self._next_checkpoint
        if due or self._stop.asked:
            self._save()
        if self._stop.asked:
            raise TrainingInterruptedError(self._folder.path)

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
            self._next_evaluation = _next(self.num_timesteps, self._config.evaluate_every)
            self._evaluate()
        if self._iteration % _log_interval(self._config) == 0:
            self._dump(self._iteration)

    def _on_training_end(self) -> None:
        if self._iteration % _log_interval(self._config):  # otherwise the last row was written
            self._dump()
        self._save()

    def _dump(self, iteration: int = 0) -> None:
        if self._config.frames_per_step is not None:
            self.logger.record("time/frames", self.num_timesteps * self._config.frames_per_step)
        self.model.dump_logs(iteration)

    @property
    def _iteration(self) -> int:
        return self.num_timesteps // (self._config.n_envs * self._config.n_steps)

    def _evaluate(self) -> None:
        """Log an evaluation under Stable-Baselines3's names. All evaluations use the same seed, for comparison."""
        returns, lengths = episodes_of(
            self.model, self._evaluation_env, self._config.evaluation_episodes, _EVALUATION_SEED
        )
        self.logger.record("eval/mean_reward", float(returns.mean()))
        self.logger.record("eval/mean_ep_length", float(lengths.mean()))

    def _mean(self) -> float | None:
        episodes = self.model.ep_info_buffer
        return sum(e["r"] for e in episodes) / len(episodes) if episodes else None

    def _save(self) -> None:
        self._next_checkpoint = _next(self.num_timesteps, self._config.checkpoint_every)
        self.model.seconds = (time.time_ns() - self.model.start_time) / 1e9
        title = f"{self._config.env}, {self._config.task}, seed {self._config.seed}"
        curve = self._folder.learning_curve()
        plot_learning_curve(self._folder.curve_file, *curve, title, frames_per_step=self._config.frames_per_step)
        # Must be last: it may mark the run as finished.
        write_checkpoint(self._folder, self.model, self._config.checkpoints_kept)


def _log_interval(config: TrainConfig) -> int:
    """Iterations between rows of metrics."""
    return max(1, round(config.log_every / (config.n_envs * config.n_steps)))


def _next(steps: int, every: int) -> int:
    """The first multiple of `every` after `steps`."""
    return (steps // every + 1) * every
