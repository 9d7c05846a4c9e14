"""Everything the atlas says about one run: outputs of its networks at every point, and what follows from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.agents.functional_policy import PolicyFunctions
from dgvf_agents.atlas import metrics
from dgvf_agents.atlas.captions import Caption, describe_question, name_question
from dgvf_agents.atlas.domain import Domain, domain_of
from dgvf_agents.atlas.metrics import Principal, Ranking, principal_questions, rank
from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.core.types import Params
from dgvf_agents.train.checkpoint import load_model
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import wrapped
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import build
from dgvf_envs.planning import TransitionTable

import dgvf_envs  # noqa: F401  # isort: skip, registers the environments

_BATCH = 256
"""Observations at once; all images together would not fit into memory."""


@final
class QuestionValues(NamedTuple):
    """D questions at N points."""

    cumulants: np.ndarray
    """`[N, D]`: u for arriving at each point; NaN where no step arrives."""
    discounts: np.ndarray
    """`[N, D]`: γ for arriving there, before any episode's end is taken into account; NaN where no step arrives."""
    answers: np.ndarray
    """`[N, D]`: y(x); NaN where the agent does not act."""
    outcomes: np.ndarray | None
    """`[N, D]`: the returns G that answers predict, if the points are a sample of experience."""


def lines_of(values: QuestionValues, question: int) -> list[np.ndarray]:
    """Cumulant, discount, answer and outcome (if there is one) of a question, `[N]` each."""
    return [part[:, question] for part in values if part is not None]


@final
class AgentValues(NamedTuple):
    """The rest of the agent at N points."""

    features: np.ndarray
    """`[N, F]`: x."""
    log_policy: np.ndarray
    """`[N, A]`: log π(a|x)."""
    values: np.ndarray
    """`[N]`: v(x)."""
    heads: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    """log π `[..., A]` and v `[...]` of other features `[..., F]`."""


def question_task(model: DiscoveryAlgorithm) -> GVFTask:
    """The task that asks an agent's questions.

    Raises:
        ValueError: the agent has no questions, or they are about more than one observation.
    """
    task = model.task
    if not isinstance(task, GVFTask):
        raise ValueError(f"run must have questions (discovered or random), got the task {type(task).__name__}")
    if task.window != 1:
        raise ValueError(f"question_window must be 1 for values that are a function of one state, got {task.window!r}")
    if task.reads_features:
        raise ValueError("question_encoder must be 'independent' for questions about observations, got 'shared'")
    return task


def question_values(model: DiscoveryAlgorithm, domain: Domain) -> QuestionValues:
    """Evaluate every question at every point."""
    task, eta = question_task(model), model.learner.eta
    functions, params = _functions(model)

    def ask(observed: Tensor) -> tuple[np.ndarray, ...]:
        cumulants, discounts = task.network.ask(eta, observed[None])
        asked = _array(cumulants[0])
        factors = np.full_like(asked, task.discount) if discounts is None else _array(discounts[0])
        return asked, factors, _array(functions.answer(params, functions.encode(params, observed, 1)))

    cumulants, discounts, answers = _in_batches(ask, domain.observations)
    outcomes = domain.outcomes(cumulants, discounts, answers)
    cumulants, discounts = np.where(domain.arriving[:, None], [cumulants, discounts], np.nan)
    return QuestionValues(cumulants, discounts, np.where(domain.acting[:, None], answers, np.nan), outcomes)


