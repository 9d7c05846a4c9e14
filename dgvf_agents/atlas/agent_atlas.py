"""Everything the atlas says about one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import gymnasium as gym
import numpy as np

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.atlas.agent_maps import AgentMaps, QuestionMaps, agent_in, agent_maps, question_maps
from dgvf_agents.atlas.captions import Caption, describe_question
from dgvf_agents.atlas.evolution import Moment, evolution
from dgvf_agents.atlas.ranking import Ranking, rank
from dgvf_agents.atlas.reliance import Reliance, policy_return, reliance
from dgvf_agents.atlas.states import WorldStates, enumerate_states
from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.runs.config import TrainConfig
from dgvf_agents.runs.folder import RunFolder
from dgvf_envs.functional.dynamics import Dynamics

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

    maps: QuestionMaps
    """Over all states."""
    reliance: Reliance
    """What erasing each answer does."""
    ranking: Ranking
    """Which to look at first."""
    captions: tuple[Caption, ...]
    """`[D]`: what each asks."""


@final
@dataclass(frozen=True)
class AgentAtlas:
    """One run, over every state of its world."""

    path: Path
    """The run folder."""
    config: TrainConfig
    """How it was trained."""
    steps: int
    """Environment steps of its latest checkpoint."""
    states: WorldStates
    """The states."""
    agent: AgentMaps
    """Features, policy and value."""
    questions: Questions | None
    """What it asks; `None` where its task has no questions."""
    moments: tuple[Moment, ...]
    """Its past, the latest checkpoint last."""
    exact_return: float | None
    """Expected return of its policy, where the world is finite."""

    @property
    def label(self) -> str:
        """What to call it."""
        return f"{_NAMES.get(self.config.task, self.config.task)}, seed {self.config.seed}"


def world_of(config: TrainConfig) -> tuple[Dynamics, int]:
    """The world that a run is evaluated in, and its time limit.

    Raises:
        ValueError: the environment is none of the gridworlds.
    """
    world, limit = _dynamics(config)
    if world is None:
        raise ValueError(f"run must be on Collect-Objects or PuddleWorld, got {config.env}")
    return world, limit


def lists_its_states(config: TrainConfig) -> bool:
    """Whether the atlas can go over every state of the world that a run is evaluated in."""
    return _dynamics(config)[0] is not None


def _dynamics(config: TrainConfig) -> tuple[Dynamics | None, int]:
    """The world, if it is one of those whose states are known, and its time limit."""
    if config.atari is not None:
        return None, config.atari.max_steps
    env: gym.Env[Any, Any] = gym.make(config.env, **config.evaluation_kwargs)
    world, limit = getattr(env.unwrapped, "dynamics", None), env.spec.max_episode_steps if env.spec else None
    env.close()
    return (world if isinstance(world, Dynamics) else None), limit or 1000


def questions_of(model: DGVFA2C, states: WorldStates, agent: AgentMaps, limit: int) -> Questions:
    """Ask, rank and describe an agent's questions.

    Raises:
        ValueError: the agent has none.
    """
    maps = question_maps(model, states)
    relied_on = reliance(agent, maps.answers, states, limit)
    captions = tuple(
        describe_question(maps.cumulants[:, i], maps.discounts[:, i], states) for i in range(maps.cumulants.shape[1])
    )
    return Questions(maps, relied_on, rank(maps.cumulants, relied_on.policy), captions)


def read_run(path: Path, checkpoints: int = 8) -> AgentAtlas:
    """Work out all that the atlas shows of a run.

    Args:
        path: the run folder.
        checkpoints: how many moments of its training to look at, at most.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: the run's world has no map.
    """
    folder = RunFolder.existing(path)
    config = folder.read_config()
    world, limit = world_of(config)
    states = enumerate_states(world)
    latest = folder.latest_checkpoint()
    model = agent_in(latest)
    agent = agent_maps(model, states)
    return AgentAtlas(
        path=path,
        config=config,
        steps=int(latest.stem),
        states=states,
        agent=agent,
        questions=questions_of(model, states, agent, limit) if isinstance(model.task, GVFTask) else None,
        moments=tuple(evolution(folder, states, checkpoints)),
        exact_return=(None if states.table is None else policy_return(states.table, np.exp(agent.log_policy), limit)),
    )
