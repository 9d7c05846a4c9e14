"""Kills learners and actors of a distributed run at random moments; a script.

python -m tests.impala.fault_harness FOLDER [--actor-kills 20] [--learner-kills 5] [--seed 0]

A Ray cluster on this machine outlives the learners. Each learner is `dgvf train --resume` in a process of its own,
which also writes down every rollout that it learns from. Fails unless the run is finished, no rollout was used twice,
and no learner lost more than what it had learned since its last checkpoint. Prints the counts.
"""

from __future__ import annotations

import argparse
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

from dgvf_agents.impala.cluster import connect
from dgvf_agents.impala.fleet import ActorFleet
from dgvf_agents.impala.transport import PackedRollout, Parameters
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import actor_namespace, train

EVERY = 2_000
"""Steps between checkpoints."""
BATCH = 4 * 5


def config(steps: int, address: str) -> TrainConfig:
    return TrainConfig(
        algorithm="impala",
        env="CollectObjectsSmall-v0",
        steps=steps,
        n_envs=4,
        actors=2,
        address=address,
        questions=4,
        question_encoder="shared",
        unroll_length=3,
        compile=False,
        checkpoint_every=EVERY,
        checkpoints_kept=2,
        log_every=1_000,
        evaluate_every=10**9,
        evaluation_episodes=1,
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
    learning = ["--learn", str(steps), "--address", address]
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


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background processes deaf to it
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--actor-kills", type=int, default=20)
    parser.add_argument("--learner-kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learn", type=int, default=None)
    parser.add_argument("--address", default=None)
    given = parser.parse_args()
    if given.learn is not None:
        learn(given.folder, given.learn, given.address)
        return
    report = soak(given.folder, given.actor_kills, given.learner_kills, given.seed)
    print(json.dumps(report, indent=1))
    if report["rollouts_used_twice"] or max(report["steps_lost"], default=0) > report["most_steps_between_checkpoints"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
