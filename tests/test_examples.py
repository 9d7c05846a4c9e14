"""Every example runs, with tiny settings, and so does every block of Python in the README and the documentation."""

import math
import re
import runpy
from pathlib import Path

import numpy as np
import pygame
import pytest

from dgvf_envs import ENVIRONMENTS

ROOT = Path(__file__).resolve().parents[1]


def example(name):
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["main"]


def test_every_example_is_tested():
    tested = {"overlay", "own_task", "play", "train_discovered", "train_sb3_a2c", "vector_env", "watch_random"}
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == tested


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_watch_random(env_id):
    returns = example("watch_random")(env_id, episodes=2, steps=3)
    assert len(returns) == 2
    assert all(math.isfinite(r) for r in returns)


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_vector_env(env_id, capsys):
    mean = example("vector_env")(env_id, num_envs=4, steps=90)
    ended = int(capsys.readouterr().out.split()[0])
    assert math.isnan(mean) if ended == 0 else math.isfinite(mean)
    if env_id.startswith("Collect"):
        assert ended >= 4 * (90 // 40)


def test_train_sb3_a2c():
    assert 0.0 <= example("train_sb3_a2c")(n_envs=2, steps=20, episodes=3) <= 3.0


def test_own_task():
    assert example("own_task")(steps=400, compile=False) > 0.0


def test_train_discovered(tmp_path, capsys):
    mean = example("train_discovered")(steps=1_200, file=tmp_path / "model.zip", compile=False, questions=4)
    assert 0.0 <= mean <= 3.0


@pytest.mark.parametrize("env_id", ["CollectObjects-v0", "CollectObjectsSmall-v0", "PuddleWorld-v0"])
def test_overlay(env_id, tmp_path):
    output = tmp_path / "overlay.png"
    picture = example("overlay")(env_id, steps=1, size=100, output=output)
    assert picture.shape == (100, 142, 3)
    saved = pygame.surfarray.array3d(pygame.image.load(output)).swapaxes(0, 1)
    np.testing.assert_array_equal(saved, picture)


@pytest.mark.filterwarnings("ignore:.*matplotlib is not installed")  # Gymnasium would plot with it while one plays
@pytest.mark.parametrize("env_id", ["CollectObjects-v0", "PuddleWorld-v0", "PuddleWorldSutton-v0"])
def test_play(env_id, monkeypatch):
    keys = [
        pygame.event.Event(kind, key=key) for key in (pygame.K_UP, ord("a")) for kind in (pygame.KEYDOWN, pygame.KEYUP)
    ]
    batches = iter([[event] for event in [*keys, pygame.event.Event(pygame.QUIT)]])
    monkeypatch.setattr(pygame.event, "get", lambda: next(batches))
    example("play")(env_id)
    assert next(batches, None) is None


def python_blocks():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if "_build" not in path.parts:
            for block in re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S):
                yield pytest.param(block, id=f"{path.relative_to(ROOT)}: {block.splitlines()[0]}")


@pytest.mark.parametrize("block", list(python_blocks()))
def test_documentation_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "documentation", "exec"), {})
