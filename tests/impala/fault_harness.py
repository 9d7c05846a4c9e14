"""Kills learners and actors of a distributed run at random moments; a script.

python -m tests.impala.fault_harness FOLDER [--actor-kills 20] [--learner-kills 5] [--seed 0]

A Ray cluster on this machine outlives the learners. Each learner is `dgvf train --resume` in a process of its own,
which also writes down every rollout that it learns from. Fails unless the run is finished, no rollout was used twice,
and no learner lost more than what it had learned since its last checkpoint. Prints the counts.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import tyro
from tyro.conf import Positional

from dgvf_agents.impala.cluster import connect
from dgvf_agents.impala.fleet import ActorFleet
from dgvf_agents.impala.transport import PackedRollout, Parameters
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import actor_namespace, train
from tests.run_folders import tiny_config

EVERY = 2_000
"""Steps between checkpoints."""
BATCH = 4 * 5


def config(steps: int, address: str) -> TrainConfig:
    return tiny_config(
        algorithm="impala",
        env="CollectObjectsSmall-v0",
        steps=steps,
        actors=2,
        address=address,
        question_encoder="shared",
        checkpoint_every=EVERY,
        log_every=1_000,
        evaluate_every=10**9,
    )


def learn(folder: Path, steps: int, address: str) -> None:
    """Train, and append a hash of each rollout that is used to a file beside the folder."""
    collect = ActorFleet.collect
    with _journal(folder).open("a", buffering=1) as journal:

        def noted(self: ActorFleet, rollouts: int, parameters: Parameters) -> list[PackedRollout]:
            used = collect(self, rollouts, parameters)
            for one in used:
                content = pickle.dumps((one.observed, one.actions, one.behavior_log_probs))
                journal.write(json.dumps([os.getpid(), sha256(content).hexdigest()]) + "\n")
            return used

        ActorFleet.collect = noted  # type: ignore[method-assign]
        train(config(steps, address), folder, show_progress=False, resume=True)


def _journal(folder: Path) -> Path:
    return folder.with_suffix(".journal")


def _rollouts(folder: Path) -> list[Any]:
    path = _journal(folder)
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("]")]


def _start(folder: Path, steps: int, address: str) -> subprocess.Popen[bytes]:
    learning = ["--learn-steps", str(steps), "--address", address]
    command = [sys.executable, "-m", "tests.impala.fault_harness", str(folder), *learning]
    return subprocess.Popen(command)


def _saved(folder: Path) -> int:
    """Steps of the latest checkpoint."""
    found = RunFolder(folder).checkpoints() if folder.exists() else []
    return max((int("".join(filter(str.isdigit, path.stem))) for path in found), default=0)


def _kill_an_actor(ray: Any, rng: random.Random, namespace: str) -> bool:
    """Kill an actor's process, which Ray restarts, or end the actor."""
    named = [one for one in ray.util.list_named_actors(all_namespaces=True) if one["namespace"] == namespace]
    if not named:
        return False
    one = rng.choice(named)
    try:
        ray.kill(ray.get_actor(one["name"], namespace=one["namespace"]), no_restart=rng.random() < 0.5)
    except ValueError:  # it ended in between
        return False
    return True


def soak(folder: Path, actor_kills: int, learner_kills: int, seed: int) -> dict[str, Any]:
    """Kill until there were enough kills of both kinds, then let the run finish."""
    rng, ray = random.Random(seed), connect(None, 2)
    left: Counter[str] = Counter(actors=actor_kills, learners=learner_kills)
    lost, steps, began = [], 10**9, time.monotonic()
    address = ray.get_runtime_context().gcs_address
    learner = _start(folder, steps, address)
    while not _saved(folder):  # a learner without a checkpoint starts the run again, its actors and their numbers too
        _wait_for_rollouts(folder, learner, len(_rollouts(folder)) + 1)
    while left.total():
        used = len(_rollouts(folder))
        _wait_for_rollouts(folder, learner, used + rng.randrange(5, 150))
        kind = rng.choices(["actors", "learners"], [left["actors"], left["learners"]])[0]
        if kind == "actors":
            left["actors"] -= _kill_an_actor(ray, rng, actor_namespace(folder))
            continue
        learner.send_signal(signal.SIGKILL)
        learner.wait()
        mine = sum(one[0] == learner.pid for one in _rollouts(folder)) * (BATCH // 2)
        lost.append((mine, _saved(folder)))
        left["learners"] -= 1
        learner = _start(folder, steps, address)
    _wait_for_rollouts(folder, learner, len(_rollouts(folder)) + 20)
    learner.send_signal(signal.SIGINT)  # finishes the update and writes a checkpoint
    learner.wait()
    saved, losses = 0, []
    for mine, checkpoint in lost:
        losses.append(saved + mine - checkpoint)
        saved = checkpoint
    identities = [one[1] for one in _rollouts(folder)]
    return {
        "rollouts_used": len(identities),
        "rollouts_used_twice": len(identities) - len(set(identities)),
        "steps_lost": losses,
        "most_steps_between_checkpoints": EVERY + BATCH,
        "final_steps": _saved(folder),
        "seconds": round(time.monotonic() - began),
    }


def _wait_for_rollouts(folder: Path, learner: subprocess.Popen[bytes], count: int) -> None:
    deadline = time.monotonic() + 900.0
    while len(_rollouts(folder)) < count:
        if learner.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"training stands still: exit status {learner.poll()}")
        time.sleep(0.05)


def main(
    folder: Positional[Path],
    actor_kills: int = 20,
    learner_kills: int = 5,
    seed: int = 0,
    learn_steps: int | None = None,
    address: str | None = None,
) -> None:
    """Kill learners and actors of a distributed run at random moments; fails where rollouts or steps are lost.

    Args:
        folder: of the run.
        actor_kills: how many actors to kill.
        learner_kills: how many learners to kill.
        seed: of the moments.
        learn_steps: be one of the learners instead, up to this total of steps.
        address: of the learner's Ray.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background processes deaf to it
    if learn_steps is not None and address is not None:
        learn(folder, learn_steps, address)
        return
    report = soak(folder, actor_kills, learner_kills, seed)
    print(json.dumps(report, indent=1))
    if report["rollouts_used_twice"] or max(report["steps_lost"], default=0) > report["most_steps_between_checkpoints"]:
        sys.exit(1)


if __name__ == "__main__":
    tyro.cli(main)
