"""The fused loop: several steps of acting and stepping, and their layout as a batch, as one function to compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from jaxtyping import Bool
from torch import Tensor

from dgvf_agents.core.networks import Act
from dgvf_agents.core.types import Observations, Params, SampledActions
from dgvf_agents.execution.devices import stack_steps
from dgvf_envs.functional.dynamics import Dynamics
from dgvf_envs.functional.simulation import SimulatedRollout, simulate_rollout

Experience = dict[str, Tensor]
"""T steps of B environments: the fields of `Rollout` that do not depend on where episodes were truncated."""


def joined(parts: Sequence[Experience]) -> Experience:
    """Consecutive experience as one; fields may have a leading axis of members."""
    time_axis = parts[0]["rewards"].dim() - 2
    return {name: torch.cat([part[name] for part in parts], time_axis) for name in parts[0]} if parts[1:] else parts[0]


def _finite(experience: Experience) -> Bool[Tensor, ""]:
    """Whether all rewards and observations are finite."""
    floats = [values for values in experience.values() if values.is_floating_point()]
    return torch.stack([torch.isfinite(values).all() for values in floats]).all()


@final
class FusedSteps:
    """Acts and steps T times. A pure function, but for what it is made of."""

    def __init__(self, act: Act, world: Dynamics[Any], max_episode_steps: int | None, device: torch.device) -> None:
        """
        Args:
            act: samples actions.
            world: the dynamics, in NumPy.
            max_episode_steps: the time limit; `None` for no limit.
            device: device of all tensors.
        """
        self._act, self._limit = act, max_episode_steps
        self._world = world.on(torch, dtype=torch.float64, device=device)

    def __call__(
        self, theta: Params, noise: Tensor, state: Any, elapsed_steps: Tensor, uniforms: Tensor, cursor: Tensor
    ) -> tuple[SimulatedRollout, Experience, Tensor]:
        """The steps as the environment needs them and as the learner does, and whether all of it is finite.

        Args:
            theta: packed θ.
            noise: `[T, B, ...]`, of the policy.
            state: state of the environments; every field is `[B]`.
            elapsed_steps: `[B]` integer: steps since the episodes began.
            uniforms: `[B, M]`: the environments' uniform draws.
            cursor: `[B]` integer: index of the next draw.
        """
        log_probs: list[Tensor] = []

        def act(observations: Tensor, t: int) -> Tensor:
            sampled = self._act(theta, observations, noise[t])
            if sampled.log_probs is not None:
                log_probs.append(sampled.log_probs)
            return sampled.actions

        environment = (state, elapsed_steps, uniforms, cursor, len(noise), self._limit)
        simulated = simulate_rollout(self._world, act, *environment)
        experience = {
            "observations": stack_steps([self._world.observe(state), *simulated.observations[:-1].unbind()]),
            "actions": simulated.actions,
            "rewards": simulated.rewards.float(),
            "terminated": simulated.terminated,
            "truncated": simulated.truncated & ~simulated.terminated,
            "next_observations": stack_steps(simulated.final_observations.unbind()),
            **({"behavior_log_probs": torch.stack(log_probs)} if log_probs else {}),
        }
        return simulated, experience, _finite(experience)


@final
class PopulationSteps:
    """`FusedSteps` of P members, whose P · B environments follow each other."""

    def __init__(
        self, act: Act, world: Dynamics[Any], max_episode_steps: int | None, device: torch.device, members: int
    ) -> None:
        """
        Args:
            act: samples the actions of one member.
            world: the dynamics, in NumPy.
            max_episode_steps: the time limit; `None` for no limit.
            device: device of all tensors.
            members: P.
        """
        self._member, self._members = act, members
        self._fused = FusedSteps(self._act, world, max_episode_steps, device)

    def __call__(self, theta: Params, noise: Tensor, *environment: Any) -> tuple[SimulatedRollout, Experience, Tensor]:
        """`FusedSteps` with θ `[P, n]` and noise `[T, P·B, ...]`; experience is `[P, T, B, ...]`."""
        simulated, experience, finite = self._fused(theta, noise, *environment)
        return simulated, {name: self._by_member(values) for name, values in experience.items()}, finite

    def _act(self, theta: Params, observations: Observations, noise: Tensor) -> SampledActions:
        assert isinstance(observations, Tensor)  # a simulated environment's
        own, drawn = (part.unflatten(0, (self._members, -1)) for part in (observations, noise))

        def act(theta: Params, observations: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
            return tuple(value for value in self._member(theta, observations, noise) if value is not None)

        return SampledActions(*(value.flatten(0, 1) for value in torch.func.vmap(act)(theta, own, drawn)))

    def _by_member(self, values: Tensor) -> Tensor:
        return values.unflatten(1, (self._members, -1)).movedim(1, 0).contiguous()
