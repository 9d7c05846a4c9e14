"""Kills training runs with SIGKILL again and again and resumes them; a script, since it forks.

python -m tests.kill_harness FOLDER KILLS SEED

One run is left alone. Others with the same configuration are killed after random times, and, every other time, while a
checkpoint is being written: with half of it written, before it reaches the disk, before and after it takes its name.
Prints how many kills there were, where, and in what files the runs differ from the one left alone.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # loaded before forking: Adam would import it in every child

import dgvf_envs.puddle_world  # noqa: F401, loaded before forking
from dgvf_agents.storage import files
from dgvf_agents.storage.model_file import ModelFile
from dgvf_agents.train import train as training
from dgvf_agents.train.folder import STEPS
from tests.run_folders import tiny_config

STAGES = ("half written", "written", "on disk", "renamed")
OWN = {"start_time", "seconds"}
"""Attributes that differ between any two runs."""


CONFIG = tiny_config(
    env="PuddleWorld-v0",
    env_kwargs={"start": "random", "max_episode_steps": 40, "reward_scale": 0.1},
    evaluation_kwargs={"max_episode_steps": 20},
    policy="MlpPolicy",
    steps=1000,
    learning_rate=1e-3,
    final_learning_rate=1e-4,
    checkpoint_every=100,
    log_every=160,
    evaluate_every=260,
)


def child(run: Path, stage: str | None, tell: int) -> int:
    """Fork a process that trains, and says on the pipe `tell` when it is at `stage` of writing a checkpoint."""
    pid = os.fork()
    if pid:
        return pid
    try:
        if stage is not None:
            _stop_at(stage, tell)
        warnings.simplefilter("error", UserWarning)
        training.plot_learning_curve = lambda *arguments, **options: None  # most of the time of so short a run
        training.train(CONFIG, run, show_progress=False, resume=True)
        os._exit(0)
    except BaseException as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        os._exit(1)


def _stop_at(stage: str, tell: int) -> None:
    def here(path: Any) -> None:
        if "checkpoints" in str(path):
            os.write(tell, b"!")
            time.sleep(60)

    reach_disk, replace, write_bytes = files._reach_disk, os.replace, Path.write_bytes

    def slow_reach_disk(path: Path) -> None:
        if (stage == "written" and path.is_file()) or (stage == "renamed" and path.is_dir()):
            here(path)
        reach_disk(path)

    def slow_replace(source: Any, target: Any) -> None:
        if stage == "on disk":
            here(target)
        replace(source, target)

    def slow_write_bytes(path: Path, contents: bytes) -> int:
        if stage == "half written" and "checkpoints" in str(path):
            write_bytes(path, contents[: len(contents) // 2])
            here(path)
        return write_bytes(path, contents)

    files._reach_disk, os.replace = slow_reach_disk, slow_replace
    Path.write_bytes = slow_write_bytes  # type: ignore[method-assign]


def attack(run: Path, stage: str | None, seconds: float) -> str | None:
    """Train in another process and kill it; says where, or None where it finished first."""
    ours, theirs = os.pipe()
    pid = child(run, stage, theirs)
    os.close(theirs)
    try:
        said = select.select([ours], [], [], 600 if stage is not None else seconds)[0]
        where = stage if said and os.read(ours, 1) else "anywhere"
        os.kill(pid, signal.SIGKILL)
    finally:
        os.close(ours)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return where
    if os.WEXITSTATUS(status):
        raise SystemExit(f"a run failed with status {os.WEXITSTATUS(status)}")
    return None


def finish(run: Path) -> float:
    start = time.perf_counter()
    _, status = os.waitpid(child(run, None, 1), 0)
    if status:
        raise SystemExit(f"a run failed with status {status}")
    return time.perf_counter() - start


def differences(one: Path, other: Path) -> list[str]:
    """Files and values that differ between two runs, times aside."""
    found = [] if _rows(one) == _rows(other) else ["progress.csv"]
    files = [run / "evaluations.csv.gz" for run in (one, other)]
    episodes = [file.read_bytes() if file.is_file() else None for file in files]  # some runs are not evaluated
    if episodes[0] != episodes[1]:
        found.append("evaluations.csv.gz")
    names = [sorted(file.name for file in (run / "checkpoints").iterdir()) for run in (one, other)]
    if names[0] != names[1]:
        return [*found, f"checkpoints {names}"]
    for name in names[0]:
        files = [ModelFile.from_bytes((run / "checkpoints" / name).read_bytes()) for run in (one, other)]
        documents = [json.dumps(_comparable(file.document)) for file in files]
        if documents[0] != documents[1]:
            found.append(f"{name} model.json")
        if files[0].tensors.keys() != files[1].tensors.keys():
            found.append(f"{name} tensors")
        for key, tensor in files[0].tensors.items():
            if not np.array_equal(tensor.numpy(), files[1].tensors[key].numpy(), equal_nan=True):
                found.append(f"{name} {key}")
    return found


def _rows(run: Path) -> list[list[str]]:
    lines = [line.split(",") for line in (run / "progress.csv").read_text().splitlines()]
    timed = [i for i, column in enumerate(lines[0]) if column.startswith("time/") and column != STEPS]
    return [[value for i, value in enumerate(line) if i not in timed] for line in lines]


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    attributes = {name: value for name, value in document["attributes"].items() if name not in OWN}
    attributes["observation_space"]["generator"] = None  # nobody seeds it
    for episode in attributes["ep_info_buffer"]["items"]:
        del episode["t"]
    return {**document, "attributes": attributes}


def main(folder: Path, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    rng = random.Random(seed)
    seconds = finish(folder / "alone")
    places: Counter[str] = Counter()
    runs, different = 0, []
    while places.total() < kills:
        run, runs = folder / f"victim-{runs}", runs + 1
        for _ in range(5):  # more would only begin the same steps again and again
            stage = rng.choice(STAGES) if places.total() % 2 else None
            where = attack(run, stage, rng.uniform(0.0, seconds))
            if where is None or places.total() + 1 >= kills:
                places.update([] if where is None else [where])
                break
            places[where] += 1
        finish(run)
        different += [f"{run.name}: {found}" for found in differences(folder / "alone", run)]
        left = [str(file) for file in run.rglob("*.tmp*")]
        different += [f"{run.name}: {left} left"] if left else []
    print(json.dumps({"kills": places.total(), "places": places, "runs": runs, "different": different}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
