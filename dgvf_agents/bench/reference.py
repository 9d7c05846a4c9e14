"""Other people's frameworks, measured by examples that run as processes of a checkout: JAX and RLlib."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dgvf_agents.bench.timing import Rate

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
"""There in a checkout, not in an installed wheel."""


def jax_rates(world: str, agents: int, threads: int, device: str) -> dict[str, Rate]:
    """`{"jax": rate}`: as many agents with discovered questions in JAX, the whole loop compiled.

    Args:
        world: id of the environment.
        agents: number of agents.
        threads: number of cores.
        device: type of JAX's device.

    Returns:
        an empty dict if JAX is not installed, or this is no checkout.
    """
    settings = {"world": world, "agents": agents, "threads": threads}
    # otherwise JAX takes most of a GPU's memory
    variables = {"JAX_PLATFORMS": device, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return _rates("jax", "discovery_in_jax.py", {"jax": settings}, variables)


def rllib_rates(variants: Mapping[str, Mapping[str, Any]]) -> dict[str, Rate]:
    """RLlib's IMPALA: a rate for each variant, from its settings.

    Returns:
        an empty dict if RLlib is not installed, or this is no checkout.
    """
    with_rllib = all(find_spec(package) is not None for package in ("tree", "pyarrow"))  # Ray alone has none of them
    return _rates("ray", "rllib_impala.py", variants, {}) if with_rllib else {}


def _rates(
    package: str, example: str, variants: Mapping[str, Mapping[str, Any]], variables: Mapping[str, str]
) -> dict[str, Rate]:
    path = EXAMPLES / example
    if find_spec(package) is None or not path.is_file():
        return {}

    def rate_of(settings: Mapping[str, Any]) -> Rate:
        def rate(seconds: float) -> float:
            options = [
                f"--{name.replace('_', '-')}={value}" for name, value in {**settings, "seconds": seconds}.items()
            ]
            command = [sys.executable, str(path), *options]
            finished = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
            if finished.returncode:
                raise RuntimeError(f"{example} failed:\n{finished.stderr[-2000:]}")
            return json.loads(finished.stdout.splitlines()[-1])["steps_per_s"]

        return rate

    return {name: rate_of(settings) for name, settings in variants.items()}
