"""What a laptop can do on Atari: plain A2C with A2C's usual settings, and discovered questions for as far as it gets.

The paper's table is for batches of 640 steps and 200M frames. Here batches are those of A2C (16 environments x 5 steps,
Mnih et al. 2016), so that there are eight times as many updates per frame, and encoders compute with bfloat16 numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

from dgvf_agents.experiments.cell import Setting, setting
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.pictures import draw_curves
from dgvf_agents.experiments.results import Results

A2C_SETTINGS: dict[str, Any] = {
    "n_envs": 16,
    "n_steps": 5,
    "learning_rate": 7e-4,
    "loss_reduction": "mean",
    "vf_coef": 0.5,
    "rms_prop_eps": 1e-10,
    "max_grad_norm": 0.5,
    "mixed_precision": True,
}
"""The defaults of Stable-Baselines3's A2C with 16 environments and an entropy bonus; its ε of 1e-5 stands outside the
root, ours inside. The learning rate is annealed linearly to 0 over `STEPS`."""

STEPS = 5_000_000
"""Of plain A2C."""
DISCOVERED_STEPS = 200_000
"""Of discovered questions, whose updates take several times as long; the learning rate follows the same line."""
META_LEARNING_RATE = 7.5e-5
"""An eighth of the table's, since there are eight times as many meta-updates per frame; with the table's own, discounts
went to 1 and took the policy with them. Both are run."""
ALONE_COEFFICIENT = 0.01
"""Factor on the answer loss where it alone trains the encoder; chosen between the table's 1e-4 and the gridworlds' 0.1,
not searched."""


@final
class AtariLaptop(Figure):
    """Plain A2C beside discovered questions, with the main task and alone."""

    name = "atari-laptop"
    summary = "on a game, small batches: plain A2C, and discovered questions for fewer frames"
    seeds = 1
    worlds = ()

    def settings(self, world: str) -> list[Setting]:
        end = A2C_SETTINGS["learning_rate"] * (1 - DISCOVERED_STEPS / STEPS)
        few = {**A2C_SETTINGS, "steps": DISCOVERED_STEPS, "final_learning_rate": float(f"{end:.6g}")}
        slow = {**few, "meta_learning_rate": META_LEARNING_RATE}
        return [
            setting(world, "a2c", "a2c", **A2C_SETTINGS, steps=STEPS),
            setting(world, "discovered", "discovered-joint", **slow, encoder_mode="joint"),
            setting(world, "discovered", "discovered", **slow, auxiliary_coefficient=ALONE_COEFFICIENT),
            setting(world, "discovered", "discovered-joint-fast", **few, encoder_mode="joint"),
        ]

    def draw(self, results: Results, path: Path) -> None:
        draw_curves(results, path, "Small batches on two cores")
