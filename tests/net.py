"""Hashes of what training leads to in about twenty settings, for changes that must not change a number.

    python -m tests.net --output before.json              # at one commit
    python -m tests.net --check before.json               # at another, on the same machine
    python -m tests.net --check before.json --compiled    # compiled updates, equal up to rounding

For every setting: SHA-256 over the sorted names and the bytes of θ, η and both optimizers' states after some dozens of
updates. Eager updates must be equal bitwise, on one machine with the same libraries. Only public names are used, so
that one version of this script runs on many commits.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from stable_baselines3.common.utils import LinearSchedule

import dgvf_envs  # noqa: F401, registers the environments
from dgvf_agents import DGVFA2C, DGVFImpala
from dgvf_agents.losses import regression_loss
from dgvf_agents.tasks import AuxiliaryTask
from dgvf_agents.types import Params, Rollout
from dgvf_envs.sb3_adapter import make_vec

GROUPS = ("theta", "eta", "inner", "meta")
"""θ, η, the inner optimizer's statistics, and the state of the optimizer of η."""
TOLERANCE = 5e-3
"""Relative difference between compiled and eager updates."""

Tensors = dict[str, torch.Tensor]
Setting = Callable[[bool, Path], dict[str, Tensors]]


# --- what a model has learned -----------------------------------------------------------------------------------------


