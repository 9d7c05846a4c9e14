"""Rendering with pygame: windows, frames, color scales and overlays.

A `View` draws one environment on a `Canvas`; the `Renderer` turns that into frames or shows it in a window.
"""

from dgvf_envs.rendering.canvas import Canvas, font
from dgvf_envs.rendering.colors import AGENT, DIVERGING, FAINT, GOAL, INK, LINE, PAPER, SEQUENTIAL, WATER, Color, colors
from dgvf_envs.rendering.overlay import LiveOverlay, Overlay, OverlayHook
from dgvf_envs.rendering.renderer import Renderer
from dgvf_envs.rendering.snapshot import EpisodeSnapshot
from dgvf_envs.rendering.view import Arrow, View, map_picture

__all__ = [
    "AGENT",
    "DIVERGING",
    "FAINT",
    "GOAL",
    "INK",
    "LINE",
    "PAPER",
    "SEQUENTIAL",
    "WATER",
    "Arrow",
    "Canvas",
    "Color",
    "EpisodeSnapshot",
    "LiveOverlay",
    "Overlay",
    "OverlayHook",
    "Renderer",
    "View",
    "colors",
    "font",
    "map_picture",
]
