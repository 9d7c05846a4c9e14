"""The colors of Collect-Objects, in pictures and in `"rgb"` observations."""

from __future__ import annotations

from dgvf_envs.rendering.colors import AGENT, PAPER, Color

AGENT_COLOR: Color = AGENT
FIRST_COLOR: Color = (240, 178, 50)
SECOND_COLOR: Color = (122, 84, 190)
FLOOR_COLOR: Color = PAPER
WALL_COLOR: Color = (70, 78, 96)
