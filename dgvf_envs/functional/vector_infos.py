"""Infos of a vector environment, in the format of `gymnasium.vector.SyncVectorEnv`."""

from __future__ import annotations

from typing import Any

import numpy as np


def success_info(success: np.ndarray, absent: np.ndarray | None) -> dict[str, Any]:
    """`is_success` `[N]` with its mask; environments that report none (`absent` `[N]`) are masked out."""
    if absent is None:
        return {"is_success": success.copy(), "_is_success": np.ones_like(success)}
    if absent.all():
        return {}
    return {"is_success": success & ~absent, "_is_success": ~absent}


def final_infos(observations: np.ndarray, success: np.ndarray, done: np.ndarray) -> dict[str, Any]:
    """The final observations and infos of the episodes that ended (`done` `[N]`)."""
    final_obs = np.full(len(done), None, dtype=object)
    for row in np.flatnonzero(done):
        final_obs[row] = observations[row].copy()
    return {
        "final_obs": final_obs,
        "_final_obs": done.copy(),
        "final_info": {"is_success": success & done, "_is_success": done.copy()},
        "_final_info": done.copy(),
    }