def tensors_in(tree: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of nested containers by the path to them; other values are settings, not results."""
    if isinstance(tree, torch.Tensor):
        yield name, tree.detach().cpu().contiguous()
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from tensors_in(value, f"{name}/{key}")
    elif isinstance(tree, list | tuple):
        for i, value in enumerate(tree):
            yield from tensors_in(value, f"{name}/{i}")


def groups_of(model: DGVFA2C | DGVFImpala) -> dict[str, Tensors]:
    found = model.get_parameters()
    optimizers: dict[str, Any] = found["optimizers"]
    trees = {
        "theta": {name: found[name] for name in ("policy", "answer_net") if name in found},
        "eta": found.get("question_net", {}),
        "inner": optimizers["inner"],
        "meta": optimizers["meta"],
    }
    return {group: dict(tensors_in(tree)) for group, tree in trees.items()}


def summary(groups: dict[str, Tensors]) -> dict[str, Any]:
    """Hash of each group, and sum, sum of absolute values and norm of each tensor."""
    result: dict[str, Any] = {}
    for group in GROUPS:
        digest = hashlib.sha256()
        for name, value in sorted(groups[group].items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.numpy().tobytes())
        result[group] = digest.hexdigest()
    result["digest"] = {
        f"{group}{name}": [float(v) for v in (x.sum(), x.abs().sum(), x.norm())]
        for group in GROUPS
        for name, value in sorted(groups[group].items())
        for x in [value.double()]
    }
    return result


# --- settings ---------------------------------------------------------------------------------------------------------

SMALL = {"auxiliary_task": "discovered", "questions": 6, "unroll_length": 4, "n_steps": 4}
"""In settings whose sizes do not matter."""
TINY_NETWORK = {"features_extractor_kwargs": {"hidden": (16,)}}


def trained(
    env: str = "PuddleWorld-v0", policy: str = "PaperMlpPolicy", updates: int = 30, num_envs: int = 4, **options: Any
) -> Setting:
    """`DGVFA2C` after a number of updates."""

    def run(compiled: bool, folder: Path) -> dict[str, Tensors]:
        model = make_model(env, policy, num_envs, compiled, **options)
        return groups_of(model.learn(updates * num_envs * model.n_steps))

    return run


def make_model(env: str, policy: str, num_envs: int, compiled: bool, **options: Any) -> DGVFA2C:
    network = {"policy_kwargs": TINY_NETWORK} if policy == "PaperMlpPolicy" else {}
    return DGVFA2C(
        policy,
        make_vec(env, num_envs, 0) if env.startswith(("Puddle", "Collect")) else env,
        **{**SMALL, **network, "meta_learning_rate": 3e-3, "seed": 0, "device": "cpu", **options},
        compile=compiled,
    )


def cartpole(compiled: bool, folder: Path) -> dict[str, Tensors]:
    """All arguments but the task have their defaults."""
    given = {"auxiliary_task": "discovered", "seed": 0, "device": "cpu", "compile": compiled}
    model = DGVFA2C("MlpPolicy", "CartPole-v1", **given)  # type: ignore[arg-type]
    return groups_of(model.learn(45 * model.n_steps))


def impala(**options: Any) -> Setting:
    """Acting and learning take turns in this process; all else has its defaults."""

    def run(compiled: bool, folder: Path) -> dict[str, Tensors]:
        model = DGVFImpala(
            "PaperCnnPolicy",
            "CollectObjectsSmall-v0",
            **{"n_envs": 4, "n_steps": 6, "unroll_length": 4, "questions": 16, **options},
            policy_kwargs={"features_extractor_kwargs": {"features_dim": 16}},
            seed=0,
            device="cpu",
            compile=compiled,
        )
        return groups_of(model.learn(25 * 4 * model.n_steps))

    return run


def resumed(compiled: bool, folder: Path) -> dict[str, Tensors]:
    """Saved in the middle of an unroll, loaded, and trained further."""
    options = {"use_rms_prop": False, "question_discount": None}
    model = make_model("PuddleWorld-v0", "PaperMlpPolicy", 4, compiled, **options)
    per_update = 4 * model.n_steps
    model.learn(14 * per_update).save(folder / "model.zip")
    model = DGVFA2C.load(folder / "model.zip", env=make_vec("PuddleWorld-v0", 4, 1), device="cpu")
    return groups_of(model.learn(13 * per_update, reset_num_timesteps=False))


class DistanceTask(AuxiliaryTask):
    """A user's own task: predict the sum of the next observation."""

    num_answers = 1

    def loss(self, answers: torch.Tensor, bootstraps: torch.Tensor, eta: Params, rollout: Rollout) -> torch.Tensor:
        return regression_loss(answers, rollout.next_observations.flatten(2).float().sum(-1, keepdim=True))


def preset(world: str, method: str, updates: int) -> Setting:
    """The preset of `dgvf train`."""

    def run(compiled: bool, folder: Path) -> dict[str, Tensors]:
        options = ["--steps", str(updates * 80), "--compile", str(compiled), "--evaluation-episodes", "1"]
        command("train", world, method, *options, "--out", str(folder / "run"))
        return groups_of(DGVFA2C.load(last_checkpoints(folder)[-1], device="cpu"))

    return run


def population(compiled: bool, folder: Path) -> dict[str, Tensors]:
    """Two runs of a sweep on a small network, which train as one population; presets of sweeps have changed."""
    steps = 22 * 80
    varied = ["learning-rate=0.001,0.002", "policy=PaperMlpPolicy", f"compile={compiled or 'auto'}", "rms-prop=pytorch"]
    varied += ["ent-coef=0.03", "final-ent-coef=0.01", "auxiliary-coefficient=0.1", "final-auxiliary-coefficient=0.05"]
    varied += ["meta-learning-rate=0.001", "final-meta-learning-rate=0.0005", "convention=surrogate", "questions=16"]
    varied += [f"evaluate-every={steps}", f"log-every={steps}", "evaluation-episodes=1"]
    options = ["--seeds", "1", "--jobs", "1", "--steps", str(steps), "--out", str(folder)]
    command("sweep", "collect-objects-small", "discovered", "--vary", *varied, *options)
    models = [DGVFA2C.load(path, device="cpu") for path in last_checkpoints(folder)]
    members = [groups_of(model) for model in sorted(models, key=lambda model: model.lr_schedule(1.0))]
    assert len(members) == 2
    return {
        group: {f"/{i}{name}": value for i, member in enumerate(members) for name, value in member[group].items()}
        for group in GROUPS
    }


def command(*arguments: str) -> None:
    """Run `dgvf` in this process."""
    from dgvf_agents.cli import main

    before, sys.argv = sys.argv, ["dgvf", *arguments]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            main()
    except SystemExit as error:
        if error.code not in (None, 0):
            raise RuntimeError(f"dgvf {' '.join(arguments)} failed: {error.code}") from error
    finally:
        sys.argv = before


def last_checkpoints(folder: Path) -> list[Path]:
    """The last checkpoint of each run below a folder."""
    return [max(checkpoints.iterdir()) for checkpoints in sorted(folder.rglob("checkpoints"))]


ROOMS: dict[str, Any] = {
    "env": "CollectObjectsSmall-v0",
    "policy": "PaperCnnPolicy",
    "policy_kwargs": {"features_extractor_kwargs": {"features_dim": 16}},
}

SETTINGS: dict[str, Setting] = {
    "defaults": cartpole,
    "no task": trained(auxiliary_task="none", normalize_advantage=True, gae_lambda=0.9),
    "gSDE": trained("Pendulum-v1", "MlpPolicy", num_envs=1, use_sde=True, sde_sample_freq=3, n_steps=8),
    "preset of collect-objects": preset("collect-objects", "discovered", 22),
    "preset of collect-objects-small": preset("collect-objects-small", "discovered", 22),
    "preset of puddle-world": preset("puddle-world", "discovered", 32),
    "joint, shared, learned discounts": trained(
        **ROOMS, question_encoder="shared", question_discount=None, meta_max_discount_grad_norm=0.5
    ),
    "auxiliary, fixed weight": trained(encoder_mode="auxiliary", auxiliary_weighting="fixed", head_rate=0.5),
    "end": trained(objective="end", max_grad_norm=None),
    "surrogate": trained(convention="surrogate", gae_lambda=0.9),
    "recompute": trained(storage="recompute"),
    "myopic": trained(horizon="myopic", question_discount=None),
    "windows": trained(question_window=3),
    "schedules": trained(
        learning_rate=LinearSchedule(2e-3, 1e-4, 1.0),
        ent_coef=LinearSchedule(0.05, 0.01, 1.0),
        auxiliary_coefficient=LinearSchedule(0.1, 0.01, 1.0),
        meta_learning_rate=LinearSchedule(1e-2, 1e-3, 1.0),
    ),
    "Adam": trained(use_rms_prop=False),
    "random": trained(auxiliary_task="random"),
    "reward prediction": trained(auxiliary_task="reward-prediction"),
    "pixel control": trained(**ROOMS, auxiliary_task="pixel-control"),
    "own task": trained(auxiliary_task=lambda model: DistanceTask()),
    "IMPALA": impala(),
    "IMPALA, mean losses": impala(loss_reduction="mean", rho_bar=1.1, c_bar=0.9, gae_lambda=0.9, rms_prop="pytorch"),
    "resumed": resumed,
    "population": population,
}


# --- comparison -------------------------------------------------------------------------------------------------------


def distance(found: dict[str, list[float]], expected: dict[str, list[float]]) -> float:
    """The largest relative difference of a tensor's sum and norm; infinite where names differ."""
    if found.keys() != expected.keys():
        return math.inf
    differences = [0.0]
    for name, (total, size, norm) in expected.items():
        new_total, _, new_norm = found[name]
        differences += [abs(new_total - total) / (size + 1e-12), abs(new_norm - norm) / (norm + 1e-12)]
    return max(math.inf if math.isnan(d) else d for d in differences)


def compare(found: dict[str, Any], expected: dict[str, Any], tolerance: float) -> bool:
    """Print the old and the new hash of each group; returns whether all are equal, compiled ones up to rounding."""
    rounded, equal = found["compiled"] or expected["compiled"], True
    print(f"{'setting':34}{'':8}{'old':14}{'new':14}")
    for name, new in found["settings"].items():
        old = expected["settings"].get(name)
        if old is None:
            print(f"{name:34}not in the file")
            equal = False
            continue
        far = distance(new["digest"], old["digest"])
        for group in GROUPS:
            same = new[group] == old[group]
            verdict = "" if same else f"{'differs' if rounded else 'DIFFERS'}, by {far:.1e} at most"
            print(f"{name:34}{group:8}{old[group][:12]:14}{new[group][:12]:14}{verdict}")
            equal &= same or (rounded and far <= tolerance)
    return equal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="JSON file to write")
    parser.add_argument("--check", type=Path, help="JSON file to compare with; exits with status 1 if it differs")
    parser.add_argument("--only", action="append", choices=SETTINGS, help="run this setting; may be given repeatedly")
    parser.add_argument("--compiled", action="store_true", help="compile the updates, which takes minutes a setting")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="relative difference if compiled")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"torch": torch.__version__, "compiled": arguments.compiled, "settings": {}}
    for name in arguments.only or SETTINGS:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found["settings"][name] = summary(SETTINGS[name](arguments.compiled, Path(folder)))
        print(f"{name}: {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.check and not compare(found, json.loads(arguments.check.read_text()), arguments.tolerance):
        sys.exit("what training leads to has changed")


if __name__ == "__main__":
    main()
