"""Layers of a policy's networks, as `policy_kwargs` describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgvf_agents.core.argument_checks import is_integer

NetArch = Sequence[int] | Mapping[str, Sequence[int]]
"""Widths of layers; by `"pi"` and `"vf"` if they differ between policy and value."""


def check_net_arch(name: str, net_arch: Any) -> None:
    """Check widths of layers. A list that holds one dict is Stable-Baselines3's former notation, about which it warns.

    Raises:
        ValueError: they are neither None nor a list of integers >= 1, or a dict of such lists.
    """
    net_arch = _in_current_notation(net_arch)
    parts = net_arch.values() if isinstance(net_arch, Mapping) and net_arch.keys() <= {"pi", "vf"} else [net_arch]
    for sizes in () if net_arch is None else parts:
        if not (isinstance(sizes, list | tuple) and all(is_integer(size) and size >= 1 for size in sizes)):
            raise ValueError(
                f"{name} must be a list of integers >= 1, a dict with such lists as 'pi' and 'vf', or None, "
                f"got {net_arch!r}"
            )


def layers_of(net_arch: Any) -> dict[str, list[int]] | None:
    """Widths of the layers of policy and value, by `"pi"` and `"vf"`; `None` if none are given."""
    if net_arch is None:
        return None
    net_arch = _in_current_notation(net_arch)
    separate = isinstance(net_arch, Mapping)
    return {part: [int(n) for n in (net_arch.get(part, []) if separate else net_arch)] for part in ("pi", "vf")}


def _in_current_notation(net_arch: Any) -> Any:
    """The meaning of a list that holds one dict."""
    former = isinstance(net_arch, list) and len(net_arch) == 1 and isinstance(net_arch[0], Mapping)
    return net_arch[0] if former else net_arch
