"""`DGVFA2C` and `DGVFPPO` in RL Baselines3 Zoo, under the names `dgvf` and `dgvf-ppo`.

    python -m dgvf_agents.zoo train --env CollectObjectsSmall-v0
    python -m dgvf_agents.zoo enjoy --env CollectObjectsSmall-v0 -f logs

run the zoo's own scripts with `dgvf` registered; `train` uses the presets of `dgvf train` as hyperparameters, and with
`--algo dgvf-ppo` the zoo's for PPO. Options, folders and files are the zoo's. Scripts that call the zoo themselves only
need `register()`.

This module can be imported without the zoo, which is imported when it is used.
"""

from __future__ import annotations

import importlib
import sys
from abc import ABC
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, final

from stable_baselines3.common.utils import ConstantSchedule, LinearSchedule

from dgvf_agents.agents.a2c import DGVFA2C
from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.ppo import DGVFPPO
from dgvf_agents.agents.schedules import scheduled
from dgvf_agents.hyperparameters import SCHEDULED, record
from dgvf_agents.train.config import WORLDS, TrainConfig, preset

if TYPE_CHECKING:
    import optuna

NAME, NAME_OF_PPO = "dgvf", "dgvf-ppo"
"""Names of the algorithms for `--algo`."""

SCRIPTS = ("train", "enjoy")
"""Scripts of the zoo that `main` runs."""

QUESTIONS = (2, 128)
"""Minimum and maximum number of questions in a search, as in the paper's study (figure 5, left)."""
UNROLL_LENGTHS = (1, 50)
"""Minimum and maximum unroll length in a search, as in the paper's study (figure 5, right)."""
META_LEARNING_RATES = (1e-5, 1e-2)
"""Minimum and maximum meta learning rate in a search; the paper uses 6e-4 (table 1)."""


