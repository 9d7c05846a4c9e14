"""Generate the page of every registered environment from its docstring and `environments/reference.json`.

`--check` fails if the committed pages are out of date; `--reference` and `--pictures` first regenerate the numbers and
the pictures.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import runpy
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import gymnasium as gym
import numpy as np
from atari_page import atari_page
from generated import DOCS, check, table, write
from gymnasium.vector import AutoresetMode
from PIL import Image

from dgvf_envs import ENVIRONMENTS
from dgvf_envs.collect_objects import CollectObjects, CollectObjectsState
from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from dgvf_envs.planning import expected_return, plan_puddle_world
from dgvf_envs.puddle_world import PuddleWorld, PuddleWorldState

PAGES = DOCS / "environments"
REFERENCE = PAGES / "reference.json"
OVERLAYS = [DOCS / "images" / f"overlay-{env_id}.png" for env_id in ("PuddleWorld-v0", "CollectObjects-v0")]
COMMAND = "python docs/generate_environment_pages.py --reference --pictures"
SEED = 0
EPISODES = 4096
"""Simulated episodes of each policy."""
DISCOUNT = 0.99
RESOLUTION = 101
"""Grid points per axis of value iteration."""

Policy = Callable[[Any], np.ndarray]
"""Actions `[B]` for a batch of states."""


# ---------------------------------------------------------------------------------------------------------------------
# Policies


def good_policy(world: CollectObjects | PuddleWorld) -> Policy:
    """A policy that solves the task: value iteration in PuddleWorld, shortest paths in Collect-Objects."""
    if isinstance(world, CollectObjects):
        return lambda state: _shortest_path_action(world, state)
    return plan_puddle_world(_with_uniform_noise(world), RESOLUTION).act


def state_of(world: CollectObjects | PuddleWorld, observations: np.ndarray) -> CollectObjectsState | PuddleWorldState:
    """The states `[B]` for observations `[B, ...]` of the registered environments."""
    if isinstance(world, PuddleWorld):
        return PuddleWorldState(*observations.T)
    agent, first, second = observations.reshape(len(observations), 3, -1).swapaxes(0, 1)
    return CollectObjectsState(world.map.index.ravel()[agent.argmax(axis=1)], first.any(axis=1), second.any(axis=1))


def _with_uniform_noise(world: PuddleWorld) -> PuddleWorld:
    """The same dynamics, with normal noise replaced by uniform noise of the same variance."""
    if world.noise_distribution == "uniform":
        return world
    return PuddleWorld(
        start=world.start,
        noise=world.noise * 3.0**0.5,
        puddles=world.puddles,
        goal=world.goal,
        goal_threshold=world.goal_threshold,
        thrust=world.thrust,
        reward_scale=world.reward_scale,
        stay=world.stay,
    )


def _shortest_path_action(world: CollectObjects, state: CollectObjectsState) -> np.ndarray:
    target = np.where(state.first, world.first_cell, world.second_cell)
    return world.map.distances[world.map.next_cell[state.agent], target[:, None]].argmin(axis=1)


# ---------------------------------------------------------------------------------------------------------------------
# Reference numbers


def reference_numbers(env_id: str) -> dict[str, Any]:
    """The returns of good and random policies in one environment."""
    env = gym.make(env_id)
    world, horizon = env.get_wrapper_attr("dynamics"), _time_limit(env_id)
    if isinstance(world, CollectObjects):
        starts, first, second = world.constants.starts, world.first_cell, world.second_cell
        moves = world.map.distances[starts, first] + world.map.distances[first, second]
        return {
            "optimal_return": expected_return(world, "optimal", horizon),
            "optimal_discounted_return": expected_return(world, "optimal", horizon, DISCOUNT),
            "random_return": expected_return(world, "random", horizon),
            "random_discounted_return": expected_return(world, "random", horizon, DISCOUNT),
            "mean_path": float(moves.mean()),
            "longest_path": int(moves.max()),
            "starts": len(starts),
        }
    numbers: dict[str, Any] = {"planned": simulate(env_id, good_policy(world)), "random": simulate(env_id, None)}
    if world.noise_distribution == "uniform":
        plan = plan_puddle_world(world, RESOLUTION)
        start = world.reset(np.zeros((1, world.reset_draws)))
        numbers["value_iteration"] = float(plan.action_values(start).max())
    return numbers


def simulate(env_id: str, policy: Policy | None) -> dict[str, float]:
    """Undiscounted returns of `EPISODES` episodes with a policy, or with a random one if `None`.

    Each environment plays one episode, so that short episodes are not overrepresented.
    """
    envs = gym.make_vec(env_id, num_envs=EPISODES, autoreset_mode=AutoresetMode.NEXT_STEP)
    assert isinstance(envs, DynamicsVectorEnv)
    world: Any = envs.dynamics
    envs.action_space.seed(SEED)
    observations, _ = envs.reset(seed=SEED)
    returns, lengths, running = np.zeros(EPISODES), np.zeros(EPISODES), np.ones(EPISODES, dtype=bool)
    solved = np.zeros(EPISODES, dtype=bool)
    while running.any():
        actions = envs.action_space.sample() if policy is None else policy(state_of(world, observations))
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        returns += rewards * running
        lengths += running
        solved |= running & terminated
        running &= ~(terminated | truncated)
    envs.close()
    return {
        "return": float(returns.mean()),
        "standard_error": float(returns.std(ddof=1) / np.sqrt(EPISODES)),
        "length": float(lengths.mean()),
        "solved": float(solved.mean()),
    }


def reference() -> dict[str, Any]:
    """The content of `reference.json`."""
    packages = ("dgvf", "gymnasium", "numpy")
    return {
        "command": COMMAND,
        "settings": {"episodes": EPISODES, "seed": SEED, "discount": DISCOUNT, "resolution": RESOLUTION},
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "environments": {env_id: reference_numbers(env_id) for env_id in ENVIRONMENTS},
    }


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


def draw_pictures(env_id: str) -> None:
    """Draw a PNG from the middle of an episode with a good policy, and a GIF of the whole episode."""
    still = frames(env_id, size=600)
    Image.fromarray(still[2 * len(still) // 3]).save(picture(env_id, "png"), optimize=True)
    film = [Image.fromarray(frame) for frame in frames(env_id, size=360)]
    # One palette for all frames, from the last one, which has the whole trail: no flicker, and a small file
    palette = film[-1].quantize(colors=255, method=Image.Quantize.MEDIANCUT)
    film = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in film]
    durations = [700, *[100] * (len(film) - 2), 1800]
    film[0].save(
        picture(env_id, "gif"), save_all=True, append_images=film[1:], duration=durations, loop=0, optimize=True
    )


def draw_overlays() -> None:
    """Draw the pictures in `rendering.md` with its own example."""
    draw = runpy.run_path(str(DOCS.parent / "examples" / "overlay.py"))["main"]
    for path in OVERLAYS:
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(env_id=path.stem.removeprefix("overlay-"), output=path)


def frames(env_id: str, size: int) -> list[Any]:
    """The pictures `[H, W, 3]` of one episode with a good policy."""
    env = gym.make(env_id, render_mode="rgb_array", screen_size=size)
    world = env.get_wrapper_attr("dynamics")
    policy = good_policy(world)
    observation, _ = env.reset(seed=SEED)
    pictures, over = [env.render()], False
    while not over:
        observation, _, terminated, truncated, _ = env.step(policy(state_of(world, observation[None]))[0])
        pictures.append(env.render())
        over = terminated or truncated
    env.close()
    return pictures


def picture(env_id: str, ending: str) -> Path:
    """The path of a picture."""
    return PAGES / "images" / f"{env_id}.{ending}"


# ---------------------------------------------------------------------------------------------------------------------
# Pages


def page(env_id: str, numbers: dict[str, Any], settings: dict[str, Any]) -> str:
    """The Markdown of one environment's page."""
    env = gym.make(env_id)
    class_ = type(env.unwrapped)
    facts = [
        ("Make", f'`gymnasium.make("{env_id}")` after `import dgvf_envs`'),
        ("Action space", f"`{env.action_space}`"),
        ("Observation space", f"`{_space(env.observation_space)}`"),
        ("Time limit", f"{_time_limit(env_id)} steps"),
        ("Class", f"[`{class_.__module__}.{class_.__name__}`](../api/{class_.__module__.split('.')[1]}.md)"),
    ]
    kwargs = ENVIRONMENTS[env_id].get("kwargs", {})
    if kwargs:
        facts.insert(1, ("Registered with", ", ".join(f"`{name}={value!r}`" for name, value in kwargs.items())))
    note = "The following describes the environment with its default arguments.\n\n" if kwargs else ""
    description, history, versions = (inspect.getdoc(class_) or "").partition("## Version History")
    return f"""<!-- Generated by docs/generate_environment_pages.py from the docstring of {class_.__name__}. -->

# {env_id}

![An episode of {env_id} with a good policy](images/{env_id}.gif)

{table(("", ""), facts)}

{note}{description}## Reference Returns

{_reference_section(numbers, settings)}

{history}{versions}
"""


