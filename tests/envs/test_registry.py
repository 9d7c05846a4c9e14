from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env

import dgvf_envs
from dgvf_envs.collect_objects import CollectObjects, CollectObjectsEnv
from dgvf_envs.functional.env import DynamicsEnv
from dgvf_envs.puddle_world import PuddleWorld, PuddleWorldEnv
from tests.helpers import (
    COLLECT_IDS,
    ENV_IDS,
    assert_same,
    each_variant,
    episode,
    flat,
    random_policy,
    registered_world,
    run_python,
)

each_id = pytest.mark.parametrize("env_id", ENV_IDS)


@each_variant
def test_gymnasiums_checker_is_content(env_id: str, options: dict[str, Any]) -> None:
    """Without a warning (they are errors here); opens a window, and renders arrays, by the spec's own means."""
    gymnasium_check_env(gym.make(env_id, screen_size=64, **options).unwrapped)


@each_variant
def test_stable_baselines_checker_is_content(env_id: str, options: dict[str, Any]) -> None:
    env = gym.make(env_id, render_mode="rgb_array", screen_size=64, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sb3_check_env(env, warn=True, skip_render_check=False)
    small = "minimal resolution for an image is 36x36"  # one pixel a cell is what these pictures are for
    expected = [small] if options.get("observation") == "rgb" else []
    for warning, message in zip(caught, expected, strict=True):
        assert message in str(warning.message)


@each_variant
def test_a_spec_makes_the_same_environment_again(env_id: str, options: dict[str, Any]) -> None:
    env = gym.make(env_id, max_episode_steps=6, **options)
    twins = [gym.make(env.spec)]
    if not any(dataclasses.is_dataclass(puddle) for puddle in options.get("puddles", ())):  # JSON has no records
        twins.append(gym.make(EnvSpec.from_json(env.spec.to_json())))
    results = [flat(result) for result in episode(env, random_policy(env, seed=0), seed=3, steps=20)]
    for twin in twins:
        assert twin.unwrapped.observation_space == env.unwrapped.observation_space
        assert_same([flat(r) for r in episode(twin, random_policy(twin, seed=0), seed=3, steps=20)], results)


@each_id
def test_the_registered_time_limits_are_the_papers(env_id: str) -> None:
    limit = 40 if env_id in COLLECT_IDS else 5000
    assert gym.spec(env_id).max_episode_steps == limit
    assert gym.make_vec(env_id).max_episode_steps == limit


def test_registration_may_be_repeated() -> None:
    before = {env_id: gym.registry[env_id] for env_id in ENV_IDS}
    importlib.reload(dgvf_envs)
    assert {env_id: gym.registry[env_id] for env_id in ENV_IDS} == before


def test_gym_make_imports_the_package_and_little_else() -> None:
    """In a fresh interpreter; nothing that draws or learns is loaded by an environment that does neither."""
    program = (
        "import sys, gymnasium\n"
        "env = gymnasium.make('dgvf_envs:PuddleWorld-v0')\n"
        "env.reset(seed=0), env.step(1)\n"
        "assert 'scipy' not in sys.modules\n"  # slower to import than everything else here
        "gymnasium.make_vec('dgvf_envs:CollectObjects-v0', num_envs=2).reset(seed=0)\n"
        "print([name for name in ('pygame', 'torch', 'stable_baselines3', 'dgvf_agents') if name in sys.modules])\n"
    )
    done = run_python("-W", "error", "-c", program)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("env_class", "world"), [(PuddleWorldEnv, PuddleWorld), (CollectObjectsEnv, CollectObjects)])
def test_documented_arguments_and_defaults_are_the_codes(env_class: type[DynamicsEnv], world: type) -> None:
    """The table of arguments, from which the documentation is made."""
    table = inspect.getdoc(env_class).partition("## Arguments")[2].partition("##")[0]
    documented = dict(re.findall(r"^\| `(\w+)` \| `(.+?)` \|", table, flags=re.MULTILINE))
    defaults = {field.name: field.default for field in dataclasses.fields(world) if field.init}
    if world is CollectObjects:
        defaults["objects"] = ((2, 10), (9, 10))  # of the default map, which has no signs for them
    defaults["screen_size"] = inspect.signature(env_class).parameters["screen_size"].default
    defaults["max_episode_steps"] = gym.spec(ENV_IDS[0] if world is PuddleWorld else COLLECT_IDS[0]).max_episode_steps
    assert {name: ast.literal_eval(value) for name, value in documented.items()} == defaults


@each_id
@pytest.mark.parametrize("make", [gym.make, gym.make_vec], ids=["make", "make_vec"])
def test_unknown_arguments_are_named_with_the_valid_ones(env_id: str, make: Callable[..., Any]) -> None:
    name, near = ("nois", "noise") if env_id.startswith("Puddle") else ("layouts", "layout")
    with pytest.raises(TypeError, match=rf"unexpected keyword argument {name}=0\.1; did you mean '{near}'\?") as caught:
        make(env_id, **{name: 0.1})
    assert {field.name for field in dataclasses.fields(registered_world(env_id)) if field.init} <= set(
        re.findall(r"\w+", str(caught.value))
    )
