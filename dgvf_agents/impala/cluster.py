"""Starting Ray on this machine, or connecting to a cluster."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

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


def check_alive(ray: Any) -> None:
    """
    Raises:
        ConnectionError: Ray's head process does not answer.
    """
    address = ray.get_runtime_context().gcs_address
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()
    except OSError as error:
        raise ConnectionError(f"Ray's head process at {address} has ended: {error}") from error


def shared_address(address: str | None, actors: int) -> str:
    """An address at which other processes find the Ray that `connect` connects this one to; see `connect`."""
    ray = connect(address, actors)
    found: str = address or ray.get_runtime_context().gcs_address
    return found


@contextmanager
def _without_clusters(wanted: bool) -> Iterator[None]:
    """Let a Ray that is started or connected to meanwhile have one machine only.

    Otherwise, it replaces loopback addresses by other interfaces' addresses.
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
