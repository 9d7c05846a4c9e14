"""The experiments as data: what is compared, on which worlds, with which seeds, and how it is drawn.

All of this was declared before the runs were made; see `claims`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

import pandas as pd

from dgvf_agents.experiments.records import tables_of
from dgvf_agents.experiments.settings import Changes, Setting, Wanted, setting
from dgvf_agents.experiments.worlds import (
    MINATAR,
    OWN_TASK_METHODS,
    OWN_TASKS,
    PPO_TASKS,
    SEARCHED_TASKS,
    OwnTaskMethod,
    reference_of,
)
from dgvf_agents.train.config import ATARI_METHODS, JOINT_LEARNING, METHODS

FIRST_SEED = 200
"""Of all runs that give a verdict; no run older than the claims has these seeds."""
PAPER_CHOICE = "paper's choice"
"""In labels: at the hyperparameters that the search leads to."""

TRIAL_SEED = 300
"""The first seed of the trials of a search."""
TRIAL = "trial"
"""Label of the trials."""
TOLERANCE = 0.02
"""Returns that differ by less than this fraction of the best count as equal."""

Figure = Literal["curves", "studies"]
"""Learning curves, or final and average return over numbers in the labels, as `k = 10`."""


@final
@dataclass(frozen=True)
class Search:
    """A search in rungs: all candidates are tried with the first seeds, then the best ones with more.

    The mean final return decides, normalized where a candidate has several worlds. Ties go to the larger mean over the
    whole run, then to the earlier candidate.
    """

    candidates: Sequence[Sequence[Setting]]
    """Trials of each candidate, with the same changes; the preferred ones first."""
    rungs: tuple[tuple[int, int], ...]
    """Number of candidates, the best ones after the first rung, and seeds of each trial."""
    then: Callable[[Changes], Sequence[Setting]]
    """Settings to run with the changes of the best candidate."""

    def wanted(self, records: pd.DataFrame) -> list[Wanted]:
        """The trials of all rungs that can be run, given the records so far."""
        found: list[Wanted] = []
        for rung, (_, seeds) in enumerate(self.rungs):
            trials = [one for candidate in self._rung(records, rung) for one in candidate]
            found += [Wanted(one, TRIAL_SEED + i) for i in range(seeds) for one in trials]
        return list(dict.fromkeys(found))

    def chosen(self, records: pd.DataFrame) -> Sequence[Setting]:
        """The settings to run after the search; none until its last rung is finished."""
        best = self._rung(records, len(self.rungs))
        return self.then(dict(best[0][0].changes)) if best else ()

    def _rung(self, records: pd.DataFrame, rung: int) -> list[Sequence[Setting]]:
        """The candidates of a rung, the best first; none if the one before is unfinished. One more rung: the choice."""
        found = list(self.candidates)
        for number, (_, seeds) in enumerate(self.rungs[:rung]):
            kept = self.rungs[number + 1][0] if number + 1 < len(self.rungs) else 1
            returns = [_mean_returns(candidate, seeds, records) for candidate in found]
            left, best = pd.DataFrame(returns, columns=["final", "average"]), list[int]()
            if left.isna().any(axis=None):
                return []
            while len(left) and len(best) < kept:
                best.append(best_setting(left))
                left = left.drop(best[-1])
            found = [found[i] for i in best]
        return found


def best_setting(means: pd.DataFrame) -> Any:
    """The best setting by `Search`'s rule.

    Args:
        means: the columns `final` and `average`, by label.
    """
    equal = means
    for name in ("final", "average"):
        best = equal[name].max()
        equal = equal[equal[name] >= best - TOLERANCE * abs(best)]
    return equal.index[0]


def _mean_returns(candidate: Sequence[Setting], seeds: int, records: pd.DataFrame) -> tuple[float, float]:
    """Mean final and average return of a candidate's trials; NaN if one has no record."""
    runs = tables_of(candidate, records[records["seed"].between(TRIAL_SEED, TRIAL_SEED + seeds - 1)])
    if len(runs) < seeds * len(candidate):
        return math.nan, math.nan
    if len(candidate) > 1:
        for name in ("final", "average"):
            worlds = zip(runs["world"], runs[name], strict=True)
            runs[name] = [reference_of(world).normalized(value) for world, value in worlds]
    return runs["final"].mean(), runs["average"].mean()


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
    """Number of seeds."""
    first_seed: int = FIRST_SEED
    """The lowest of them."""
    seeds_on: Mapping[str, int] = field(default_factory=dict)
    """The same for worlds that have another number."""
    searches: Callable[[str], Sequence[Search]] = lambda world: ()
    """Searches on a world; settings at their choices are compared, too."""
    figure: Figure = "curves"

    def compared(self, world: str, records: pd.DataFrame) -> list[Setting]:
        """The settings that are compared on a world, as far as the records say which these are."""
        return [*self.settings(world), *(one for search in self.searches(world) for one in search.chosen(records))]

    def wanted(self, world: str, records: pd.DataFrame, number: int | None = None) -> list[Wanted]:
        """All runs that are needed on a world, as far as the records say which these are.

        Args:
            world: one of `worlds`, or another that has these settings.
            records: as by `read_records`.
            number: of seeds; the experiment's if `None`.
        """
        count = number or self.seeds_on.get(world, self.seeds)
        runs = [Wanted(one, self.first_seed + i) for one in self.compared(world, records) for i in range(count)]
        own = count * len(self.settings(world))
        trials = [one for search in self.searches(world) for one in search.wanted(records)]
        return [*runs[:own], *trials, *runs[own:]]


