"""Several runs at once as one population, each recorded as `dgvf train` records it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import final

from dgvf_agents.core.metrics import NotFiniteError
from dgvf_agents.population.population import Population
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.recorder import StopRequest, TrainingInterruptedError, stop_requests
from dgvf_agents.train.train import OpenRun, open_run


def train_population(configs: Sequence[TrainConfig], paths: Sequence[Path]) -> list[Exception | None]:
    """Train runs at once in this process, or continue them.

    The folders are the same as `train`'s: each run can be continued, evaluated and watched by itself. Runs are equal to
    `train`'s up to rounding. A run that cannot be opened or whose training diverges stops; the others continue.

    Args:
        configs: their configurations, which differ in seeds, learning rates, coefficients, discounts, ε and maximum
            norms only.
        paths: the run folders.

    Returns:
        why a run stopped, for each; `None` for those that are finished.

    Raises:
        ValueError: see `Population`.
        TrainingInterruptedError: Ctrl-C stopped training; all runs have a checkpoint.
    """
    with ExitStack() as stack:
        stop = stack.enter_context(stop_requests())
        opened = {path: _opened(stack, config, path, stop) for config, path in zip(configs, paths, strict=True)}
        runs = [run for run in opened.values() if isinstance(run, OpenRun)]
        failures: dict[Path, Exception] = {path: run for path, run in opened.items() if isinstance(run, ValueError)}
        for group in _equally_far([run for run in runs if not run.is_finished]):
            failures |= _Training(group).run()
        return [failures.get(path) for path in paths]


def _opened(stack: ExitStack, config: TrainConfig, path: Path, stop: StopRequest) -> OpenRun | ValueError:
    """A run, or why it cannot be opened."""
    try:
        return stack.enter_context(open_run(config, path, show_progress=False, stop=stop, resume=True))
    except ValueError as error:
        return error


def _equally_far(runs: Sequence[OpenRun]) -> list[list[OpenRun]]:
    """Groups of runs with equal numbers of steps: a killed population may have written some of its checkpoints."""
    steps = sorted({run.model.num_timesteps for run in runs})
    return [[run for run in runs if run.model.num_timesteps == count] for count in steps]


@final
class _Training:
    """Training of runs that are equally far."""

    def __init__(self, runs: Sequence[OpenRun]) -> None:
        self._runs = list(runs)
        self._active = set(range(len(runs)))
        self._failures: dict[Path, NotFiniteError] = {}
        self._interrupted: TrainingInterruptedError | None = None

    def run(self) -> dict[Path, NotFiniteError]:
        """Train until all runs are finished or have failed; returns the failures by path."""
        try:
            for run in self._runs:
                reset = run.begin()
                steps = run.config.steps - run.model.num_timesteps
                run.model._setup_learn(steps, run.recorder, reset_num_timesteps=reset)
                run.recorder.on_training_start({}, {})
            self._population = Population([run.model for run in self._runs])
            while self._active:
                self._iterate()
        finally:
            for run in self._runs:
                run.model.logger.close()
        return self._failures

    def _iterate(self) -> None:
        for p, run in self._due(lambda run: run.recorder.saves_at(run.model.num_timesteps)):
            self._tell(p, run.recorder.on_rollout_start, environment=True)
        if self._interrupted is not None:
            raise self._interrupted
        self._population.collect()
        for p, run in self._due(lambda run: run.recorder.reports_at(run.model.num_timesteps)):
            self._tell(p, run.recorder.on_rollout_end)
        self._population.update()
        for p, run in self._due(lambda run: run.model.num_timesteps >= run.config.steps):
            self._tell(p, run.recorder.on_training_end, environment=True)
            self._active.discard(p)

    def _due(self, is_due: Callable[[OpenRun], bool]) -> list[tuple[int, OpenRun]]:
        """The active runs that something is due for, with their indices."""
        return [(p, self._runs[p]) for p in sorted(self._active) if is_due(self._runs[p])]

    def _tell(self, p: int, event: Callable[[], None], environment: bool = False) -> None:
        """Tell a recorder, whose model is as if it had trained alone.

        Args:
            p: index of the run.
            event: a method of its recorder.
            environment: whether the event may save the environment.
        """
        self._population.synchronize(p)
        if environment:
            self._population.restore_environment(p)
        self._runs[p].recorder.on_step()  # counts the steps
        try:
            event()
        except TrainingInterruptedError as error:
            self._interrupted = error  # raised when the other runs are saved too
        except NotFiniteError as error:
            self._failures[self._runs[p].folder.path] = error
            self._active.discard(p)