def _time_limit(env_id: str) -> int:
    limit = gym.spec(env_id).max_episode_steps
    assert limit is not None
    return limit


def _space(space: gym.Space) -> str:
    if isinstance(space, gym.spaces.MultiBinary):
        return f"MultiBinary({space.shape})"
    return str(space)


def _reference_section(numbers: dict[str, Any], settings: dict[str, Any]) -> str:
    section = _exact_section if "mean_path" in numbers else _simulated_section
    source = "Generated by `make docs-data`; [reference.json](reference.json) has the versions and all digits."
    return f"{section(numbers, settings)}{source}"


def _exact_section(numbers: dict[str, Any], settings: dict[str, Any]) -> str:
    rows = [
        (name, f"{numbers[f'{policy}_return']:.3f}", f"{numbers[f'{policy}_discounted_return']:.3f}")
        for name, policy in (("optimal", "optimal"), ("uniform random", "random"))
    ]
    returns = table(("Policy", "Expected return", f"Discounted by {settings['discount']}"), rows, right=(1, 2))
    return (
        f"Exact expectations over the {numbers['starts']} starting cells, computed by backward induction over the "
        f"time limit.\n\n{returns}\n\nA shortest path takes {numbers['mean_path']:.1f} moves on average and "
        f"{numbers['longest_path']} at most. "
    )


