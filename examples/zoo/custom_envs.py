"""Register `dgvf` for `python -m rl_zoo3.train`, which imports `custom_envs`."""

from dgvf_agents.zoo import register

register()
