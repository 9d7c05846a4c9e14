"""Packed functions are the core's functions on vectors."""

from __future__ import annotations

import pytest
import torch

from dgvf_agents.execution.packing import Packing


def test_unpacking_gives_what_was_packed_in_any_order_of_names() -> None:
    tree = {"a": {"x": torch.randn(2, 3), "y": torch.randn(())}, "b": {"z": torch.randn(4)}}
    permuted = {"b": tree["b"], "a": dict(reversed(tree["a"].items()))}
    packing = Packing(tree)
    torch.testing.assert_close(packing.unpack(packing.pack(permuted)), tree, rtol=0, atol=0)
    assert Packing({}).unpack(Packing({}).pack({})) == {}
    with pytest.raises(KeyError, match="z"):
        packing.pack({"a": tree["a"], "b": {}})
