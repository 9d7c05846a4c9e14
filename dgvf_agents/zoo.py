"""`DGVFA2C` in RL Baselines3 Zoo, under the name `dgvf`.

    python -m dgvf_agents.zoo train --env CollectObjectsSmall-v0
    python -m dgvf_agents.zoo enjoy --env CollectObjectsSmall-v0 -f logs

run the zoo's own scripts with `dgvf` registered and, for `train`, the presets of `dgvf train` as hyperparameters. All
else is the zoo's: its options, folders and files. Where a script of one's own calls the zoo, `register()` is enough.

The zoo is imported where it is used only; this module can be imported without it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, final

from stable_baselines3.common.utils import ConstantSchedule, LinearSchedule

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.core.finite import NotFiniteError
from dgvf_agents.runs.config import WORLDS, TrainConfig, preset
from dgvf_agents.sb3.schedules import geometric, linear

if TYPE_CHECKING:
    import optuna

NAME = "dgvf"
"""What `--algo` takes."""

SCRIPTS = ("train", "enjoy")
"""The zoo's scripts that `main` runs."""

QUESTIONS = (2, 128)
"""Least and most questions that a search tries: as in the paper's study (figure 5, left)."""
UNROLL_LENGTHS = (1, 50)
"""Least and most inner updates per meta-update that a search tries: as in the paper's study (figure 5, right)."""
META_LEARNING_RATES = (1e-5, 1e-2)
"""Least and greatest meta learning rate that a search tries; the paper has 6e-4 (table 1)."""

Self = TypeVar("Self", bound="ZooDGVFA2C")


@final
class ZooDGVFA2C(DGVFA2C):
    """`DGVFA2C` with schedules that a YAML file can say.

    Its files are those of `DGVFA2C`, which loads them too.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        """
        Args:
            arguments: those of `DGVFA2C`.
            settings: those of `DGVFA2C`, and `final_learning_rate`, `final_meta_learning_rate` and `final_ent_coef`:
                where these are annealed to, the last by the same factor per step, the others by the same amount;
                constant where they are left out or `None`.

        Raises:
            ValueError: as `DGVFA2C`, or where there is a final value for what is a schedule already.
        """
        super().__init__(*arguments, **with_schedules(settings))

    @classmethod
    def load(cls: type[Self], *arguments: Any, **settings: Any) -> Self:
        return super().load(*arguments, **with_schedules(settings))

    def learn(self: Self, *arguments: Any, **settings: Any) -> Self:
        """Train.

        Raises:
            ValueError: training has diverged, in place of `NotFiniteError`: what the zoo's search prunes a trial for.
        """
        try:
            return super().learn(*arguments, **settings)
        except NotFiniteError as error:
            raise ValueError(str(error)) from error


def with_schedules(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that `DGVFA2C` knows, for those that `ZooDGVFA2C` does.

    The zoo's own schedules become Stable-Baselines3's, which a file holds without a pickle.
    """
    known = dict(settings)
    for name, annealed in (("learning_rate", linear), ("ent_coef", geometric), ("meta_learning_rate", linear)):
        last = known.pop(f"final_{name}", None)
        if name in known:
            known[name] = _schedule(name, known[name], last, annealed)
        elif last is not None:
            raise ValueError(f"{name} must be given where final_{name} is, got final_{name}={last!r} alone")
    return known


def _schedule(name: str, first: Any, last: float | None, annealed: Callable[[float, float], Any]) -> Any:
    if isinstance(first, ConstantSchedule):
        first = first.val
    if callable(first) and hasattr(first, "initial_value"):  # the zoo's, of lin_X
        first = LinearSchedule(float(first.initial_value), 0.0, 1.0)
    if last is None:
        return first
    if not isinstance(first, int | float):
        raise ValueError(f"{name} must be a number where final_{name} is given, got {first!r}")
    return annealed(float(first), float(last))


def hyperparameters() -> dict[str, dict[str, Any]]:
    """By environment: the settings of `dgvf train`'s presets with discovered questions, in the zoo's terms.

    As in `dgvf train`, `env_kwargs` are for training alone: the zoo evaluates in the world as it is registered, unless
    `--eval-env-kwargs` says otherwise.
    """
    configs = [preset(world, "discovered") for world in WORLDS]
    return {config.env: _in_zoo(config) for config in configs}


def __getattr__(name: str) -> Any:
    """`hyperparams`, which the zoo looks for in a module that `--conf-file` names; anew each time, as it changes it."""
    if name == "hyperparams":
        return hyperparameters()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_SAME = (
    "n_envs",
    "policy",
    "n_steps",
    "gamma",
    "learning_rate",
    "final_learning_rate",
    "ent_coef",
    "final_ent_coef",
    "vf_coef",
    "auxiliary_coefficient",
    "auxiliary_weighting",
    "questions",
    "question_discount",
    "unroll_length",
    "convention",
    "meta_learning_rate",
    "final_meta_learning_rate",
)
"""Fields of `TrainConfig` that have the same name in the zoo; all others are `DGVFA2C`'s defaults."""


