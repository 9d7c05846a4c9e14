"""The core's functions on packed parameters: one vector instead of many named tensors.

Every input and output tensor of a compiled function has a cost, and so has every tensor that autograd stores. Small
networks spend more time on this overhead than on arithmetic. Vectors are packed and unpacked inside the compiled
functions, where both are free, so the core works on named tensors.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from itertools import accumulate
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from dgvf_agents.core.inner_update import (
    InnerState,
    Numbers,
    UpdateRule,
    inner_update,
    meta_loss_gradient,
    update_with_meta_loss,
)
from dgvf_agents.core.metrics import InnerMetrics
from dgvf_agents.core.networks import sample_actions
from dgvf_agents.core.optimizers import clip_by_global_norm, clip_heads_separately
from dgvf_agents.core.types import Observations, Params, Rollout, SampledActions

KEY = "packed"
"""The only key of a packed dict of parameters."""


@final
class Packing:
    """The layout of a tree of tensors in one vector."""

    def __init__(self, tree: Any) -> None:
        """
        Args:
            tree: nested dicts of tensors of one dtype; defines the order and the shapes.
        """
        leaves, self._spec = tree_flatten(tree)
        self._names = _names(tree)
        self._shapes = [leaf.shape for leaf in leaves]
        self._sizes = [leaf.numel() for leaf in leaves]
        self.size = sum(self._sizes)
        starts = [0, *accumulate(self._sizes)]
        # strides of contiguous tensors
        self._layouts = [
            (s, torch.empty(s, device="meta").stride(), o) for s, o in zip(self._shapes, starts, strict=False)
        ]

    def pack(self, tree: Any) -> Params:
        """The tree as a dict of one vector, whatever the order of its names; empty if the tree has no tensors.

        Raises:
            KeyError: a name is missing.
        """
        leaves = _leaves(tree, self._names)
        return {KEY: torch.cat([leaf.reshape(-1) for leaf in leaves])} if leaves else {}

    def unpack(self, packed: Params) -> Any:
        """The tree; its tensors are views of the vector."""
        pieces = packed[KEY].split(self._sizes) if self._sizes else ()
        leaves = [piece.reshape(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        return tree_unflatten(leaves, self._spec)

    def views(self, packed: Params) -> list[Tensor]:
        """The leaves of `unpack` as a list. Much faster than `unpack`, but not for compiled functions."""
        if not packed:
            return []
        vector = packed[KEY]
        start = vector.storage_offset()
        return [vector.as_strided(shape, strides, start + offset) for shape, strides, offset in self._layouts]


def _names(tree: Any) -> Any:
    """The names of nested dicts."""
    return {name: _names(part) for name, part in tree.items()} if isinstance(tree, dict) else None


def _leaves(tree: Any, names: Any) -> list[Tensor]:
    """The tensors of nested dicts in the order of the names."""
    return [tree] if names is None else [leaf for name in names for leaf in _leaves(tree[name], names[name])]


def clip_meta_gradient(
    gradient: Params, eta: Packing, max_norm: float | Tensor, max_discount_norm: float | Tensor | None
) -> Params:
    """A packed meta-gradient, scaled down.

    Args:
        gradient: packed like η.
        eta: how η is packed.
        max_norm: maximum norm > 0 of the gradient of the cumulants, or of all of η.
        max_discount_norm: maximum norm > 0 of the gradient of the discount head; `None`: one norm over all of η.
    """
    if max_discount_norm is None:
        return clip_by_global_norm(gradient, max_norm)
    return eta.pack(clip_heads_separately(eta.unpack(gradient), max_norm, max_discount_norm))


@final
class PackedFunctions:
    """`inner_update` and `meta_loss_gradient` of an update rule, on packed θ, η and optimizer statistics."""

    def __init__(self, rule: UpdateRule, eta: Params) -> None:
        """
        Args:
            rule: the update rule; its numbers do not matter.
            eta: η, for its names and shapes.
        """
        theta = rule.network.params()
        self._rule = rule.structure
        self.theta = Packing(theta)
        self.optimizer = Packing(rule.optimizer.init(theta))
        self.eta = Packing(eta)

    def _at(self, numbers: Numbers) -> UpdateRule:
        return dataclasses.replace(self._rule, numbers=numbers)

    def update(
        self, state: InnerState, eta: Params, rollout: Rollout, learning_rate: Tensor, numbers: Numbers
    ) -> tuple[InnerState, InnerMetrics]:
        """`inner_update`."""
        named = self._named(state)
        after, metrics = inner_update(self._at(numbers), named, self.eta.unpack(eta), rollout, learning_rate)
        return self.packed(after), metrics

    def update_with_meta_loss(
        self, state: InnerState, eta: Params, rollout: Rollout, learning_rate: Tensor, numbers: Numbers
    ) -> tuple[tuple[InnerState, Tensor], InnerMetrics]:
        """`update_with_meta_loss`."""
        rule, named = self._at(numbers), self._named(state)
        (after, loss), metrics = update_with_meta_loss(rule, named, self.eta.unpack(eta), rollout, learning_rate)
        return (self.packed(after), loss), metrics

    def meta_loss_gradient(self, theta: Params, rollout: Rollout, numbers: Numbers) -> tuple[Params, Tensor]:
        """`meta_loss_gradient`, with zeros for parameters that the meta-loss does not depend on."""
        named = self.theta.unpack(theta)
        gradients, loss = meta_loss_gradient(self._at(numbers), named, rollout)
        return self.theta.pack({name: gradients.get(name, torch.zeros_like(v)) for name, v in named.items()}), loss

    def vector(self, state: InnerState) -> Tensor:
        """A packed state as one vector: θ, followed by the optimizer's statistics."""
        return torch.cat([state.theta[KEY], *state.optimizer[KEY].values()])

    def update_of_vector(
        self, eta: Params, rollout: Rollout, learning_rate: Tensor, numbers: Numbers
    ) -> Callable[[Tensor], Tensor]:
        """`update` as a function of `vector`, from θ_{k-1} to θ_k; of several learners, of one alone."""
        alone = copy.copy(self)
        alone._rule = dataclasses.replace(self._rule, averaging=None)

        def after(vector: Tensor) -> Tensor:
            theta, statistics = vector.split([self.theta.size, self.optimizer.size])
            state = InnerState({KEY: theta}, {KEY: {KEY: statistics} if self.optimizer.size else {}})
            return self.vector(alone.update(state, eta, rollout, learning_rate, numbers)[0])

        return after

    def act(self, theta: Params, observations: Observations, drawn: Tensor) -> SampledActions:
        """Sample actions from the policy, with their log-probabilities if the rule is off-policy.

        Args:
            theta: packed θ.
            observations: `[B, *obs]`.
            drawn: noise `[B, ...]` of `ActionDistribution.draw_noise`, one step of it.
        """
        rule = self._rule
        named, log_probs = self.theta.unpack(theta), rule.targets.off_policy
        return sample_actions(rule.network, rule.distribution, named, observations, drawn, log_probs)

    def _named(self, state: InnerState) -> InnerState:
        return InnerState(self.theta.unpack(state.theta), self.optimizer.unpack(state.optimizer[KEY]))

    def packed(self, state: InnerState) -> InnerState:
        """The state, packed."""
        return InnerState(self.theta.pack(state.theta), {KEY: self.optimizer.pack(state.optimizer)})
