"""Random rollouts to test the mathematics on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch.utils._pytree import tree_map

from dgvf_agents.core.types import Rollout


def random_rollout(
    seed: int,
    *,
    steps: int = 4,
    num_envs: int = 3,
    shape: tuple[int, ...] = (5,),
    actions: int = 3,
    ends: bool = True,
    num_unused: int = 0,
    index_terminated: bool = False,
) -> Rollout:
    """Normal observations and rewards, uniform actions.

    Args:
        seed: of the random number generator.
        steps: T.
        num_envs: B.
        shape: of an observation.
        actions: A.
        ends: whether episodes end: at least one by termination, at least one by truncation, others at random.
        num_unused: entries of `bootstrap_index` that no step refers to.
        index_terminated: whether `bootstrap_index` has the final observations of terminated episodes too.
    """
    generator = torch.Generator().manual_seed(seed)
    observations = torch.randn(steps + 1, num_envs, *shape, generator=generator)
    after_ends = torch.randn(steps, num_envs, *shape, generator=generator)
    luck = torch.rand(steps, num_envs, generator=generator)
    terminated, truncated = luck < 0.15, luck > 0.85
    first, second = torch.randperm((steps - 1) * num_envs, generator=generator)[:2].tolist()
    for index, end in ((first, terminated), (second, truncated)):
        terminated.view(-1)[index] = truncated.view(-1)[index] = False
        end.view(-1)[index] = True
    if not ends:
        terminated, truncated = torch.zeros_like(terminated), torch.zeros_like(truncated)
    ended = (terminated | truncated).reshape(steps, num_envs, *(1 for _ in shape))
    rollout = Rollout(
        observations=observations[:-1],
        actions=torch.randint(actions, (steps, num_envs), generator=generator),
        rewards=torch.randn(steps, num_envs, generator=generator),
        terminated=terminated,
        truncated=truncated,
        next_observations=torch.where(ended, after_ends, observations[1:]),
        bootstrap_index=torch.empty(0, dtype=torch.long),
        bootstrap_slot=torch.zeros(steps, num_envs, dtype=torch.long),
    )
    return _with_bootstraps(rollout, num_unused, index_terminated)


def side_by_side(rollouts: Sequence[Rollout], index_terminated: bool = False) -> Rollout:
    """One batch of the environments of several: Σ B of them."""
    fields = {
        name: tree_map(lambda *parts: torch.cat(parts, 1), *(getattr(rollout, name) for rollout in rollouts))
        for name, value in rollouts[0].given().items()
        if name not in ("bootstrap_index", "statistics", "entropy_weight")
    }
    return _with_bootstraps(rollouts[0]._replace(**fields), 0, index_terminated)


def _with_bootstraps(rollout: Rollout, num_unused: int, index_terminated: bool) -> Rollout:
    """Index the next observations that returns bootstrap from; at least one, so that slot 0 exists."""
    (steps, num_envs), slot = rollout.rewards.shape, rollout.bootstrap_slot.clone()
    index: list[int] = [0] * num_unused
    for t, b in product(range(steps), range(num_envs)):
        if rollout.segment_end[t, b] and (index_terminated or not rollout.terminated[t, b]):
            slot[t, b] = len(index)
            index.append(t * num_envs + b)
    return rollout._replace(bootstrap_index=torch.tensor(index or [0]), bootstrap_slot=slot)
