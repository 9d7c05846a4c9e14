"""What an agent sees of an Atari game, what it is rewarded for and when its episodes end: two named presets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class AtariPreset:
    """The rules between a game and an agent; `dataclasses.asdict` gives what to save with a run.

    Not settable, because nobody's protocol sets it otherwise: frames are grey and scaled down by averaging areas, the
    last two frames of a repeat are joined by their maximum, a stack starts with black frames, and the environment never
    presses FIRE by itself.

    Raises:
        ValueError: a value is out of its range.
    """

    frame_skip: int = 4
    """Frames for which an action is held; the agent sees the maximum of the last two. (Paper; Mnih et al. 2015)"""
    frame_size: int = 84
    """Height and width that frames are scaled to, in pixels. (Paper; Mnih et al. 2015)"""
    stack: int = 4
    """Frames in an observation, the oldest first. (Paper; Mnih et al. 2015)"""
    clip_rewards: bool = True
    """Whether the agent's rewards are clipped to [-1, 1]; scores never are. (Paper; Mnih et al. 2015)"""
    life_loss_ends: bool = True
    """Whether losing a life ends an episode for the agent, while the game goes on. (Mnih et al. 2015; Espeholt et al.
    2018, whose hyperparameters the paper uses; advised against by Machado et al. 2018)"""
    max_noops: int = 30
    """A game starts with 1 to this many no-op actions of one frame, uniformly; 0 for none. (Mnih et al. 2015)"""
    sticky: float = 0.0
    """Probability, at every frame, that the console holds the action of the frame before. (0.25 in Machado et al.
    2018)"""
    full_action_set: bool = False
    """All 18 actions of the console instead of those that the game reads. (All in Machado et al. 2018)"""
    max_frames: int = 108_000
    """Frames after which a game is cut off, no-ops not counted: 30 minutes; a multiple of `frame_skip`. (`dqn_zoo`;
    ALE's own ids)"""

    def __post_init__(self) -> None:
        for name in ("frame_skip", "frame_size", "stack"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)!r}")
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
        """The preset's name, `"own"` for one that is not of `PRESETS`."""
        return next((name for name, preset in PRESETS.items() if preset == self), "own")

    @property
    def max_steps(self) -> int:
        """The agent's steps after which a game is cut off."""
        return self.max_frames // self.frame_skip

    def describe(self) -> str:
        """All of it in a few lines, for a log; environments do not print it by themselves."""
        shown = f"max of the last 2 of {self.frame_skip}" if self.frame_skip > 1 else "every frame"
        starts = f"1 to {self.max_noops} no-ops" if self.max_noops else "at once"
        sticky = f"repeated with probability {self.sticky} at every frame" if self.sticky else "never sticky"
        return "\n".join(
            [
                f"Atari preset {self.name!r}",
                f"  observation  {self.stack} grey frames of {self.frame_size}x{self.frame_size}, {shown}",
                f"  actions      {'all 18' if self.full_action_set else 'those that the game reads'}, "
                f"held for {self.frame_skip} frames, {sticky}",
                f"  rewards      {'clipped to [-1, 1]' if self.clip_rewards else 'as they are'}; scores as they are",
                f"  episodes     end {'with every life; the game goes on' if self.life_loss_ends else 'with the game'}",
                f"  games        start after {starts}, cut off after {self.max_frames:,} frames",
            ]
        )


PAPER = AtariPreset()
"""The paper's (Veeriah et al. 2019): DeepMind's preprocessing of 2015 to 2019."""

MODERN = AtariPreset(life_loss_ends=False, max_noops=0, sticky=0.25, full_action_set=True)
"""After Machado et al. 2018: sticky actions are the source of chance instead of no-ops, all actions, whole games."""

PRESETS: dict[str, AtariPreset] = {"paper": PAPER, "modern": MODERN}
"""The presets by name."""


def preset_of(preset: AtariPreset | str) -> AtariPreset:
    """The preset itself, or the one of that name.

    Raises:
        ValueError: there is none of that name.
    """
    if isinstance(preset, AtariPreset):
        return preset
    if preset not in PRESETS:
        allowed = ", ".join(repr(name) for name in PRESETS)
        raise ValueError(f"preset must be an AtariPreset or one of {allowed}, got {preset!r}")
    return PRESETS[preset]
