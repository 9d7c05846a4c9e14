"""Actors in the learner's own process, in place of a fleet of Ray actors."""

from __future__ import annotations

import cloudpickle
from stable_baselines3.common.logger import Logger

from dgvf_agents.impala.actors import ActorSpec, EnvironmentActor
from dgvf_agents.impala.fleet import pickled
from dgvf_agents.impala.settings import ActorSettings
from dgvf_agents.impala.transport import PackedRollout, Parameters


class InProcessFleet:
    """Calls actors in turn. Their parameters are `lag` calls of `collect` old."""

    lag = 0

    def __init__(self, spec: ActorSpec, actors: int, settings: ActorSettings, resumed: bool) -> None:
        self.actors = [EnvironmentActor(cloudpickle.loads(pickled(spec)), i, 0) for i in range(actors)]
        self.published: list[Parameters] = []
        self.rollouts: list[PackedRollout] = []
        self.stopped, self.records = False, 0

    def collect(self, count: int, parameters: Parameters) -> list[PackedRollout]:
        self.published.append(parameters)
        used = self.published[max(0, len(self.published) - 1 - self.lag)]
        first = len(self.rollouts)
        for i in range(first, first + count):
            self.rollouts.append(self.actors[i % len(self.actors)].rollout(used))
        return self.rollouts[first:]

    def record(self, logger: Logger) -> None:
        self.records += 1
        logger.record("actors/running", len(self.actors))

    def stop(self) -> None:
        self.stopped = True
