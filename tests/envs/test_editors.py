"""What an editor knows of the environments' constructors, without running them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import jedi
import pytest

COMMON = {"render_mode": "str | None", "screen_size": "int"}
OF_VECTORS = {**COMMON, "num_envs": "int", "max_episode_steps": "int | None", "autoreset_mode": "AutoresetMode | str"}
PUDDLE_WORLD = {
    "start": "Start",
    "noise": "float",
    "noise_distribution": "NoiseDistribution",
    "puddles": "Sequence[Puddle] | str",
    "goal": "tuple[float, float]",
    "goal_threshold": "float",
    "thrust": "float",
    "stay": "bool",
    "reward_scale": "float",
}
COLLECT_OBJECTS = {
    "layout": "str | Sequence[str]",
    "objects": "tuple[Cell, Cell] | None",
    "observation": "Observation",
    "wrong_order": "WrongOrder",
}


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("puddle_world", "PuddleWorldEnv", {**PUDDLE_WORLD, **COMMON}),
        ("puddle_world", "PuddleWorldVectorEnv", {**PUDDLE_WORLD, **OF_VECTORS}),
        ("collect_objects", "CollectObjectsEnv", {**COLLECT_OBJECTS, **COMMON}),
        ("collect_objects", "CollectObjectsVectorEnv", {**COLLECT_OBJECTS, **OF_VECTORS}),
    ],
)
def test_constructors_complete(module: str, name: str, arguments: Mapping[str, str]) -> None:
    """Every keyword with its type, through the decorator that checks keywords."""
    script = jedi.Script(f"from dgvf_envs.{module} import {name}\n{name}(")
    (signature,) = script.get_signatures()
    shown = {parameter.name: parameter.description for parameter in signature.params if parameter.name != "*"}
    types = {name: description.partition(": ")[2].partition("=")[0] for name, description in shown.items()}
    assert types == arguments
    completed = {completion.name.removesuffix("=") for completion in script.complete()}
    assert set(arguments) <= completed


@pytest.mark.parametrize("package", ["dgvf_agents", "dgvf_envs"])
def test_packages_say_that_they_are_typed(package: str) -> None:
    assert files(package).joinpath("py.typed").is_file()
