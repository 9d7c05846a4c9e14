"""Compute the reference returns of the registered environments, and draw their pictures.

Writes the tables and images in `environments/`, and the pictures of `rendering.md`.
"""

from __future__ import annotations

import csv
import os
import runpy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from PIL import Image

from dgvf_envs import ENVIRONMENTS, planning
from dgvf_envs.collect_objects import CollectObjects, CollectObjectsState
from dgvf_envs.planning import expected_return, plan_puddle_world
from dgvf_envs.puddle_world import PuddleWorld, PuddleWorldState

DOCS = Path(__file__).resolve().parent
SEED, EPISODES, DISCOUNT = 0, 4096, 0.99
OPTIMAL: planning.Policy = "optimal"
RANDOM: planning.Policy = "random"
RESOLUTION = 101
"""Grid points per axis of value iteration."""

Policy = Callable[[np.ndarray], np.ndarray]
"""Actions `[B]` for observations `[B, ...]`."""


def good_policy(world: CollectObjects | PuddleWorld) -> Policy:
    """A policy that solves the task: value iteration in PuddleWorld, shortest paths in Collect-Objects."""
    if isinstance(world, CollectObjects):
        return partial(shortest_path_actions, world)
    if world.noise_distribution == "normal":  # plan for uniform noise of the same variance
        names = ("start", "puddles", "goal", "goal_threshold", "thrust", "reward_scale", "stay")
        options = {name: getattr(world, name) for name in names}
        world = PuddleWorld(noise=world.noise * 3.0**0.5, **options)
    plan = plan_puddle_world(world, RESOLUTION)
    return lambda observations: plan.act(PuddleWorldState(*observations.T))


def shortest_path_actions(world: CollectObjects, observations: np.ndarray) -> np.ndarray:
    agent, first, second = observations.reshape(len(observations), 3, -1).swapaxes(0, 1)
    cells = world.map.index.ravel()[agent.argmax(axis=1)]
    state = CollectObjectsState(cells, first.any(axis=1), second.any(axis=1))
    target = np.where(state.first, world.first_cell, world.second_cell)
    return world.map.distances[world.map.next_cell[state.agent], target[:, None]].argmin(axis=1)


def reference_returns(env_id: str) -> list[list[str]]:
    """Returns of a good and of the random policy, a row each after the headings."""
    world, horizon = gym.make(env_id).get_wrapper_attr("dynamics"), gym.spec(env_id).max_episode_steps
    assert horizon is not None
    if isinstance(world, CollectObjects):  # exact
        starts, first, second = world.constants.starts, world.first_cell, world.second_cell
        moves = world.map.distances[starts, first] + world.map.distances[first, second]
        rows = [["Policy", "Expected return", f"Discounted by {DISCOUNT}", "Moves, mean", "Moves, maximal"]]
        shortest = [f"{moves.mean():.1f}", f"{moves.max():.0f}"]
        for name, policy, path in (("optimal", OPTIMAL, shortest), ("uniform random", RANDOM, ["", ""])):
            expected = (expected_return(world, policy, horizon, discount) for discount in (1.0, DISCOUNT))
            rows.append([name, *(f"{value:.3f}" for value in expected), *path])
        return rows
    uniform = world.noise_distribution == "uniform"
    planned = "optimal" if uniform else "planned for uniform noise of the same variance"
    rows = [["Policy", "Return", "Standard error", "Mean length", "Goal reached"]]
    rows.append([planned, *simulate(env_id, good_policy(world))])
    rows.append(["uniform random", *simulate(env_id, None)])
    if uniform:
        start = world.reset(np.zeros((1, world.reset_draws)))
        value = plan_puddle_world(world, RESOLUTION).action_values(start).max()
        rows.append([f"optimal, value iteration on {RESOLUTION}² points", f"{value:.2f}", "", "", ""])
    return rows


def simulate(env_id: str, policy: Policy | None) -> list[str]:
    """Undiscounted returns with a policy, a random one if `None`.

    Each environment plays one episode, so that short episodes are not overrepresented.
    """
    envs = gym.make_vec(env_id, num_envs=EPISODES, autoreset_mode=AutoresetMode.NEXT_STEP)
    envs.action_space.seed(SEED)
    observations, _ = envs.reset(seed=SEED)
    returns, lengths, running = np.zeros(EPISODES), np.zeros(EPISODES), np.ones(EPISODES, dtype=bool)
    solved = np.zeros(EPISODES, dtype=bool)
    while running.any():
        actions = envs.action_space.sample() if policy is None else policy(observations)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        returns += rewards * running
        lengths += running
        solved |= running & terminated
        running &= ~(terminated | truncated)
    error = returns.std(ddof=1) / np.sqrt(EPISODES)
    return [f"{returns.mean():.2f}", f"{error:.2f}", f"{lengths.mean():.1f}", f"{solved.mean():.1%}"]


def frames(env_id: str, size: int) -> list[Any]:
    """The pictures `[H, W, 3]` of one episode with a good policy."""
    env = gym.make(env_id, render_mode="rgb_array", screen_size=size)
    policy = good_policy(env.get_wrapper_attr("dynamics"))
    observation, _ = env.reset(seed=SEED)
    pictures, over = [env.render()], False
    while not over:
        observation, _, terminated, truncated, _ = env.step(policy(observation[None])[0])
        pictures.append(env.render())
        over = terminated or truncated
    return pictures


def draw(env_id: str, folder: Path) -> None:
    """Draw a PNG from the middle of an episode with a good policy, and a GIF of the whole episode."""
    still = frames(env_id, size=600)
    Image.fromarray(still[2 * len(still) // 3]).save(folder / f"{env_id}.png", optimize=True)
    film = [Image.fromarray(frame) for frame in frames(env_id, size=360)]
    # One palette for all frames, from the last one, which has the whole trail: no flicker, and a small file
    palette = film[-1].quantize(colors=255, method=Image.Quantize.MEDIANCUT)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in film]
    durations = [700, *[100] * (len(film) - 2), 1800]
    first.save(folder / f"{env_id}.gif", save_all=True, append_images=others, duration=durations, loop=0, optimize=True)


def main() -> None:
    folder = DOCS / "environments"
    for env_id in ENVIRONMENTS:
        with (folder / f"{env_id}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(reference_returns(env_id))
        draw(env_id, folder / "images")
    overlay = runpy.run_path(str(DOCS.parent / "examples" / "overlay.py"))["main"]
    for env_id in ("PuddleWorld-v0", "CollectObjects-v0"):
        overlay(env_id=env_id, output=DOCS / "images" / f"overlay-{env_id}.png")


if __name__ == "__main__":
    main()
