"""Lets `python -m rl_zoo3.train --algo dgvf` work in the folder that this lies in: the zoo imports `custom_envs`."""

from dgvf_agents.zoo import register

register()
