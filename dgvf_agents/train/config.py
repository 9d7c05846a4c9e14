"""The configuration of a training run, and the presets of the paper's gridworlds."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, final, get_args

import tyro

from dgvf_agents.core.argument_checks import check_choice, check_counts, check_device_name, check_sizes
from dgvf_agents.hyperparameters import Hyperparameters, check_hyperparameters, record
from dgvf_agents.impala.settings import check_actors
from dgvf_agents.options import Algorithm, AtariMethod, AtariRules, Method, Mode, World
from dgvf_envs.atari.games import title_of
from dgvf_envs.atari.presets import PRESETS, AtariPreset

_TYPES = {
    **dict.fromkeys(("env", "policy", "task"), str),
    **dict.fromkeys(("env_wrapper", "questions_from", "address"), str | None),
    **dict.fromkeys(("env_kwargs", "evaluation_kwargs"), dict),
    "seed": int,
}
"""Of the fields that any value of the type is allowed in."""


@final
@dataclass(frozen=True)
class TrainConfig(Hyperparameters):
    """Everything that defines a training run: the hyperparameters, the environments, and what is recorded."""

    algorithm: Algorithm = "a2c"
    """`a2c`: `DGVFA2C`; `impala`: `DGVFImpala`, which differs in V-trace; `ppo`: `DGVFPPO`."""
    env: str = "CollectObjectsSmall-v0"
    """Environment id; on Atari the name of the game."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the training environments."""
    env_wrapper: str | None = None
    """Import path of a wrapper for every environment, such as minigrid.wrappers:ImgObsWrapper."""
    evaluation_kwargs: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the evaluation environments."""
    atari: Annotated[AtariPreset | None, tyro.conf.Suppress] = None
    """Preprocessing and game rules on Atari; `None` elsewhere."""
    policy: str = "PaperCnnPolicy"
    """`PaperMlpPolicy` (128, 128 ReLUs), `PaperCnnPolicy` (8 and 16 filters of 2x2, then 512 units; on Atari frames the
    Atari network), `ResNetPolicy` (the deep residual network of IMPALA), or Stable-Baselines3's `MlpPolicy` or
    `CnnPolicy`."""
    task: str = "discovered"
    """Auxiliary task: discovered, random, reward-prediction, pixel-control or none."""
    steps: int = 1_000_000
    """Environment steps to train for, summed over all environments; on Atari agent steps, of 4 frames each."""
    seed: int = 0
    """Seed of all random number generators."""
    n_envs: int = 16
    """Number of parallel environments (paper: 16)."""
    questions_from: str | None = None
    """Folder of a finished run whose questions the task `random` takes, frozen; a relative path starts at this run's
    own folder. `demo` or another shipped run by its name. None: questions of its own."""
    principal_questions: int | None = None
    """Number of principal questions to answer in place of all in `questions_from`: the directions along which their
    cumulants vary most in the experience of the agent that discovered them. None: all questions."""
    compile: Mode = "auto"
    """Whether updates run compiled; `auto`: training starts at once, and from the 1,000th update on."""
    actors: int = 0
    """Number of distributed actors of IMPALA, on Ray; 0: acting and learning take turns in one process."""
    envs_per_actor: int | None = None
    """Environments of each actor, a divisor of `n_envs`; None: see `DGVFImpala`. Without actors it does not apply."""
    address: str | None = None
    """Address of a running Ray cluster for the actors, or `auto`; None: Ray is started on this machine."""
    learners: int = 1
    """Number of learners of IMPALA, each with `n_envs` environments and `actors` actors: processes on this machine,
    with a GPU each if `device` is CUDA."""
    device: str = "cpu"
    """Device of networks and updates: `cpu`, `cuda`, `cuda:1`, or `auto`, which uses CUDA if available. The presets of
    the gridworlds use the CPU: their networks are too small for a GPU, and resumed runs are bitwise equal. Those of
    Atari use `auto`."""
    threads: int = 1
    """Number of PyTorch threads."""
    checkpoint_every: int = 250_000
    """Environment steps between checkpoints."""
    checkpoints_kept: int = 3
    """Number of latest checkpoints to resume from; older ones keep networks only."""
    log_every: int = 8_000
    """Environment steps between rows of metrics."""
    evaluate_every: int = 80_000
    """Environment steps between evaluations, logged in the next row of metrics; best a multiple of `log_every`."""
    evaluation_episodes: int = 64
    """Episodes per evaluation, each in its own environment."""

    def __post_init__(self) -> None:
        counts = ("steps", "checkpoint_every", "log_every", "evaluate_every", "checkpoints_kept")
        check_counts(**{name: getattr(self, name) for name in counts})
        check_actors(self.actors, self.envs_per_actor)
        check_sizes(n_envs=self.n_envs, learners=self.learners, evaluation_episodes=self.evaluation_episodes)
        check_sizes(1024, threads=self.threads)  # PyTorch crashes at some ten thousand
        check_choice("algorithm", self.algorithm, Algorithm)
        for name, kind in _TYPES.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ValueError(f"{name} must be of the type {getattr(kind, '__name__', kind)}, got {value!r}")
        check_hyperparameters(vars(self))
        check_device_name(self.device)
        for name, allowed, must in self._rules():
            if not allowed:
                raise ValueError(f"{name} must be {must}, got {getattr(self, name)!r}")

    def _rules(self) -> Iterator[tuple[str, bool, str]]:
        """What fields must be beside others: a field, whether it is, and what it must be."""
        known = record(self.algorithm)
        for name, one in record().items():
            allowed = name in known or getattr(self, name) in one.defaults.values()
            yield name, allowed, f"left out for the algorithm {self.algorithm}"
        distributed = self.algorithm == "impala"
        yield "actors", distributed or self.actors == 0, "0 unless the algorithm is impala"
        yield "learners", distributed or self.learners == 1, "1 unless the algorithm is impala"
        taken, principal = self.questions_from is not None, self.principal_questions
        yield "task", not taken or self.task == "random", "'random' with questions_from"
        independent = self.question_encoder == "independent"
        yield "question_encoder", not taken or independent, "'independent' with questions_from"
        yield "principal_questions", taken or principal is None, "None without questions_from"
        fewer = principal is None or 1 <= principal <= self.questions
        yield "principal_questions", fewer, f"in 1 ... {self.questions}"
        learned = self.question_discount is None
        yield "question_discount", principal is None or not learned, "a number with principal_questions"
        for name in ("ent_coef", "auxiliary_coefficient"):
            constant = getattr(self, f"final_{name}") is None
            geometric = f"> 0, since the schedule is geometric; with final_{name} None, {name} is constant and may be 0"
            yield name, constant or getattr(self, name) > 0.0, geometric
        for name in ("env_kwargs", "evaluation_kwargs"):
            yield name, self.atari is None or not getattr(self, name), "empty on Atari"

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> TrainConfig:
        """The inverse of `dataclasses.asdict`.

        Raises:
            ValueError: a field is out of its range or unknown. A missing one has its default.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        if unknown := [name for name in fields if name not in names]:
            exported = ": an exported agent is no run, and load() reads it" if "sha256" in unknown else ""
            raise ValueError(f"a configuration must have fields of this version, got {', '.join(unknown)}{exported}")
        rules = fields.get("atari")
        if rules is not None:
            fields = {**fields, "atari": AtariPreset(**rules), "env": title_of(fields["env"])}
        return cls(**fields)

    def fields(self, apart_from: Collection[str] = ()) -> dict[str, Any]:
        """Values by name, as in JSON, but for those of some fields."""
        values = json.loads(json.dumps(dataclasses.asdict(self)))
        return {name: value for name, value in values.items() if name not in apart_from}

    @property
    def frames_per_step(self) -> int | None:
        """Frames per agent step on Atari; `None` elsewhere."""
        return None if self.atari is None else self.atari.frame_skip


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """`name (value, not wanted value)` of each field of two configurations that differs; see `TrainConfig.fields`."""
    differing = [name for name in wanted if name in found and found[name] != wanted[name]]
    return ", ".join(f"{name} ({found[name]!r}, not {wanted[name]!r})" for name in differing)


