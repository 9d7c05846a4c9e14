"""Train Stable-Baselines3's A2C on a vector environment."""

from __future__ import annotations

import tyro
from stable_baselines3 import A2C
from stable_baselines3.common.evaluation import evaluate_policy

from dgvf_envs.sb3_adapter import make_vec


def main(
    env_id: str = "dgvf_envs:CollectObjectsSmall-v0",
    n_envs: int = 16,
    steps: int = 500_000,
    episodes: int = 100,
    seed: int = 0,
) -> float:
    """Train for half a minute or so, then evaluate.

    Args:
        env_id: the environment; the module before the colon is imported first.
        n_envs: the number of copies.
        steps: environment steps of training, all copies together.
        episodes: how many episodes evaluate the agent.
        seed: of the environments, the network and the actions.

    Returns:
        The mean return of the evaluation episodes.
    """
    envs = make_vec(env_id, n_envs=n_envs, seed=seed)
    model = A2C(
        "MlpPolicy",
        envs,
        learning_rate=1e-3,
        ent_coef=0.03,
        seed=seed,
        device="cpu",
        verbose=1,
    )
    model.learn(steps, log_interval=1000)
    envs.close()

    fresh = make_vec(env_id, n_envs=n_envs, seed=seed + n_envs)
    mean, deviation = evaluate_policy(
        model,
        fresh,
        n_eval_episodes=episodes,
        deterministic=False,
    )
    fresh.close()
    print(f"mean return {mean:.2f}, standard deviation {deviation:.2f}")
    assert not isinstance(mean, list)  # as with `return_episode_rewards`
    return float(mean)


if __name__ == "__main__":
    tyro.cli(main)
