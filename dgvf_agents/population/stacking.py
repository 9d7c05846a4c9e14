"""Trees of tensors with a leading axis of members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from dgvf_agents.core.flat import builder, flatten, template
from dgvf_agents.core.types import Rollout

Tree = TypeVar("Tree")


def stacked(trees: Sequence[Tree]) -> Tree:
    """Equal trees as one; every tensor has a leading axis of members."""
    leaves = [torch.stack(parts) for parts in zip(*map(flatten, trees), strict=True)]
    result: Tree = builder(template(trees[0]))(leaves)
    return result


def member_of(tree: Tree, member: int) -> Tree:
    """The tree of one member, in new tensors."""
    result: Tree = builder(template(tree))([leaf[member].clone() for leaf in flatten(tree)])
    return result


def stacked_rollouts(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """The fields of the members' rollouts, stacked; `bootstrap_index` is filled up to the longest one."""
    longest = max(len(rollout.bootstrap_index) for rollout in rollouts)
    return stacked([_filled_up(rollout, longest).given() for rollout in rollouts])


def _filled_up(rollout: Rollout, length: int) -> Rollout:
    """Unused entries of `bootstrap_index` repeat the first one."""
    index = rollout.bootstrap_index
    unused = index[:1].expand(length - len(index))
    return rollout._replace(bootstrap_index=torch.cat([index, unused]))
