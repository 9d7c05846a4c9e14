"""`dgvf watch`: a trained agent at work in a window."""

from __future__ import annotations

from pathlib import Path

from dgvf_agents.a2c import DGVFA2C
from dgvf_agents.runs.environments import window
from dgvf_agents.runs.folder import RunFolder

_FRAMES_WITH_QUESTIONS = 6
"""Frames that every state is shown for, so that there is time to look at its values."""


def watch(
    run: Path, episodes: int = 10, deterministic: bool = False, seed: int | None = None, questions: bool = False
) -> None:
    """Show a run's latest checkpoint at work in a window.

    Args:
        run: the run folder.
        episodes: how many episodes.
        deterministic: the most likely action; one drawn from the policy, as in training, when false.
        seed: of the environment.
        questions: whether one of the agent's questions is drawn over the map; the left and right keys choose which,
            up and down whether it is its cumulant, discount or answer. Steps are slower then.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: `questions` of an agent that has none, or in a world without a map.
    """
    folder = RunFolder.existing(run)
    config = folder.read_config()
    model = DGVFA2C.load(folder.latest_checkpoint(), device="cpu")
    if questions and config.atari is not None:
        raise ValueError(f"questions must be watched in a world with a map, got a run on the game {config.env}")
    env = window(config)
    frames = 1
    if questions:
        from dgvf_agents.atlas.live import live_questions

        env.unwrapped.overlay = live_questions(model, config)  # type: ignore[attr-defined]
        frames = _FRAMES_WITH_QUESTIONS
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        over = False
        while not over:
            action, _ = model.predict(observation, deterministic=deterministic)
            for _ in range(frames - 1):  # stepping draws once
                env.render()
            observation, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
    env.close()
