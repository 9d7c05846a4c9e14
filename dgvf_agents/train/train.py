"""Training runs: one, or several at once as a population, each recorded as `dgvf train` records it."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import torch
from filelock import FileLock, Timeout
from stable_baselines3.common.logger import Logger, TensorBoardOutputFormat

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.schedules import scheduled
from dgvf_agents.core.metrics import NotFiniteError
from dgvf_agents.execution.devices import device_named
from dgvf_agents.hyperparameters import SCHEDULED, arguments
from dgvf_agents.impala.algorithm import DGVFImpala
from dgvf_agents.impala.settings import ActorSettings
from dgvf_agents.population.population import Population
from dgvf_agents.train.checkpoint import (
    NothingToResumeError,
    algorithm_of,
    frozen_eta,
    load_checkpoint,
    reduce_older,
    task_of,
)
from dgvf_agents.train.config import TrainConfig, differences
from dgvf_agents.train.environments import environments_of_run, import_named
from dgvf_agents.train.folder import ProgressLog, RunFolder, record_origin, shipped_name
from dgvf_agents.train.recorder import RunRecorder, StopRequest, TrainingInterruptedError, stop_requests


def train(config: TrainConfig, path: Path, show_progress: bool = True, resume: bool = False) -> DiscoveryAlgorithm:
    """Train a model; write the configuration, metrics, evaluation episodes, checkpoints and the learning curve.

    A run that was stopped or killed can be resumed from its latest checkpoint. On the same machine, the resumed run is
    bitwise equal to an uninterrupted one if the environments can save their state, as `dgvf_envs`'s can. Metrics
    and evaluations after the checkpoint are removed and written again; only the times differ, and these keep counting.
    A run is finished when the checkpoint of its last step exists (`RunFolder.is_finished`). A finished run does not
    change. If its last checkpoint is damaged, the run continues from the one before.

    Ctrl-C finishes the update and writes a checkpoint. An error before the first step leaves no run folder behind.

    Args:
        config: the configuration.
        path: the run folder. Must not hold a run, unless it is resumed.
        show_progress: whether to show a progress bar.
        resume: whether to continue the run at `path`, whose configuration must be the same except for the device, the
            number of actors and the address of their cluster; starts the run if there is none.

    Returns:
        the trained model.

    Raises:
        FileExistsError: `path` holds a run, and `resume` is false.
        FileNotFoundError: `config.questions_from` names no run.
        ValueError: the run at `path` has a different configuration, another process is training it, it comes with
            the package, all checkpoints that training could continue from are damaged, or `config.device` is
            unavailable.
        NotFiniteError: training has diverged.
        TrainingInterruptedError: Ctrl-C stopped training; a checkpoint was written.
    """
    with stop_requests() as stop, open_run(config, path, show_progress, stop, resume) as run:
        if not run.is_finished:
            run.finish()
        return run.model


@final
@dataclass(frozen=True)
class OpenRun:
    """A run that no other process can train."""

    config: TrainConfig
    folder: RunFolder
    model: DiscoveryAlgorithm
    """As the latest checkpoint left it, or new."""
    recorder: RunRecorder
    """The callback that records the run."""
    resumed: bool
    """Whether the model was loaded from a checkpoint."""

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to train."""
        return self.resumed and self.model.num_timesteps >= self.config.steps

    @property
    def plan(self) -> tuple[int, bool]:
        """Environment steps that are left, and whether the model starts to count them from 0."""
        return self.config.steps - self.model.num_timesteps, not self.resumed

    def finish(self) -> None:
        """Train the remaining steps.

        Raises:
            NotFiniteError: training has diverged.
            TrainingInterruptedError: Ctrl-C stopped training; a checkpoint was written.
        """
        self.begin()
        try:
            steps, reset = self.plan
            self.model.learn(steps, self.recorder, log_interval=NEVER, reset_num_timesteps=reset)
        finally:
            self.model.logger.close()

    def begin(self) -> None:
        """Start to write the folder."""
        self.folder.write_config(self.config)  # again where the device is new, which the next resume must find
        record_origin(self.folder, self.config.device, self.model.num_timesteps if self.resumed else 0)
        progress = ProgressLog(self.folder.progress_file, self.model.num_timesteps)
        path = str(self.folder.path)
        self.model.set_logger(Logger(path, [progress, TensorBoardOutputFormat(path)]))


