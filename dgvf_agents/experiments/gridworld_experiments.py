"""The experiments on gridworlds: the paper's, and those that ask what its results depend on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from dgvf_agents.experiments.collapses import COLLAPSES, STEADY
from dgvf_agents.experiments.experiment import Experiment
from dgvf_agents.experiments.figures import (
    draw_curves,
    draw_curves_by_changes,
    draw_final_returns,
    draw_protocol,
    draw_search,
    draw_study,
)
from dgvf_agents.experiments.outside_tasks import INSTALLED_TASKS
from dgvf_agents.experiments.protocols import EQUAL_BUDGET, JOINT_EQUAL_BUDGET, PAPER, PAPER_CHOICE
from dgvf_agents.experiments.settings import AnyMethod, Changes, SearchGrid, Setting, setting
from dgvf_agents.experiments.transfer import question_sources, question_transfer
from dgvf_agents.options import Method
from dgvf_agents.train.config import METHODS

# Random questions solve the small rooms at the presets' learning rates, so there the questions cannot matter much.
LOW_RATE: dict[str, Changes] = {
    "collect-objects": {"learning_rate": 0.0005},
    "collect-objects-small": {"learning_rate": 0.0003},
    "puddle-world": {"learning_rate": 0.0007},
}
"""A low learning rate at which discovered questions learn."""
SEARCHED_RATE: dict[str, Changes] = {
    "collect-objects": {"learning_rate": 0.003},  # too large for a search: the small rooms' learning rate alone
    "collect-objects-small": {"learning_rate": 0.003},
    "puddle-world": {"learning_rate": 0.003, "ent_coef": 3.0, "final_ent_coef": 0.03},
}
"""What the search chooses on plain A2C (docs/results.md)."""
_PREFIXES: dict[str, Method] = {"plain": "a2c", "discovered": "discovered"}
_ALGORITHMS: dict[str, Changes] = {
    "DGVFA2C": {},
    "DGVFImpala": {"algorithm": "impala"},
    "DGVFImpala, 2 actors": {"algorithm": "impala", "actors": 2},
}
_RMS_PROPS: tuple[Changes, ...] = (
    {"rms_prop": "pytorch"},
    {"rms_prop": "tensorflow"},
    {"rms_prop": "tensorflow", "loss_reduction": "sum"},
)
"""Scales of the gradient below which steps shrink with it: 1e-5; 3e-3; 3e-3 of a sum over the batch."""


def _answer_scales(world: str) -> list[Setting]:
    """Fewer answers than 128 with the preset's auxiliary coefficient, and with one in proportion to 1 / answers."""
    usual = setting(world, "discovered").preset
    fewer: list[tuple[str, Method, Changes, int]] = [
        *((f"d = {d}", "discovered", {"questions": d}, d) for d in (2, 8, 32, 64)),
        ("reward-prediction", "reward-prediction", {}, 1),
    ]
    settings = [setting(world, "discovered", f"d = {usual.questions}")]
    settings += [setting(world, method, label, **changes) for label, method, changes, _ in fewer]
    for label, method, changes, answers in fewer:
        coefficient = float(f"{usual.auxiliary_coefficient * usual.questions / answers:.6g}")
        settings.append(setting(world, method, f"{label}, scaled", **changes, auxiliary_coefficient=coefficient))
    return settings


def _methods(methods: Collection[AnyMethod], *rates: Mapping[str, Changes]) -> Callable[[str], list[Setting]]:
    """Methods as they are, or with each of several changes by world."""
    return lambda world: [
        setting(world, method, **changes) for changes in [rate[world] for rate in rates] or [{}] for method in methods
    ]


def _varied(
    name: str, values: Sequence[Any], rate: Mapping[str, Changes] = PAPER_CHOICE
) -> Callable[[str], list[Setting]]:
    """Discovered questions with each value of a field, which is the label too, and with changes by world, if any."""
    return lambda world: [
        setting(world, "discovered", str(value), **rate.get(world, {}), **{name: value}) for value in values
    ]


