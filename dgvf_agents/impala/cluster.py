"""Ray: its start, and the class of its actors. The only modules that import Ray are this one and `distributed`."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import cloudpickle

from dgvf_agents.impala.actor_process import ActorSpec, EnvironmentActor
from dgvf_agents.impala.settings import ActorSettings
from dgvf_agents.impala.transport import Message, Parameters

_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable that tells Ray whether other machines take part: without them, it binds to loopback."""
_LOOPBACK = ("127.0.0.1:", "localhost:", "[::1]:")
"""How addresses of a Ray begin that is on the loopback interface."""

_PATIENT = {"worker_register_timeout_seconds": 600}
"""Ray gives up on processes that take a minute to start, as they do on a busy machine, and then hangs."""


def connect(address: str | None, actors: int) -> Any:
    """Import Ray and connect to it, unless this process is connected.

    Without an address, Ray is started here: without a dashboard, on the loopback interface, and with a CPU for each
    actor, whether or not there are so many. It ends with this process.

    Args:
        address: of a cluster; `None`: that in Ray's environment variable `RAY_ADDRESS`, if it is set.
        actors: number of actors.

    Returns:
        the module `ray`.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: there is no cluster at the address.
    """
    address = address or os.environ.get("RAY_ADDRESS")
    with _without_clusters(address is None or address.startswith(_LOOPBACK)):
        try:
            import ray
        except ImportError as error:
            raise ImportError("actors must be 0 without Ray, which the extra `ray` installs, dgvf[ray]") from error
        if not ray.is_initialized():
            quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
            if address is not None:
                ray.init(address=address, **quiet)
            else:
                local: dict[str, Any] = {"_node_ip_address": "127.0.0.1", "_system_config": _PATIENT}
                ray.init(num_cpus=max(os.cpu_count() or 1, actors), include_dashboard=False, **local, **quiet)
        return ray


def shared_address(address: str | None, actors: int) -> str:
    """An address at which other processes find the Ray that `connect` connects this one to; see `connect`."""
    ray = connect(address, actors)
    found: str = address or ray.get_runtime_context().gcs_address
    return found


@contextmanager
def _without_clusters(wanted: bool) -> Iterator[None]:
    """Let a Ray that is started or connected to meanwhile have one machine only.

    Otherwise, it replaces loopback addresses by those of other interfaces.
    """
    before = os.environ.get(_CLUSTERS)
    if not wanted or before is not None:
        yield
        return
    constants: Any = sys.modules.get("ray._private.ray_constants")  # read the variable if Ray was imported before
    os.environ[_CLUSTERS] = "0"
    try:
        if constants is not None:
            constants.ENABLE_RAY_CLUSTER = False
        yield
    finally:
        del os.environ[_CLUSTERS]
        constants = sys.modules.get("ray._private.ray_constants")
        if constants is not None:
            constants.ENABLE_RAY_CLUSTER = not constants.IS_WINDOWS_OR_OSX


@final
class HostedActor:
    """An `EnvironmentActor` in a process of Ray."""

    def __init__(self, spec: bytes, actor: int, incarnation: int, idle_exit: float) -> None:
        """
        Args:
            spec: a pickled `ActorSpec`.
            actor: index of the actor.
            incarnation: how often it was replaced before.
            idle_exit: seconds without a call after which the process exits.
        """
        self._arguments = (spec, actor, incarnation)
        self._actor: EnvironmentActor | None = None
        self._idle_since: float | None = time.monotonic()
        threading.Thread(target=self._exit_when_idle, args=(idle_exit,), daemon=True).start()

    def ping(self) -> None:
        """Return once the process is there."""

    def prepare(self) -> None:
        """Make the environments.

        Raises:
            Exception: whatever an environment raises.
        """
        import torch

        torch.set_num_threads(1)
        spec, actor, incarnation = self._arguments
        with self._busy():
            self._actor = EnvironmentActor(cloudpickle.loads(spec), actor, incarnation)

    def rollout(self, parameters: Parameters) -> Message:
        """See `EnvironmentActor.rollout`.

        A learner that dies before it asks for `prepare` leaves an actor without environments for the next learner.
        """
        if self._actor is None:
            self.prepare()
        assert self._actor is not None
        with self._busy():
            return self._actor.rollout(parameters)

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self._idle_since = None
        try:
            yield
        finally:
            self._idle_since = time.monotonic()

    def _exit_when_idle(self, limit: float) -> None:
        while True:
            time.sleep(min(limit / 4, 60.0))
            idle_since = self._idle_since
            if idle_since is not None and time.monotonic() - idle_since > limit:
                os._exit(0)


def remote_class(ray: Any, settings: ActorSettings) -> Any:
    """`HostedActor` for Ray, which does not restart actors or repeat calls: `Supervisor` decides."""
    options = {"num_cpus": settings.cpus_per_actor, "max_restarts": 0, "max_task_retries": 0}
    return ray.remote(**options)(HostedActor)


def pickled(spec: ActorSpec) -> bytes:
    """
    Raises:
        ValueError: a part of it cannot be sent to other processes.
    """
    try:
        return cloudpickle.dumps(spec)
    except Exception as error:
        raise ValueError(f"env and policy_kwargs must be picklable for actors, got an error: {error!r}") from error
