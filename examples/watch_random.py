"""Watch a random agent: `python examples/watch_random.py --env-id PuddleWorld-v0`."""

from __future__ import annotations

import gymnasium as gym
import tyro

import dgvf_envs  # noqa: F401, registers the environments


def main(
    env_id: str = "CollectObjects-v0",
    episodes: int = 3,
    steps: int = 200,
    seed: int = 0,
) -> list[float]:
    """Show episodes of a random agent in a window.

    Args:
        env_id: the environment.
        episodes: how many to show.
        steps: the most steps of an episode.
        seed: of the environment and of the actions.

    Returns:
        The return of each episode.
    """
    env = gym.make(env_id, render_mode="human", max_episode_steps=steps)
    env.action_space.seed(seed)
    returns = []
    for episode in range(episodes):
        env.reset(seed=seed if episode == 0 else None)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total += float(reward)
            over = terminated or truncated
        returns.append(total)
        print(f"episode {episode}: return {total:.2f}")
    env.close()
    return returns


if __name__ == "__main__":
    tyro.cli(main)
