"""Encoders of Stable-Baselines3's policies: what several inputs are made of, and what is refused."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from dgvf_agents.agents.extractors import AtariCNNExtractor, MultiInputExtractor, window_space
from dgvf_agents.core.argument_checks import UnsupportedSpaceError

SIDE = 36
FRAMES = gym.spaces.Box(0, 255, (2, SIDE, SIDE), np.uint8)
SCALED = gym.spaces.Box(0.0, 1.0, (2, SIDE, SIDE), np.float32)
PLACE = gym.spaces.Box(-1.0, 3.0, (2,), np.float32)


def test_every_image_has_convolutions_of_its_own_and_the_rest_one_network() -> None:
    space = gym.spaces.Dict({"above": FRAMES, "below": FRAMES, "place": PLACE, "speed": PLACE})
    torch.manual_seed(0)  # with other initial values all four ReLUs may be 0
    extractor = MultiInputExtractor(space, cnn_output_dim=16, hidden=(8, 4))
    assert extractor.features_dim == 16 + 16 + 4
    generator = torch.Generator().manual_seed(0)
    observations = {
        name: torch.rand(3, *inner.shape, generator=generator)
        for name, inner in space.spaces.items()  # type: ignore[misc]
    }
    whole = extractor(observations)
    assert whole.shape == (3, 36)
    parts = {"above": slice(0, 16), "below": slice(16, 32), "place": slice(32, 36), "speed": slice(32, 36)}
    for name, part in parts.items():
        changed = extractor({**observations, name: 1.0 - observations[name]}) != whole
        assert changed[:, part].any(), name
        changed[:, part] = False
        assert not changed.any(), name


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (SCALED, r"images, uint8 in \[0, 255\].*: pass policy_kwargs=\{'normalize_images': False\}"),
        (gym.spaces.Box(0, 255, (1, 35, 60), np.uint8), "images of side >= 36"),
    ],
)
def test_what_is_no_picture_for_these_convolutions_is_refused(space: gym.Space, message: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=message):
        AtariCNNExtractor(space)
    assert AtariCNNExtractor(SCALED, 8, normalized_image=True).features_dim == 8
    several = gym.spaces.Dict({"image": SCALED, "place": PLACE})
    assert MultiInputExtractor(several, 8, hidden=(4,), normalized_image=True).features_dim == 8 + 4


def test_observations_that_cannot_be_joined_have_no_windows() -> None:
    for space in (gym.spaces.Box(-1.0, 1.0, ()), gym.spaces.Dict({"a": gym.spaces.Box(-1.0, 1.0, ())})):
        with pytest.raises(ValueError, match=r"question_window must be 1 for observations of Box.*, got 2"):
            window_space(space, 2)
        assert window_space(space, 1) == space
