"""Trees of tensors with a leading axis of members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

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
    indices = equally_long([rollout.bootstrap_index for rollout in rollouts])
    filled = [rollout._replace(bootstrap_index=index) for rollout, index in zip(rollouts, indices, strict=True)]
    return stacked([rollout.given() for rollout in filled])


def equally_long(indices: Sequence[Tensor]) -> list[Tensor]:
    """Each `Rollout.bootstrap_index` `[K]` with the longest K: unused entries repeat the first one."""
    longest = max(map(len, indices))
    return [torch.cat([index, index[:1].expand(longest - len(index))]) for index in indices]
