"""Rendering with pygame: windows, frames, color scales and overlays.

A `View` draws one environment on a `Canvas`; the `Renderer` turns that into frames or shows it in a window.
"""

from dgvf_envs.rendering.canvas import (
    AGENT,
    DIVERGING,
    FAINT,
    GOAL,
    INK,
    LINE,
    PAPER,
    SEQUENTIAL,
    WATER,
    Canvas,
    Color,
    colors,
    font,
)
from dgvf_envs.rendering.renderer import Renderer
from dgvf_envs.rendering.view import Arrow, EpisodeSnapshot, LiveOverlay, Overlay, OverlayHook, View, map_picture

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
