"""Draw values over the map: `python examples/overlay.py --output overlay.png`.

An overlay is a function without arguments that returns an `Overlay` or `None`. It is
called for every frame, so what it draws may change while an agent learns. Here the
values are planned. An agent would show its own.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pygame
import tyro

import dgvf_envs  # noqa: F401, registers the environments
from dgvf_envs.collect_objects import CollectObjects
from dgvf_envs.planning import plan_puddle_world
from dgvf_envs.puddle_world import PuddleWorld
from dgvf_envs.rendering import Overlay


def values_of(world: CollectObjects | PuddleWorld) -> Overlay:
    """What is worth where, for an agent that acts well."""
    if isinstance(world, PuddleWorld):
        # The first axis is x; an overlay has y first, from the bottom.
        values = plan_puddle_world(world).values
        return Overlay(values.T, label="optimal return", low=-60.0, high=0.0)
    discounted = np.full(world.map.shape, np.nan)  # walls stay as they are
    discounted[world.map.free] = 0.9 ** world.map.distances[:, world.first_cell]
    return Overlay(discounted, label="first object, 0.9^moves", low=0.0, high=1.0)


def main(
    env_id: str = "CollectObjects-v0",
    steps: int = 10,
    seed: int = 0,
    size: int = 600,
    output: Path | None = None,
) -> np.ndarray:
    """Take random steps and draw the picture.

    Args:
        env_id: the environment.
        steps: how many random steps to take first.
        seed: of the environment and of the actions.
        size: height of the picture in pixels.
        output: a PNG file; none is written when left out.

    Returns:
        The picture, `[H, W, 3]`.
    """
    env = gym.make(env_id, render_mode="rgb_array", screen_size=size)
    env.action_space.seed(seed)
    values = values_of(env.get_wrapper_attr("dynamics"))
    env.set_wrapper_attr("overlay", lambda: values)
    env.reset(seed=seed)
    for _ in range(steps):
        env.step(env.action_space.sample())
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    env.close()
    if output is not None:
        pygame.image.save(pygame.surfarray.make_surface(picture.swapaxes(0, 1)), output)
    return picture


if __name__ == "__main__":
    tyro.cli(main)
