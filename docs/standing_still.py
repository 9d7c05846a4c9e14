"""Where the agents of runs on PuddleWorld stand still: places, actions and values of episodes that do not end.

python docs/standing_still.py RUN [RUN ...]

An evaluation episode of a good agent takes some 40 steps. Those that last for 500 stand still. For each run: how many
of 64 do, the median of their positions, the action that most of them choose, its median probability, and the median
value beside that of standing still forever at a reward of -1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dgvf_agents.train.algorithms import load_model
from dgvf_agents.train.environments import evaluation_environments
from dgvf_agents.train.folder import RunFolder

EPISODES, STEPS, SEED = 64, 500, 0
ACTIONS = ("left", "right", "down", "up", "stay")


def standing_still(run: Path) -> str:
    """A line about a run."""
    folder = RunFolder.existing(run)
    config = folder.read_config()
    model = load_model(config, folder.latest_checkpoint(), device="cpu")
    torch.manual_seed(SEED)
    env = evaluation_environments(config, EPISODES, SEED)
    observations: Any = env.reset()
    standing = np.ones(EPISODES, bool)
    for _ in range(STEPS):
        actions, _ = model.predict(observations)
        observations, _, dones, _ = env.step(actions)
        standing &= ~dones
    count = f"{standing.sum()} of {EPISODES} episodes last for {STEPS} steps"
    if not standing.any():
        return count
    places = observations[standing]
    with torch.no_grad():
        inputs = torch.as_tensor(places)
        probabilities: Any = model.policy.get_distribution(inputs).distribution
        chosen = probabilities.probs.max(-1)
        value = model.policy.predict_values(inputs).median().item()
    action = ACTIONS[int(chosen.indices.mode().values)]
    x, y = np.median(places, 0)
    forever = -config.env_kwargs.get("reward_scale", 1.0) / (1.0 - config.gamma)
    return (
        f"{count}, at ({x:.2f}, {y:.2f}): {action} with probability {chosen.values.median().item():.6f}, "
        f"value {value:.1f}, forever {forever:.1f}"
    )


def main(runs: list[str]) -> None:
    for run in runs:
        print(f"{run}: {standing_still(Path(run))}")


if __name__ == "__main__":
    main(sys.argv[1:])
