"""The experiments on Atari games."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dgvf_agents.experiments.experiment import Experiment
from dgvf_agents.experiments.figures import draw_curves, draw_improvements
from dgvf_agents.experiments.ranking import Ranking
from dgvf_agents.experiments.settings import Changes, Setting, setting
from dgvf_agents.train.config import ATARI_METHODS, JOINT_LEARNING

_JOINT: Changes = {"encoder_mode": "joint"}
# Stable-Baselines3's defaults with 16 environments and an entropy bonus, but TensorFlow's RMSProp, as in all presets
# of Atari: its ε is inside the root. With PyTorch's, Pong was at -18.0 after 1.02M steps, not at -17.5 (one seed).
_LAPTOP_A2C: dict[str, Any] = {
    "n_envs": 16,
    "n_steps": 5,
    "learning_rate": 7e-4,
    "loss_reduction": "mean",
    "vf_coef": 0.5,
    "rms_prop_eps": 1e-10,
    "max_grad_norm": 0.5,
    "mixed_precision": True,
}
# Of A2C's settings, but without mixed precision, which old processors emulate.
_LAPTOP_IMPALA: Changes = {"algorithm": "impala", "mixed_precision": False, "steps": 1_200_000}
# Fewer steps of discovered questions, whose updates are several times slower, along the same learning rate schedule.
_LAPTOP_STEPS, _LAPTOP_DISCOVERED_STEPS = 5_000_000, 200_000
_LAPTOP_FINAL_RATE = _LAPTOP_A2C["learning_rate"] * (1 - _LAPTOP_DISCOVERED_STEPS / _LAPTOP_STEPS)
_LAPTOP_DISCOVERED: dict[str, Any] = {
    **_LAPTOP_A2C,
    "steps": _LAPTOP_DISCOVERED_STEPS,
    "final_learning_rate": float(f"{_LAPTOP_FINAL_RATE:.6g}"),
}
# An eighth of the table's, for eight times as many meta-updates per frame. With the table's own, discounts went to 1
# and the policy collapsed; both are run.
_LAPTOP_META_RATE: Changes = {"meta_learning_rate": 7.5e-5}
# Between the table's 1e-4 and the gridworlds' 0.1, not searched.
_LAPTOP_AUXILIARY: Changes = {"auxiliary_coefficient": 0.01}


def _impala_agents(changes: Changes) -> Callable[[str], list[Setting]]:
    """IMPALA with every auxiliary task, and `impala` with none."""
    return lambda world: [
        setting(world, method, "impala" if method == "a2c" else method, **changes) for method in ATARI_METHODS
    ]


ATARI_EXPERIMENTS = (
    # Paper, figure 3 and appendix.
    Experiment(
        "atari-representation",
        "on games: encoders trained by discovered or random questions, rewards or pixels alone, beside plain IMPALA",
        _impala_agents({"algorithm": "impala"}),
        partial(draw_curves, title="Encoder trained by the auxiliary task alone"),
        worlds=(),
        reference="discovered",
    ),
    # Paper, figure 4.
    Experiment(
        "atari-meta-objective",
        "on games: meta-losses summed along the unroll against the last one alone, beside plain IMPALA",
        lambda world: [
            *(setting(world, "discovered", end, algorithm="impala", objective=end) for end in ("sum", "end")),
            setting(world, "a2c", "impala", algorithm="impala"),
        ],
        partial(draw_curves, title="Summed and end meta-objective"),
        worlds=(),
        reference="sum",
    ),
    # Paper, section 5.2. Random questions are not in it.
    Experiment(
        "atari-joint",
        "on games: IMPALA jointly with an auxiliary task, improvements over plain IMPALA",
        _impala_agents(JOINT_LEARNING),
        partial(draw_improvements, title="Joint learning with an auxiliary task"),
        worlds=(),
        reference="discovered",
        ranking=Ranking(by="pixel-control", baseline="impala"),
    ),
    # What a laptop can do. The paper has batches of 640 steps and 200M frames; here batches are those of A2C (16
    # environments x 5 steps, Mnih et al. 2016): eight times as many updates per frame.
    Experiment(
        "atari-laptop",
        "on a game, small batches: plain A2C, and IMPALA and discovered questions for fewer frames",
        lambda world: [
            setting(world, "a2c", "a2c", **_LAPTOP_A2C, steps=_LAPTOP_STEPS),
            setting(world, "discovered", "discovered-joint", **_LAPTOP_DISCOVERED, **_LAPTOP_META_RATE, **_JOINT),
            setting(world, "discovered", "discovered", **_LAPTOP_DISCOVERED, **_LAPTOP_META_RATE, **_LAPTOP_AUXILIARY),
            setting(world, "discovered", "discovered-joint-fast", **_LAPTOP_DISCOVERED, **_JOINT),
            setting(world, "a2c", "impala", **{**_LAPTOP_A2C, **_LAPTOP_IMPALA}),
        ],
        partial(draw_curves, title="Small batches on two cores"),
        worlds=(),
        seeds=1,
    ),
)
