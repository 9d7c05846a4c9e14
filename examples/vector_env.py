"""Step many environments as one batch."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import tyro
from gymnasium.vector import AutoresetMode

import dgvf_envs  # noqa: F401, registers the environments


def main(
    env_id: str = "CollectObjects-v0",
    num_envs: int = 256,
    steps: int = 1000,
    seed: int = 0,
) -> float:
    """Let a random agent act in all environments.

    Args:
        env_id: the environment.
        num_envs: number of environments.
        steps: steps of each environment.
        seed: of the environments and of the actions; environment i gets `seed + i`.

    Returns:
        The mean return of the episodes that ended.
    """
    same_step = AutoresetMode.SAME_STEP
    envs = gym.make_vec(env_id, num_envs=num_envs, autoreset_mode=same_step)
    envs.action_space.seed(seed)
    observations, _ = envs.reset(seed=seed)
    running = np.zeros(num_envs)
    ended: list[float] = []
    for _ in range(steps):
        actions = envs.action_space.sample()
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        running += rewards
        done = terminated | truncated
        if done.any():
            # Where an episode ended, `observations` belongs to the next one.
            last = np.stack(infos["final_obs"][infos["_final_obs"]])
            assert last.shape == (done.sum(), *observations.shape[1:])
            ended += running[done].tolist()
            running[done] = 0.0
    envs.close()
    mean = float(np.mean(ended)) if ended else float("nan")
    print(f"{len(ended)} episodes, mean return {mean:.3f}")
    return mean


if __name__ == "__main__":
    tyro.cli(main)
