"""The experiments as data: what each varies, on which worlds, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import pandas as pd

from dgvf_agents.experiments.figures import (
    draw_curves,
    draw_curves_by_changes,
    draw_final_returns,
    draw_improvements,
    draw_protocol,
    draw_search,
    draw_study,
)
from dgvf_agents.experiments.outside_tasks import OWN_TASK_METHODS, OWN_TASKS
from dgvf_agents.experiments.protocols import EQUAL_BUDGET, PAPER
from dgvf_agents.experiments.ranking import Ranking
from dgvf_agents.experiments.search import COEFFICIENT, Choice, Stages
from dgvf_agents.experiments.settings import AnyMethod, Changes, SearchGrid, Setting, setting
from dgvf_agents.experiments.tables import Results
from dgvf_agents.experiments.transfer import question_sources, question_transfer
from dgvf_agents.runs.atari_config import ATARI_METHODS
from dgvf_agents.runs.config import METHODS, WORLDS, Method
from dgvf_agents.runs.impala_config import JOINT_LEARNING


@final
@dataclass(frozen=True)
class Figure:
    """One figure of the paper, or one beyond it."""

    name: str
    """Its name in `dgvf reproduce`."""
    summary: str
    """One line."""
    variants: Callable[[str], list[Setting]]
    """What is compared on a world."""
    draw: Callable[[Results, Path], None]
    """Writes the picture as PNG, atomically, from tables alone."""
    worlds: tuple[str, ...] = WORLDS
    """Worlds at full size; none on Atari, where the command names games."""
    seeds: int = 3
    """Seeds per setting at full size (paper: 3)."""
    reference: str | None = None
    """Label of the setting that all others are compared with; no comparisons if `None`."""
    ranking: Ranking | None = None
    """How games are ordered for statistics over the first of them; no such statistics if `None`."""
    grid: SearchGrid | None = None
    """What a search tries, in place of variants; no search if `None`."""
    stages: Stages = COEFFICIENT
    """The stages of a search."""
    first: Callable[[str], list[Setting]] | None = None
    """What is trained before, since other settings take its questions; it is in the tables if it is a variant too."""

    def settings(self, world: str) -> list[Setting]:
        """What is run on a world."""
        return self.variants(world) if self.grid is None else self.stages.first(self.grid, world)

    def follow_up(self, world: str, cells: pd.DataFrame) -> list[Setting]:
        """What is run on a world given the cells of `settings`; nothing unless the figure is a search."""
        return [] if self.grid is None else self.stages.second(self.grid, world, cells)

    def choices(self, cells: pd.DataFrame) -> list[Choice]:
        """What the cells of one world lead a search to choose."""
        return [] if self.grid is None else self.stages.choices(cells)

    @property
    def chooses_with_trials(self) -> bool:
        """Whether its first stage is trials, with seeds that its second stage has not."""
        return self.grid is not None and self.stages.fresh_seeds


def _methods(methods: Collection[AnyMethod], *rates: Mapping[str, Changes]) -> Callable[[str], list[Setting]]:
    """Methods as they are, or with each of several changes by world."""
    return lambda world: [
        setting(world, method, **changes) for changes in [rate[world] for rate in rates] or [{}] for method in methods
    ]


def _varied(
    name: str, values: Sequence[Any], rate: Mapping[str, Changes] | None = None
) -> Callable[[str], list[Setting]]:
    """Discovered questions with each value of a field, which is the label too, and with changes by world."""
    return lambda world: [
        setting(world, "discovered", str(value), **({} if rate is None else rate[world]), **{name: value})
        for value in values
    ]


def _impala_agents(changes: Changes) -> Callable[[str], list[Setting]]:
    """IMPALA with every auxiliary task, and `impala` with none."""
    return lambda world: [
        setting(world, method, "impala" if method == "a2c" else method, **changes) for method in ATARI_METHODS
    ]


_JOINT: Changes = {"encoder_mode": "joint"}
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

# Stable-Baselines3's defaults with 16 environments and an entropy bonus, but TensorFlow's RMSProp, as in all presets
# of Atari: its ε is inside the root. With PyTorch's, Pong was at -18.0 after 1.02M steps, not at -17.5 (one seed).
_LAPTOP_A2C: dict[str, Any] = {
    "n_envs": 16,
    "n_steps": 5,
    "learning_rate": 7e-4,
    "loss_reduction": "mean",
    "vf_coef": 0.5,
    "rms_prop_eps": 1e-10,
    "max_grad_norm": 0.5,
    "mixed_precision": True,
}
# Of A2C's settings, but without mixed precision, which old processors emulate.
_LAPTOP_IMPALA: Changes = {"algorithm": "impala", "mixed_precision": False, "steps": 1_200_000}
# Fewer steps of discovered questions, whose updates are several times slower, along the same learning rate schedule.
_LAPTOP_STEPS, _LAPTOP_DISCOVERED_STEPS = 5_000_000, 200_000
_LAPTOP_FINAL_RATE = _LAPTOP_A2C["learning_rate"] * (1 - _LAPTOP_DISCOVERED_STEPS / _LAPTOP_STEPS)
_LAPTOP_DISCOVERED: dict[str, Any] = {
    **_LAPTOP_A2C,
    "steps": _LAPTOP_DISCOVERED_STEPS,
    "final_learning_rate": float(f"{_LAPTOP_FINAL_RATE:.6g}"),
}
# An eighth of the table's, for eight times as many meta-updates per frame. With the table's own, discounts went to 1
# and the policy collapsed; both are run.
_LAPTOP_META_RATE: Changes = {"meta_learning_rate": 7.5e-5}
# Between the table's 1e-4 and the gridworlds' 0.1, not searched.
_LAPTOP_AUXILIARY: Changes = {"auxiliary_coefficient": 0.01}

_PREFIXES: dict[str, Method] = {"plain": "a2c", "discovered": "discovered"}
_ALGORITHMS: dict[str, Changes] = {
    "DGVFA2C": {},
    "DGVFImpala": {"algorithm": "impala"},
    "DGVFImpala, 2 actors": {"algorithm": "impala", "actors": 2},
}
_LONG_EPISODES: Changes = {"env_kwargs.max_episode_steps": 1_000}
"""Of training; evaluation allows 5,000 steps."""
_RMS_PROPS: tuple[Changes, ...] = (
    {"rms_prop": "pytorch"},
    {"rms_prop": "tensorflow"},
    {"rms_prop": "tensorflow", "loss_reduction": "sum"},
)
"""Scales of the gradient below which steps shrink with it: 1e-5; 3e-3; 3e-3 of a sum over the batch."""
_CHOSEN_ON_A2C: Changes = {"learning_rate": 0.001, "ent_coef": 5.0, "final_ent_coef": 0.05}
"""What the search of `paper` chooses on PuddleWorld."""
_FAST_HEADS: Changes = {**_CHOSEN_ON_A2C, "final_ent_coef": 0.015, "head_rate": 3.0}
_COLLAPSES: dict[str, Changes] = {
    "preset": {},
    "long episodes": _LONG_EPISODES,
    "coefficient 0.003": {"auxiliary_coefficient": 0.003},
    "long episodes, coefficient 0.003": {**_LONG_EPISODES, "auxiliary_coefficient": 0.003},
    "final entropy 0.03": {"final_ent_coef": 0.03},
    "final entropy 0.06": {"final_ent_coef": 0.06},
    "exact convention": {"convention": "exact"},
    "inner clipping": {"max_grad_norm": 0.5},
    "constant meta rate": {"final_meta_learning_rate": None},
    "losses as sums": {"loss_reduction": "sum"},
    "coefficient falling to 0.001": {"final_auxiliary_coefficient": 0.001},
    "heads 3 times as fast": {"head_rate": 3.0},
    "heads 0.3 times as fast": {"head_rate": 0.3},
    "rate 0.001, entropy to 0.05": _CHOSEN_ON_A2C,
    "rate 0.001, entropy to 0.05, coefficient 0.003": {**_CHOSEN_ON_A2C, "auxiliary_coefficient": 0.003},
    "rate 0.001, entropy to 0.015": {**_CHOSEN_ON_A2C, "final_ent_coef": 0.015},
    "rate 0.001, entropy to 0.05, heads 3 times as fast": {**_CHOSEN_ON_A2C, "head_rate": 3.0},
    "rate 0.001, entropy to 0.015, heads 3 times as fast": _FAST_HEADS,
    "rate 0.001, entropy to 0.015, heads 3 times as fast, coefficient 0.003": {
        **_FAST_HEADS,
        "auxiliary_coefficient": 0.003,
    },
}
"""What may keep discovered questions at PuddleWorld's optimum, by label."""

