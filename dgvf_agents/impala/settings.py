"""Settings of distributed actors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from dgvf_agents.core.argument_checks import check_counts, check_not_negative, check_positive, check_sizes, is_integer


@final
@dataclass(frozen=True)
class ActorSettings:
    """How distributed actors are called and supervised. Times are in seconds."""

    address: str | None = None
    """Address of a running Ray cluster, or `"auto"`; `None`: that in `RAY_ADDRESS`, or a Ray on this machine that is
    started if necessary. Where the process is connected to Ray already, this connection is used."""
    namespace: str | None = None
    """Ray namespace of the actors. A learner takes over actors that an earlier one left in it. `None`: a new one."""
    calls_in_flight: int = 2
    """Maximum number of calls per actor: one that runs, and others that wait for it."""
    cpus_per_actor: float = 1.0
    """CPUs that Ray reserves for each actor."""
    timeout: float = 120.0
    """Time for one rollout, after which the actor is restarted."""
    start_timeout: float = 300.0
    """Time for making an actor's environments, once it has a process, after which the actor is restarted."""
    max_failures: int = 5
    """Failures of one actor in a row after which training stops with an error."""
    first_delay: float = 1.0
    """Delay before an actor that failed is called again; doubles with each failure in a row."""
    max_delay: float = 60.0
    """Maximum of this delay."""
    idle_exit: float = 3600.0
    """Time without a call after which an actor exits, in case no learner comes back."""

    def __post_init__(self) -> None:
        check_counts(calls_in_flight=self.calls_in_flight, max_failures=self.max_failures)
        check_not_negative(cpus_per_actor=self.cpus_per_actor, first_delay=self.first_delay, max_delay=self.max_delay)
        check_positive(timeout=self.timeout, start_timeout=self.start_timeout, idle_exit=self.idle_exit)


def check_actors(actors: Any, envs_per_actor: Any) -> None:
    """
    Raises:
        ValueError: they are not numbers of distributed actors, 0 for none, and of environments of each, or `None`.
    """
    if not is_integer(actors) or actors < 0:
        raise ValueError(f"actors must be an integer >= 0, got {actors!r}")
    given = {"actors": actors or None, "envs_per_actor": envs_per_actor}
    check_sizes(**{name: value for name, value in given.items() if value is not None})