def _with_none(table: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _with_none(one) if isinstance(one, dict) else None if one == "None" else one
        for name, one in table.items()
    }


_PRESETS = _with_none(tomllib.loads(Path(__file__).with_name("presets.toml").read_text("utf-8")))


def _defaults(algorithm: Algorithm) -> dict[str, Any]:
    return {name: one.defaults[algorithm] for name, one in record(algorithm).items()}


def _of_method(method: AtariMethod) -> dict[str, Any]:
    return {"task": "none", "encoder_mode": "joint"} if method == "a2c" else {"task": method}


def preset(world: World, method: Method, algorithm: Algorithm = "a2c") -> TrainConfig:
    """The configuration of a method on a world, with A2C or PPO."""
    own = _PRESETS["ppo"] if algorithm == "ppo" else {}
    return TrainConfig(**_PRESETS["representation"] | _PRESETS["worlds"][world] | own | _of_method(method))


def atari_config(game: str, method: AtariMethod, rules: AtariRules = "paper") -> TrainConfig:
    """The configuration of a method on a game, as in the paper's representation experiments.

    The question network has its own encoder, and discounts are learned. Training uses a CUDA device if available.

    Args:
        game: name of the game in the spelling of Gymnasium or ALE, such as `"Breakout"` or `"ms_pacman"`.
        method: the auxiliary task, or `"a2c"` for none.
        rules: name of the `dgvf_envs.atari` preset for preprocessing and game rules.

    Raises:
        ValueError: ALE has no such game.
    """
    own = _defaults("impala") | _PRESETS["atari"] | _of_method(method)
    own |= _PRESETS["reward-prediction"] if method == "reward-prediction" else {}
    return TrainConfig(env=title_of(game), atari=PRESETS[rules], **own)