@contextmanager
def open_run(
    config: TrainConfig, path: Path, show_progress: bool, stop: StopRequest, resume: bool
) -> Iterator[OpenRun]:
    """Lock a run folder and load or build the model. A run that was not begun leaves no folder behind.

    Args:
        config: the configuration.
        path: the run folder.
        show_progress: whether to show a progress bar.
        stop: whether training should stop.
        resume: see `train`.

    Raises:
        FileExistsError: see `train`.
        ValueError: see `train`.
    """
    _check_own(path)
    folder, device = RunFolder(path), device_named(config.device)
    folder.check_links()
    import_named(config)
    new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if folder.config_file.exists() and not resume:
            raise FileExistsError(
                f"path (--out) must not hold a run already, got {path}: dgvf train --resume {path} continues it"
            )
        try:
            loaded = _loaded(config, folder, device)
            model = loaded or _new(config, path)
            set_up_actors(model, config, path)
            with RunRecorder(config, folder, show_progress, stop) as recorder:
                yield OpenRun(config, folder, model, recorder, loaded is not None)
        finally:
            if new and not folder.config_file.exists():  # the run was not begun
                folder.lock_file.unlink(missing_ok=True)
                path.rmdir()


@contextmanager
def _locked(folder: RunFolder) -> Iterator[None]:
    try:
        with FileLock(folder.lock_file).acquire(timeout=0):
            yield
    except Timeout:
        raise ValueError(f"path must not be in use by another training process, got {folder.path}") from None


def set_steps(folder: RunFolder, steps: int) -> TrainConfig:
    """Give a run another total of environment steps, which its schedules follow when it is resumed.

    Raises:
        ValueError: it has trained for more already, it comes with the package, or another process is training it.
    """
    _check_own(folder.path)
    if (done := [int(file.stem) for file in folder.checkpoints()]) and done[-1] > steps:
        raise ValueError(f"steps must be >= {done[-1]}, which the run in {folder.path} has taken, got {steps}")
    with _locked(folder):
        config = dataclasses.replace(folder.read_config(), steps=steps)
        folder.write_config(config)
    return config


def annealed(config: TrainConfig) -> list[str]:
    """Names of the hyperparameters that change along training."""
    return [name for name in SCHEDULED if getattr(config, f"final_{name}") is not None]


def _check_own(path: Path) -> None:
    if (name := shipped_name(path)) is not None:
        raise NothingToResumeError(
            f"run must be one of your own to train, got {name}, which comes with the package and holds networks only; "
            f"dgvf train {path.name} discovered trains one like it"
        )


def _loaded(config: TrainConfig, folder: RunFolder, device: torch.device) -> DiscoveryAlgorithm | None:
    """The model of the latest checkpoint; `None` if the run is new."""
    if folder.config_file.exists():
        wanted = config.fields(apart_from=("device", "actors", "address"))
        if differing := differences(folder.read_config().fields(), wanted):
            raise ValueError(f"config must be the one of the run in {folder.path}, which differs in {differing}")
    folder.remove_unfinished()
    torch.set_num_threads(config.threads)
    loaded = load_checkpoint(folder, lambda: environments_of_run(config), device, actors=config.actors)
    if loaded is None:
        return None
    if loaded.num_timesteps >= config.steps:
        reduce_older(folder, config.checkpoints_kept)  # killed right after its last checkpoint
        return loaded
    if loaded._last_obs is None:
        warnings.warn(f"{config.env} cannot save its state: the run continues with new episodes", stacklevel=5)
    if loaded.trained_on not in (None, device.type):
        warnings.warn(
            f"device was {loaded.trained_on!r} up to step {loaded.num_timesteps} of the run, which continues on "
            f"{device.type!r}: equal up to rounding, not bitwise",
            stacklevel=5,
        )
    return loaded


NEVER = 1 << 62
"""`learn` logs by its own iteration count, which restarts when a run is resumed; rows follow environment steps."""


def _new(config: TrainConfig, path: Path) -> DiscoveryAlgorithm:
    """The untrained model of a run, with the questions of another run if it names one.

    Raises:
        FileNotFoundError: see `frozen_eta`.
        ValueError: see `frozen_eta`, or question networks have other shapes.
    """
    eta = frozen_eta(config, path)  # first, since loading a model seeds the global generators
    model = build(config)
    if eta is not None:
        try:
            model.learner.set_eta({name: value.to(model.device) for name, value in eta.items()})
        except ValueError as error:
            raise ValueError(f"questions_from must fit this run, got {config.questions_from}: {error}") from error
    return model


def build(config: TrainConfig) -> DiscoveryAlgorithm:
    """The untrained model of a configuration."""
    kind: Any = algorithm_of(config)
    return kind(config.policy, environments_of_run(config), **arguments_of(config))


