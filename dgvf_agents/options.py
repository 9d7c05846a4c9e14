"""Names and choices: what hyperparameters, configurations and the command line choose from. It imports nothing."""

from __future__ import annotations

from typing import Literal

Algorithm = Literal["a2c", "impala", "ppo"]
"""`a2c`: `DGVFA2C`; `impala`: `DGVFImpala`; `ppo`: `DGVFPPO`."""

Task = Literal["discovered", "random", "reward-prediction", "pixel-control", "none"]
"""Auxiliary tasks with a name."""

AuxiliaryWeighting = Literal["fixed", "gradient-norm"]
"""What the auxiliary coefficient is: the weight of the auxiliary loss (paper), or the norm of its gradient at the
features relative to the main task's."""

EncoderMode = Literal["auxiliary", "joint"]
"""Losses that train the encoder: the auxiliary task's alone (paper, section 4.1), or both (section 4.2)."""

QuestionEncoder = Literal["independent", "shared"]
"""What the question network reads: observations, with an encoder of its own, or the agent's features of them."""

Objective = Literal["sum", "end"]
"""Meta-loss: summed over the unroll, or its last term."""

Horizon = Literal["unrolled", "myopic"]
"""Updates that the meta-gradient of θ_k passes through: all before it, or the last one alone (paper, appendix)."""

Convention = Literal["exact", "surrogate"]
"""Whether the meta-gradient passes through stop-gradient inputs; see `dgvf_agents.core.inner_update`."""

Storage = Literal["graph", "recompute"]
"""Whether the graph of an unroll is stored, or recomputed in the backward pass."""

StorageChoice = Literal["auto", "graph", "recompute"]
"""A storage, or the first that fits in the memory that is free when training begins."""

LossReduction = Literal["mean", "sum"]
"""Losses that gradient norms and the optimizers' ε refer to: means over time and batch, or sums as in IMPALA."""

RMSPropRule = Literal["pytorch", "tensorflow"]
"""ε outside the square root and an initial second moment of 0, or ε inside it and an initial second moment of 1."""

Mode = Literal["auto"] | bool
"""Whether functions are compiled; `"auto"`: in the background, if training is long enough."""

World = Literal["collect-objects", "collect-objects-small", "puddle-world"]
"""Gridworlds with a preset."""

Method = Literal["discovered", "random", "reward-prediction", "a2c"]
"""Methods of the paper's gridworld experiments; `a2c` has no auxiliary task."""

AtariMethod = Literal["discovered", "random", "reward-prediction", "pixel-control", "a2c"]
"""Methods of the paper's Atari experiments."""

AtariRules = Literal["paper", "modern"]
"""Preprocessing and rules of games: Mnih et al. (2015), or Machado et al. (2018)."""

ExperimentName = Literal[
    "figure-2",
    "figure-4",
    "figure-5",
    "joint",
    "own-tasks",
    "convention",
    "rms-prop",
    "question-transfer",
    "processors",
    "ppo",
    "ppo-tasks",
    "atari",
]
"""Experiments of `dgvf reproduce`."""
