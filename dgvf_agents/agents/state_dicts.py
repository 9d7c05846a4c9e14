"""A learner's η and optimizers as objects with state dicts, which Stable-Baselines3's `set_parameters` asks for."""

from __future__ import annotations

from typing import Any, final

from dgvf_agents.core.types import Params
from dgvf_agents.learner import DiscoveryLearner


@final
class QuestionParameters:
    """η as a state dict of named tensors, like a network's."""

    def __init__(self, learner: DiscoveryLearner) -> None:
        self._learner = learner

    def state_dict(self) -> Params:
        """η by name."""
        return self._learner.eta

    def load_state_dict(self, state: Params, strict: bool = True) -> None:
        """Restore what `state_dict` returned; if not `strict`, the tensors that it has.

        Raises:
            ValueError: names or shapes differ.
        """
        self._learner.set_eta(state if strict else {**self._learner.eta, **state})


@final
class OptimizerStates:
    """The inner optimizer's statistics and the state of Adam on η as a state dict."""

    def __init__(self, learner: DiscoveryLearner) -> None:
        self._learner = learner

    def state_dict(self) -> dict[str, Any]:
        """Both, as nested dicts of tensors and numbers."""
        return {"inner": self._learner.statistics, "meta": self._learner.meta_optimizer_state}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: names or shapes differ.
        """
        if set(state) != {"inner", "meta"}:
            raise ValueError(f"optimizers must have the names ['inner', 'meta'], got {sorted(state)}")
        self._learner.set_statistics(state["inner"])
        self._learner.set_meta_optimizer_state(state["meta"])
