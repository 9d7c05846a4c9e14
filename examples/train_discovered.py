"""Discovered questions in Stable-Baselines3's style: train, save, load, evaluate."""

from pathlib import Path

from stable_baselines3.common.evaluation import evaluate_policy

from dgvf_agents import DGVFA2C
from dgvf_envs.sb3_adapter import make_vec


def main(
    steps: int = 1_000_000,
    file: Path = Path("discovered.zip"),
    questions: int = 128,
    compile: bool = True,
) -> float:
    """Train an encoder by discovered questions alone; returns the mean return."""
    model = DGVFA2C(
        "PaperCnnPolicy",
        "CollectObjectsSmall-v0",
        n_envs=16,
        learning_rate=3e-3,
        ent_coef=0.03,
        max_grad_norm=None,
        auxiliary_task="discovered",
        encoder_mode="auxiliary",
        auxiliary_weighting="fixed",
        auxiliary_coefficient=0.1,
        questions=questions,
        compile=compile,
        seed=0,
        verbose=1,
    )
    model.learn(steps, log_interval=1_000)
    model.save(file)

    model = DGVFA2C.load(file)
    envs = make_vec("CollectObjectsSmall-v0", 16, seed=1)
    mean, _ = evaluate_policy(model, envs, n_eval_episodes=100)
    assert not isinstance(mean, list)  # as with `return_episode_rewards`
    return float(mean)


if __name__ == "__main__":
    print(f"mean return {main():.2f}")
