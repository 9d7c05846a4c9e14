"""Fill the cache of compiled functions."""

from __future__ import annotations

import dataclasses

import torch

from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.train import build


def warm_up(config: TrainConfig) -> None:
    """Compile what training with a configuration needs, by training until the first meta-update.

    Args:
        config: the configuration; its number of steps does not count.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads)
    try:
        model = build(dataclasses.replace(config, compile=True))
        model.learn((config.unroll_length + 1) * config.n_steps * config.n_envs)
        assert model.env is not None
        model.env.close()
    finally:
        torch.set_num_threads(threads)
