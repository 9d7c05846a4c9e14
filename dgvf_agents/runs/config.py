"""The configuration of a training run, and the presets of the paper's gridworlds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, final

import tyro

from dgvf_agents.execution.devices import check_device_name
from dgvf_agents.core.unroll import Horizon, Objective, Storage
from dgvf_agents.core.inner_update import AuxiliaryWeighting, Convention, EncoderMode
from dgvf_envs.atari.presets import AtariPreset

World = Literal["collect-objects", "collect-objects-small", "puddle-world"]
Method = Literal["discovered", "random", "reward-prediction", "a2c"]
LossReduction = Literal["mean", "sum"]
RMSPropRule = Literal["pytorch", "tensorflow"]


@final
@dataclass(frozen=True)
class TrainConfig:
    """Everything that defines a training run."""

    env: str = "CollectObjectsSmall-v0"
    """Id of the environment; on Atari the name of the game."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment in training."""
    env_wrapper: str | None = None
    """Wrapper of every environment by its import path, as minigrid.wrappers:ImgObsWrapper."""
    evaluation_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment in evaluation."""
    atari: Annotated[AtariPreset | None, tyro.conf.Suppress] = None
    """Rules of the game, where the environment is one."""
    policy: str = "CnnPolicy"
    """`PaperMlpPolicy` (128, 128 ReLUs), `MlpPolicy` (that of Stable-Baselines3) or `CnnPolicy` (8 and 16 filters of
    2x2, then 512; the Atari network on its images)."""
    task: str = "discovered"
    """Auxiliary task: discovered, random, reward-prediction, pixel-control or none."""
    steps: int = 1_000_000
    """Environment steps to train for, over all copies; on Atari the agent's, of 4 frames each."""
    seed: int = 0
    """Seed of everything random."""
    n_envs: int = 16
    """Parallel environments (paper: 16)."""
    n_steps: int = 5
    """Steps per environment and update (paper: 5)."""
    gamma: float = 0.99
    """Discount of the main task."""
    learning_rate: float = 3e-4
    """RMSProp's, of the inner update (paper: searched in 1e-4 … 7e-3)."""
    final_learning_rate: float | None = None
    """Where the learning rate is annealed to linearly; constant when left out."""
    ent_coef: float = 0.03
    """Entropy regularization (paper: searched in 1e-4 … 0.05)."""
    final_ent_coef: float | None = None
    """Where the entropy regularization is annealed to, by the same factor per step; constant when left out."""
    vf_coef: float = 0.5
    """Factor on the mean squared value error."""
    loss_reduction: LossReduction = "mean"
    """What `rms_prop_eps` and the norms of gradients are meant for: losses that are a `mean` over the batch, or its
    `sum` as IMPALA's are. Steps are those of such losses; losses are logged as means."""
    rms_prop: RMSPropRule = "pytorch"
    """Convention of RMSProp: `pytorch` (ε outside the root, second moment 0 at first) or `tensorflow` (ε inside the
    root, second moment 1 at first); the paper does not say which."""
    rms_prop_eps: float = 1e-5
    """ε of RMSProp (paper: 1e-5)."""
    max_grad_norm: float | None = None
    """Norm that inner gradients are scaled down to; none when left out."""
    encoder_mode: EncoderMode | None = None
    """`auxiliary`: only the task trains the encoder, `joint`: the main task too; when left out `joint` for the task
    `none` and `auxiliary` for all others, as in the paper's representation experiments."""
    questions: int = 128
    """D, the number of questions (paper: 128)."""
    question_discount: float | None = 0.9
    """Discount of all questions; learned when left out."""
    auxiliary_coefficient: float = 0.1
    """Weight of the auxiliary task."""
    auxiliary_weighting: AuxiliaryWeighting = "fixed"
    """`fixed`: the coefficient multiplies the auxiliary loss (paper); `gradient-norm`: it is the norm of that loss's
    gradient at the features relative to the main task's."""
    unroll_length: int = 10
    """L, inner updates per meta-update (paper: 10)."""
    objective: Objective = "sum"
    """`sum` of the meta-losses along the unroll or the one at its `end`."""
    horizon: Horizon = "unrolled"
    """`unrolled`, or the `myopic` approximation of the paper's appendix."""
    convention: Convention = "exact"
    """What the meta-gradient passes through: `exact` or `surrogate`."""
    storage: Storage = "graph"
    """`graph` is faster, `recompute` takes less memory."""
    meta_learning_rate: float = 3e-4
    """Adam's, on η."""
    final_meta_learning_rate: float | None = None
    """Where the meta learning rate is annealed to linearly; constant when left out."""
    meta_max_grad_norm: float = 1.0
    """Norm that meta-gradients are scaled down to (paper, table 1: 1 for cumulants)."""
    meta_max_discount_grad_norm: float | None = None
    """Norm that those of learned discounts are scaled down to by themselves (paper, table 1: 10)."""
    compile: bool = True
    """Whether updates are compiled."""
    device: str = "cpu"
    """Where networks lie and updates run: `cpu`, `cuda`, `cuda:1`, or `auto` for CUDA where there is any. The networks
    of the gridworlds are too small for more than the CPU, where a run is resumed bitwise; games take `auto`."""
    mixed_precision: bool = False
    """Whether products within encoders are of bfloat16 numbers; heads, losses, parameters and optimizers never are."""
    threads: int = 1
    """Threads of PyTorch."""
    checkpoint_every: int = 250_000
    """Environment steps between checkpoints."""
    checkpoints_kept: int = 3
    """How many of the latest checkpoints can be resumed from; older ones keep their networks only."""
    log_every: int = 8_000
    """Environment steps between rows of metrics."""
    evaluate_every: int = 80_000
    """Environment steps between evaluations, whose result goes into the next row; a multiple of `log_every` is best."""
    evaluation_episodes: int = 64
    """Episodes of an evaluation, each in a copy of its own."""

    def __post_init__(self) -> None:
        counts = ("steps", "threads", "checkpoint_every", "log_every", "evaluate_every", "evaluation_episodes")
        for name in (*counts, "checkpoints_kept", "n_envs", "n_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)!r}")
        check_device_name(self.device)
        if self.atari is not None and (self.env_kwargs or self.evaluation_kwargs):
            given = self.env_kwargs or self.evaluation_kwargs
            raise ValueError(f"env_kwargs and evaluation_kwargs must be left out on Atari, got {given!r}")

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> TrainConfig:
        """The configuration whose `dataclasses.asdict` these are.

        Raises:
            ValueError: a field is out of its range, unknown, or missing, as in runs of earlier versions.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        unknown, missing = [n for n in fields if n not in names], [n for n in names if n not in fields]
        if unknown or missing:
            parts = [f"{what} {', '.join(found)}" for what, found in (("lacks", missing), ("has", unknown)) if found]
            raise ValueError(f"a configuration must have the fields of this version, this one {' and '.join(parts)}")
        rules = fields.get("atari")
        return cls(**{**fields, "atari": None if rules is None else AtariPreset(**rules)})

    def differences(self, wanted: TrainConfig, apart_from: Collection[str] = ()) -> list[str]:
        """`field (this one's, not the wanted one's)` of each field that differs, as JSON has them.

        Args:
            wanted: the other configuration.
            apart_from: names of fields that may differ.
        """
        found, other = (json.loads(json.dumps(dataclasses.asdict(config))) for config in (self, wanted))
        return [
            f"{name} ({found[name]!r}, not {other[name]!r})"
            for name in found
            if name not in apart_from and found[name] != other[name]
        ]

    @property
    def encoder_mode_of_task(self) -> EncoderMode:
        """`encoder_mode`, or where it is left out what the task decides."""
        return self.encoder_mode or ("joint" if self.task == "none" else "auxiliary")

    @property
    def frames_per_step(self) -> int | None:
        """Frames that an action of the agent is held for on Atari; None elsewhere."""
        return None if self.atari is None else self.atari.frame_skip


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
        rms_prop="tensorflow",  # with PyTorch's, at this learning rate, policies stay on the path through the puddles
        env_kwargs={"reward_scale": 0.5, "start": "random", "max_episode_steps": 200},
        policy="PaperMlpPolicy",
        steps=5_000_000,
        learning_rate=7e-4,
        final_learning_rate=0.0,
        ent_coef=1.5,
        final_ent_coef=0.015,
        auxiliary_coefficient=0.01,
        convention="surrogate",
        final_meta_learning_rate=0.0,
    ),
}
"""One configuration per world; all methods share its settings and differ in the task alone, as in the paper."""


def preset(world: World, method: Method) -> TrainConfig:
    """The configuration of a method on a world."""
    return dataclasses.replace(_WORLDS[world], task=_TASKS[method])


WORLDS: tuple[World, ...] = tuple(_WORLDS)
METHODS: tuple[Method, ...] = tuple(_TASKS)
