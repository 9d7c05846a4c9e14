"""The configuration of a training run, and the presets of the paper's gridworlds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, final

import tyro

from dgvf_agents.core.argument_checks import check_counts, check_not_negative
from dgvf_agents.execution.devices import check_device_name
from dgvf_agents.options import (
    Algorithm,
    AuxiliaryWeighting,
    Convention,
    EncoderMode,
    Horizon,
    LossReduction,
    Method,
    Mode,
    Objective,
    QuestionEncoder,
    RMSPropRule,
    Storage,
    World,
)
from dgvf_envs.atari.presets import AtariPreset


@final
@dataclass(frozen=True)
class TrainConfig:
    """Everything that defines a training run."""

    algorithm: Algorithm = "a2c"
    """`a2c`: `DGVFA2C`; `impala`: `DGVFImpala`, which differs in V-trace."""
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
    policy: str = "CnnPolicy"
    """`PaperMlpPolicy` (128, 128 ReLUs), `MlpPolicy` (that of Stable-Baselines3), `CnnPolicy` (8 and 16 filters of 2x2,
    then 512 units; on Atari frames the Atari network) or `ResNetPolicy` (the deep residual network of IMPALA)."""
    task: str = "discovered"
    """Auxiliary task: discovered, random, reward-prediction, pixel-control or none."""
    steps: int = 1_000_000
    """Environment steps to train for, summed over all environments; on Atari agent steps, of 4 frames each."""
    seed: int = 0
    """Seed of all random number generators."""
    n_envs: int = 16
    """Number of parallel environments (paper: 16)."""
    n_steps: int = 5
    """Steps per environment and update (paper: 5)."""
    gamma: float = 0.99
    """Discount factor of the main task."""
    learning_rate: float = 3e-4
    """Learning rate of the inner update (paper: searched in 1e-4 … 7e-3)."""
    final_learning_rate: float | None = None
    """Final learning rate of a linear schedule; None: constant."""
    ent_coef: float = 0.03
    """Entropy coefficient (paper: searched in 1e-4 … 0.05)."""
    final_ent_coef: float | None = None
    """Final entropy coefficient of a geometric schedule; None: constant."""
    vf_coef: float = 0.5
    """Coefficient of the value loss, which is the mean squared error."""
    loss_reduction: LossReduction = "mean"
    """Loss reduction that `rms_prop_eps` and the maximum gradient norms refer to: `mean` over the batch, or `sum` as in
    IMPALA. Updates are those of such losses; losses are always logged as means."""
    rms_prop: RMSPropRule = "pytorch"
    """Convention of RMSProp: `pytorch` (ε outside the square root, initial second moment 0) or `tensorflow` (ε inside
    the square root, initial second moment 1); the paper does not specify it."""
    rms_prop_eps: float = 1e-5
    """ε of RMSProp (paper: 1e-5)."""
    max_grad_norm: float | None = None
    """Maximum norm of inner gradients; None: no clipping."""
    encoder_mode: EncoderMode | None = None
    """Losses that train the encoder: `auxiliary`: only that of the auxiliary task; `joint`: that of the main task too.
    None: `joint` for the task `none`, otherwise `auxiliary`, as in the paper's representation experiments."""
    questions_from: str | None = None
    """Folder of a finished run whose questions the task `random` takes, frozen; a relative path starts at this run's
    own folder. `demo` or another shipped run by its name. None: questions of its own."""
    principal_questions: int | None = None
    """Number of principal questions to answer in place of all in `questions_from`: the directions along which their
    cumulants vary most in the experience of the agent that discovered them. None: all questions."""
    questions: int = 128
    """D, number of questions (paper: 128)."""
    question_discount: float | None = 0.9
    """Discount of all questions; None: learned."""
    question_encoder: QuestionEncoder = "independent"
    """What the question network reads: `independent`: observations, with an encoder of its own; `shared`: the agent's
    features of them."""
    auxiliary_coefficient: float = 0.1
    """Weight of the auxiliary task."""
    final_auxiliary_coefficient: float | None = None
    """Final weight of a geometric schedule; None: constant."""
    auxiliary_weighting: AuxiliaryWeighting = "fixed"
    """`fixed`: the coefficient multiplies the auxiliary loss (paper); `gradient-norm`: the coefficient is the norm of
    the auxiliary loss's gradient at the features relative to that of the main task's."""
    unroll_length: int = 10
    """L, inner updates per meta-update (paper: 10)."""
    objective: Objective = "sum"
    """Meta-loss: `sum` over the unroll, or its last term, `end`."""
    horizon: Horizon = "unrolled"
    """`unrolled`, or the `myopic` approximation of the paper's appendix."""
    convention: Convention = "exact"
    """What the meta-gradient passes through: `exact` or `surrogate`."""
    head_rate: float = 1.0
    """Learning rate of the policy and value heads, as a multiple of `learning_rate`."""
    storage: Storage = "graph"
    """`graph` is faster, `recompute` uses less memory."""
    meta_learning_rate: float = 3e-4
    """Learning rate of Adam on η."""
    final_meta_learning_rate: float | None = None
    """Final meta learning rate of a linear schedule; None: constant."""
    meta_max_grad_norm: float = 1.0
    """Maximum norm of meta-gradients (paper, table 1: 1 for cumulants)."""
    meta_max_discount_grad_norm: float | None = None
    """Separate maximum norm for learned discounts (paper, table 1: 10); None: no separate clipping."""
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
    mixed_precision: bool = False
    """Whether encoders compute in bfloat16; heads, losses, parameters and optimizers stay float32."""
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
        counts = ("steps", "threads", "checkpoint_every", "log_every", "evaluate_every", "evaluation_episodes")
        names = (*counts, "checkpoints_kept", "n_envs", "n_steps", "learners")
        check_counts(**{name: getattr(self, name) for name in names})
        weights = ("learning_rate", "ent_coef", "auxiliary_coefficient", "meta_learning_rate")
        finals = {name: value for name in weights if (value := getattr(self, f"final_{name}")) is not None}
        check_not_negative(**{name: getattr(self, name) for name in weights})
        check_not_negative(**{f"final_{name}": value for name, value in finals.items()})
        for name in ("env_kwargs", "evaluation_kwargs"):
            if not isinstance(getattr(self, name), dict):
                raise ValueError(f"{name} must be a dict, got {getattr(self, name)!r}")
        check_device_name(self.device)
        if self.actors < 0:
            raise ValueError(f"actors must be >= 0, got {self.actors!r}")
        if self.actors and self.algorithm != "impala":
            raise ValueError(f"actors must be 0 unless the algorithm is impala, got {self.actors!r}")
        if self.learners > 1 and self.algorithm != "impala":
            raise ValueError(f"learners must be 1 unless the algorithm is impala, got {self.learners!r}")
        self._check_questions_from()
        for name in ("ent_coef", "auxiliary_coefficient"):
            self._check_geometric(name)
        if self.atari is not None and (self.env_kwargs or self.evaluation_kwargs):
            given = self.env_kwargs or self.evaluation_kwargs
            raise ValueError(f"env_kwargs and evaluation_kwargs must be empty on Atari, got {given!r}")

    def _check_geometric(self, name: str) -> None:
        start, end = getattr(self, name), getattr(self, f"final_{name}")
        if end is not None and min(start, end) <= 0.0:
            raise ValueError(
                f"{name} and final_{name} must be > 0, since the schedule is geometric, got {start!r} and {end!r}; "
                f"with final_{name} None, {name} is constant and may be 0"
            )

    def _check_questions_from(self) -> None:
        taken, principal = self.questions_from is not None, self.principal_questions
        for failed, message in (
            (taken and self.task != "random", f"task must be 'random' with questions_from, got {self.task!r}"),
            (
                taken and self.question_encoder != "independent",
                f"question_encoder must be 'independent' with questions_from, got {self.question_encoder!r}",
            ),
            (
                principal is not None and not taken,
                f"principal_questions must be None without questions_from, got {principal!r}",
            ),
            (
                principal is not None and not 1 <= principal <= self.questions,
                f"principal_questions must be in 1 ... {self.questions}, got {principal!r}",
            ),
            (
                principal is not None and self.question_discount is None,
                "question_discount must be a number with principal_questions, got None",
            ),
        ):
            if failed:
                raise ValueError(message)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> TrainConfig:
        """The inverse of `dataclasses.asdict`.

        Raises:
            ValueError: a field is out of its range, unknown or missing, as in runs of earlier versions.
        """
        fields = {**_ADDED, **fields}
        names = [field.name for field in dataclasses.fields(cls)]
        unknown, missing = [n for n in fields if n not in names], [n for n in names if n not in fields]
        if unknown or missing:
            parts = [f"{what} {', '.join(found)}" for what, found in (("lacks", missing), ("has", unknown)) if found]
            raise ValueError(
                f"a configuration must have the fields of this version, got one that {' and '.join(parts)}"
            )
        rules = fields.get("atari")
        return cls(**{**fields, "atari": None if rules is None else AtariPreset(**rules)})

    def differences(self, wanted: TrainConfig, apart_from: Collection[str] = ()) -> list[str]:
        """`name (value, not wanted value)` of each field that differs, with values as in JSON.

        Args:
            wanted: the other configuration.
            apart_from: names of fields to ignore.
        """
        found, other = (json.loads(json.dumps(dataclasses.asdict(config))) for config in (self, wanted))
        return [
            f"{name} ({found[name]!r}, not {other[name]!r})"
            for name in found
            if name not in apart_from and found[name] != other[name]
        ]

    @property
    def encoder_mode_of_task(self) -> EncoderMode:
        """`encoder_mode`, or its default for the task."""
        return self.encoder_mode or ("joint" if self.task == "none" else "auxiliary")

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update, those of all learners."""
        return self.n_envs * self.n_steps * self.learners

    @property
    def frames_per_step(self) -> int | None:
        """Frames per agent step on Atari; `None` elsewhere."""
        return None if self.atari is None else self.atari.frame_skip


_ADDED = {
    "algorithm": "a2c",
    "question_encoder": "independent",
    "actors": 0,
    "envs_per_actor": None,
    "address": None,
    "learners": 1,
    "questions_from": None,
    "principal_questions": None,
    "final_auxiliary_coefficient": None,
    "head_rate": 1.0,
}
"""Fields that earlier runs do not have, and what they stand for in them."""

_TASKS: dict[Method, str] = {
    "discovered": "discovered",
    "random": "random",
    "reward-prediction": "reward-prediction",
    "a2c": "none",
}

_WORLDS: dict[World, TrainConfig] = {
    "collect-objects-small": TrainConfig(learning_rate=3e-3, final_ent_coef=0.01, evaluate_every=40_000),
    "collect-objects": TrainConfig(env="CollectObjects-v0", steps=3_000_000, learning_rate=5e-4, final_ent_coef=0.01),
    "puddle-world": TrainConfig(
        env="PuddleWorld-v0",
        rms_prop="tensorflow",  # with PyTorch's, policies kept crossing the puddles at a learning rate of 7e-4
        env_kwargs={"reward_scale": 0.5, "start": "random", "max_episode_steps": 100},
        policy="PaperMlpPolicy",
        steps=5_000_000,
        learning_rate=1e-3,
        final_learning_rate=0.0,
        ent_coef=5.0,
        final_ent_coef=0.01,
        auxiliary_coefficient=3e-3,
        final_auxiliary_coefficient=3e-4,
        convention="surrogate",
        final_meta_learning_rate=0.0,
    ),
}
"""One configuration per world. As in the paper, methods differ only in the task."""


def preset(world: World, method: Method) -> TrainConfig:
    """The configuration of a method on a world."""
    return dataclasses.replace(_WORLDS[world], task=_TASKS[method])


WORLDS: tuple[World, ...] = tuple(_WORLDS)
METHODS: tuple[Method, ...] = tuple(_TASKS)
