"""Hyperparameters meant for losses that are sums over a batch, as IMPALA's are, for losses that are means, as ours are.

The gradient of a sum over N = T · B samples is N times that of the mean. What a step does with it differs in numbers
that gradients are compared with: norms that they are scaled down to, RMSProp's ε and its second moment at first, and
Adam's ε. The meta-gradient of a summed meta-loss is N times that of a mean one as well, since inner steps are the same.
Learning rates and the factors between the parts of a loss stay as they are.
"""

from __future__ import annotations

import dataclasses

from dgvf_agents.core.optimizers import RMSProp


def norm_for_means(norm: float, samples: int) -> float:
    """The norm of a mean's gradient where the sum's is `norm`; Adam's ε, added to a root mean square, goes likewise.

    Args:
        norm: of a sum's gradient.
        samples: N ≥ 1.
    """
    return norm / samples


def rms_prop_for_means(optimizer: RMSProp, samples: int) -> RMSProp:
    """RMSProp whose steps along g are those of `optimizer` along N g.

    These are N g / √(s + ε), with s ← ρ s + (1 - ρ) N² g². Dividing by N: g / √(s′ + ε/N²), with s′ = s / N², which
    follows g² and starts at 1/N² where s starts at 1.

    Args:
        optimizer: for gradients of sums.
        samples: N ≥ 1.
    """
    return dataclasses.replace(
        optimizer,
        epsilon=optimizer.epsilon / samples**2,
        initial_moment=optimizer.initial_moment / samples**2,
    )
