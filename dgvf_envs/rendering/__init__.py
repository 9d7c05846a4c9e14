"""What pygame draws: the window, text, color scales, and values over the map."""

from dgvf_envs.rendering.renderer import Canvas, EpisodeSnapshot, LiveOverlay, Overlay, Renderer, View

__all__ = ["Canvas", "EpisodeSnapshot", "LiveOverlay", "Overlay", "Renderer", "View"]
