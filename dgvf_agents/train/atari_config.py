"""The paper's hyperparameters on Atari, and the training configuration made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dgvf_agents.options import AtariMethod, AtariRules
from dgvf_agents.train.config import TrainConfig
from dgvf_envs.atari.games import title_of
from dgvf_envs.atari.presets import PRESETS


@final
@dataclass(frozen=True)
class AtariTable:
    """Table 1 of the paper's appendix, "hyperparameters used by all learning agents based on IMPALA", row by row.

    Omitted rows: the deep residual network, which `impala_config` chooses; the 200 actors and 1 learner of the
    distributed agent; the decay 0.99 and the momentum 0, which are built into `RMSProp`; the meta-optimizer, which is
    always Adam. Gradient norms and ε are for losses summed over the batch, as in IMPALA; see
    `dgvf_agents.core.optimizers`.
    """

    n_step_return: int = 20
    """Row "n-step return"."""
    batch_size: int = 32
    """Row "Batch size": trajectories of `n_step_return` steps, one per environment."""
    value_loss_coefficient: float = 0.5
    """Row "Value loss coefficient": on half the squared error, as in the paper's value update and in IMPALA."""
    entropy_coefficient: float = 0.01
    """Row "Entropy coefficient"."""
    learning_rate: float = 6e-4
    """Row "Learning rate"."""
    final_learning_rate: float = 0.0
    """Row "Learning rate schedule": "Anneal linearly to 0", over all steps of the run."""
    rms_prop_epsilon: float = 0.1
    """Row "RMSProp ε"; inside the square root, for summed losses."""
    global_gradient_norm_clip: float = 40.0
    """Row "Global gradient norm clip"; for summed losses."""
    meta_learning_rate: float = 6e-4
    """Row "Meta learning rate", of "Meta optimiser ADAM"; constant, since the schedule is one of IMPALA's rows."""
    unroll_length: int = 10
    """Row "Unroll length"."""
    meta_gradient_norm_clip_cumulants: float = 1.0
    """Row "Meta gradient norm clip (cumulants)"; includes the question network's encoder; for summed losses."""
    meta_gradient_norm_clip_discounts: float = 10.0
    """Row "Meta gradient norm clip (discounts)"; for summed losses."""
    questions: int = 128
    """Row "Number of Questions"."""
    gvf_coefficient: float = 1e-4
    """Row "Auxiliary loss coefficient" of "GVF Questions", for discovered and random questions."""
    pixel_control_coefficient: float = 1e-4
    """Row "Auxiliary loss coefficient" of "Pixel-Control"."""
    reward_prediction_coefficient: float = 1e-3
    """Row "Auxiliary loss coefficient" of "Reward-Prediction"."""
    frames: int = 200_000_000
    """Training frames (paper, figure 3), 4 per step; not in the table."""
    discount: float = 0.99
    """γ of the main task, from Espeholt et al. (2018); not in the table."""

    def auxiliary_coefficient(self, method: AtariMethod) -> float:
        """Coefficient of a method's answer loss; unused without an auxiliary task."""
        own = {"pixel-control": self.pixel_control_coefficient, "reward-prediction": self.reward_prediction_coefficient}
        return own.get(method, self.gvf_coefficient)


PAPER_TABLE = AtariTable()
"""The paper's hyperparameters."""

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
    """The configuration of a method on a game, as in the paper's representation experiments.

    The question network has its own encoder, and discounts are learned. `dataclasses.replace(config,
    encoder_mode="joint")` lets the main task train the agent's encoder too. Training uses a CUDA device if available:
    convolutions over batches of 640 frames are slow on a CPU.

    Args:
        game: name of the game in the spelling of Gymnasium or ALE, such as `"Breakout"` or `"ms_pacman"`.
        method: the auxiliary task, or `"a2c"` for none.
        rules: name of the `dgvf_envs.atari` preset for preprocessing and game rules.
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
