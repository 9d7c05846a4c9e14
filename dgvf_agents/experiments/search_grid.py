"""The values that the search for hyperparameters tries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True)
class SearchGrid:
    """What is tried."""

    learning_rates: tuple[float, ...] = (1e-4, 3e-4, 7e-4, 1e-3, 3e-3, 7e-3)
    """Of RMSProp (the paper's, which lists 1e-3 twice)."""
    entropies: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 3e-2, 5e-2)
    """Entropy coefficients (the paper's) at the end; those at the start are as many times larger as in the preset."""
    coefficients: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0)
    """Factors on the sum of the answer losses; the paper is silent."""

    def __post_init__(self) -> None:
        for name in ("learning_rates", "entropies", "coefficients"):
            if not getattr(self, name):
                raise ValueError(f"{name} must have a value, got none")
