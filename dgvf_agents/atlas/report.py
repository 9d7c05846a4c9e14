"""Everything the atlas says about one run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import gymnasium as gym
import numpy as np

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.atlas import metrics
from dgvf_agents.atlas.captions import NAMED, Caption, describe_question, name_question
from dgvf_agents.atlas.domain import Domain, domain_of
from dgvf_agents.atlas.metrics import Principal, Ranking, principal_questions, rank
from dgvf_agents.atlas.probe import (
    AgentValues,
    QuestionValues,
    Reliance,
    agent_values,
    policy_return,
    question_values,
    reliance,
)
from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.train.checkpoint import load_model
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import build

import dgvf_envs  # noqa: F401  # isort: skip, registers the environments

_NAMES = {
    "discovered": "discovered questions",
    "random": "random questions",
    "reward-prediction": "reward prediction",
    "none": "main task alone",
}


@final
@dataclass(frozen=True)
class Questions:
    """D questions of an agent."""

    values: QuestionValues
    """At all points."""
    reliance: Reliance
    """The effect of erasing each answer."""
    ranking: Ranking
    """Their order and kinds."""
    truth: np.ndarray | None
    """`[D]`: share of the outcomes' variance that answers explain; `None` without outcomes."""
    captions: tuple[Caption, ...]
    """`[D]`: what each asks."""
    principal: Principal
    """Principal components of their cumulants."""
    principal_names: tuple[Caption, ...]
    """`[K]`: names of the principal questions."""


@final
class Checkpoint(NamedTuple):
    """A run after some of its training."""

    steps: int
    """Environment steps; 0 is an untrained agent."""
    cumulants: np.ndarray | None
    """`[N, D]` at the points that count; `None` if the agent has no questions."""
    numbers: dict[str, float | None]
    """Its metrics: its steps; of its questions (`None` without any) the variation, the effective number and the
    likeness to the last ones; both ranks of the features; how well each of the domain's targets is decoded, by key."""


@final
@dataclass(frozen=True)
class RunReport:
    """One run at all points of a domain."""

    config: TrainConfig
    """How it was trained."""
    model: DiscoveryAlgorithm
    """Its latest checkpoint."""
    domain: Domain
    """The points."""
    agent: AgentValues
    """Features, policy and value."""
    questions: Questions | None
    """Its questions; `None` if its task has none."""
    history: tuple[Checkpoint, ...]
    """Checkpoints, the latest last."""
    exact_return: float | None
    """Expected return of its policy, if the world is finite."""

    @property
    def values(self) -> np.ndarray:
        """`[N]`: v, NaN where the agent does not act."""
        return np.where(self.domain.acting, self.agent.values, np.nan)

    def asked(self) -> Questions:
        """Its questions, if there are some."""
        if self.questions is None:
            raise ValueError(f"run must have questions (discovered or random), got the task {self.config.task!r}")
        return self.questions

    @property
    def label(self) -> str:
        """Its name on pages: method and seed."""
        return f"{_NAMES.get(self.config.task, self.config.task)}, seed {self.config.seed}"

    @property
    def steps(self) -> int:
        """Environment steps of its latest checkpoint."""
        return self.history[-1].steps


def evaluated_world(config: TrainConfig) -> tuple[Domain | None, int]:
    """The domain registered for the world that a run is evaluated in, if there is one, and its time limit."""
    if config.atari is not None:
        return None, config.atari.max_steps
    env: gym.Env[Any, Any] = gym.make(config.env, **config.evaluation_kwargs)
    limit = env.spec.max_episode_steps if env.spec else None
    env.close()
    return domain_of(getattr(env.unwrapped, "dynamics", None)), limit or 1000


def questions_of(model: DiscoveryAlgorithm, domain: Domain, agent: AgentValues, horizon: int) -> Questions:
    """Evaluate, rank and describe an agent's questions; `horizon` is the time limit of an episode."""
    values = question_values(model, domain)
    acting = domain.acting & domain.evaluated
    relied_on = reliance(agent, values.answers, acting if acting.any() else domain.acting, domain.table, horizon)
    truth = None
    if values.outcomes is not None:
        truth = metrics.explained(values.answers[acting], values.outcomes[acting])
    captions = (
        describe_question(cumulant, discount, domain, None if truth is None else float(truth[i]))
        for i, (cumulant, discount) in enumerate(zip(values.cumulants.T, values.discounts.T, strict=True))
    )
    cumulants = values.cumulants[domain.counted]
    ranking, found = rank(cumulants, relied_on.policy), principal_questions(cumulants)
    names = tuple(name_question(one, domain) for one in found.values.T)
    everywhere = np.full((len(domain.counted), len(found.shares)), np.nan)
    everywhere[domain.counted] = found.values
    principal = found._replace(values=everywhere)
    return Questions(values, relied_on, ranking, truth, tuple(captions), principal, names)


