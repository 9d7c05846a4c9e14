"""Discovery learns: a narrow encoder, trained by discovered questions alone, comes to solve a contextual bandit.

Mean reward per step after training, over seeds:

| condition | seeds | mean ± standard deviation |
| --- | --- | --- |
| as it is | 0-8 | 0.96 ± 0.06 |
| the encoder frozen at its initial weights | 0-8 | 0.58 ± 0.04 |
| the meta-step with the opposite sign | 0-5 | 0.32 ± 0.06 |
| uniformly random policy | | 0.25 |
"""

from __future__ import annotations

import numpy as np

from dgvf_agents import DGVFA2C
from tests.learning.distracted_bandit import ACTIONS, DistractedBandit

SEEDS = (0, 1)
NUM_ENVS, N_STEPS, UPDATES = 32, 5, 300
THRESHOLD = 0.8
"""Above what six fixed random features allow, and below what learned ones reach; of the mean over `SEEDS`."""


def model_of(seed: int) -> DGVFA2C:
    """Six features and eight questions, about one step ahead, for 12 contexts and 24 distractors."""
    return DGVFA2C(
        "PaperMlpPolicy", DistractedBandit(NUM_ENVS, seed), n_steps=N_STEPS, gamma=0.0, learning_rate=2e-2,
        ent_coef=0.01, use_rms_prop=False, auxiliary_task="discovered", encoder_mode="auxiliary",
        auxiliary_weighting="fixed", auxiliary_coefficient=1.0, questions=8, question_discount=0.0, unroll_length=3,
        meta_learning_rate=2e-2, policy_kwargs={"features_extractor_kwargs": {"hidden": (6,)}},
        seed=seed, device="cpu", compile=False,
    )  # fmt: skip


def mean_reward(model: DGVFA2C, seed: int, steps: int = 100) -> float:
    """Per step of the deterministic policy, in the same world with other randomness."""
    env = DistractedBandit(NUM_ENVS, seed)
    observations, _ = env.reset(seed=1_000 + seed)
    rewards = []
    for _ in range(steps):
        actions, _ = model.predict(observations, deterministic=True)
        observations, reward, *_ = env.step(actions)
        rewards.append(reward)
    return float(np.mean(rewards))


def test_discovered_questions_shape_a_narrow_encoder() -> None:
    before, after = [], []
    for seed in SEEDS:
        model = model_of(seed)
        before.append(mean_reward(model, seed))
        model.learn(UPDATES * N_STEPS * NUM_ENVS)
        after.append(mean_reward(model, seed))
    shown = f"before {np.round(before, 2)}, after {np.round(after, 2)}, standard deviation {np.std(after, ddof=1):.2f}"
    assert abs(np.mean(before) - 1 / ACTIONS) < 0.15, shown
    assert min(after) > 1 / ACTIONS + 0.4, shown
    assert np.mean(after) > max(THRESHOLD, max(before) + 0.4), shown
