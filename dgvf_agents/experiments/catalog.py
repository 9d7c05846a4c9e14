"""The experiments as data: what is compared, on which worlds, with which seeds, and how it is drawn.

All of this was declared before the runs were made; see `claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import pandas as pd

from dgvf_agents.experiments.outside_tasks import INSTALLED_TASKS, OWN_TASK_METHODS
from dgvf_agents.experiments.search import Search, Wanted
from dgvf_agents.experiments.settings import Changes, Setting, setting
from dgvf_agents.train.config import ATARI_METHODS, JOINT_LEARNING, METHODS

FIRST_SEED = 200
"""Of all runs that give a verdict; no run older than the claims has these seeds."""
PAPER_CHOICE = "paper's choice"
"""In labels: at the hyperparameters that the search leads to."""

Figure = Literal["curves", "studies"]
"""Learning curves, or final and average return over numbers in the labels, as `k = 10`."""


@final
@dataclass(frozen=True)
class Experiment:
    """Compared settings, with their worlds and seeds."""

    name: str
    """Its name in `dgvf reproduce`."""
    summary: str
    """One line; the title of its figure."""
    settings: Callable[[str], Sequence[Setting]]
    """Settings compared on a world, in the order of the runs."""
    worlds: tuple[str, ...]
    """Those that it is declared for; none on Atari, where the command names games."""
    seeds: int = 5
    """Number of seeds from `FIRST_SEED` on."""
    seeds_on: Mapping[str, int] = field(default_factory=dict)
    """The same for worlds that have another number."""
    search: Search | None = None
    """If given, all methods run at its choice, too."""
    figure: Figure = "curves"

    def compared(self, world: str, records: pd.DataFrame) -> list[Setting]:
        """The settings that are compared on a world, as far as the records say which these are."""
        choice = None if self.search is None else self.search.choice(world, records)
        chosen = [] if choice is None else [setting(world, m, f"{m}, {PAPER_CHOICE}", **choice) for m in METHODS]
        return [*self.settings(world), *chosen]

    def wanted(self, world: str, records: pd.DataFrame, number: int | None = None) -> list[Wanted]:
        """All runs that are needed on a world, as far as the records say which these are.

        Args:
            world: one of `worlds`, or another that has these settings.
            records: as by `read_records`.
            number: of seeds; the experiment's if `None`.
        """
        count = number or self.seeds_on.get(world, self.seeds)
        runs = [Wanted(one, FIRST_SEED + i) for one in self.compared(world, records) for i in range(count)]
        own = count * len(self.settings(world))
        trials = [] if self.search is None else self.search.wanted(world, records)
        return [*runs[:own], *trials, *runs[own:]]


_ROOMS, _PUDDLE = "collect-objects", "puddle-world"
_GRIDS = (_PUDDLE, _ROOMS)


def _short(world: str) -> Changes:
    """Of studies in the rooms, at the constant learning rate 0.0005 of their preset."""
    return {} if world == _PUDDLE else {"steps": 1_000_000, "evaluate_every": 40_000}


def _discovered(world: str, label: str, **changes: Any) -> Setting:
    return setting(world, "discovered", label, **_short(world), **changes)


def _methods(world: str) -> list[Setting]:
    # PuddleWorld's preset is `steady`; the rooms' has the constant learning rate 0.0005 and 3M steps.
    return [setting(world, method) for method in METHODS]


def _figure_5(world: str) -> list[Setting]:
    """The paper's values of k and d; k = 10 is d = 128."""
    return [
        *(_discovered(world, f"k = {k}", unroll_length=k) for k in (10, 1, 2, 5, 25, 50)),
        _discovered(world, "myopic", horizon="myopic"),
        *(_discovered(world, f"d = {d}", questions=d) for d in (2, 8, 32, 64, 128)),
    ]


def _rms_props(world: str) -> list[Setting]:
    """TensorFlow's ε is inside the root: steps shrink with gradients below 3e-3, of a sum over the batch or a mean."""
    rules: dict[str, Changes] = {
        "": {"rms_prop": "tensorflow"},
        ", pytorch": {"rms_prop": "pytorch"},
        ", tensorflow, sums": {"rms_prop": "tensorflow", "loss_reduction": "sum"},
    }
    return [
        setting(world, method, f"{method}{words}", **_short(world), **rule)
        for words, rule in rules.items()
        for method in METHODS
    ]


_OTHER_WORLDS = {
    _ROOMS: "CollectObjectsOpposite-v0",
    _PUDDLE: "PuddleWorldSutton-v0",
}
"""With the same observations and another task; the small rooms have none."""
PRINCIPAL_QUESTIONS = (1, 2, 4, 16)


