"""The hyperparameters: one record, from which all that names them follows.

A field gives a hyperparameter's type, its default for each agent, its range, and whether it is a number or structure.
The constructors of the agents (`make signatures` writes them), `TrainConfig`, the command line, the checks of arguments
and what the members of a population may differ in follow from it. It does not import PyTorch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, final

from dgvf_agents.core.argument_checks import (
    check_choice,
    check_counts,
    check_flags,
    check_fractions,
    check_fractions_below_one,
    check_not_negative,
    check_positive,
    check_positive_or_infinite,
    check_sizes,
)
from dgvf_agents.options import (
    Algorithm,
    AuxiliaryWeighting,
    Convention,
    EncoderMode,
    Horizon,
    LossReduction,
    Objective,
    QuestionEncoder,
    RMSPropRule,
    StorageChoice,
)

Kind = Literal["number", "structure"]
"""Structure decides which functions are computed, and a number is an argument of theirs: models that differ in numbers
share compiled functions, and members of a population may differ in them. Whether an optional number is `None` is
structure."""

_SAME: Any = object()


@final
@dataclass(frozen=True)
class Hyperparameter:
    """What the record says of a hyperparameter besides its name, type and description."""

    kind: Kind
    check: Callable[..., None]
    """Raises a `ValueError` for `name=value` out of range."""
    defaults: Mapping[Algorithm, Any]
    """Of the agents that have it."""
    schedule: Literal["linear", "geometric"] | None = None
    """How a final value is reached; `None` if it is constant. A constructor also takes a function of the progress."""


def _hyperparameter(
    kind: Kind,
    default: Any,
    check: Callable[..., None],
    impala: Any = _SAME,
    ppo: Any = _SAME,
    agents: tuple[Algorithm, ...] = ("a2c", "impala", "ppo"),
    schedule: Literal["linear", "geometric"] | None = None,
) -> Any:
    own = {"a2c": _SAME, "impala": impala, "ppo": ppo}
    defaults: dict[Algorithm, Any] = {agent: default if own[agent] is _SAME else own[agent] for agent in agents}
    described = Hyperparameter(kind, check, defaults, schedule)
    return field(default=default, metadata={"hyperparameter": described})


_WITH_RMS_PROP: tuple[Algorithm, ...] = ("a2c", "impala")
_number, _structure = partial(_hyperparameter, "number"), partial(_hyperparameter, "structure")


def _optional(check: Callable[..., None]) -> Callable[..., None]:
    def check_given(**values: Any) -> None:
        try:
            check(**{name: value for name, value in values.items() if value is not None})
        except ValueError as error:
            raise ValueError(str(error).replace(", got", " or be None, got")) from None

    return check_given


def _one_of(allowed: object) -> Callable[..., None]:
    def check(**values: Any) -> None:
        for name, value in values.items():
            check_choice(name, value, allowed)

    return check


@dataclass(frozen=True)
class Hyperparameters:
    """The hyperparameters of all agents, with the defaults of `DGVFA2C`."""

    learning_rate: float = _number(7e-4, check_not_negative, impala=6e-4, ppo=3e-4, schedule="linear")
    """α′, learning rate of the inner update (paper: searched in 1e-4 … 7e-3 on the gridworlds; 6e-4 on Atari)."""
    final_learning_rate: float | None = _number(None, _optional(check_not_negative), impala=0.0)
    """Final learning rate of a linear schedule; `None`: constant."""
    n_steps: int = _structure(5, check_sizes, impala=20, ppo=2048)
    """T, steps per environment and update (paper: 5 on the gridworlds, 20 on Atari); PPO: per rollout."""
    batch_size: int = _structure(64, check_counts, agents=("ppo",))
    """Steps in a minibatch."""
    n_epochs: int = _structure(10, check_sizes, agents=("ppo",))
    """Passes over a rollout."""
    gamma: float = _number(0.99, check_fractions)
    """Discount factor of the main task."""
    gae_lambda: float = _structure(1.0, check_fractions, ppo=0.95)
    """λ of the main task's returns; 1 gives the paper's multi-step returns. IMPALA: multiplies the ratios of traces."""
    clip_range: float = _number(0.2, check_positive, agents=("ppo",), schedule="linear")
    """ε: the ratio of probabilities counts up to 1 ± ε."""
    final_clip_range: float | None = _number(None, _optional(check_positive), agents=("ppo",))
    """Final clip range of a linear schedule; `None`: constant."""
    clip_range_vf: float | None = _number(None, _optional(check_positive), agents=("ppo",), schedule="linear")
    """Largest change of a value in an iteration; `None`: not clipped."""
    final_clip_range_vf: float | None = _number(None, _optional(check_positive), agents=("ppo",))
    """Final value of a linear schedule; `None`: constant."""
    target_kl: float | None = _number(None, _optional(check_positive), agents=("ppo",))
    """An iteration ends before a step whose estimate of the KL divergence exceeds 1.5 times this; `None`: never."""
    rho_bar: float = _structure(1.0, check_positive, agents=("impala",))
    """ρ̄ > 0, bound of the importance ratios of temporal differences and of the policy gradient."""
    c_bar: float = _structure(1.0, check_positive, agents=("impala",))
    """c̄ > 0, bound of the importance ratios of traces, at most `rho_bar`."""
    ent_coef: float = _number(0.0, check_not_negative, impala=0.01, schedule="geometric")
    """c_H, entropy coefficient (paper: searched in 1e-4 … 0.05 on the gridworlds; 0.01 on Atari)."""
    final_ent_coef: float | None = _number(None, _optional(check_positive))
    """Final entropy coefficient of a geometric schedule; `None`: constant."""
    vf_coef: float = _number(0.5, check_not_negative, impala=0.25)
    """c_v, coefficient of the value loss, which is the mean squared error (paper: 0.5 of half the squared error)."""
    max_grad_norm: float | None = _number(0.5, _optional(check_positive), impala=40.0)
    """Maximum norm of inner gradients, which are clipped to it (paper: 40 on Atari); `None`: no clipping."""
    rms_prop: RMSPropRule = _structure("pytorch", _one_of(RMSPropRule), impala="tensorflow", agents=_WITH_RMS_PROP)
    """Convention of RMSProp: `"pytorch"`: ε outside the square root, initial second moment 0; `"tensorflow"`: ε inside
    the square root, initial second moment 1, as in IMPALA. The paper does not say."""
    rms_prop_eps: float = _number(1e-5, check_positive, impala=0.1, agents=_WITH_RMS_PROP)
    """ε of RMSProp (paper: 1e-5 on the gridworlds, 0.1 on Atari)."""
    rms_prop_decay: float = _structure(0.99, check_fractions_below_one, agents=_WITH_RMS_PROP)
    """Decay of RMSProp's second moment (paper: 0.99)."""
    loss_reduction: LossReduction = _structure("mean", _one_of(LossReduction), impala="sum", agents=_WITH_RMS_PROP)
    """Losses that `max_grad_norm`, the maximum norms of meta-gradients, `meta_skip_norm` and the ε of both optimizers
    refer to: `"mean"` over time and batch, or `"sum"` as in IMPALA. The learner's losses, and those logged, are always
    means; values for sums are converted, and steps are equal."""
    normalize_advantage: bool = _structure(False, check_flags, ppo=True, agents=("a2c", "ppo"))
    """Whether to normalize the advantages of a batch to mean 0 and standard deviation 1."""
    auxiliary_coefficient: float = _number(0.03, check_not_negative, impala=1e-4, schedule="geometric")
    """c, weight of the auxiliary task; see `auxiliary_weighting` (paper, Atari: 1e-4; 1e-3 for reward prediction)."""
    final_auxiliary_coefficient: float | None = _number(None, _optional(check_positive))
    """Final weight of a geometric schedule; `None`: constant."""
    auxiliary_weighting: AuxiliaryWeighting = _structure("gradient-norm", _one_of(AuxiliaryWeighting), impala="fixed")
    """`"fixed"` multiplies the auxiliary loss, a sum over questions, by c (paper); `"gradient-norm"` scales it so that
    the norm of its gradient at the features is c times the main task's, whatever the scale of rewards and cumulants."""
    encoder_mode: EncoderMode = _structure("joint", _one_of(EncoderMode))
    """Losses that train the encoder: `"joint"`: the main task's and the auxiliary task's; `"auxiliary"`: the
    auxiliary task's alone (paper, section 4.1)."""
    questions: int = _structure(128, check_sizes)
    """D, number of questions (paper: 128)."""
    question_discount: float | None = _structure(0.9, _optional(check_fractions_below_one), impala=None)
    """Discount of all questions, in [0, 1); `None`: discounts are learned by the question network (paper)."""
    answer_lambda: float | None = _structure(None, _optional(check_fractions), agents=("ppo",))
    """λ of the answers' targets; `None`: `gae_lambda`."""
    question_window: int = _structure(1, check_sizes)
    """j, number of future observations that the question network sees."""
    question_encoder: QuestionEncoder = _structure("independent", _one_of(QuestionEncoder), impala="shared")
    """What the question network reads: `"independent"`: observations, with an encoder of its own (paper, representation
    learning); `"shared"`: the agent's features of future observations (paper, joint learning)."""
    unroll_length: int = _structure(10, check_sizes)
    """L, inner updates that the meta-gradient passes through (paper: 10)."""
    objective: Objective = _structure("sum", _one_of(Objective))
    """Meta-loss: the `"sum"` of the losses of all θ_k in the unroll, or the loss at its `"end"`."""
    horizon: Horizon = _structure("unrolled", _one_of(Horizon))
    """`"unrolled"`: the meta-gradient of each θ_k passes through all k updates before it; `"myopic"`: only through the
    last of them (paper, appendix)."""
    convention: Convention = _structure("exact", _one_of(Convention))
    """What the meta-gradient passes through: `"exact"` or `"surrogate"`; see `dgvf_agents.core.inner_update`."""
    head_rate: float = _structure(1.0, check_not_negative)
    """Learning rate of the policy and value heads, as a multiple of `learning_rate`."""
    storage: StorageChoice = _structure("auto", _one_of(StorageChoice), agents=("a2c", "impala"))
    """`"graph"` stores the graph of the unroll and is faster; `"recompute"` uses less memory; `"auto"`: the first of
    them that fits in the memory that is free when training begins."""
    meta_learning_rate: float = _number(3e-4, check_positive, impala=6e-4, schedule="linear")
    """α, learning rate of Adam on η (paper, Atari: 6e-4)."""
    final_meta_learning_rate: float | None = _number(None, _optional(check_not_negative))
    """Final meta learning rate of a linear schedule; `None`: constant."""
    meta_epsilon: float = _number(1e-8, check_positive)
    """ε of Adam on η."""
    meta_max_grad_norm: float = _number(1.0, check_positive_or_infinite)
    """Maximum norm of meta-gradients, which are clipped to it (paper, table 1: 1 for cumulants); may be infinite."""
    meta_max_discount_grad_norm: float | None = _number(None, _optional(check_positive), impala=10.0)
    """Separate maximum norm for the head that predicts discounts (paper, table 1: 10); `None`: clipped together with
    all other meta-parameters."""
    meta_skip_norm: float = _number(1e3, check_positive_or_infinite, impala=1e6)
    """Meta-gradients whose norm is larger or not finite are skipped and counted; may be infinite."""
    mixed_precision: bool = _structure(False, check_flags)
    """Whether the encoders of agent and question network compute matrix products and convolutions in bfloat16. Heads,
    losses, returns, parameters, optimizers and the accumulated meta-gradient stay float32."""


