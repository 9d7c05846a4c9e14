"""Scaling down of meta-gradients: of all of η together, or of cumulants and discounts each by itself.

The paper's table 1 has one norm for cumulants and another for discounts. Every parameter of η belongs to one of two
groups, and each group's gradient is scaled down to its own norm:

- *discounts*: the head for discounts, parameters whose names start with `discounts.`;
- *cumulants*: all else, the head for cumulants and the encoder that both heads share.

The encoder's gradient is a sum of one through the cumulants and one through the discounts. Scaling down each of these
by itself before adding them would need a second way back through the encoder in every one of the L updates. Counted
among the cumulants, the sum is held to the smaller of the table's norms, whatever part the discounts have in it. Where
the networks of cumulants and discounts are apart, as in the paper's joint experiments, the groups are exactly theirs.
"""

from __future__ import annotations

from dgvf_agents.core.optimizers import clip_by_global_norm
from dgvf_agents.core.types import Params
from dgvf_agents.execution.packing import Packing

DISCOUNTS = "discounts."
"""What the names of the discounts' parameters start with."""


def clip_meta_gradient(gradient: Params, eta: Packing, max_norm: float, max_discount_norm: float | None) -> Params:
    """A packed meta-gradient, scaled down.

    Args:
        gradient: packed like η.
        eta: how η is packed.
        max_norm: norm > 0 of the cumulants' gradient, or of all of it.
        max_discount_norm: norm > 0 of the discounts' gradient; `None` for one norm over all of η.
    """
    if max_discount_norm is None:
        return clip_by_global_norm(gradient, max_norm)
    return eta.pack(clip_separately(eta.unpack(gradient), max_norm, max_discount_norm))


def clip_separately(gradient: Params, max_norm: float, max_discount_norm: float) -> Params:
    """A meta-gradient by name, each of its groups scaled down where its norm is too large; either may be empty."""
    discounts = {name: value for name, value in gradient.items() if name.startswith(DISCOUNTS)}
    cumulants = {name: value for name, value in gradient.items() if name not in discounts}
    clipped: Params = {}
    for group, norm in ((cumulants, max_norm), (discounts, max_discount_norm)):
        clipped |= clip_by_global_norm(group, norm) if group else {}
    return {name: clipped[name] for name in gradient}
