"""Packed functions are the core's functions on vectors."""

from __future__ import annotations

import pytest
import torch

from dgvf_agents.execution.packing import KEY, Packing


def test_unpacking_gives_what_was_packed_in_any_order_of_names() -> None:
    tree = {"a": {"x": torch.randn(2, 3), "y": torch.randn(())}, "b": {"z": torch.randn(4)}}
    permuted = {"b": tree["b"], "a": dict(reversed(tree["a"].items()))}
    packing = Packing(tree)
    torch.testing.assert_close(packing.unpack(packing.pack(permuted)), tree, rtol=0, atol=0)
    assert Packing({}).unpack(Packing({}).pack({})) == {}
    with pytest.raises(KeyError, match="z"):
        packing.pack({"a": tree["a"], "b": {}})


def test_views_are_what_unpacking_gives_and_lie_in_the_vector() -> None:
    packing = Packing({"a": torch.zeros(2, 3), "b": torch.tensor(0.0), "c": torch.zeros(4)})
    row = torch.arange(22.0).reshape(2, 11)[1]  # a view into a larger tensor, as in the state buffer
    views = packing.views({KEY: row})
    for view, tensor in zip(views, packing.unpack({KEY: row}).values(), strict=True):
        assert torch.equal(view, tensor)
    views[2].zero_()
    assert row.tolist() == [11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 0.0, 0.0, 0.0, 0.0]
    assert Packing({}).views({}) == []
