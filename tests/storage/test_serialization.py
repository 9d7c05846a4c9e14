"""Values come back from JSON and tensors as they were; nothing but the listed kinds goes in or comes out."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule
from torch import nn

from dgvf_agents.agents.policies import MlpPolicy
from dgvf_agents.agents.schedules import GeometricSchedule
from dgvf_agents.core.optimizers import SGD, Adam, RMSProp
from dgvf_agents.storage.serialization import CannotEncodeError, Encoder, decode
from dgvf_agents.storage.type_names import _MODULES, name_of, type_named
from tests.helpers import assert_same


def _round_trip(value: Any) -> Any:
    encoder = Encoder()
    text = json.dumps(encoder.encode(value, "value"))
    return decode(json.loads(text), encoder.tensors)


VALUES: dict[str, Any] = {
    "numbers": [0, -1, 2**200, 0.1, -0.0, math.inf, 1e-320, True, None, "é"],
    "tuple": (1, (2.0, "x"), []),
    "dict with other keys": {1: "one", ("a", 2): [None], None: {}},
    "dict with our key": {"kind": "tuple", "items": []},
    "deque": deque([1, {"r": np.float32(0.1)}], maxlen=5),
    "array": np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::-1],
    "big-endian array": np.array([1.5, 2.5], ">f8"),
    "empty array": np.empty((0, 3), np.uint8),
    "scalar array": np.array(3.5),
    "booleans": np.array([True, False]),
    "NumPy numbers": [np.float32(0.1), np.int64(-3), np.bool_(True), np.uint8(255), np.float16(0.1)],
    "path": Path("a/b"),
    "class": nn.Tanh,
    "other classes": [NatureCNN, MlpPolicy, torch.optim.Adam, RolloutBuffer, nn.modules.activation.ReLU],
    "dtype": torch.bfloat16,
    "optimizers": [SGD(), RMSProp(0.9, 1e-3, False), Adam(beta1=0.5)],
}


@pytest.mark.parametrize("name", VALUES)
def test_values_come_back(name: str) -> None:
    back = _round_trip(VALUES[name])
    assert type(back) is type(VALUES[name])
    if isinstance(back, np.ndarray):
        assert_same(back, VALUES[name].astype(VALUES[name].dtype.newbyteorder("=")))
    else:
        assert back == VALUES[name]
    if isinstance(back, deque):
        assert back.maxlen == VALUES[name].maxlen


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(["kind", "items"]), inner, max_size=3)
        | st.dictionaries(st.integers(), inner, max_size=2)
    ),
    max_leaves=12,
)


@given(_json)
def test_nested_values_come_back(value: Any) -> None:
    assert _round_trip(value) == value


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
def test_tensors_come_back_bit_by_bit(dtype: torch.dtype) -> None:
    tensor = torch.arange(6).to(dtype).reshape(2, 3).t()
    back = _round_trip({"x": tensor})["x"]
    assert back.dtype == dtype
    assert torch.equal(back, tensor)


def test_tensors_of_one_memory_are_written_once_and_views_apart() -> None:
    whole = torch.arange(4.0)
    encoder = Encoder()
    encoder.encode({"a": whole, "b": whole, "c": whole[:2], "d": whole.reshape(2, 2)}, "x")
    assert set(encoder.tensors) == {"x.a", "x.c", "x.d"}
    for i in range(20):  # memory that is freed and used again is not the same tensor
        encoder.encode(torch.full((3,), float(i)), "y")
    values = {float(value[0]) for name, value in encoder.tensors.items() if name.startswith("y")}
    assert values == set(map(float, range(20)))


SPACES = [
    gym.spaces.Box(-1, 1, (2, 3), np.float32),
    gym.spaces.Box(np.array([0.0, -np.inf]), np.array([np.inf, 5.0]), dtype=np.float64),
    gym.spaces.Box(0, 255, (3, 4, 4), np.uint8),
    gym.spaces.Discrete(5, start=2),
    gym.spaces.MultiDiscrete([3, 4], start=[1, 0]),
    gym.spaces.MultiDiscrete([[3, 4], [2, 2]]),
    gym.spaces.MultiBinary(4),
    gym.spaces.MultiBinary([2, 3]),
    gym.spaces.Dict({"b": gym.spaces.Discrete(2), "a": gym.spaces.Tuple([gym.spaces.MultiBinary(2)])}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_come_back_with_their_random_numbers(space: gym.Space) -> None:
    space.seed(3)
    back = _round_trip(space)
    assert back == space
    assert back.dtype == space.dtype
    assert repr(back) == repr(space)
    for _ in range(3):
        assert_same(back.sample(), space.sample())


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Dict(OrderedDict(b=gym.spaces.Discrete(2), a=gym.spaces.Discrete(3))),
        gym.spaces.Dict([("b", gym.spaces.Discrete(2)), ("a", gym.spaces.Discrete(3))]),
        gym.spaces.Dict(b=gym.spaces.Discrete(2), a=gym.spaces.Discrete(3)),
        gym.spaces.Dict(OrderedDict([("kind", gym.spaces.Discrete(2)), ("a", gym.spaces.Discrete(3))])),
    ],
    ids=["OrderedDict", "list", "keywords", "our key"],
)
def test_the_parts_of_a_space_come_back_in_their_order(space: gym.spaces.Dict) -> None:
    assert list(_round_trip(space).spaces) == list(space.spaces) != sorted(space.spaces)
    within = gym.spaces.Tuple([space])
    assert list(_round_trip(within)[0].spaces) == list(space.spaces)


def test_random_number_generators_go_on() -> None:
    generator = np.random.default_rng(5)
    generator.random(7)
    back = _round_trip(generator)
    assert np.array_equal(back.integers(100, size=9), generator.integers(100, size=9))


def test_schedules_come_back() -> None:
    schedule = _round_trip(FloatSchedule(LinearSchedule(1.0, 0.5, 0.8)))
    assert [schedule(p) for p in (1.0, 0.6, 0.0)] == [1.0, 0.75, 0.5]
    assert _round_trip(GeometricSchedule(0.4, 0.1))(0.5) == pytest.approx(0.2)
    assert list(_round_trip(OrderedDict(b=1, a=2))) == ["b", "a"]


class Mine(nn.Module):
    """A class outside the packages."""


class MySpace(gym.spaces.Discrete):
    """A space of one's own."""