def warm_up(config: TrainConfig) -> None:
    """Compile what training with a configuration needs, by training until the first meta-update.

    Args:
        config: the configuration; its number of steps does not count.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        model = build(dataclasses.replace(config, compile=True))
        model.learn((config.unroll_length + 1) * config.n_steps * config.n_envs)
        assert model.env is not None
        model.env.close()
    finally:
        torch.set_num_threads(threads)


def set_up_actors(model: DiscoveryAlgorithm, config: TrainConfig, path: Path) -> None:
    """Let the distributed actors of a run have its cluster, and a namespace in which a resumed run finds them."""
    if not isinstance(model, DGVFImpala):
        return
    if config.actors and find_spec("ray") is None:  # before the run is begun
        raise ValueError("actors must be 0 without Ray, which the extra `ray` installs, dgvf[ray]")
    model.actors, model.envs_per_actor = config.actors, config.envs_per_actor
    model.actor_settings = (
        ActorSettings(address=config.address, namespace=actor_namespace(path)) if config.actors else None
    )


def actor_namespace(path: Path) -> str:
    """The Ray namespace of the actors of the run in a folder."""
    return f"dgvf-{sha256(str(path.resolve()).encode()).hexdigest()[:16]}"


def arguments_of(config: TrainConfig) -> dict[str, Any]:
    """The keyword arguments of an algorithm for a configuration, except for the policy and the environment.

    The presets hold the paper's settings:

    >>> from dgvf_agents.train.config import preset
    >>> paper = arguments_of(preset("puddle-world", "discovered"))
    >>> paper["encoder_mode"], paper["auxiliary_weighting"]
    ('auxiliary', 'fixed')
    """
    own: tuple[str, ...] = {"a2c": ("compile",), "impala": ("compile", "learners"), "ppo": ()}[config.algorithm]
    own += ("n_envs", "actors", "envs_per_actor") if config.actors else ()
    given = {name: getattr(config, name) for name in (*arguments(config.algorithm), "seed", "device", *own)}
    if config.task in ("none", "reward-prediction", "pixel-control"):  # a preset may have them
        given = {name: value for name, value in given.items() if name not in ("questions", "unroll_length")}
    for name in given.keys() & {*SCHEDULED}:
        given[name] = scheduled(name, given[name], getattr(config, f"final_{name}"))
    return given | {"auxiliary_task": task_of(config)}


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
        failures, equally_far = dict[Path, Exception](), dict[int, list[OpenRun]]()
        for config, path in zip(configs, paths, strict=True):
            try:
                run = stack.enter_context(open_run(config, path, show_progress=False, stop=stop, resume=True))
            except ValueError as error:
                failures[path] = error
                continue
            if not run.is_finished:
                equally_far.setdefault(run.model.num_timesteps, []).append(run)
        for _, runs in sorted(equally_far.items()):  # a killed population may have written some of its checkpoints
            failures |= _train_together(runs)
        return [failures.get(path) for path in paths]


def _train_together(runs: Sequence[OpenRun]) -> dict[Path, NotFiniteError]:
    """Train runs that are equally far until all are finished or have failed; returns the failures by path."""
    active, failures = dict(enumerate(runs)), dict[Path, NotFiniteError]()
    interrupted: TrainingInterruptedError | None = None

    def tell(event: Callable[[RunRecorder], None], is_due: Callable[[OpenRun], bool], environment: bool) -> None:
        """Tell the recorders of active runs that an event is due for, whose models are as if they had trained alone.

        Args:
            event: a method of recorders.
            is_due: whether it is due for a run.
            environment: whether the event may save the environment.
        """
        nonlocal interrupted
        for p, run in [(p, run) for p, run in active.items() if is_due(run)]:
            population.synchronize(p)
            if environment:
                population.restore_environment(p)
            run.recorder.on_step()  # counts the steps
            try:
                event(run.recorder)
            except TrainingInterruptedError as error:
                interrupted = error  # raised when the other runs are saved too
            except NotFiniteError as error:
                failures[run.folder.path] = error
                del active[p]

    with ExitStack() as begun:
        for run in runs:
            run.begin()
            begun.callback(run.model.logger.close)
            steps, reset = run.plan
            run.model._setup_learn(steps, run.recorder, reset_num_timesteps=reset)
            run.recorder.on_training_start({}, {})
        population = Population([run.model for run in runs])
        while active:
            tell(RunRecorder.on_rollout_start, lambda run: run.recorder.saves_at(run.model.num_timesteps), True)
            if interrupted is not None:
                raise interrupted
            population.collect()
            tell(RunRecorder.on_rollout_end, lambda run: run.recorder.reports_at(run.model.num_timesteps), False)
            population.update()
            tell(RunRecorder.on_training_end, lambda run: run.model.num_timesteps >= run.config.steps, True)
            active = {p: run for p, run in active.items() if run.model.num_timesteps < run.config.steps}
    return failures
