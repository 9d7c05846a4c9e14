"""What commands say of the rules that an environment is played under."""

from __future__ import annotations

from rich.console import Console

from dgvf_agents.train.config import TrainConfig


def tell_rules(config: TrainConfig) -> None:
    """What a game is played under, wherever one is played, and how training differs from evaluation elsewhere."""
    from dgvf_agents.train.environments import worlds_of

    rules = worlds_of(config) if config.atari is None else config.atari.describe()
    if rules is not None:
        Console().print(f"{config.env}: {rules}", markup=False, highlight=False, soft_wrap=True)


def tell_game(config: TrainConfig) -> None:
    """What a game is played under; of other worlds nothing, where no returns are compared."""
    if config.atari is not None:
        tell_rules(config)
