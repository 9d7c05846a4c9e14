"""One question of an agent in the small four rooms, and an episode of that agent, as numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from dgvf_agents.atlas.captions import describe_question
from dgvf_agents.atlas.metrics import rank
from dgvf_agents.atlas.probe import AgentValues
from dgvf_agents.atlas.reliance import policy_return, reliance
from dgvf_agents.atlas.rooms import Rooms
from dgvf_envs.collect_objects import CollectObjects

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

import discovery_in_one_file as one_file

Params = dict[str, torch.Tensor]


def record(theta: Params, eta: Params, settings: one_file.Settings) -> dict[str, Any]:
    """The question that comes first in the atlas's order: its map, what relies on it, and an episode.

    Args:
        theta: θ.
        eta: η.
        settings: those of the run.
    """
    spec = gym.spec(settings.env.removeprefix("dgvf_envs:"))
    domain, horizon = Rooms(CollectObjects(**spec.kwargs)), spec.max_episode_steps
    assert horizon is not None
    agent, answers = values(theta, domain.observations)
    with torch.no_grad():
        cumulants = one_file.ask(eta, torch.from_numpy(domain.observations)).double().numpy()
    relied_on = reliance(agent, answers, domain.acting, domain.table, horizon)
    assert relied_on.return_lost is not None
    ranking = rank(cumulants, relied_on.policy)
    i = ranking.kinds[0].leader
    discounts = np.full(len(cumulants), settings.question_discount)
    return {
        "env": settings.env,
        "discount": settings.question_discount,
        "questions": settings.questions,
        "kinds": len(ranking.kinds),
        "question": i,
        "headline": describe_question(cumulants[:, i], discounts, domain).headline,
        "maps": [maps_of(domain, panel, cumulants[:, i]) for panel in domain.layout.panels],
        "policy_reliance": float(relied_on.policy[i]),
        "return": policy_return(domain.table, np.exp(agent.log_policy), horizon),
        "return_lost": float(relied_on.return_lost[i]),
        "episode": episode(domain, agent, cumulants[:, i], answers[:, i], settings.question_discount),
    }


def values(theta: Params, observations: np.ndarray) -> tuple[AgentValues, np.ndarray]:
    """What the agent computes at N points, and its answers `[N, D]`."""

    def heads(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = torch.from_numpy(features).float()
        policy = one_file.head(theta, "policy", x).double().log_softmax(-1)
        return policy.numpy(), one_file.head(theta, "value", x).double()[..., 0].numpy()

    with torch.no_grad():
        x = one_file.encode(theta, torch.from_numpy(observations))
        answers = one_file.head(theta, "answers", x).double().numpy()
        features = x.double().numpy()
        return AgentValues(features, *heads(features), heads), answers


def maps_of(domain: Rooms, panel: Any, cumulant: np.ndarray) -> dict[str, Any]:
    """A cumulant on one map; `None` where there is no state."""
    spread = panel.spread(cumulant)
    return {
        "name": panel.name,
        "values": [[None if np.isnan(value) else round(float(value), 4) for value in row] for row in spread],
        "objects": [bool(panel.example.first), bool(panel.example.second)],
    }


def episode(
    domain: Rooms, agent: AgentValues, cumulant: np.ndarray, answer: np.ndarray, discount: float
) -> dict[str, Any]:
    """The agent's most likely moves from the starting state that is furthest from the end of the task.

    `outcome` is what answers predict: G_t = u_{t+1} + γ u_{t+2} + … up to the end of the episode.
    """
    table = domain.table
    state = int(np.where(table.start > 0, domain.distance, -1.0).argmax())
    states, ended = [state], False
    rewards: list[float] = []
    while not ended and len(rewards) < 40:
        action = int(agent.log_policy[state].argmax())
        reward, ended, state = (
            float(table.reward[state, action]),
            table.terminated[state, action],
            table.next_state[state, action],
        )
        states.append(int(state))
        rewards.append(reward)
    u, outcome, g = cumulant[states[1:]], [], 0.0
    for one in u[::-1]:
        g = one + discount * g
        outcome.append(g)
    return {
        "cells": domain.position[states].astype(int).tolist(),
        "rewards": rewards,
        "terminated": bool(ended),
        "cumulants": u.round(4).tolist(),
        "answers": answer[states[:-1]].round(4).tolist(),
        "outcomes": np.round(outcome[::-1], 4).tolist(),
    }
