"""PuddleWorld: a grid of positions over the square."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import numpy as np

from dgvf_agents.atlas.domain import Domain, Landmark, Target, Wording, register
from dgvf_agents.atlas.maps import Axis, Maps, Panel
from dgvf_envs.puddle_world.env import PuddleWorld, PuddleWorldState
from dgvf_envs.puddle_world.view import PuddleWorldView

GRID = 41
"""Points along each side of the square."""
NEAR_EDGE = 0.1
"""Distance within which a point counts as near an edge of the square."""
NEAR_GOAL = 0.3
"""L1 distance to the goal's edge within which a point counts as near it."""


@final
class Square(Domain):
    """Positions of a PuddleWorld at even distances."""

    wording = Wording(points="places of the square", landmarks="directions, quarters, edges, puddles, the goal")

    def __init__(self, world: PuddleWorld) -> None:
        axis = np.linspace(0.0, 1.0, GRID)
        x, y = (grid.ravel() for grid in np.meshgrid(axis, axis))  # row 0 is y = 0, as in an Overlay
        states = PuddleWorldState(x, y)
        self.world, self.position = world, np.stack([x, y], axis=1)
        self.observations = world.observe(states)
        self.acting = ~world.in_goal(x, y)
        self.distance = np.maximum(abs(world.goal[0] - x) + abs(world.goal[1] - y) - world.goal_threshold, 0.0)
        panel = Panel("the square", np.arange(GRID * GRID).reshape(GRID, GRID), PuddleWorldState(0.0, 0.0))
        moves = np.stack([world.constants.move_x, -world.constants.move_y], axis=1)
        axes = Axis("x", ((0.0, "0"), (0.5, "0.5"), (1.0, "1"))), Axis("y", ((0.0, "1"), (0.5, "0.5"), (1.0, "0")))
        self.layout = Maps(PuddleWorldView(world), states, (panel,), moves, axes)
        self.landmarks = tuple(one for one in self._landmarks() if np.ptp(one.values) > 0)
        self.targets = (
            Target("position", "position", self.position),
            Target("distance", "distance to goal", self.distance),
        )

    def name(self, point: int) -> str:
        x, y = self.position[point]
        return f"({x:.2f}, {y:.2f})"

    def _landmarks(self) -> Iterator[Landmark]:
        world, distance, (x, y) = self.world, self.distance, self.position.T
        assert distance is not None
        cost = -world.reward(x, y) / world.reward_scale - 1.0
        yield Landmark(x, "be further right", "be further left")
        yield Landmark(y, "be further up", "be further down")
        yield Landmark(distance, "be far from the goal", "be close to the goal")
        yield Landmark((~self.acting).astype(float), "reach the goal", "not reach the goal")
        yield Landmark(x - y, "be toward the bottom-right corner", "be toward the top-left corner")
        yield Landmark(np.sqrt(np.maximum(cost, 0.0)), "be deep in a puddle", "be clear of the puddles")
        for more, less, where, inside in (
            ("be right by", "keep away from", "the goal", distance < NEAR_GOAL),
            ("be in", "keep out of", "the top-left quarter", (x < 0.5) & (y >= 0.5)),
            ("be in", "keep out of", "the top-right quarter", (x >= 0.5) & (y >= 0.5)),
            ("be in", "keep out of", "the bottom-left quarter", (x < 0.5) & (y < 0.5)),
            ("be in", "keep out of", "the bottom-right quarter", (x >= 0.5) & (y < 0.5)),
            ("be at", "keep away from", "the left edge", x < NEAR_EDGE),
            ("be at", "keep away from", "the right edge", x > 1.0 - NEAR_EDGE),
            ("be at", "keep away from", "the bottom edge", y < NEAR_EDGE),
            ("be at", "keep away from", "the top edge", y > 1.0 - NEAR_EDGE),
        ):
            yield Landmark(inside.astype(float), f"{more} {where}", f"{less} {where}")


register(PuddleWorld, Square)
