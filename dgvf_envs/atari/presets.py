"""Atari preprocessing, rewards and episode ends: two named presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dgvf_envs.argument_checks import check_count


@final
@dataclass(frozen=True)
class AtariPreset:
    """The settings of an Atari environment; save `dataclasses.asdict(preset)` with a run.

    The following is fixed, because all common protocols agree on it: frames are converted to grayscale and downscaled
    by area averaging, the last two frames of a repeated action are max-pooled, a frame stack starts with black frames,
    and the environment never presses FIRE on its own.

    Raises:
        ValueError: a value is out of range.
    """

    frame_skip: int = 4
    """Number of frames for which an action is repeated; the last two are max-pooled. (Paper; Mnih et al. 2015)"""
    frame_size: int = 84
    """Height and width of the downscaled frames in pixels. (Paper; Mnih et al. 2015)"""
    stack: int = 4
    """Number of stacked frames in an observation, oldest first. (Paper; Mnih et al. 2015)"""
    clip_rewards: bool = True
    """Whether rewards are clipped to [-1, 1]; scores never are. (Paper; Mnih et al. 2015)"""
    life_loss_ends: bool = True
    """Whether the loss of a life ends the episode, while the game continues. (Mnih et al. 2015; Espeholt et al. 2018,
    whose hyperparameters the paper uses; Machado et al. 2018 advise against it)"""
    max_noops: int = 30
    """A game starts with 1 to `max_noops` no-ops of one frame each, uniformly at random; 0 for none. (Mnih et al.
    2015)"""
    sticky: float = 0.0
    """Sticky actions: the probability, at each frame, that the previous frame's action is repeated. (0.25 in Machado et
    al. 2018)"""
    full_action_set: bool = False
    """Whether to use all 18 actions of the console or only the game's. (All in Machado et al. 2018)"""
    max_frames: int = 108_000
    """The time limit of a game in frames, excluding no-ops; the default is 30 minutes. A multiple of `frame_skip`.
    (`dqn_zoo`; ALE's own ids)"""

    def __post_init__(self) -> None:
        for name in ("frame_skip", "frame_size", "stack"):
            check_count(name, getattr(self, name))
        if self.max_noops < 0:
            raise ValueError(f"max_noops must be >= 0, got {self.max_noops!r}")
        if not 0.0 <= self.sticky < 1.0:
            raise ValueError(f"sticky must lie in [0, 1), got {self.sticky!r}")
        if self.max_frames < 1 or self.max_frames % self.frame_skip:
            raise ValueError(
                f"max_frames must be a positive multiple of frame_skip={self.frame_skip}, got {self.max_frames!r}"
            )

    @property
    def name(self) -> str:
        """The name of the preset in `PRESETS`, or `"own"`."""
        return next((name for name, preset in PRESETS.items() if preset == self), "own")

    @property
    def max_steps(self) -> int:
        """The time limit of a game in agent steps."""
        return self.max_frames // self.frame_skip

    def describe(self) -> str:
        """A multi-line summary for logs; environments do not print it on their own."""
        pooling = f"max over the last 2 of {self.frame_skip}" if self.frame_skip > 1 else "every frame"
        starts = f"start with 1 to {self.max_noops} no-ops" if self.max_noops else "start without no-ops"
        sticky = f"sticky with probability {self.sticky} per frame" if self.sticky else "not sticky"
        ends = "end with every life; the game continues" if self.life_loss_ends else "end with the game"
        return "\n".join(
            [
                f"Atari preset {self.name!r}",
                f"  observation  {self.stack} grayscale frames of {self.frame_size}x{self.frame_size}, {pooling}",
                f"  actions      {'all 18' if self.full_action_set else 'those used in the game'}, "
                f"repeated for {self.frame_skip} frames, {sticky}",
                f"  rewards      {'clipped to [-1, 1]' if self.clip_rewards else 'unclipped'}; scores unclipped",
                f"  episodes     {ends}",
                f"  games        {starts}, time limit of {self.max_frames:,} frames",
            ]
        )


PAPER = AtariPreset()
"""The preset of the paper (Veeriah et al. 2019): DeepMind's preprocessing of 2015 to 2019."""

MODERN = AtariPreset(life_loss_ends=False, max_noops=0, sticky=0.25, full_action_set=True)
"""The preset of Machado et al. 2018: sticky actions instead of no-ops, all 18 actions, and whole games as episodes."""

PRESETS: dict[str, AtariPreset] = {"paper": PAPER, "modern": MODERN}
"""The presets by name."""


def preset_of(preset: AtariPreset | str) -> AtariPreset:
    """Look up a preset by name; presets are returned as they are.

    Raises:
        ValueError: there is no preset of that name.
    """
    if isinstance(preset, AtariPreset):
        return preset
    if preset not in PRESETS:
        allowed = ", ".join(repr(name) for name in PRESETS)
        raise ValueError(f"preset must be an AtariPreset or one of {allowed}, got {preset!r}")
    return PRESETS[preset]