def agent_values(model: DiscoveryAlgorithm, observations: np.ndarray) -> AgentValues:
    """Features, policy and value for observations `[N, *obs]`."""
    functions, params = _functions(model)

    def heads(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            read = torch.from_numpy(features).float()
            log_policy = torch.log_softmax(functions.policy_outputs(params, read).double(), -1)
            return log_policy.numpy(), _array(functions.values(params, read))

    (features,) = _in_batches(lambda observed: (_array(functions.encode(params, observed, 1)),), observations)
    return AgentValues(features, *heads(features), heads)


def _in_batches(function: Callable[[Tensor], tuple[np.ndarray, ...]], observations: np.ndarray) -> list[np.ndarray]:
    """The results of `function` for all observations, concatenated."""
    with torch.no_grad():
        parts = [function(batch) for batch in torch.from_numpy(np.ascontiguousarray(observations)).split(_BATCH)]
    return [np.concatenate(of_all) for of_all in zip(*parts, strict=True)]


def _functions(model: DiscoveryAlgorithm) -> tuple[PolicyFunctions, Params]:
    """The policy with its answer head as functions, and their parameters."""
    functions = PolicyFunctions(model.policy, model.answer_net)
    return functions, {**functions.params(), **functions.statistics()}


def _array(values: Tensor) -> np.ndarray:
    return values.double().numpy()


@final
class Reliance(NamedTuple):
    """The effect of erasing each of D answers on the main task."""

    policy: np.ndarray
    """`[D]`: Σ_s KL(π(·|x(s)) ‖ π(·|x'(s))) / N over points where the agent acts, in nats."""
    value: np.ndarray
    """`[D]`: Σ_s (v(x) - v(x'))² / Σ_s (v(x) - v̄)² over the same states."""
    return_lost: np.ndarray | None
    """`[D]`: expected return under π(·|x) less that under π(·|x'); `None` if the world is not finite."""


def reliance(
    agent: AgentValues, answers: np.ndarray, acting: np.ndarray, table: TransitionTable | None = None, horizon: int = 0
) -> Reliance:
    """The main task's reliance on each answer.

    Args:
        agent: the agent at N points.
        answers: `[N, D]`; read only where the agent acts.
        acting: `[N]` boolean: where the agent acts.
        table: transitions among the points, if they are the states of a finite world.
        horizon: the time limit of an episode there.
    """
    log_policy, values = agent.log_policy[acting], agent.values[acting]
    spread = max(float(np.square(values - values.mean()).sum()), 1e-12)
    policy, value, returns = [], [], []
    for answer in answers.T:
        changed_policy, changed_values = agent.heads(erased(agent.features, answer, acting))
        kept, changed = changed_policy[acting], changed_values[acting]
        policy.append((np.exp(log_policy) * (log_policy - kept)).sum(axis=1).mean())
        value.append(np.square(values - changed).sum() / spread)
        if table is not None:
            returns.append(policy_return(table, np.exp(changed_policy), horizon))
    lost = None if table is None else policy_return(table, np.exp(agent.log_policy), horizon) - np.array(returns)
    return Reliance(np.array(policy), np.array(value), lost)


def erased(features: np.ndarray, answer: np.ndarray, acting: np.ndarray) -> np.ndarray:
    """Features x' `[N, F]` without what is linear in the answer; unchanged where the agent does not act.

    Args:
        features: x `[N, F]`.
        answer: y `[N]`.
        acting: `[N]` boolean.
    """
    centered = np.where(acting, answer - answer[acting].mean(), 0.0)
    variance = np.square(centered[acting]).mean()
    if variance < 1e-12:
        return features
    covariance = (features[acting] - features[acting].mean(axis=0)).T @ centered[acting] / acting.sum()
    return features - np.outer(centered, covariance / variance)


def policy_return(table: TransitionTable, policy: np.ndarray, horizon: int) -> float:
    """The exact undiscounted return of a policy from the start distribution, by backward induction.

    Args:
        table: the world.
        policy: `[N, A]`: probabilities.
        horizon: the time limit.
    """
    values = np.zeros(len(table.start))
    for _ in range(horizon):
        values = (policy * (table.reward + ~table.terminated * values[table.next_state])).sum(axis=1)
    return float(table.start @ values)


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
    limit, observed = env.spec.max_episode_steps if env.spec else None, env.observation_space
    env = wrapped(config, env)
    env.close()
    world = getattr(env.unwrapped, "dynamics", None)
    return domain_of(world) if env.observation_space == observed else None, limit or 1000


def questions_of(values: QuestionValues, domain: Domain, agent: AgentValues, horizon: int) -> Questions:
    """Rank and describe an agent's questions; `horizon` is the time limit of an episode."""
    acting = domain.evaluated
    relied_on = reliance(agent, values.answers, acting if acting.any() else domain.acting, domain.table, horizon)
    truth = None if values.outcomes is None else metrics.explained(values.answers[acting], values.outcomes[acting])
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
        values = question_values(model, domain) if isinstance(model.task, GVFTask) else None
        history.append(_checkpoint(steps, values, agent, domain))
    for one in history:
        if one.cumulants is not None and history[-1].cumulants is not None:
            one.numbers["likeness"] = metrics.likeness(one.cumulants, history[-1].cumulants)
    questions = None if values is None else questions_of(values, domain, agent, horizon)
    exact_return = None if domain.table is None else policy_return(domain.table, np.exp(agent.log_policy), horizon)
    return RunReport(config, model, domain, agent, questions, tuple(history), exact_return)


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


def _checkpoint(steps: int, values: QuestionValues | None, agent: AgentValues, domain: Domain) -> Checkpoint:
    rows, cumulants = domain.evaluated, None
    features, groups = agent.features[rows], domain.groups[rows]
    numbers: dict[str, float | None] = {
        **dict.fromkeys(("variation", "effective_questions", "likeness")),
        "steps": steps,
    }
    if values is not None:
        cumulants = values.cumulants[domain.counted]
        numbers["variation"] = float(cumulants.std(axis=0).mean())
        numbers["effective_questions"] = metrics.effective_number(cumulants)
    numbers |= {"effective_rank": metrics.effective_rank(features), "srank": metrics.srank(features)}
    numbers |= {one.key: metrics.decoded(features, one.values[rows], groups) for one in domain.targets}
    return Checkpoint(steps, cumulants, numbers)