_ROOMS, _PUDDLE = "collect-objects", "puddle-world"


def _short(world: str) -> Changes:
    """Of studies in the rooms, at the constant learning rate 0.0005 of their preset."""
    return {} if world == _PUDDLE else {"steps": 1_000_000, "evaluate_every": 40_000}


def _discovered(world: str, label: str, **changes: Any) -> Setting:
    return setting(world, "discovered", label, **_short(world), **changes)


def _methods(world: str) -> list[Setting]:
    # PuddleWorld's preset is `steady`; the rooms' has the constant learning rate 0.0005 and 3M steps.
    return [setting(world, method) for method in METHODS]


LEARNING_RATES = (1e-4, 3e-4, 7e-4, 1e-3, 3e-3, 7e-3)
"""Of RMSProp in the search of figure 2 (the paper's, which lists 1e-3 twice)."""
ENTROPIES = (1e-4, 1e-3, 1e-2, 3e-2, 5e-2)
"""Final entropy coefficients (the paper's)."""


def _paper_choice(world: str) -> list[Search]:
    """Learning rate, which falls linearly to 0, and entropy coefficient by the results of plain A2C.

    The initial entropy coefficient has the preset's ratio to the final one.
    """
    usual = setting(world, "a2c").preset
    ratio = 1.0 if usual.final_ent_coef is None else usual.ent_coef / usual.final_ent_coef
    trials = [
        setting(
            world,
            "a2c",
            TRIAL,
            learning_rate=rate,
            final_learning_rate=0.0,
            ent_coef=float(f"{ratio * entropy:.12g}"),  # rounded to the preset's own value
            final_ent_coef=entropy,
        )
        for rate in LEARNING_RATES
        for entropy in ENTROPIES
    ]

    def then(choice: Changes) -> list[Setting]:
        return [setting(world, method, f"{method}, {PAPER_CHOICE}", **choice) for method in METHODS]

    return [Search([[trial] for trial in trials], ((len(trials), 1), (6, 3)), then)]


COEFFICIENTS = (1e-4, 1e-3, 1e-2)
"""Auxiliary coefficients of the search of `joint`."""
PPO_COEFFICIENTS = (1e-3, 1e-2, 1e-1)
"""Of the search of `ppo-tasks`."""
SEARCHED_GAMES = ("minatar/asterix", "minatar/space_invaders")
"""Games of the search of `joint`; they count in the verdict, too."""
LONG_GAME, LONG_RUN = "minatar/asterix", {"steps": 6_000_000, "evaluate_every": 12_000_000}
"""The game that is trained for longer, too."""


def _joint(world: str) -> list[Setting]:
    return [setting(world, "none"), *([setting(world, "none", "none, 6M", **LONG_RUN)] if world == LONG_GAME else [])]


def _coefficient_choice(
    tasks: Sequence[str],
    changes: Changes,
    coefficients: Sequence[float],
    then: Callable[[OwnTaskMethod, float], Sequence[Setting]],
) -> list[Search]:
    """The auxiliary coefficient of each method, by its trials on two tasks.

    Args:
        tasks: the two.
        changes: of the trials.
        coefficients: candidates, the preferred ones first.
        then: settings of a method with its coefficient.
    """

    def search(method: OwnTaskMethod) -> Search:
        trials = [
            [setting(task, method, TRIAL, **changes, auxiliary_coefficient=one) for task in tasks]
            for one in coefficients
        ]
        return Search(trials, ((len(trials), 2),), lambda found: then(method, found["auxiliary_coefficient"]))

    methods: tuple[OwnTaskMethod, ...] = ("discovered", "random", "reward-prediction")
    return [search(method) for method in methods]