def _in_zoo(config: TrainConfig) -> dict[str, Any]:
    settings = {"n_timesteps": config.steps, "auxiliary_task": config.task, "env_kwargs": dict(config.env_kwargs)}
    settings |= {name: getattr(config, name) for name in _SAME}
    given = {name: value for name, value in settings.items() if value not in (None, {})}
    if config.rms_prop == "tensorflow":  # a name that the zoo knows where it evaluates this
        given["policy_kwargs"] = (
            f"dict(optimizer_class=RMSpropTFLike, optimizer_kwargs=dict(eps={config.rms_prop_eps}))"
        )
    return given | {"encoder_mode": config.encoder_mode_of_task, "max_grad_norm": config.max_grad_norm}


def sample_hyperparameters(
    trial: optuna.Trial, n_actions: int, n_envs: int, additional_args: dict[str, Any]
) -> dict[str, Any]:
    """One trial of the zoo's search (`train -optimize`): d, L and the meta learning rate.

    All else is as in the hyperparameters that the search starts from.

    Args:
        trial: Optuna's.
        n_actions: of the environment; has no part in it.
        n_envs: copies of the environment; has no part in it.
        additional_args: the zoo's; have no part in it.
    """
    return {
        "questions": trial.suggest_int("questions", *QUESTIONS, log=True),
        "unroll_length": trial.suggest_int("unroll_length", *UNROLL_LENGTHS, log=True),
        "meta_learning_rate": trial.suggest_float("meta_learning_rate", *META_LEARNING_RATES, log=True),
    }


def convert_hyperparameters(sampled_params: dict[str, Any]) -> dict[str, Any]:
    """The hyperparameters that a trial's parameters stand for, which are themselves."""
    return dict(sampled_params)


def as_yaml() -> str:
    """`hyperparameters()` as a file for the zoo's `--conf-file`, to copy and change.

    Raises:
        ImportError: PyYAML, which the zoo brings, is not installed.
    """
    import yaml

    return f"{_YAML_HEAD}\n{yaml.safe_dump(hyperparameters(), sort_keys=False)}"


_YAML_HEAD = """\
# Hyperparameters of DGVFA2C for RL Baselines3 Zoo, written by `python -m dgvf_agents.zoo hyperparameters`:
#
#   python -m rl_zoo3.train --algo dgvf --env PuddleWorld-v0 --conf-file dgvf.yml --num-threads 1
#
# in a folder with custom_envs.py, which registers the algorithm, or `python -m dgvf_agents.zoo train ...` anywhere.
#
# They are the presets of `dgvf train` with discovered questions (dgvf_agents/runs/config.py), in the zoo's terms: what
# is not named is a default of DGVFA2C; learning rates are annealed to the final ones where there are such, by the same
# amount per step, and an entropy coefficient by the same factor. env_kwargs are for training: evaluation is in the
# world as it is registered.
#
# Any argument of DGVFA2C may be added. Write 0.0003 rather than 3e-4, which YAML takes for a string.
"""


def register() -> None:
    """Let RL Baselines3 Zoo know `dgvf` and the environments of `dgvf_envs`; calling it again changes nothing.

    Raises:
        ImportError: the zoo is not installed.
    """
    import dgvf_envs  # noqa: F401, registers the environments

    try:
        from rl_zoo3 import hyperparams_opt, utils
    except ImportError as error:
        raise ImportError(f"RL Baselines3 Zoo cannot be imported ({error}): pip install 'dgvf[zoo]'") from error
    utils.ALGOS[NAME] = ZooDGVFA2C  # the one dict that all of the zoo's modules share
    hyperparams_opt.HYPERPARAMS_SAMPLER[NAME] = sample_hyperparameters
    hyperparams_opt.HYPERPARAMS_CONVERTER[NAME] = convert_hyperparameters


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the zoo's scripts, or print `as_yaml()`.

    Args:
        arguments: one of `SCRIPTS`, then options of that script; or `hyperparameters`. Those of the command line when
            left out.

    Raises:
        SystemExit: the first argument is none of these, or the script refuses an option.
        ImportError: the zoo is not installed.
    """
    script, *options = (sys.argv[1:] if arguments is None else arguments) or [""]
    if script == "hyperparameters":
        print(as_yaml(), end="")
        return
    if script not in SCRIPTS:
        sys.exit(f"the first argument must be one of {', '.join(SCRIPTS)}, hyperparameters, got {script!r}")
    register()
    defaults = ["--algo", NAME, *(["--conf-file", "dgvf_agents.zoo"] if script == "train" else [])]
    before, sys.argv = sys.argv, [f"rl_zoo3.{script}", *defaults, *options]  # of options given twice, the last counts
    try:
        getattr(importlib.import_module(f"rl_zoo3.{script}"), script)()
    finally:
        sys.argv = before


if __name__ == "__main__":
    main()