def _question_transfer(world: str) -> list[Setting]:
    """Agents with seed s take the questions that the run of `discovered` with seed s ended with, and a fresh seed."""
    source = _discovered(world, "discovered")
    other = [_discovered(world, "other", env=_OTHER_WORLDS[world])] if world in _OTHER_WORLDS else []

    def taking(label: str, source: Setting, **changes: Any) -> Setting:
        return setting(world, "random", label, source, **_short(world), **changes)

    return [
        source,
        setting(world, "random", "random", **_short(world)),
        taking("frozen", source),
        *(taking(f"principal-{k}", source, principal_questions=k) for k in PRINCIPAL_QUESTIONS),
        *(taking("other-world", found) for found in other),
    ]


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
# The meta learning rate is an eighth of the table's, for eight times as many meta-updates per frame.
_LAPTOP_STEPS, _LAPTOP_DISCOVERED_STEPS = 5_000_000, 200_000
_LAPTOP_FINAL_RATE = _LAPTOP_A2C["learning_rate"] * (1 - _LAPTOP_DISCOVERED_STEPS / _LAPTOP_STEPS)
_LAPTOP_DISCOVERED: dict[str, Any] = {
    **_LAPTOP_A2C,
    "steps": _LAPTOP_DISCOVERED_STEPS,
    "final_learning_rate": float(f"{_LAPTOP_FINAL_RATE:.6g}"),
    "meta_learning_rate": 7.5e-5,
}


def _atari(world: str) -> list[Setting]:
    """Figure 3 (`representation`), figure 4 (`objective`), section 5.2 (`joint`), and what a laptop can do (`laptop`).

    The paper has batches of 640 steps and 200M frames; `laptop` has A2C's, 16 environments x 5 steps.
    """
    names = {method: "impala" if method == "a2c" else method for method in ATARI_METHODS}
    joint = {"encoder_mode": "joint"}
    return [
        *(setting(world, m, f"representation: {name}", algorithm="impala") for m, name in names.items()),
        *(
            setting(world, "discovered", f"objective: {end}", algorithm="impala", objective=end)
            for end in ("sum", "end")
        ),
        *(setting(world, m, f"joint: {name}", **JOINT_LEARNING) for m, name in names.items()),
        setting(world, "a2c", "laptop: a2c", **_LAPTOP_A2C, steps=_LAPTOP_STEPS),
        setting(world, "discovered", "laptop: discovered", **_LAPTOP_DISCOVERED, auxiliary_coefficient=0.01),
        setting(world, "discovered", "laptop: discovered, joint", **_LAPTOP_DISCOVERED, **joint),
        setting(world, "a2c", "laptop: impala", **{**_LAPTOP_A2C, **_LAPTOP_IMPALA}),
    ]


_ALL = (
    Experiment(
        "figure-2",
        "Encoders trained by discovered questions, random ones or reward prediction alone, beside plain A2C",
        _methods,
        _GRIDS,
        seeds=10,
        search=Search(),
    ),
    Experiment(
        "figure-4",
        "Meta-losses summed along the unroll against the last one alone",
        lambda world: [_discovered(world, "sum"), _discovered(world, "end", objective="end")],
        _GRIDS,
        seeds=10,
        seeds_on={_PUDDLE: 30},
    ),
    Experiment(
        "figure-5",
        "Number of questions d, unrolled updates k, and the myopic approximation",
        _figure_5,
        _GRIDS,
        seeds_on={_PUDDLE: 20},
        figure="studies",
    ),
    Experiment(
        "own-tasks",
        "DGVFA2C with its defaults on external tasks, beside Stable-Baselines3's A2C with its own",
        lambda task: [setting(task, method) for method in OWN_TASK_METHODS],
        INSTALLED_TASKS,
    ),
    Experiment(
        "convention",
        "Exact against surrogate meta-gradients",
        lambda world: [_discovered(world, one, convention=one) for one in ("exact", "surrogate")],
        _GRIDS,
        seeds=10,
    ),
    Experiment("rms-prop", "All methods under three conventions of RMSProp", _rms_props, _GRIDS, seeds=10),
    Experiment(
        "question-transfer",
        "Fresh agents on frozen questions of trained agents, on the first principal ones, and on another world's",
        _question_transfer,
        _GRIDS,
        seeds=10,
    ),
    Experiment(
        "atari",
        "On games: IMPALA's encoder trained by auxiliary tasks alone or jointly, and what a laptop can do",
        _atari,
        (),
        seeds=3,
    ),
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""By name."""