GRIDWORLD_EXPERIMENTS = (
    # Paper, figure 2: do discovered questions alone suffice?
    Experiment(
        "gridworlds",
        "encoders trained by discovered questions, random ones or reward prediction alone, beside plain A2C",
        _methods(METHODS),
        partial(draw_curves, title="Encoder trained by the auxiliary task alone"),
        seeds=5,
        reference="discovered",
    ),
    # Paper, figure 5 and appendix, left, with the paper's values of d.
    Experiment(
        "questions",
        "final and average return over the number of questions",
        _varied("questions", (2, 8, 32, 64, 128)),
        partial(draw_study, parameter="number of questions"),
        reference="128",
    ),
    # Paper, figure 5 and appendix, right, with the paper's values of k.
    Experiment(
        "unroll-length",
        "final and average return over the number of unrolled inner updates",
        _varied("unroll_length", (1, 2, 5, 10, 25, 50)),
        partial(draw_study, parameter="unrolled inner updates"),
        reference="10",
    ),
    # Paper, figure 4, there on Atari.
    Experiment(
        "meta-objective",
        "meta-losses summed along the unroll against the last one alone",
        _varied("objective", ("sum", "end")),
        partial(draw_curves, title="Summed and end meta-objective"),
        reference="sum",
    ),
    # Beyond the paper, which shows joint learning on Atari.
    Experiment(
        "joint",
        "encoders trained by the main task and an auxiliary task together, beside plain A2C",
        lambda world: [
            setting(world, m) if m == "a2c" else setting(world, m, m, encoder_mode="joint") for m in METHODS
        ],
        partial(draw_curves, title="Encoder trained by main and auxiliary task together"),
        reference="a2c",
    ),
    # Beyond the paper: are discovered questions useful to any agent, or only to the one that they were discovered with?
    Experiment(
        "question-transfer",
        "fresh agents on frozen questions of trained agents, on the first principal ones, and on another world's",
        question_transfer,
        partial(draw_curves, title="Fresh agents on frozen questions"),
        seeds=5,
        reference="discovered",
        first=question_sources,
    ),
    Experiment(
        "search",
        "learning rate and entropy coefficient chosen on plain A2C, then the auxiliary coefficient",
        lambda world: [],
        draw_search,
        grid=SearchGrid(),
    ),
    # Paper, figure 2, with the paper's choice of hyperparameters.
    Experiment(
        "paper",
        "all methods at the learning rate and entropy coefficient that a search on plain A2C chooses",
        lambda world: [],
        partial(draw_protocol, title="Hyperparameters chosen on A2C"),
        worlds=("collect-objects", "puddle-world"),
        seeds=10,
        reference="discovered",
        grid=SearchGrid(),
        stages=PAPER,
    ),
    # Paper, figure 2, with as much tuning for the baselines as for discovered questions.
    Experiment(
        "equal-budget",
        "every method at the best of equally many trials of its own",
        lambda world: [],
        partial(draw_protocol, title="Equal budgets for tuning"),
        worlds=("collect-objects", "puddle-world"),
        seeds=10,
        reference="discovered",
        grid=SearchGrid(),
        stages=EQUAL_BUDGET,
    ),
    # Beyond the paper, which has joint learning on Atari: does an auxiliary task help a user's agent, fairly tuned?
    Experiment(
        "joint-equal-budget",
        "main and auxiliary task together, and A2C alone, each at the best of equally many trials of its own",
        lambda world: [],
        partial(draw_protocol, title="Joint learning, equal budgets for tuning"),
        worlds=("collect-objects", "puddle-world", *INSTALLED_TASKS),
        seeds=5,
        reference="a2c",
        grid=SearchGrid(),
        stages=JOINT_EQUAL_BUDGET,
    ),
    # Beyond the paper: does the learning rate decide which methods solve a world?
    Experiment(
        "learning-rate",
        "all methods at a low learning rate and at the one that the search chooses on plain A2C",
        _methods(METHODS, LOW_RATE, SEARCHED_RATE),
        partial(draw_curves_by_changes, title="All methods at two learning rates"),
    ),
    # Beyond the paper, which fits every convention: do methods differ because of the scale of their gradients?
    Experiment(
        "rms-prop",
        "all methods with RMSProp of PyTorch and of TensorFlow, at the low learning rate of `learning-rate`",
        lambda world: [
            setting(world, m, " ".join([m, *(f"{k}={v}" for k, v in rule.items())]), **LOW_RATE[world], **rule)
            for rule in _RMS_PROPS
            for m in METHODS
        ],
        partial(draw_curves_by_changes, title="Conventions of RMSProp at a low learning rate"),
        seeds=5,
    ),
    # Beyond the paper: the answer loss is a sum over answers, so do few questions fail because their sum is small?
    Experiment(
        "answer-scale",
        "few questions and reward prediction with the usual auxiliary coefficient, and in proportion to 1 / answers",
        _answer_scales,
        partial(draw_final_returns, title="Auxiliary coefficient in proportion to 1 / answers"),
        seeds=5,
        reference="d = 128",
    ),
    # The short unrolls and the few questions that fail in the paper.
    Experiment(
        "low-rate",
        "unrolls of 1 and 2 updates, and 2 questions, at the low learning rate of the experiment `learning-rate`",
        lambda world: [
            setting(world, "discovered", "k=10, d=128", **LOW_RATE[world]),
            setting(world, "discovered", "k=1", **LOW_RATE[world], unroll_length=1),
            setting(world, "discovered", "k=2", **LOW_RATE[world], unroll_length=2),
            setting(world, "discovered", "d=2", **LOW_RATE[world], questions=2),
        ],
        partial(draw_curves, title="Short unrolls and few questions at a low learning rate"),
        reference="k=10, d=128",
    ),
    # Beyond the paper: does the meta-gradient pass through the whole update procedure, or stop at stop-gradients?
    Experiment(
        "convention",
        "exact against surrogate meta-gradients, at the low learning rate of `learning-rate` or the choice of `paper`",
        _varied("convention", ("exact", "surrogate"), LOW_RATE | PAPER_CHOICE),
        partial(draw_curves, title="Exact and surrogate meta-gradients"),
        reference="exact",
    ),
    # Beyond the paper, which has IMPALA on Atari only: does it learn what A2C learns, with the same settings?
    Experiment(
        "algorithms",
        "A2C beside IMPALA in one process and with two distributed actors, with discovered questions and without",
        lambda world: [
            setting(world, method, f"{prefix} {name}", **changes)
            for prefix, method in _PREFIXES.items()
            for name, changes in _ALGORITHMS.items()
        ],
        partial(draw_curves, title="A2C and IMPALA"),
        worlds=("collect-objects-small",),
    ),
    # Beyond the paper: why do some seeds of discovered questions lose PuddleWorld's optimum again?
    Experiment(
        "collapses",
        "discovered questions on PuddleWorld with one setting changed: which seeds end at the optimum",
        lambda world: [setting(world, "discovered", label, **changes) for label, changes in COLLAPSES.items()],
        partial(draw_final_returns, title="Discovered questions on PuddleWorld: every seed's final return"),
        worlds=("puddle-world",),
        seeds=10,
        reference="preset",
    ),
    # Paper, figure 2, without these losses: are random questions worse where discovered ones keep the optimum?
    Experiment(
        "steady",
        "all methods on PuddleWorld with the settings of `collapses` that keep discovered questions at the optimum",
        lambda world: [setting(world, method, method, **STEADY) for method in METHODS],
        partial(draw_curves, title="Settings that keep discovered questions at the optimum"),
        worlds=("puddle-world",),
        seeds=10,
        reference="discovered",
    ),
)