_FIGURES = (
    # Paper, figure 2: do discovered questions alone suffice?
    Figure(
        "gridworlds",
        "encoders trained by discovered questions, random ones or reward prediction alone, beside plain A2C",
        _methods(METHODS),
        partial(draw_curves, title="Encoder trained by the auxiliary task alone"),
        seeds=5,
        reference="discovered",
    ),
    # Paper, figure 5 and appendix, left, with the paper's values of d.
    Figure(
        "questions",
        "final and average return over the number of questions",
        _varied("questions", (2, 8, 32, 64, 128)),
        partial(draw_study, parameter="number of questions"),
        reference="128",
    ),
    # Paper, figure 5 and appendix, right, with the paper's values of k.
    Figure(
        "unroll-length",
        "final and average return over the number of unrolled inner updates",
        _varied("unroll_length", (1, 2, 5, 10, 25, 50)),
        partial(draw_study, parameter="unrolled inner updates"),
        reference="10",
    ),
    # Paper, figure 4, there on Atari.
    Figure(
        "meta-objective",
        "meta-losses summed along the unroll against the last one alone",
        _varied("objective", ("sum", "end")),
        partial(draw_curves, title="Summed and end meta-objective"),
        reference="sum",
    ),
    # Beyond the paper, which shows joint learning on Atari.
    Figure(
        "joint",
        "encoders trained by the main task and an auxiliary task together, beside plain A2C",
        lambda world: [
            setting(world, m) if m == "a2c" else setting(world, m, m, encoder_mode="joint") for m in METHODS
        ],
        partial(draw_curves, title="Encoder trained by main and auxiliary task together"),
        reference="a2c",
    ),
    # Beyond the paper: are discovered questions useful to any agent, or only to the one that they were discovered with?
    Figure(
        "question-transfer",
        "fresh agents on frozen questions of trained agents, on the first principal ones, and on another world's",
        question_transfer,
        partial(draw_curves, title="Fresh agents on frozen questions"),
        seeds=5,
        reference="discovered",
        first=question_sources,
    ),
    Figure(
        "search",
        "learning rate and entropy coefficient chosen on plain A2C, then the auxiliary coefficient",
        lambda world: [],
        draw_search,
        grid=SearchGrid(),
    ),
    # Paper, figure 2, with the paper's choice of hyperparameters.
    Figure(
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
    Figure(
        "equal-budget",
        "every method at the best of equally many random trials of its own",
        lambda world: [],
        partial(draw_protocol, title="Equal budgets for tuning"),
        worlds=("collect-objects", "puddle-world"),
        seeds=10,
        reference="discovered",
        grid=SearchGrid(),
        stages=EQUAL_BUDGET,
    ),
    # Beyond the paper: does the learning rate decide which methods solve a world?
    Figure(
        "learning-rate",
        "all methods at a low learning rate and at the one that the search chooses on plain A2C",
        _methods(METHODS, LOW_RATE, SEARCHED_RATE),
        partial(draw_curves_by_changes, title="All methods at two learning rates"),
    ),
    # Beyond the paper, which fits every convention: do methods differ because of the scale of their gradients?
    Figure(
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
    # The short unrolls and the few questions that fail in the paper.
    Figure(
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
    Figure(
        "convention",
        "exact against surrogate meta-gradients, at the low learning rate of the experiment `learning-rate`",
        _varied("convention", ("exact", "surrogate"), LOW_RATE),
        partial(draw_curves, title="Exact and surrogate meta-gradients"),
        reference="exact",
    ),
    # Beyond the paper, which has IMPALA on Atari only: does it learn what A2C learns, with the same settings?
    Figure(
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
    Figure(
        "collapses",
        "discovered questions on PuddleWorld with one setting changed: which seeds end at the optimum",
        lambda world: [setting(world, "discovered", label, **changes) for label, changes in _COLLAPSES.items()],
        partial(draw_final_returns, title="Discovered questions on PuddleWorld: every seed's final return"),
        worlds=("puddle-world",),
        seeds=10,
        reference="preset",
    ),
    # Beyond the paper: does auxiliary learning with default settings cost a new user anything, and does it help?
    Figure(
        "own-tasks",
        "tasks that nobody here tuned: `DGVFA2C` with its defaults beside Stable-Baselines3's A2C with its own",
        _methods(OWN_TASK_METHODS),
        partial(draw_curves, title="Default settings on tasks from outside"),
        worlds=tuple(name for name, task in OWN_TASKS.items() if task.is_installed),
        seeds=5,
        reference="discovered",
    ),
    # Paper, figure 3 and appendix.
    Figure(
        "atari-representation",
        "on games: encoders trained by discovered or random questions, rewards or pixels alone, beside plain IMPALA",
        _impala_agents({"algorithm": "impala"}),
        partial(draw_curves, title="Encoder trained by the auxiliary task alone"),
        worlds=(),
        reference="discovered",
    ),
    # Paper, figure 4.
    Figure(
        "atari-meta-objective",
        "on games: meta-losses summed along the unroll against the last one alone, beside plain IMPALA",
        lambda world: [
            *(setting(world, "discovered", end, algorithm="impala", objective=end) for end in ("sum", "end")),
            setting(world, "a2c", "impala", algorithm="impala"),
        ],
        partial(draw_curves, title="Summed and end meta-objective"),
        worlds=(),
        reference="sum",
    ),
    # Paper, section 5.2. Random questions are not in it.
    Figure(
        "atari-joint",
        "on games: IMPALA jointly with an auxiliary task, improvements over plain IMPALA",
        _impala_agents(JOINT_LEARNING),
        partial(draw_improvements, title="Joint learning with an auxiliary task"),
        worlds=(),
        reference="discovered",
        ranking=Ranking(by="pixel-control", baseline="impala"),
    ),
    # What a laptop can do. The paper has batches of 640 steps and 200M frames; here batches are those of A2C (16
    # environments x 5 steps, Mnih et al. 2016): eight times as many updates per frame.
    Figure(
        "atari-laptop",
        "on a game, small batches: plain A2C, and IMPALA and discovered questions for fewer frames",
        lambda world: [
            setting(world, "a2c", "a2c", **_LAPTOP_A2C, steps=_LAPTOP_STEPS),
            setting(world, "discovered", "discovered-joint", **_LAPTOP_DISCOVERED, **_LAPTOP_META_RATE, **_JOINT),
            setting(world, "discovered", "discovered", **_LAPTOP_DISCOVERED, **_LAPTOP_META_RATE, **_LAPTOP_AUXILIARY),
            setting(world, "discovered", "discovered-joint-fast", **_LAPTOP_DISCOVERED, **_JOINT),
            setting(world, "a2c", "impala", **{**_LAPTOP_A2C, **_LAPTOP_IMPALA}),
        ],
        partial(draw_curves, title="Small batches on two cores"),
        worlds=(),
        seeds=1,
    ),
)

FIGURES: dict[str, Figure] = {figure.name: figure for figure in _FIGURES}
"""By name."""
