"""Use the installed packages as a user would, and write what was used as JSON.

`check_wheel.py` runs this in environments that hold the wheel and what it depends on, nothing else, so this imports no
tool of the tests.

    python try_wheel.py REPORT

writes the versions in this environment and the first failure to the file REPORT. Works in the current folder.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import platform
import subprocess
import sys
import sysconfig
import traceback
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

PACKAGES = ("dgvf_agents", "dgvf_envs")
LIBRARIES = ("torch", "gymnasium", "stable-baselines3", "numpy", "scipy", "pandas", "matplotlib", "ale-py", "tyro")
"""Those whose versions are reported."""
EXTRAS = ("cv2", "jax", "minigrid", "moviepy", "optuna", "ray", "rl_zoo3")
"""Modules that come with an extra, which this environment lacks."""
STEPS = 50
"""Steps in every environment."""


def try_installed_files() -> None:
    """Both packages come from this environment, with their types and templates."""
    for name in PACKAGES:
        folder = Path(importlib.import_module(name).__file__).resolve().parent
        if not folder.is_relative_to(Path(sys.prefix).resolve()):
            raise AssertionError(f"{name} was imported from {folder}, not from this environment")
        assert (folder / "py.typed").is_file(), f"{name} has no py.typed"
    recorded = distribution("dgvf").files or []
    suffixes = {path.suffix for path in recorded if "templates" in path.parts}
    assert suffixes == {".css", ".html", ".js", ".txt"}, suffixes
    assert all(path.locate().is_file() for path in recorded)


def try_every_module() -> None:
    """Every module can be imported, unless it asks for an extra."""
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            import_unless_extra(module.name)


def import_unless_extra(name: str) -> None:
    """Import a module, unless it asks for an extra."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise


def try_environments() -> None:
    """Every registered id, alone and as a vector environment, drawn, and by its name with the package's."""
    from dgvf_envs import ENVIRONMENTS

    for name in ENVIRONMENTS:
        env = gym.make(f"dgvf_envs:{name}", render_mode="rgb_array", screen_size=64)
        observation, _ = env.reset(seed=0)
        for _ in range(STEPS):
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            assert observation in env.observation_space
            if terminated or truncated:
                env.reset()
        assert np.asarray(env.render()).dtype == np.uint8
        env.close()
        envs = gym.make_vec(name, num_envs=8)
        envs.reset(seed=0)
        for _ in range(STEPS):
            observations, *_ = envs.step(envs.action_space.sample())
        assert observations in envs.observation_space
        envs.close()


def try_atari() -> None:
    """A game that comes with ale-py."""
    from dgvf_envs.atari import make_atari_vec

    envs = make_atari_vec("Breakout", 2)
    envs.reset(seed=0)
    for _ in range(STEPS):
        observations, rewards, *_ = envs.step(envs.action_space.sample())
    assert observations.shape == (2, 4, 84, 84)
    assert rewards.shape == (2,)
    envs.close()


def try_stable_baselines() -> None:
    """Its A2C on a vector environment of ours."""
    from stable_baselines3 import A2C

    from dgvf_envs.sb3_adapter import make_vec

    A2C("MlpPolicy", make_vec("dgvf_envs:CollectObjectsSmall-v0", n_envs=4, seed=0)).learn(200)


def try_command() -> None:
    """`dgvf` says its version and helps."""
    assert dgvf("--version").split() == ["dgvf", version("dgvf")]
    assert "train" in dgvf("--help")


def try_run() -> None:
    """A run is trained, evaluated and explained."""
    options = ("--steps", "2_000", "--compile", "False", "--out", "run")
    dgvf("train", "collect-objects-small", "discovered", *options)
    files = {path.name.partition(".")[0] for path in Path("run").iterdir()}
    assert files >= {"config", "origin", "progress", "checkpoints", "learning-curve", "events"}, files
    assert json.loads(Path("run/origin.json").read_text())[0]["code"] is None, "the code is not the installed one"
    dgvf("evaluate", "run", "--episodes", "2")
    dgvf("atlas", "run")
    assert "<html" in Path("run/atlas/index.html").read_text(encoding="utf-8")


def try_compiled_agent() -> None:
    """An agent learns with compiled updates, is saved and loaded, and acts as before."""
    from dgvf_agents import DGVFA2C

    model = DGVFA2C(
        "MlpPolicy", "CartPole-v1", auxiliary_task="discovered", n_envs=2, seed=0, compile=True, device="cpu"
    )
    model.learn(1_000)
    assert model.compilation.mode is True, "updates could not be compiled"
    model.save("cartpole")
    loaded = DGVFA2C.load("cartpole", env=model.get_env(), device="cpu")
    observations = model.get_env().reset()
    actions, _ = model.predict(observations, deterministic=True)
    assert np.array_equal(loaded.predict(observations, deterministic=True)[0], actions)
    loaded.learn(100, reset_num_timesteps=False)


def try_ppo_on_a_vector_environment() -> None:
    """PPO learns with an auxiliary task on Gymnasium's own vector environment."""
    from dgvf_agents import DGVFPPO

    envs = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    model = DGVFPPO("MlpPolicy", envs, auxiliary_task="random", n_steps=64, seed=0, device="cpu")
    before = model.learner.theta["answers.weight"].clone()
    model.learn(256)
    assert not np.array_equal(model.learner.theta["answers.weight"], before)


PARTS = [part for name, part in globals().items() if name.startswith("try_")]


def dgvf(*arguments: str) -> str:
    """What the installed command prints.

    Raises:
        RuntimeError: it fails.
    """
    command = Path(sysconfig.get_path("scripts")) / "dgvf"
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"dgvf {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def report() -> dict[str, Any]:
    """What was used, and what failed."""
    failure = None
    for part in PARTS:
        print(f"  {part.__name__}", flush=True)
        try:
            part()
        except Exception:
            failure = f"{part.__name__}: {traceback.format_exc()}"
            break
    versions = {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}
    return {"versions": versions, "failure": failure}


def main() -> None:
    found = report()
    Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
    if found["failure"]:
        sys.exit(found["failure"])


if __name__ == "__main__":
    main()