def _joint_choice(world: str) -> list[Search]:
    def then(method: OwnTaskMethod, weight: float) -> list[Setting]:
        longer = [setting(world, method, f"{method}, 6M", auxiliary_coefficient=weight, **LONG_RUN)]
        usual = setting(world, method, method, auxiliary_coefficient=weight)
        return [usual, *(longer if world == LONG_GAME else [])]

    return _coefficient_choice(SEARCHED_GAMES, {"steps": 1_000_000}, COEFFICIENTS, then)


_ON_PPO: Changes = {"algorithm": "ppo"}


def _ppo_choice(world: str) -> list[Search]:
    def then(method: OwnTaskMethod, weight: float) -> list[Setting]:
        return [setting(world, method, method, **_ON_PPO, auxiliary_coefficient=weight)]

    return _coefficient_choice(SEARCHED_TASKS, _ON_PPO, PPO_COEFFICIENTS, then)


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


_PPO_STEPS = {_ROOMS: 1_000_000, "collect-objects-small": 600_000, _PUDDLE: 600_000}


def _ppo(world: str) -> list[Setting]:
    """The preset; in the small rooms, where plain PPO gets stuck, also more entropy that falls, as in A2C's preset."""
    changes: Changes = {"algorithm": "ppo", "steps": _PPO_STEPS[world], "evaluate_every": 40_000}
    names = {method: "ppo" if method == "a2c" else method for method in METHODS}
    explored = {"ent_coef": 0.05, "final_ent_coef": 0.01} if world == "collect-objects-small" else {}
    return [
        *(setting(world, method, name, **changes) for method, name in names.items()),
        *(setting(world, m, f"{name}, entropy", **changes, **explored) for m, name in names.items() if explored),
    ]


# Stable-Baselines3's defaults with 16 environments and an entropy bonus, but TensorFlow's RMSProp, as in all presets
# of Atari: its ε is inside the root. With PyTorch's, Pong was at -18.0 after 1.02M steps, not at -17.5 (one seed).
_LAPTOP: dict[str, Any] = {
    "n_envs": 16,
    "n_steps": 5,
    "steps": 5_000_000,
    "learning_rate": 7e-4,
    "loss_reduction": "mean",
    "vf_coef": 0.5,
    "rms_prop_eps": 1e-10,
    "max_grad_norm": 0.5,
    "mixed_precision": True,
}


def _atari(world: str) -> list[Setting]:
    """Figure 3 (`representation`), figure 4 (`objective`), section 5.2 (`joint`), and A2C on a laptop (`laptop`).

    The paper has batches of 640 steps and 200M frames; `laptop` has A2C's, 16 environments x 5 steps.
    """
    names = {method: "impala" if method == "a2c" else method for method in ATARI_METHODS}
    return [
        *(setting(world, m, f"representation: {name}", algorithm="impala") for m, name in names.items()),
        *(
            setting(world, "discovered", f"objective: {end}", algorithm="impala", objective=end)
            for end in ("sum", "end")
        ),
        *(setting(world, m, f"joint: {name}", **JOINT_LEARNING) for m, name in names.items()),
        setting(world, "a2c", "laptop: a2c", **_LAPTOP),
    ]


_SETTINGS: dict[str, Callable[[str], Sequence[Setting]]] = {
    "figure-2": _methods,
    "figure-4": lambda world: [_discovered(world, "sum"), _discovered(world, "end", objective="end")],
    "figure-5": _figure_5,
    "joint": _joint,
    "own-tasks": lambda task: [setting(task, method) for method in OWN_TASK_METHODS],
    "convention": lambda world: [_discovered(world, one, convention=one) for one in ("exact", "surrogate")],
    "rms-prop": _rms_props,
    "question-transfer": _question_transfer,
    "ppo": _ppo,
    "ppo-tasks": lambda task: [setting(task, "none", "none", **_ON_PPO)],
    "atari": _atari,
}
_SEARCHES = {"figure-2": _paper_choice, "joint": _joint_choice, "ppo-tasks": _ppo_choice}


def _declared() -> dict[str, Experiment]:
    """The experiments of `experiments.csv`."""
    rows = pd.read_csv(Path(__file__).with_name("experiments.csv"), keep_default_na=False)
    groups = {"minatar": tuple(MINATAR), "external": tuple(OWN_TASKS), "ppo": tuple(PPO_TASKS)}
    return {
        row.name: Experiment(
            row.name,
            row.summary,
            _SETTINGS[row.name],
            groups.get(row.worlds) or tuple(row.worlds.split()),
            row.seeds,
            seeds_on={_PUDDLE: row.puddle_world_seeds},
            searches=_SEARCHES.get(row.name, lambda world: ()),
            figure=row.figure,
        )
        for row in rows.itertuples(index=False)
    }


EXPERIMENTS = _declared()
"""By name."""