def _simulated_section(numbers: dict[str, Any], settings: dict[str, Any]) -> str:
    rows = []
    if "value_iteration" in numbers:
        name = f"optimal, value iteration on {settings['resolution']}² points"
        rows.append((name, f"{numbers['value_iteration']:.2f}", "", ""))
        planned = "optimal, simulated"
    else:
        planned = "planned for uniform noise of the same variance, simulated"
    for name, run in ((planned, numbers["planned"]), ("uniform random, simulated", numbers["random"])):
        mean, error = f"{run['return']:,.2f}", f"{run['standard_error']:,.2f}"
        rows.append((name, f"{mean} ± {error}", f"{run['length']:,.1f}", f"{100 * run['solved']:.1f}%"))
    returns = table(("Policy", "Return", "Mean length", "Goal reached"), rows, right=(1, 2, 3))
    return (
        f"Undiscounted returns; simulations over {settings['episodes']:,} episodes, ± one standard error.\n\n"
        f"{returns}\n\n"
    )


def index() -> str:
    """The Markdown of the index page."""
    links = "\n".join([*ENVIRONMENTS, "Atari"])
    rows = [(f"[{env_id}]({env_id}.md)", f"![{env_id}](images/{env_id}.png)") for env_id in ENVIRONMENTS]
    grid = table(
        ("Environment", ""), [*rows, ("[Atari](Atari.md)", "57 games with the paper's preset or a modern one")]
    )
    return f"""<!-- Generated by docs/generate_environment_pages.py. -->

# Environments

{grid}

```{{toctree}}
:hidden:

{links}
```
"""


def pages() -> dict[Path, str]:
    """All pages that this script generates."""
    known = json.loads(REFERENCE.read_text(encoding="utf-8"))
    numbers, settings = known["environments"], known["settings"]
    return {PAGES / f"{env_id}.md": page(env_id, numbers[env_id], settings) for env_id in ENVIRONMENTS} | {
        PAGES / "index.md": index(),
        PAGES / "Atari.md": atari_page(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail unless the pages are up to date; write nothing")
    parser.add_argument("--reference", action="store_true", help="regenerate the reference numbers")
    parser.add_argument("--pictures", action="store_true", help="regenerate the pictures")
    arguments = parser.parse_args()
    if arguments.check:
        pictures = [picture(env_id, ending) for env_id in ENVIRONMENTS for ending in ("png", "gif")]
        check(pages(), COMMAND, [*pictures, *OVERLAYS])
        return
    if arguments.reference:
        write({REFERENCE: json.dumps(reference(), indent=1) + "\n"})
    if arguments.pictures:
        (PAGES / "images").mkdir(parents=True, exist_ok=True)
        for env_id in ENVIRONMENTS:
            draw_pictures(env_id)
        draw_overlays()
    write(pages())


if __name__ == "__main__":
    main()
