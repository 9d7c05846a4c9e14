"""Starting Ray on this machine, or connecting to a cluster."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any, final

_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable that tells Ray's processes whether other machines take part: if not, it binds to loopback, and
does not replace loopback addresses by other interfaces'."""
AUTHENTICATION = "RAY_AUTH_MODE"
"""Environment variable that tells Ray whether its processes show a token, which is a file of the user's."""
_LOOPBACK = ("127.0.0.1:", "localhost:", "[::1]:")
"""How addresses of a Ray begin that is on the loopback interface."""

_LOOK_EVERY = 5.0
"""Seconds between looks at the head of the cluster."""
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
    try:
        import ray
        from ray._private import ray_constants
    except ImportError as error:
        raise ImportError("actors must be 0 without Ray, which the extra `ray` installs, dgvf[ray]") from error
    if not ray.is_initialized():
        clusters = address is not None and not address.startswith(_LOOPBACK)
        os.environ[_CLUSTERS], ray_constants.ENABLE_RAY_CLUSTER = str(int(clusters)), clusters
        if os.environ.get(AUTHENTICATION) == "token":  # read again what Ray read when it was imported
            raylet: Any = ray._raylet
            raylet.Config.initialize("")
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
        if address is not None:
            ray.init(address=address, **quiet)
        else:
            local: dict[str, Any] = {"_node_ip_address": "127.0.0.1", "_system_config": _PATIENT}
            ray.init(num_cpus=max(os.cpu_count() or 1, actors), include_dashboard=False, **local, **quiet)
    return ray


@final
class ClusterWatch:
    """Tells whether the Ray that this process is connected to is alive.

    Ray ends a process that uses the object store after its raylet has ended, and, after a minute, one whose cluster has
    lost its head. An exception must come first.
    """

    def __init__(self, ray: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """
        Args:
            ray: the module, connected.
            clock: seconds.
        """
        context = ray.get_runtime_context()
        own = context.get_node_id()
        self._head: str = context.gcs_address
        self._clock, self._looked = clock, clock()
        self._store = socket.socket(socket.AF_UNIX)
        self._store.connect(next(node["ObjectStoreSocketName"] for node in ray.nodes() if node["NodeID"] == own))

    def close(self) -> None:
        """End watching."""
        self._store.close()

    def check(self) -> None:
        """Look at the raylet of this machine, and every few seconds at the head.

        Raises:
            ConnectionError: either has ended.
        """
        if wait([self._store], timeout=0):  # for its end, as nothing is ever sent
            raise ConnectionError("Ray's raylet on this machine has ended")
        if self._clock() - self._looked > _LOOK_EVERY:
            self._looked = self._clock()
            host, _, port = self._head.rpartition(":")
            try:
                socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
            except OSError as error:
                raise ConnectionError(f"Ray's head process at {self._head} has ended: {error}") from error


def shared_address(address: str | None, actors: int) -> str:
    """An address at which other processes find the Ray that `connect` connects this one to; see `connect`."""
    ray = connect(address, actors)
    return address or str(ray.get_runtime_context().gcs_address)
