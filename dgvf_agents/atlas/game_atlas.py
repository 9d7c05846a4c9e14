"""Everything the atlas says about one run on images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from dgvf_agents.atlas.agent_maps import agent_in
from dgvf_agents.atlas.captions import Caption
from dgvf_agents.atlas.episode import Episode, record
from dgvf_agents.atlas.event_landmarks import landmarks_of_game
from dgvf_agents.atlas.game_captions import describe_in_game
from dgvf_agents.atlas.game_looks import Look, other_looks, own_looks
from dgvf_agents.atlas.gradients import Gradients, gradients_of
from dgvf_agents.atlas.ranking import Ranking, rank
from dgvf_agents.atlas.recorded_env import first_full_moment, recorded_env
from dgvf_agents.atlas.reliance import Reliance, reliance_over
from dgvf_agents.atlas.traces import Traces, trace
from dgvf_agents.core.tasks import GVFTask
from dgvf_agents.runs.config import TrainConfig
from dgvf_agents.runs.folder import RunFolder

GRADIENT_MOMENTS = 240
"""Moments of a game at even distances at which each question shown large has its gradient drawn."""

GAME_STEPS = 1000
"""Steps after which the recording of a game stops, unless told: a bit more than a minute of an Atari game."""


@final
@dataclass(frozen=True)
class GameAtlas:
    """One run, along one recorded game of its agent."""

    path: Path
    """The run folder."""
    config: TrainConfig
    """How it was trained."""
    steps: int
    """Environment steps of its latest checkpoint."""
    seed: int
    """Of the game."""
    episode: Episode
    """The game."""
    traces: Traces
    """What was asked, expected and told."""
    reliance: Reliance
    """What erasing each answer does, over the moments of the game where the agent acts."""
    ranking: Ranking
    """Which questions to look at first."""
    captions: tuple[Caption, ...]
    """`[D]`: what each goes along with."""
    gradients: dict[int, Gradients]
    """Where the questions shown large look, by their numbers, best first."""
    looks: tuple[Look, ...]
    """The frames shown to the run's checkpoints, the latest last, and then to the agents beside."""

    @property
    def questions(self) -> int:
        """D."""
        return self.traces.cumulants.shape[1]


def read_game(
    path: Path, beside: Sequence[Path] = (), large: int = 8, checkpoints: int = 8, seed: int = 0, most: int = GAME_STEPS
) -> GameAtlas:
    """Record a game of a run's latest checkpoint and work out all that the atlas shows of it.

    Args:
        path: the run folder.
        beside: other runs in the same environment.
        large: how many questions are looked at closely ≥ 1.
        checkpoints: how many checkpoints to look at, at most, ≥ 1.
        seed: of the game.
        most: steps after which the recording stops ≥ 1.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: the run has no questions, or is not on images with discrete actions; or runs are in different
            environments.
    """
    folder = RunFolder.existing(path)
    config = folder.read_config()
    latest = folder.latest_checkpoint()
    model = agent_in(latest)
    if not isinstance(model.task, GVFTask):
        raise ValueError(f"run must have questions (discovered or random), got the task {config.task!r}")
    env = recorded_env(config)
    try:
        episode = record(model, env, seed, most, first_full_moment(config))
    finally:
        env.close()
    traces = trace(model, episode)
    moments = np.arange(episode.steps + 1)
    acting = (moments >= min(episode.first, episode.steps - 1)) & (moments < episode.steps)
    relied_on = reliance_over(traces.agent, traces.answers, acting)
    asked, factors = traces.cumulants[episode.first :], traces.discounts[episode.first :]
    ranking = rank(asked, relied_on.policy)
    leaders = [kind.leader for kind in ranking.kinds[:large]]
    landmarks = landmarks_of_game(episode)
    captions = tuple(
        describe_in_game(asked[:, i], factors[:, i], truth, landmarks, episode.first)
        for i, truth in enumerate(traces.truth.tolist())
    )
    return GameAtlas(
        path=path,
        config=config,
        steps=int(latest.stem),
        seed=seed,
        episode=episode,
        traces=traces,
        reliance=relied_on,
        ranking=ranking,
        captions=captions,
        gradients=gradients_of(model, episode, traces, leaders, GRADIENT_MOMENTS),
        looks=(
            *own_looks(folder, episode, traces.cumulants, checkpoints),
            *other_looks(beside, episode, config.env),
        ),
    )