class _InZoo(DiscoveryAlgorithm, ABC):
    """An agent with schedules that can be written in a YAML file.

    Keyword arguments may have the final values of schedules (default: `None`, constant): `final_learning_rate` and
    `final_meta_learning_rate` of linear ones, `final_ent_coef` and `final_auxiliary_coefficient` of geometric ones.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **with_schedules(settings))

    @classmethod
    def load(cls, *arguments: Any, **settings: Any) -> Self:
        return super().load(*arguments, **with_schedules(settings))


@final
class ZooDGVFA2C(_InZoo, DGVFA2C):
    """`DGVFA2C` with schedules that can be written in a YAML file; it can load the model files."""


@final
class ZooDGVFPPO(_InZoo, DGVFPPO):
    """`DGVFPPO`, likewise."""


def with_schedules(settings: dict[str, Any]) -> dict[str, Any]:
    """Convert keyword arguments of `ZooDGVFA2C` to `DGVFA2C`'s.

    The zoo's schedules become Stable-Baselines3's, which model files store without a pickle.
    """
    known = dict(settings)
    for name in SCHEDULED:
        last = known.pop(f"final_{name}", None)
        if name in known:
            known[name] = _schedule(name, known[name], last)
        elif last is not None:
            raise ValueError(f"{name} must be given if final_{name} is, got only final_{name}={last!r}")
    return known


def _schedule(name: str, first: Any, last: float | None) -> Any:
    if isinstance(first, ConstantSchedule):
        first = first.val
    if callable(first) and hasattr(first, "initial_value"):  # the zoo's schedule for lin_X
        first = LinearSchedule(float(first.initial_value), 0.0, 1.0)
    if last is None:
        return first
    if not isinstance(first, int | float):
        raise ValueError(f"{name} must be a number if final_{name} is given, got {first!r}")
    return scheduled(name, float(first), float(last))


def hyperparameters() -> dict[str, dict[str, Any]]:
    """The zoo's hyperparameters by environment id: the presets of `dgvf train` with discovered questions.

    As in `dgvf train`, `env_kwargs` apply to training only. The zoo evaluates in the environment as it is registered,
    unless `--eval-env-kwargs` is given.
    """
    configs = [preset(world, "discovered") for world in WORLDS]
    return {config.env: _in_zoo(config) for config in configs}


def __getattr__(name: str) -> Any:
    """`hyperparams`, read by the zoo from the module of `--conf-file`; a new dict, since the zoo modifies it."""
    if name == "hyperparams":
        return hyperparameters()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _in_zoo(config: TrainConfig) -> dict[str, Any]:
    settings = {"n_timesteps": config.steps, "auxiliary_task": config.task, "env_kwargs": dict(config.env_kwargs)}
    usual = TrainConfig()
    settings |= {name: getattr(config, name) for name in ("n_envs", "policy")}
    for name in record("a2c"):
        names = (name, f"final_{name}") if name in SCHEDULED else (name,)  # a final value needs the first one
        if any(getattr(config, each) != getattr(usual, each) for each in names):
            settings[name] = getattr(config, name)
    given = {name: value for name, value in settings.items() if value not in (None, {})}
    return given | {"max_grad_norm": config.max_grad_norm}


def sample_hyperparameters(
    trial: optuna.Trial, n_actions: int, n_envs: int, additional_args: dict[str, Any]
) -> dict[str, Any]:
    """Sample D, L and the meta learning rate for a trial of the zoo's search (`train -optimize`).

    All other hyperparameters keep their values.

    Args:
        trial: the Optuna trial.
        n_actions: number of actions; unused.
        n_envs: number of environments; unused.
        additional_args: arguments of the zoo; unused.
    """
    return {
        "questions": trial.suggest_int("questions", *QUESTIONS, log=True),
        "unroll_length": trial.suggest_int("unroll_length", *UNROLL_LENGTHS, log=True),
        "meta_learning_rate": trial.suggest_float("meta_learning_rate", *META_LEARNING_RATES, log=True),
    }


def as_yaml() -> str:
    """`hyperparameters()` as a YAML file for the zoo's `--conf-file`.

    Raises:
        ImportError: PyYAML, a dependency of the zoo, is not installed.
    """
    import yaml

    return f"{_YAML_HEAD}\n{yaml.safe_dump(hyperparameters(), sort_keys=False)}"


_YAML_HEAD = """\
# Written by `python -m dgvf_agents.zoo hyperparameters`: the presets of `dgvf train` with discovered questions. Any
# argument of DGVFA2C may be added; the others have its defaults. Final values are of linear schedules for learning
# rates and of geometric ones for coefficients. Write 0.0003 instead of 3e-4, which YAML reads as a string.
"""


def register() -> None:
    """Register `dgvf` and the environments of `dgvf_envs` in RL Baselines3 Zoo. Idempotent.

    Raises:
        ImportError: the zoo is not installed.
    """
    import dgvf_envs  # noqa: F401, registers the environments

    try:
        from rl_zoo3 import hyperparams_opt, utils
    except ImportError as error:
        raise ImportError(
            f"RL Baselines3 Zoo cannot be imported ({error}): install the extra `zoo`, dgvf[zoo]"
        ) from error
    utils.ALGOS |= {NAME: ZooDGVFA2C, NAME_OF_PPO: ZooDGVFPPO}  # all modules of the zoo share this dict
    hyperparams_opt.HYPERPARAMS_SAMPLER[NAME] = sample_hyperparameters
    hyperparams_opt.HYPERPARAMS_CONVERTER[NAME] = lambda sampled_params: sampled_params


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the zoo's scripts, or print `as_yaml()`.

    Args:
        arguments: one of `SCRIPTS`, followed by options of that script; or `hyperparameters` (default: `sys.argv`).

    Raises:
        SystemExit: the first argument is none of these, or an option is invalid.
        ImportError: the zoo is not installed.
    """
    script, *options = (sys.argv[1:] if arguments is None else arguments) or [""]
    if script == "hyperparameters":
        print(as_yaml(), end="")
        return
    if script not in SCRIPTS:
        sys.exit(f"the first argument must be one of {', '.join(SCRIPTS)}, hyperparameters, got {script!r}")
    register()
    conf_file = "dgvf_agents.zoo"
    if NAME_OF_PPO in options:  # the zoo's own settings of PPO
        conf_file = str(Path(importlib.import_module("rl_zoo3").__file__ or "").parent / "hyperparams" / "ppo.yml")
    defaults = ["--algo", NAME, *(["--conf-file", conf_file] if script == "train" else [])]
    # if an option is given twice, the last one wins
    before, sys.argv = sys.argv, [f"rl_zoo3.{script}", *defaults, *options]
    try:
        getattr(importlib.import_module(f"rl_zoo3.{script}"), script)()
    finally:
        sys.argv = before


if __name__ == "__main__":
    main()