def read_run(path: Path, domain: Domain, horizon: int, checkpoints: int = 8, untrained: bool = True) -> RunReport:
    """Evaluate a run at the points of a domain.

    Args:
        path: the run folder.
        domain: the points.
        horizon: the time limit of an episode.
        checkpoints: how many checkpoints to evaluate, at most, ≥ 1.
        untrained: whether an untrained agent of the same configuration is evaluated, too.
    """
    folder = RunFolder.existing(path)
    config = folder.read_config()
    history = []
    for steps, model in _agents(folder, config, checkpoints, untrained):  # the last one stays
        agent = agent_values(model, domain.observations)
        history.append(_checkpoint(steps, model, agent, domain))
    for one in history:
        if one.cumulants is not None and history[-1].cumulants is not None:
            one.numbers["likeness"] = metrics.likeness(one.cumulants, history[-1].cumulants)
    return RunReport(
        config=config,
        model=model,
        domain=domain,
        agent=agent,
        questions=questions_of(model, domain, agent, horizon) if isinstance(model.task, GVFTask) else None,
        history=tuple(history),
        exact_return=None if domain.table is None else policy_return(domain.table, np.exp(agent.log_policy), horizon),
    )


def _agents(
    folder: RunFolder, config: TrainConfig, count: int, untrained: bool
) -> Iterator[tuple[int, DiscoveryAlgorithm]]:
    """An untrained agent, and at most `count` checkpoints at even distances, the latest that is whole always."""
    latest = folder.latest_checkpoint()
    if untrained:
        yield 0, build(dataclasses.replace(config, device="cpu", mixed_precision=False))
    files = [file for file in folder.checkpoints() if file <= latest]
    chosen = np.linspace(len(files) - 1, 0, min(count, len(files))).round().astype(int)[::-1]
    for index in chosen.tolist():
        yield int(files[index].stem), load_model(config, files[index], mixed_precision=False)


def _checkpoint(steps: int, model: DiscoveryAlgorithm, agent: AgentValues, domain: Domain) -> Checkpoint:
    rows, cumulants = domain.evaluated, None
    features, groups = agent.features[rows], domain.groups[rows]
    numbers: dict[str, float | None] = dict.fromkeys(("variation", "effective_questions", "likeness"))
    numbers["steps"] = steps
    if isinstance(model.task, GVFTask):
        cumulants = question_values(model, domain).cumulants[domain.counted]
        numbers["variation"] = float(cumulants.std(axis=0).mean())
        numbers["effective_questions"] = metrics.effective_number(cumulants)
    numbers |= {"effective_rank": metrics.effective_rank(features), "srank": metrics.srank(features)}
    numbers |= {one.key: metrics.decoded(features, one.values[rows], groups) for one in domain.targets}
    return Checkpoint(steps, cumulants, numbers)


def lead(report: RunReport) -> str:
    """The first paragraph of a page: the questions, how many have a name, and the task's reliance on them."""
    questions, wording = report.asked(), report.domain.wording
    principal = questions.principal
    count, kinds = len(questions.captions), len(questions.ranking.kinds)
    sentences = [f"This agent asks {_number(count, 'question')} of {_number(kinds, 'kind')}."]
    if not len(principal.shares):
        return f"{sentences[0]} Their cumulants are the same {wording.everywhere}: it asks nothing."
    sentences.append(_common(report.history[-1].numbers["effective_questions"], principal))
    sentences.append(_names(questions))
    sentences.append(_reliance(report, questions))
    return " ".join(sentences)


def _common(effective: float | None, principal: Principal) -> str:
    first, total, count = principal.shares[0], principal.shares.sum(), len(principal.shares)
    rest = f", and the first {count} hold {total:.0%}" if count > 1 else ""
    return (
        f"They vary as {effective:.1f} independent ones would: one principal question holds {first:.0%} of the variance"
        f"{rest}."
    )


def _names(questions: Questions) -> str:
    named = [i for i in questions.ranking.kinds_first if questions.captions[i].named]
    if not named:
        return f"None of them has a name: landmarks explain less than {NAMED:.0%} of each."
    every = len(named) == len(questions.captions) > 1
    have = "All of them have a name" if every else f"{len(named)} of them {'has' if len(named) == 1 else 'have'} a name"
    first = f"The first of these is question {named[0]}, “{questions.captions[named[0]].headline}”"
    return f"{have}: landmarks explain at least {NAMED:.0%} of how each varies. {first}"


def _reliance(report: RunReport, questions: Questions) -> str:
    lost = questions.reliance.return_lost
    if lost is not None and report.exact_return is not None:
        i = int(lost.argmax())
        if lost[i] >= 0.005:
            left = report.exact_return - lost[i]
            return (
                f"The task relies most on question {i}: without its answer the agent's expected return falls from "
                f"{report.exact_return:.2f} to {left:.2f}."
            )
        return f"Erasing any one answer leaves the agent's expected return of {report.exact_return:.2f} as it is."
    i = int(np.argmax(questions.reliance.policy))
    return (
        f"The policy relies most on question {i}: without its answer the probabilities of actions change by "
        f"{questions.reliance.policy[i]:.2g} nats (mean Kullback-Leibler divergence)."
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
