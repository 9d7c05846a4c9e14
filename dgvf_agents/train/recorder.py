"""The recorder of a training run: metrics, evaluation episodes, checkpoints and the learning curve.

The first Ctrl-C lets training finish the update and write a checkpoint.
"""

from __future__ import annotations

import multiprocessing.synchronize
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from stable_baselines3.common.utils import safe_mean

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.collecting import RolloutCallback
from dgvf_agents.storage.files import replacing
from dgvf_agents.train.checkpoint import write_checkpoint
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import evaluation_environments, reference_returns
from dgvf_agents.train.evaluate import Evaluator
from dgvf_agents.train.folder import RunFolder, add_evaluation


@final
class TrainingInterruptedError(KeyboardInterrupt):
    """Ctrl-C stopped training; a checkpoint was written."""

    def __init__(self, run: Path) -> None:
        super().__init__(f"training in {run} was interrupted; a checkpoint was written")
        self.run = run
        """The run folder."""


StopRequest = threading.Event | multiprocessing.synchronize.Event
"""Set when training should stop."""


@contextmanager
def stop_requests(stop: StopRequest | None = None) -> Iterator[StopRequest]:
    """Turn the first Ctrl-C into a request to stop; the second one interrupts as usual.

    Only the main thread receives signals. A process that ignores Ctrl-C still does.

    Args:
        stop: an event to set; a new one if `None`.
    """
    request = threading.Event() if stop is None else stop
    usual = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not usual:
        yield request
        return

    def ask(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        request.set()
        os.write(2, b"\nfinishing the update and writing a checkpoint; Ctrl-C again stops at once\n")

    signal.signal(signal.SIGINT, ask)
    try:
        yield request
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_EVALUATION_SEED = 10_000
"""Far from the seeds used in training."""


@final
class RunRecorder(RolloutCallback):
    """Evaluates, and writes metrics, checkpoints and the learning curve.

    It shows a progress bar, or a line per evaluation where there is no terminal.

    All events depend only on the number of environment steps, so a resumed run repeats them.
    """

    model: DiscoveryAlgorithm

    def __init__(self, config: TrainConfig, folder: RunFolder, show_progress: bool, stop: StopRequest) -> None:
        super().__init__()
        self._config, self._folder, self._stop = config, folder, stop
        self._next_checkpoint = self._next_evaluation = 0
        evaluation_env = evaluation_environments(config, config.evaluation_episodes, _EVALUATION_SEED)
        self._evaluator = Evaluator(evaluation_env, config.evaluation_episodes, _EVALUATION_SEED)
        measure = "return" if config.atari is None else "score"
        self._bar = Progress(
            TextColumn(f"{config.env} {config.task}", table_column=Column()),  # this one folds in narrow terminals
            BarColumn(10, table_column=Column(no_wrap=True)),
            MofNCompleteColumn(table_column=Column(no_wrap=True)),
            TextColumn("{task.fields[speed]} steps/s  {task.fields[measure]} {task.fields[mean]}"),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            disable=not show_progress,
        )
        self._row = self._bar.add_task("train", total=config.steps, speed="–", measure=measure, mean="–")

    def __enter__(self) -> RunRecorder:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
        self._evaluator.close()

    def saves_at(self, steps: int) -> bool:
        """Whether a checkpoint is written before the rollout after so many environment steps."""
        return steps >= self._next_checkpoint or self._stop.is_set()

    def reports_at(self, steps: int) -> bool:
        """Whether an evaluation or a row of metrics follows the rollout that ends after so many environment steps."""
        return steps >= self._next_evaluation or self._logs_at(steps)

    def _logs_at(self, steps: int) -> bool:
        """Whether a row of metrics follows the rollout that ends after so many environment steps."""
        batch = self.model.steps_per_update
        return steps // batch % max(1, round(self._config.log_every / batch)) == 0

    def _on_training_start(self) -> None:
        config, done = self._config, self.num_timesteps
        self.model.compilation.tell = self._bar.console.print
        self._next_checkpoint = _next(done, config.checkpoint_every)
        self._next_evaluation = _next(done, config.evaluate_every)
        self.model.start_time -= int(self.model.seconds * 1e9)  # times keep counting
        self.model._num_timesteps_at_start = 0

    def _on_rollout_start(self) -> None:
        """Save between an update and the next rollout, where the state is smallest."""
        if self.saves_at(self.num_timesteps):
            self._save()
        if self._stop.is_set():
            raise TrainingInterruptedError(self._folder.path)

    def _on_rollout_end(self) -> None:
        episodes = self.model.ep_info_buffer
        self._bar.update(
            self._row,
            completed=min(self.num_timesteps, self._config.steps),
            mean=f"{safe_mean([episode['r'] for episode in episodes]):.2f}" if episodes else "–",
            speed=f"{self._bar.tasks[0].speed or 0:,.0f}",
        )
        if self.num_timesteps >= self._next_evaluation:
            self._next_evaluation = _next(self.num_timesteps, self._config.evaluate_every)
            self._evaluate()
        if self._logs_at(self.num_timesteps):
            self._dump(self.num_timesteps // self.model.steps_per_update)

    def _on_training_end(self) -> None:
        if not self._logs_at(self.num_timesteps):  # otherwise the last row was written
            self._dump()
        self._save()

    def _dump(self, iteration: int = 0) -> None:
        if self._config.frames_per_step is not None:
            self.logger.record("time/frames", self.num_timesteps * self._config.frames_per_step)
        self.model.dump_logs(iteration)

    def _evaluate(self) -> None:
        """Record the episodes of an evaluation, and log their means under Stable-Baselines3's names.

        All evaluations use the same seed, for comparison.

        Raises:
            NotFiniteError: training has diverged.
        """
        self.model.learner.check_finite()
        returns, lengths = self._evaluator.episodes_of(self.model)
        add_evaluation(self._folder.evaluations_file, self.num_timesteps, returns, lengths)
        self.logger.record("eval/mean_reward", float(returns.mean()))
        self.logger.record("eval/mean_ep_length", float(lengths.mean()))
        if not (self._bar.disable or self._bar.console.is_terminal):  # a file shows nothing of a bar until it ends
            fields, measure = self._bar.tasks[0].fields, self._bar.tasks[0].fields["measure"]
            done = f"{self.num_timesteps:,} of {self._config.steps:,} steps, {fields['speed']} steps/s"
            line = f"{done}, {measure} {fields['mean']}, {measure} in evaluation {returns.mean():.2f}"
            self._bar.console.print(line, highlight=False, soft_wrap=True)

    def _save(self) -> None:
        self._next_checkpoint = _next(self.num_timesteps, self._config.checkpoint_every)
        self.model.seconds = (time.time_ns() - self.model.start_time) / 1e9
        plot_learning_curve(self._folder, self._config, self._folder.curve_file)
        # Must be last: it may mark the run as finished.
        write_checkpoint(self._folder, self.model, self._config.checkpoints_kept)


def _next(steps: int, every: int) -> int:
    """The first multiple of `every` after `steps`."""
    return (steps // every + 1) * every


# --- learning curve ---------------------------------------------------------------------------------------------------

GRAY = "#5c6270"
LINEAR_BELOW = 10.0
"""Magnitude of returns below which a symmetric logarithmic scale is linear."""


def dress(axes: Axes, logarithmic: bool) -> None:
    """Give a picture of returns its frame, its grid and its scale."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    if logarithmic:
        axes.set_yscale("symlog", linthresh=LINEAR_BELOW)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def plot_learning_curve(folder: RunFolder, config: TrainConfig, path: Path) -> None:
    """Write the learning curve of a run as PNG, atomically.

    Its returns are those of evaluations where returns of training are not comparable, with lines at the returns of the
    best and the random policy.
    """
    frames, comparable = config.frames_per_step, config.env_kwargs == config.evaluation_kwargs
    steps, returns = folder.learning_curve("eval/mean_reward")
    evaluated = not comparable and len(steps) > 1
    if not evaluated:
        steps, returns = folder.learning_curve()
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(steps, returns, color="#2c69b0", linewidth=1.8, marker="." if len(steps) == 1 else None)
    reference = reference_returns(config) if comparable or evaluated else None
    dress(axes, reference is not None and reference.logarithmic)
    if reference is not None and reference.optimal is not None and reference.random is not None:
        if reference.logarithmic:
            lowest = min(axes.dataLim.y0, reference.random)
            axes.set_ylim(1.5 * lowest, max(reference.optimal, -LINEAR_BELOW))
        best = "optimal" if frames is None else "human"
        for value, words in ((reference.optimal, best), (reference.random, "random")):
            axes.axhline(value, color=GRAY, linewidth=1.0, linestyle="--")
            place = (axes.get_xlim()[1], value)
            axes.annotate(words, place, (-4, 3), textcoords="offset points", ha="right", color=GRAY, fontsize=9)
    measure = "return of the last 100 episodes" if frames is None else "score of the last 100 whole games"
    axes.set(
        title=f"{config.env}, {config.task}, seed {config.seed}",
        ylabel="mean return in evaluation" if evaluated else f"mean {measure}",
    )
    _label_steps(axes, frames)
    with replacing(path) as unfinished:
        figure.savefig(unfinished, dpi=150)


def _label_steps(axes: Axes, frames_per_step: int | None) -> None:
    """Label the x axis: environment steps; on Atari agent steps, with frames at the top."""
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if frames_per_step is None:
        axes.set_xlabel("environment steps")
        return
    axes.set_xlabel("agent steps")
    count = frames_per_step
    both_ways = (lambda steps: np.multiply(steps, count), lambda frames: np.divide(frames, count))
    above = axes.secondary_xaxis("top", functions=both_ways)
    above.set_xlabel(f"frames, {frames_per_step} per step")
    above.xaxis.set_major_formatter(EngFormatter(sep=""))
