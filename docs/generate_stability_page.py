"""Write the page on exploding meta-gradients from the runs kept in `results/stability/`.

With `--train FOLDER`, first train and probe the runs in this folder, or go on with it, and keep what the page needs of
them. With `--check`, fail unless the committed page is up to date.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from statistics import median
from typing import Any

from generated import DOCS, check, table, write

from dgvf_agents.cli import main as dgvf
from dgvf_agents.experiments.settings import setting
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.stability import probe

RESULTS = DOCS / "results" / "stability"
PAGE = DOCS / "stability.md"
COMMAND = "python docs/generate_stability_page.py"

_STUDIED = setting("puddle-world", "discovered").preset
_VARIED = ("learning_rate", "ent_coef", "final_ent_coef", "auxiliary_coefficient", "final_auxiliary_coefficient")
_EARLIER_PRESET = {
    **{name.replace("_", "-"): str(getattr(_STUDIED, name)) for name in _VARIED},
    "max-episode-steps": str(_STUDIED.env_kwargs["max_episode_steps"]),
}
_FAST = {"auxiliary-coefficient": "0.03", "learning-rate": "0.001", "ent-coef": "0.3", "final-ent-coef": "0.003"}
RUNS: dict[str, dict[str, str]] = {
    "constant": {**_FAST, "final-learning-rate": "None"},
    "annealed": _FAST,
    "annealed-seed-1": {**_FAST, "seed": "1"},
    "low-coefficient": {**_FAST, "auxiliary-coefficient": "0.01"},
    "default": {},
    "high-coefficient": {"auxiliary-coefficient": "0.3"},
}
"""Options of the runs beside those of the earlier preset, on PuddleWorld-v0 with discovered questions."""
CHECKPOINTS = ("--checkpoint-every", "500_000", "--checkpoints-kept", "10")

SHOWN = (
    "learning_rate",
    "final_learning_rate",
    "ent_coef",
    "final_ent_coef",
    "auxiliary_coefficient",
    "rms_prop",
    "steps",
    "seed",
)
"""Settings of a run that the page tells, beside its environment."""


def train(folder: Path) -> None:
    """Train, or go on with, the runs in a folder, probe them and keep what the page needs."""
    for name, options in RUNS.items():
        run = RunFolder(folder / name)
        if run.config_file.exists():
            dgvf(["train", "--resume", str(run.path)])
        else:
            given = [f"--{option}={value}" for option, value in {**_EARLIER_PRESET, **options}.items()]
            dgvf(["train", "puddle-world", "discovered", *CHECKPOINTS, *given, "--out", str(run.path)])
        probe(run.path)
        _keep(run)


def _keep(run: RunFolder) -> None:
    """Keep a run's settings, stability and how the agent fared at its checkpoints."""
    config = json.loads(run.config_file.read_text())
    with run.progress_file.open() as file:
        progress = list(csv.DictReader(file))
    with (run.path / "stability.csv").open() as file:
        rows = [_row(row, progress) for row in csv.DictReader(file)]
    kept = {"env": config["env"], "settings": {name: config[name] for name in SHOWN}, "rows": rows}
    (RESULTS / f"{run.path.name}.json").write_text(json.dumps(kept, indent=1) + "\n")


def _row(measured: dict[str, str], progress: list[dict[str, str]]) -> dict[str, float]:
    """A checkpoint with the last evaluation and the last meta-gradient before it."""
    steps = int(measured["steps"])
    before = [row for row in progress if float(row["time/total_timesteps"]) <= steps]

    def last(name: str) -> float:
        return float(next(row[name] for row in reversed(before) if row.get(name)))

    return {
        "steps": steps,
        "spectral_radius": float(measured["spectral_radius"]),
        "gain": float(measured["gain"]),
        "return": last("eval/mean_reward"),
        "meta_gradient_norm": last("meta/gradient_norm"),
    }


def page() -> str:
    """The Markdown of the page."""
    runs = [json.loads((RESULTS / f"{name}.json").read_text()) for name in RUNS]
    parts = [_INTRODUCTION, table(_SUMMARY_HEADINGS, [_summary(run) for run in runs], right=range(1, 6)), _DETAILS]
    for run in runs:
        parts += [f"### {run['env']}, {_described(run['settings'])}\n", _table(run["rows"]) + "\n"]
    return "\n".join([*parts, _CONCLUSION])


_SUMMARY_HEADINGS = ("Run", "Spectral radius, median", "Largest", "Gain, median", "Largest", "Final return")


