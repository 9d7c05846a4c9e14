"""The paper's hyperparameters on Atari, and the configuration of a training run that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from dgvf_agents.runs.config import TrainConfig
from dgvf_envs.atari.emulator import title_of
from dgvf_envs.atari.presets import PRESETS

AtariMethod = Literal["discovered", "random", "reward-prediction", "pixel-control", "a2c"]
AtariRules = Literal["paper", "modern"]


@final
@dataclass(frozen=True)
class AtariTable:
    """Table 1 of the paper's appendix, "hyperparameters used by all learning agents based on IMPALA", row by row.

    Not here: the table's network is a deep residual one, and its 200 actors and 1 learner are those of a distributed
    agent; `RMSProp` has the decay of 0.99 and the momentum of 0; Adam is the only
    meta-optimizer. Numbers that gradients are compared with are for losses summed over the batch, as IMPALA's are
    (`dgvf_agents.core.optimizers`).
    """

    n_step_return: int = 20
    """Row "n-step return"."""
    batch_size: int = 32
    """Row "Batch size": trajectories of `n_step_return` steps; as many environments step side by side."""
    value_loss_coefficient: float = 0.5
    """Row "Value loss coefficient": on half the squared error, as in the paper's value update and in IMPALA."""
    entropy_coefficient: float = 0.01
    """Row "Entropy coefficient"."""
    learning_rate: float = 6e-4
    """Row "Learning rate"."""
    final_learning_rate: float = 0.0
    """Row "Learning rate schedule": "Anneal linearly to 0"; over all steps of the run."""
    rms_prop_epsilon: float = 0.1
    """Row "RMSProp ε"; inside the root, for summed losses."""
    global_gradient_norm_clip: float = 40.0
    """Row "Global gradient norm clip"; for summed losses."""
    meta_learning_rate: float = 6e-4
    """Row "Meta learning rate", of "Meta optimiser ADAM"; constant, the schedule stands among IMPALA's rows."""
    unroll_length: int = 10
    """Row "Unroll length"."""
    meta_gradient_norm_clip_cumulants: float = 1.0
    """Row "Meta gradient norm clip (cumulants)"; with the question network's encoder;
    for summed losses."""
    meta_gradient_norm_clip_discounts: float = 10.0
    """Row "Meta gradient norm clip (discounts)"; for summed losses."""
    questions: int = 128
    """Row "Number of Questions"."""
    gvf_coefficient: float = 1e-4
    """Row "Auxiliary loss coefficient" of "GVF Questions": discovered and random ones."""
    pixel_control_coefficient: float = 1e-4
    """Row "Auxiliary loss coefficient" of "Pixel-Control"."""
    reward_prediction_coefficient: float = 1e-3
    """Row "Auxiliary loss coefficient" of "Reward-Prediction"."""
    frames: int = 200_000_000
    """Frames that agents are trained for (paper, figure 3), 4 per step; not in the table."""
    discount: float = 0.99
    """γ of the main task; not in the table, from Espeholt et al. (2018)."""

    def auxiliary_coefficient(self, method: AtariMethod) -> float:
        """The factor on a method's answer loss; without a task it has no part."""
        own = {"pixel-control": self.pixel_control_coefficient, "reward-prediction": self.reward_prediction_coefficient}
        return own.get(method, self.gvf_coefficient)


PAPER_TABLE = AtariTable()
"""The paper's numbers."""

ATARI_METHODS: dict[AtariMethod, str] = {
    "discovered": "discovered",
    "random": "random",
    "reward-prediction": "reward-prediction",
    "pixel-control": "pixel-control",
    "a2c": "none",
}
"""Auxiliary tasks by method."""


def atari_config(
    game: str, method: AtariMethod, rules: AtariRules = "paper", table: AtariTable = PAPER_TABLE
) -> TrainConfig:
    """The configuration of a method on a game: that of the paper's representation experiments, encoders included.

    Discovered questions have an encoder of their own and learn their discounts. `encoder_mode="joint"` of
    `dataclasses.replace` lets the main task train the encoder too. Training takes a CUDA device where there is one: the
    convolutions over batches of 640 frames are what it is for.

    Args:
        game: in Gymnasium's or ALE's spelling: `"Breakout"`, `"ms_pacman"`.
        method: the auxiliary task, or none.
        rules: name of the preset of `dgvf_envs.atari` for what the agent sees and how games go.
        table: hyperparameters.

    Raises:
        ValueError: ALE has no such game.
    """
    preset = PRESETS[rules]
    return TrainConfig(
        env=title_of(game),
        atari=preset,
        policy="CnnPolicy",
        task=ATARI_METHODS[method],
        steps=table.frames // preset.frame_skip,
        n_envs=table.batch_size,
        n_steps=table.n_step_return,
        gamma=table.discount,
        learning_rate=table.learning_rate,
        final_learning_rate=table.final_learning_rate,
        ent_coef=table.entropy_coefficient,
        vf_coef=0.5 * table.value_loss_coefficient,
        loss_reduction="sum",
        rms_prop="tensorflow",
        rms_prop_eps=table.rms_prop_epsilon,
        max_grad_norm=table.global_gradient_norm_clip,
        questions=table.questions,
        question_discount=None,
        auxiliary_coefficient=table.auxiliary_coefficient(method),
        unroll_length=table.unroll_length,
        meta_learning_rate=table.meta_learning_rate,
        meta_max_grad_norm=table.meta_gradient_norm_clip_cumulants,
        meta_max_discount_grad_norm=table.meta_gradient_norm_clip_discounts,
        device="auto",
        checkpoint_every=500_000,
        checkpoints_kept=2,
        log_every=12_800,
        evaluate_every=2_500_000,
        evaluation_episodes=16,
    )