def impala_config(game: str, method: AtariMethod, rules: AtariRules = "paper") -> TrainConfig:
    """The configuration of IMPALA with a method on a game, as in the paper's joint learning experiments.

    The encoder is the deep residual network, trained by the main task and the auxiliary task. The question network
    reads the agent's features of the next observation. The arguments are the same as for `atari_config`.
    """
    return dataclasses.replace(atari_config(game, method, rules), **_PRESETS["joint-learning"])


def own_config(env: str, method: str, algorithm: Algorithm = "a2c", steps: int = 200_000) -> TrainConfig:
    """The defaults of an agent on anyone's environment, as a configuration.

    There are 8 environments, whatever the agent's default; PPO's rollouts have 2,048 steps of all of them together.

    Args:
        env: id of the environment, `module:Id` where the module registers it.
        method: the auxiliary task, or `"a2c"` for none.
        algorithm: the agent.
        steps: environment steps; evaluations and rows of metrics come in equal parts of them.
    """
    own = _defaults(algorithm)
    if algorithm == "ppo":
        own["n_steps"] //= 8
    return TrainConfig(
        **own,
        algorithm=algorithm,
        env=env,
        policy="MlpPolicy",
        task="none" if method == "a2c" else method,
        steps=steps,
        n_envs=8,
        checkpoint_every=steps // 4,
        log_every=steps // 50,
        evaluate_every=steps // 10,
        evaluation_episodes=16,
    )


WORLDS: tuple[World, ...] = get_args(World)
METHODS: tuple[Method, ...] = get_args(Method)
ATARI_METHODS: tuple[AtariMethod, ...] = get_args(AtariMethod)
