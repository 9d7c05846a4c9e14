"""What several test modules share: the ids and variants under test, comparisons, and ways to drive environments."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import dgvf_envs
from dgvf_envs.collect_objects import CollectObjects, CollectObjectsState
from dgvf_envs.collect_objects.grid_map import LAYOUTS
from dgvf_envs.puddle_world import PuddleWorld
from dgvf_envs.puddle_world.dynamics import CapsulePuddle, GaussianPuddle
from tests.oracles import Room, Rooms

ENV_IDS = tuple(dgvf_envs.ENVIRONMENTS)
COLLECT_IDS = tuple(env_id for env_id in ENV_IDS if env_id.startswith("Collect"))
WORLD_IDS = ("PuddleWorld-v0", "CollectObjects-v0")
"""One id of each world."""

SHORT_LIMITS = {
    "PuddleWorld-v0": 45,
    "PuddleWorldSutton-v0": 30,
    "CollectObjects-v0": 24,
    "CollectObjectsOpposite-v0": 36,
    "CollectObjectsSmall-v0": 16,
}
"""Time limits at which `skilled_policy` ends some episodes by reaching the goal and some by running out of time."""

TINY_MAP = ("#####", "#S1 #", "# #2#", "#  S#", "#####")

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{env_id: (env_id, {}) for env_id in ENV_IDS},
    "puddle-random-start": ("PuddleWorld-v0", {"start": "random"}),
    "puddle-none": ("PuddleWorld-v0", {"puddles": "none", "goal": (0.5, 0.9), "goal_threshold": 0.2}),
    "puddle-normal-noise": ("PuddleWorld-v0", {"noise_distribution": "normal", "thrust": 0.1, "reward_scale": 0.1}),
    "puddle-no-noise": ("PuddleWorld-v0", {"noise": 0.0, "stay": False, "start": [0.5, 0.5]}),
    "puddle-gaussian": ("PuddleWorld-v0", {"puddles": [GaussianPuddle(0.5, 0.5, 0.2, 0.1, 3.0)]}),
    "puddle-capsule": ("PuddleWorld-v0", {"puddles": [CapsulePuddle((0.2, 0.2), (0.2, 0.2), 0.3)], "start": "random"}),
    "collect-state": ("CollectObjects-v0", {"observation": "state"}),
    "collect-rgb": ("CollectObjectsSmall-v0", {"observation": "rgb"}),
    "collect-remove": ("CollectObjectsSmall-v0", {"wrong_order": "remove"}),
    "collect-terminate": ("CollectObjectsSmall-v0", {"wrong_order": "terminate", "observation": "state"}),
    "collect-own-map": ("CollectObjects-v0", {"layout": TINY_MAP}),
}
"""Every registered id as it is, and every option at least once."""

AUTORESET_MODES = tuple(AutoresetMode)

each_mode = pytest.mark.parametrize("mode", AUTORESET_MODES, ids=[mode.name for mode in AUTORESET_MODES])
each_world = pytest.mark.parametrize("env_id", WORLD_IDS)
each_variant = pytest.mark.parametrize(("env_id", "options"), VARIANTS.values(), ids=VARIANTS.keys())

Policy = Callable[[Any], np.ndarray]


def registered_world(env_id: str) -> PuddleWorld | CollectObjects:
    """The dynamics that an id is registered with."""
    return (PuddleWorld if env_id.startswith("Puddle") else CollectObjects)(**gym.spec(env_id).kwargs)


def rooms_of(world: CollectObjects) -> Rooms:
    """The literal transcription for a world: the text of its map, and where it says that the objects are."""
    layout = LAYOUTS.get(world.layout, world.layout) if isinstance(world.layout, str) else world.layout
    lines = layout.strip("\n").split("\n") if isinstance(layout, str) else list(layout)
    if world.objects is not None:
        first, second = (tuple(cell) for cell in world.objects)
    elif any("1" in line for line in lines):
        first, second = (
            next((r, line.index(sign)) for r, line in enumerate(lines) if sign in line) for sign in ("1", "2")
        )
    else:
        first, second = (2, 10), (9, 10)
    return Rooms(lines, first, second, world.wrong_order)


def rooms_in(world: CollectObjects, state: CollectObjectsState) -> list[Room]:
    """The states of a batch, one by one, as the transcription has them."""
    cells = [tuple(cell) for cell in world.map.cells[state.agent].tolist()]
    return list(zip(cells, state.first.tolist(), state.second.tolist(), strict=True))


def own_vector_env(env_id: str, n: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any) -> VectorEnv:
    """The id's own vector environment."""
    return gym.make_vec(
        env_id, num_envs=n, vectorization_mode="vector_entry_point", autoreset_mode=mode, **_plain(options)
    )


def sync_vector_env(env_id: str, n: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP, **options: Any) -> VectorEnv:
    """Gymnasium's vector environment over `gym.make`'s scalar ones, time limit included."""
    return SyncVectorEnv([lambda: gym.make(env_id, **_plain(options)) for _ in range(n)], autoreset_mode=mode)


