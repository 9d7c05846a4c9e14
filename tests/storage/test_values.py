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

from dgvf_agents.agents.persistence import VOCABULARY
from dgvf_agents.agents.policies import PaperMlpPolicy
from dgvf_agents.agents.schedules import GeometricSchedule
from dgvf_agents.core.optimizers import SGD, Adam, RMSProp
from dgvf_agents.core.types import SampledActions
from dgvf_agents.storage.values import CannotEncodeError, Encoder, decode
from tests.helpers import assert_same


def _encoded(value: Any) -> Any:
    return Encoder(VOCABULARY).encode(value, "value")


def _round_trip(value: Any) -> Any:
    encoder = Encoder(VOCABULARY)
    text = json.dumps(encoder.encode(value, "value"))
    return decode(json.loads(text), encoder.tensors, VOCABULARY)


VALUES: dict[str, Any] = {
    "numbers": [0, -1, 2**200, 0.1, -0.0, math.inf, 1e-320, True, None, "é"],
    "dict with other keys": {1: "one", ("a", 2): [None], None: {}},
    "dict with our key": {"kind": "tuple", "items": []},
    "deque": deque([1, {"r": np.float32(0.1)}], maxlen=5),
    "array": np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::-1],
    "big-endian array": np.array([1.5, 2.5], ">f8"),
    "empty array": np.empty((0, 3), np.uint8),
    "scalar array": np.array(3.5),
    "booleans": np.array([True, False]),
    "NumPy numbers": [np.float32(0.1), np.int64(-3), np.bool_(True), np.uint8(255), np.float16(0.1)],
    "classes": [nn.Tanh, NatureCNN, PaperMlpPolicy, torch.optim.Adam, RolloutBuffer, nn.modules.activation.ReLU],
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_tensors_come_back_bit_by_bit(dtype: torch.dtype) -> None:
    tensor = torch.arange(6).to(dtype).reshape(2, 3).t()
    back = _round_trip({"x": tensor})["x"]
    assert back.dtype == dtype
    assert torch.equal(back, tensor)
    assert torch.equal(_round_trip(SampledActions(tensor))["actions"], tensor)


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


@pytest.mark.parametrize("first", ["b", "kind"])
def test_the_parts_of_a_space_come_back_in_their_order(first: str) -> None:
    space = gym.spaces.Dict(OrderedDict([(first, gym.spaces.Discrete(2)), ("a", gym.spaces.Discrete(3))]))
    assert list(_round_trip(space).spaces) == list(space.spaces) != sorted(space.spaces)
    assert list(_round_trip(gym.spaces.Tuple([space]))[0].spaces) == list(space.spaces)


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


OTHERS = [
    *(lambda x: x, object(), Mine, Mine(), dict, type("PaperMlpPolicy", (), {}), MySpace(2), np.array([object()])),
    *(np.random.Generator(np.random.MT19937(0)), np.complex128(1j), time.gmtime(0), Path("a")),
    *(torch.zeros(2, dtype=torch.complex64), [1, {"deep": {"inside": Mine()}}]),
]


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__)
def test_anything_else_is_refused(value: Any) -> None:
    with pytest.raises(CannotEncodeError, match=r"^value"):
        _encoded(value)


NAMES = (
    *("os.system", "subprocess.Popen", "builtins.eval", "dict", "", "Monitor", "evil_module.Thing"),
    *("torch.nn.modules.module.torch.os.system", "torch.nn.functional.importlib.import_module", "torch.nn.functional"),
    *("torch.nn.Module.__init__.__globals__", "torch.nn.utils.parametrize.copy", "torch.nn.modules.activation.Tanh"),
    *("torch.nn.init", "torch.optim.lr_scheduler", "torch.hub.load", "torch.optim.lr_scheduler.LambdaLR"),
    *("dgvf_agents.agents.policies.PaperMlpPolicy", "dgvf_agents.cli.main", "tests.storage.test_values.Mine"),
    *("stable_baselines3.common.save_util.load_from_pkl", "stable_baselines3.common.monitor.Monitor"),
)
DOCUMENTS: tuple[Any, ...] = (
    *({"kind": "class", "name": name} for name in (*NAMES, 1, None)),
    {"kind": "class", "name": ["PaperMlpPolicy"]},
    {"kind": "record", "type": "subprocess.Popen", "attributes": {"args": ["touch", "/tmp/x"]}},
    {"kind": "record", "type": "PaperMlpPolicy", "attributes": {}},
    {"kind": "space", "type": "evil_module.Thing", "arguments": {}, "generator": None},
    {"kind": "space", "type": "Box", "arguments": {"low": 0, "high": 1, "dtype": "object"}, "generator": None},
    {"kind": "number", "dtype": "object", "value": 1},
    {"kind": "eval", "value": "1"},
    {"kind": ["tuple"]},
    {"kind": "generator", "state": {"bit_generator": "evil_module"}},
)


def test_only_listed_kinds_and_classes_are_found_and_nothing_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for document in DOCUMENTS:
        with pytest.raises((ValueError, TypeError)):
            decode(document, {}, VOCABULARY)
    assert "evil_module" not in sys.modules
