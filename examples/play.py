"""Play with the keyboard: `python examples/play.py --env-id PuddleWorld-v0`.

Escape ends the game.
"""

from __future__ import annotations

import gymnasium as gym
import tyro
from gymnasium.utils.play import play

import dgvf_envs  # noqa: F401, registers the environments


def main(env_id: str = "CollectObjects-v0") -> None:
    """Arrow keys or WASD move; in PuddleWorld the point stays where no key is down.

    Args:
        env_id: the environment.
    """
    env = gym.make(env_id, render_mode="rgb_array")
    stay = 4
    if stay in env.action_space:
        play(env, noop=stay)  # in real time
    else:
        play(env, wait_on_player=True, fps=10)  # time passes only while a key is down


if __name__ == "__main__":
    tyro.cli(main)