def _summary(run: dict[str, Any]) -> tuple[str, ...]:
    """A run's checkpoints in one row."""
    radii, gains = ([row[name] for row in run["rows"]] for name in ("spectral_radius", "gain"))
    numbers = (f"{median(radii):.2f}", f"{max(radii):.2f}", f"{median(gains):.2g}", f"{max(gains):.2g}")
    return (_described(run["settings"]), *numbers, f"{run['rows'][-1]['return']:.1f}")


def _described(settings: dict[str, Any]) -> str:
    rate, entropy = (
        f"{settings[first]:g}" + ("" if settings[last] is None else f" to {settings[last]:g}")
        for first, last in (("learning_rate", "final_learning_rate"), ("ent_coef", "final_ent_coef"))
    )
    return (
        f"coefficient {settings['auxiliary_coefficient']:g}, learning rate {rate}, entropy {entropy}, "
        f"{_RMS_PROP[settings['rms_prop']]}, {settings['steps'] / 1e6:g}M steps, seed {settings['seed']}"
    )


_RMS_PROP = {"pytorch": "PyTorch's RMSProp", "tensorflow": "TensorFlow's RMSProp"}


def _table(rows: list[dict[str, float]]) -> str:
    cells = [
        (
            f"{row['steps']:,}",
            f"{row['return']:.1f}",
            f"{row['spectral_radius']:.3f}",
            f"{row['gain']:.3g}",
            f"{row['meta_gradient_norm']:.3g}",
        )
        for row in rows
    ]
    headings = ("Steps", "Last evaluation", "Spectral radius", "Gain over L updates", "Norm of the last meta-gradient")
    return table(headings, cells, right=range(5))


_INTRODUCTION = """<!-- Generated by docs/generate_stability_page.py. -->

# Exploding meta-gradients

The meta-gradient is backpropagated through L inner updates, that is, multiplied by the transposes of their Jacobians.
With RMSProp and the answer loss L^ans, the Jacobian of an update with respect to θ is about

I - α′ · c · H / √(s + ε)

(TensorFlow's RMSProp; PyTorch's has ε² in place of ε), where α′ is the learning rate, c the auxiliary coefficient, H
the Hessian of the answer loss, summed over D questions, and s the running mean of squared gradients. As answers become
accurate, or as an agent gets stuck where there is little to see, the gradients, and with them √s, shrink toward √ε,
while H does not. Once an eigenvalue of α′ c H / √(s + ε) exceeds 2, the update overshoots along its eigenvector. Nearby
parameters move apart, and the meta-gradient grows with every update that it passes through. Gradient descent diverges
under the same inequality.

`dgvf probe RUN` measures this at a run's complete checkpoints (`--checkpoints-kept` sets how many there are), on the
updates that the agent would make next:

- the **spectral radius** of an update's Jacobian, including the optimizer's statistics. Above 1, the update stretches
  some direction.
- the **gain** over L updates: the largest factor by which all of them together stretch a change of θ, and so the
  largest factor by which they can make a meta-gradient grow.

Jacobians are never formed. Eigenvalues and singular values are computed from Jacobian-vector and vector-Jacobian
products ({py:mod}`dgvf_agents.train.stability`).

## Measured

All runs are on PuddleWorld-v0. `python docs/generate_stability_page.py --train FOLDER` trains and probes them. Over the
checkpoints of each:
"""

_DETAILS = """
The coefficient matters most: at 0.3 the spectral radius is between 2 and 6 until the learning rate has fallen, and at
0.01 it hardly exceeds 1. At 0.03, a learning rate that falls linearly to 0 keeps it below 1.2, and a constant one does
not. These are single runs (two of one setting), so how the returns differ says little.
"""

_CONCLUSION = """## What to do

- Lower `auxiliary_coefficient`. Once √s is below √ε, lowering the coefficient hardly changes the denominator, but
  still shrinks α′ c H.
- Lower the learning rate, or anneal it (`--final-learning-rate 0`).
- Watch `meta/gradient_norm`. A meta-gradient whose norm is not finite or exceeds `meta_skip_norm` is skipped and
  counted in `meta/skipped`. Smaller ones are clipped to `meta_max_grad_norm`. This protects η from a single bad unroll.
  It does not help an agent whose own updates have eigenvalues outside the unit disc.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail unless the page is up to date; write nothing")
    parser.add_argument("--train", type=Path, help="folder of the runs")
    arguments = parser.parse_args()
    if arguments.train is not None:
        train(arguments.train)
    if arguments.check:
        check({PAGE: page()}, COMMAND)
    else:
        write({PAGE: page()})


if __name__ == "__main__":
    main()
