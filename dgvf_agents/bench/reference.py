"""The optional reference of training speed: the same loop compiled whole by JAX, on as many cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

from dgvf_agents.agents.algorithm import DiscoveryAlgorithm
from dgvf_agents.bench.report import Row

PACKAGES = ("jax", "jaxlib")
"""What the reference needs."""
Rate = Callable[[float], float]
"""Environment steps per second of something that trains for the given seconds."""
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def jax_rates(world: str, models: Sequence[DiscoveryAlgorithm], threads: int) -> dict[str, Rate]:
    """`{"jax": rate}`, where `rate(seconds)` is the environment steps per second of a compiled, warm JAX loop.

    Args:
        world: id of the models' environment.
        models: agents with discovered questions; JAX trains as many, from the same parameters.
        threads: number of threads. XLA has as many as there are cores, so call this within `limited_cores`.

    Returns:
        an empty dict if JAX is not installed.

    Raises:
        RuntimeError: JAX does not find the models' device.
    """
    if find_spec("jax") is None:
        return {}
    # read when JAX starts
    os.environ["JAX_PLATFORMS"] = models[0].device.type
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # otherwise JAX takes most of a GPU's memory
    if threads == 1:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_ONE_THREAD}".strip()
    import jax

    try:
        jax.devices()
    except Exception as error:  # which class depends on what is missing
        device = models[0].device.type
        raise RuntimeError(f"JAX must find a device of type {device!r}, or be left out by --no-jax") from error
    from dgvf_agents.bench.jax_reference.loop import JaxLoop

    return {"jax": JaxLoop(world, models).rate}


@contextmanager
def limited_cores(count: int) -> Iterator[None]:
    """Run on the first `count` cores of those that this thread may use, if the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def compared(rates: dict[str, float], ours: str) -> Row:
    """`jax` and `to_jax`: the rate of JAX, and that of ours in its multiples; dashes if JAX was not measured."""
    if "jax" not in rates:
        return {"jax": "–", "to_jax": "–"}
    return {"jax": f"{rates['jax']:,.0f}", "to_jax": f"{rates[ours] / rates['jax']:.2f}x"}