def _plain(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def random_policy(env: gym.Env | VectorEnv, seed: int) -> Policy:
    """Uniformly random actions, in a shape that the environment takes."""
    env.action_space.seed(seed)
    return lambda observation: env.action_space.sample()


def skilled_policy(env_id: str, num_envs: int, seed: int, skill: float = 0.8) -> Policy:
    """Goes for the goal with probability `skill`, else acts at random, so that episodes end in both ways."""
    rng = np.random.default_rng(seed)
    if env_id.startswith("Puddle"):

        def towards_goal(observation: np.ndarray) -> np.ndarray:
            return np.where(rng.random(num_envs) < 0.5, 1, 3)

        actions = 4
    else:
        rooms, actions = rooms_of(registered_world(env_id)), 4
        distances = {True: rooms.distances_from(rooms.first), False: rooms.distances_from(rooms.second)}

        def towards_goal(observation: np.ndarray) -> np.ndarray:
            best = []
            for agent, first, _ in observation:
                cell = tuple(np.argwhere(agent)[0])
                to_go = distances[bool(first.any())]
                best.append(min(range(4), key=lambda action: to_go[rooms.move(cell, action)]))
            return np.array(best)

    return lambda observation: np.where(
        rng.random(num_envs) < skill, towards_goal(observation), rng.integers(actions, size=num_envs)
    )


def episode(env: gym.Env, policy: Policy, seed: int | None, steps: int) -> Iterator[tuple[Any, ...]]:
    """What `reset` and then every `step` returns; resets where an episode ends."""
    result: tuple[Any, ...] = env.reset(seed=seed)
    yield result
    for _ in range(steps):
        result = env.step(policy(result[0]))
        yield result
        if result[2] or result[3]:
            result = env.reset()
            yield result


def assert_same(actual: Any, expected: Any, where: str = "", rtol: float = 0.0) -> None:
    """Equal in structure, types of arrays and values; floating-point values up to `rtol`."""
    if isinstance(expected, dict):
        assert isinstance(actual, dict), where
        assert actual.keys() == expected.keys(), where
        for key in expected:
            assert_same(actual[key], expected[key], f"{where}[{key!r}]", rtol)
    elif isinstance(expected, list | tuple) or (isinstance(expected, np.ndarray) and expected.dtype == object):
        assert len(actual) == len(expected), where
        for i, (one, other) in enumerate(zip(actual, expected, strict=True)):
            assert_same(one, other, f"{where}[{i}]", rtol)
    elif isinstance(expected, np.ndarray):
        assert actual.dtype == expected.dtype, f"{where}: {actual.dtype} is not {expected.dtype}"
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=0.0, err_msg=where, strict=True)
    elif isinstance(expected, float):
        assert actual == expected or abs(actual - expected) <= rtol * abs(expected), f"{where}: {actual}, {expected}"
    else:
        assert type(actual) is type(expected), f"{where}: {actual!r}, {expected!r}"
        assert actual == expected, where


def flat(result: Any) -> Any:
    """A deep copy made of plain arrays, to compare with later."""
    if isinstance(result, dict):
        return {key: flat(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return tuple(flat(value) for value in result)
    return np.array(result) if isinstance(result, np.ndarray) else result


def run_python(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, and what it prints."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, **options)


@cache
def example_module(name: str) -> ModuleType:
    """The module of an example, which registers its environments once."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[1] / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where a dataclass looks its annotations up
    spec.loader.exec_module(module)
    return module


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """The lines of the message of a command that `dgvf` refuses."""
    from dgvf_agents.cli import main

    capsys.readouterr()  # what was shown before
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    return capsys.readouterr().err.splitlines()


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The message on one line."""
    return " ".join(" ".join(refusal(capsys, *arguments)).replace("\u2502", " ").split())


class Traveller(gym.Env):
    """A small environment with everything that infos and observations may hold."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    observation_space = gym.spaces.Dict(
        {"place": gym.spaces.Box(-1, 1, (2,), np.float32), "fuel": gym.spaces.Box(0, 9, (1,), np.int64)}
    )
    action_space = gym.spaces.Discrete(3)

    def __init__(self, speed: float = 0.1, render_mode: str | None = None) -> None:
        self.speed, self.render_mode = speed, render_mode
        self.calls: list[int] = []
        self.options: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.options.append(options)
        self.place, self.fuel = self.np_random.uniform(-1, 1, 2).astype(np.float32), int(self.np_random.integers(4, 10))
        return self.observation(), {"tank": self.fuel, "port": f"port {self.fuel}", "at": self.place.copy()}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = np.clip(self.place + np.float32(self.speed) * (action - 1), -1, 1).astype(np.float32)
        self.fuel -= 1
        wrecked = bool(self.np_random.random() < 0.1)
        info: dict[str, Any] = {"fuel": self.fuel, "log": {"x": float(self.place[0]), "at": self.place.copy()}}
        if action == 2:
            info["note"] = f"full speed, {self.fuel} left"
        return self.observation(), float(self.place.sum()), wrecked, self.fuel == 0, info

    def observation(self) -> dict[str, np.ndarray]:
        return {"place": self.place.copy(), "fuel": np.array([self.fuel])}

    def get_state(self) -> dict[str, Any]:
        return {"place": self.place.copy(), "fuel": self.fuel, "generator": self.np_random.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        self.place, self.fuel = state["place"].copy(), state["fuel"]
        self.np_random.bit_generator.state = state["generator"]

    def refuel(self, amount: int, extra: int = 0) -> int:
        self.calls.append(amount + extra)
        return self.fuel + amount + extra

    def render(self) -> np.ndarray:
        return np.full((4, 6, 3), self.fuel, dtype=np.uint8)