def record(agent: Algorithm | None = None) -> dict[str, Hyperparameter]:
    """The hyperparameters by name; only an agent's if it is given."""
    found = {each.name: each.metadata["hyperparameter"] for each in dataclasses.fields(Hyperparameters)}
    return {name: one for name, one in found.items() if agent is None or agent in one.defaults}


SCHEDULED: tuple[str, ...] = tuple(name for name, one in record().items() if one.schedule)
"""Hyperparameters that may change along training; `final_NAME` is the value at the end."""


def arguments(agent: Algorithm) -> dict[str, Hyperparameter]:
    """The hyperparameters that are arguments of an agent's constructor: a schedule stands for its final value."""
    finals = {f"final_{name}" for name in SCHEDULED}
    return {name: one for name, one in record(agent).items() if name not in finals}


def check_hyperparameters(given: Mapping[str, Any]) -> None:
    """
    Args:
        given: values by name; other names are ignored, and so are functions in place of `SCHEDULED`.

    Raises:
        ValueError: a value is out of its range; the message names it, the value and what is allowed.
    """
    for name, one in record().items():
        if name in given and not (one.schedule and callable(given[name])):
            one.check(**{name: given[name]})


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Names of the structure that differs, which members of a population must agree in.

    Of numbers, it is structure whether they are `None`, and of the auxiliary coefficient whether it is a function.
    """
    for name, described in record().items():
        pair = [values.get(name) for values in (one, other)]
        if described.kind == "number":
            pair = [(value is None, name == "auxiliary_coefficient" and callable(value)) for value in pair]
        if pair[0] != pair[1]:
            yield name
