"""Adam on the η of every member, with learning rates of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dgvf_agents.population.stacking import stacked

_BETAS = (0.9, 0.999)
"""β₁ and β₂: PyTorch's defaults, which `DiscoveryLearner` uses."""


@final
class MemberAdam:
    """`torch.optim.Adam` for P vectors at once. A member whose step is skipped does not change."""

    def __init__(self, states: Sequence[dict[str, Any]], size: int, epsilon: Float[Tensor, " P"]) -> None:
        """
        Args:
            states: state dicts of `torch.optim.Adam` on one vector, one for each member.
            size: length of the vectors.
            epsilon: ε.
        """
        self._templates, self._epsilon = list(states), epsilon[:, None]
        self._moments = stacked([_moments(state, size, epsilon.device) for state in states])
        self._rates = torch.tensor([state["param_groups"][0]["lr"] for state in states], dtype=torch.float64)

    def step(
        self,
        values: Float[Tensor, "P n"],
        gradient: Float[Tensor, "P n"],
        learning_rates: Float[Tensor, " P"],
        taken: Bool[Tensor, " P"],
    ) -> Float[Tensor, "P n"]:
        """The vectors after a step along the gradient, for members that take it."""
        moments, (first, second) = self._moments, _BETAS
        after = {
            "step": moments["step"] + 1,
            "exp_avg": moments["exp_avg"].lerp(gradient, 1 - first),
            "exp_avg_sq": (moments["exp_avg_sq"] * second).addcmul_(gradient, gradient, value=1 - second),
        }
        corrections = [1 - beta ** after["step"][:, None] for beta in _BETAS]
        scale = after["exp_avg_sq"].sqrt().div_(corrections[1].sqrt()).add_(self._epsilon)
        moved = values.addcdiv(after["exp_avg"] * (learning_rates[:, None] / corrections[0]), scale, value=-1)
        on_host = taken.cpu()
        self._rates = torch.where(on_host, learning_rates.cpu().double(), self._rates)
        if bool(on_host.all()):
            self._moments = after
            return moved
        self._moments = {name: _where(taken, value, moments[name]) for name, value in after.items()}
        return _where(taken, moved, values)

    def state_dict(self, member: int) -> dict[str, Any]:
        """The state of one member as a state dict of `torch.optim.Adam`."""
        moments = {name: value[member].clone() for name, value in self._moments.items()}
        moments["step"] = moments["step"].float().cpu()  # where PyTorch's fused Adam keeps it on the CPU
        groups = [{**self._templates[member]["param_groups"][0], "lr": float(self._rates[member])}]
        return {"state": {0: moments} if float(moments["step"]) else {}, "param_groups": groups}


def _moments(state: dict[str, Any], size: int, device: torch.device) -> dict[str, Tensor]:
    """Step count and moments; zeros before the first step."""
    found = state["state"].get(0)
    if found is None:
        zeros = torch.zeros(size, device=device)
        return {"step": torch.zeros((), device=device), "exp_avg": zeros, "exp_avg_sq": zeros}
    return {name: found[name].to(device) for name in ("step", "exp_avg", "exp_avg_sq")}


def _where(taken: Tensor, after: Tensor, before: Tensor) -> Tensor:
    return torch.where(taken if after.ndim == 1 else taken[:, None], after, before)