@pytest.mark.parametrize(
    "value",
    [
        lambda x: x,
        object(),
        Mine,
        dict,
        MySpace(2),
        np.array([object()]),
        np.random.Generator(np.random.MT19937(0)),
        np.complex128(1j),
        time.gmtime(0),
        torch.zeros(2, dtype=torch.complex64),
        [1, {"deep": {"inside": Mine()}}],
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(CannotEncodeError, match=r"^value"):
        Encoder().encode(value, "value")


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "subprocess.Popen",
        "builtins.eval",
        "torch.nn.modules.module.torch.os.system",
        "torch.nn.functional.importlib.import_module",
        "torch.nn.Module.__init__.__globals__",
        "torch.nn.utils.parametrize.copy",
        "torch.nn.modules.activation.Tanh",
        "torch.nn.functional",
        "torch.nn.init",
        "torch.optim.lr_scheduler",
        "dgvf_agents.agents.policies.MlpPolicy",
        "Monitor",
        "torch.hub.load",
        "torch.optim.lr_scheduler.LambdaLR",
        "stable_baselines3.common.save_util.load_from_pkl",
        "stable_baselines3.common.monitor.Monitor",
        "dgvf_agents.cli.main",
        "dgvf_agents_evil.Thing",
        "dgvf_agents.nothing.Thing",
        "dgvf_agents..Thing",
        "",
        "tests.storage.test_serialization.Mine",
    ],
)
def test_only_listed_types_are_found(name: str) -> None:
    with pytest.raises(ValueError, match="type must be one of"):
        type_named(name)


@pytest.mark.parametrize("name", [name for names in _MODULES.values() for name in names])
def test_listed_types_have_their_names(name: str) -> None:
    assert name_of(type_named(name)) == name


def test_types_of_the_same_name_are_not_mistaken_for_listed_ones() -> None:
    mine = type("MlpPolicy", (), {})
    assert name_of(mine) is None
    with pytest.raises(CannotEncodeError, match="not a type that files have a name for"):
        Encoder().encode(mine, "policy_class")


def test_nothing_else_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for document in (
        {"kind": "type", "name": "evil_module.Thing"},
        {"kind": "record", "type": "evil_module.Thing", "attributes": {}},
        {"kind": "space", "type": "evil_module.Thing", "arguments": {}, "generator": None},
        {"kind": "torch.dtype", "name": "hub"},
        {"kind": "number", "dtype": "object", "value": 1},
        {"kind": "eval", "value": "1"},
        {"kind": ["tuple"]},
        {"kind": "generator", "state": {"bit_generator": "evil_module"}},
    ):
        with pytest.raises(ValueError, match="must be"):
            decode(document, {})
    assert "evil_module" not in sys.modules


def test_a_record_is_one_of_a_few_classes() -> None:
    command = {"args": ["touch", "/tmp/x"]}
    with pytest.raises(ValueError, match="type of a record must be one of"):
        decode({"kind": "record", "type": "subprocess.Popen", "attributes": command}, {})
