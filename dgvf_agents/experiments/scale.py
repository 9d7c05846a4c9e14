"""How large an experiment is: the paper's size, a fraction of it, or just enough to go through all of the code."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, final

from dgvf_agents.runs.config import TrainConfig

ScaleName = Literal["tiny", "small", "full"]

_TINY: dict[str, Any] = {
    "log_every": 240,
    "checkpoint_every": 480,
    "evaluate_every": 480,
    "evaluation_episodes": 16,
    "compile": False,
}
_TINY_EPISODE = {"max_episode_steps": 40}
"""Short enough that episodes end within a tiny run."""
_TINY_GAME: dict[str, Any] = {"max_frames": 160, "frame_size": 36}
"""The same for games, with as small frames as the network takes."""
_TINY_BATCH: dict[str, Any] = {"n_envs": 4, "n_steps": 5, "unroll_length": 3, "questions": 8}
"""Small enough on Atari that there are meta-updates within a tiny run."""


@final
@dataclass(frozen=True)
class Scale:
    """What is changed in every configuration of an experiment."""

    fraction: float = 1.0
    """Of the preset's environment steps."""
    steps: int | None = None
    """Environment steps; the fraction decides when left out."""
    seeds: int | None = None
    """Seeds per setting; the figure decides when left out."""
    tiny: bool = False
    """Whether episodes are cut short and nothing is compiled."""

    def __post_init__(self) -> None:
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be >= 1, got {self.steps!r}")
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"seeds must be >= 1, got {self.seeds!r}")

    def apply(self, config: TrainConfig) -> TrainConfig:
        """The configuration at this scale."""
        steps = max(1, round(self.fraction * config.steps)) if self.steps is None else self.steps
        config = dataclasses.replace(config, steps=steps)
        if not self.tiny:
            return config
        if config.atari is not None:
            rules = dataclasses.replace(config.atari, **_TINY_GAME)
            return dataclasses.replace(config, atari=rules, **_TINY_BATCH, **_TINY)
        return dataclasses.replace(
            config,
            env_kwargs={**config.env_kwargs, **_TINY_EPISODE},
            evaluation_kwargs={**config.evaluation_kwargs, **_TINY_EPISODE},
            **_TINY,
        )


SCALES: dict[ScaleName, Scale] = {
    "tiny": Scale(steps=960, seeds=2, tiny=True),
    "small": Scale(fraction=0.25, seeds=2),
    "full": Scale(),
}
"""`full` is the size that the presets give; `tiny` shows that everything runs and nothing else."""
