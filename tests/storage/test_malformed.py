"""Files that fit their checksum and are malformed, or hostile, are refused by name where they are loaded."""

from __future__ import annotations

import copy
import hashlib
import io
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
from stable_baselines3 import A2C
from torch import Tensor

from dgvf_agents import DGVFA2C
from dgvf_agents.storage.model_file import DamagedFileError, ModelFile
from tests.storage.test_resume import BATCH, COPIES, TINY_NETWORK, SaveAt, puddle

LIMIT = 200 * 2**20
"""Bytes that a refusal may allocate."""

SECONDS = 20.0
"""That it may take, on a machine that is busy."""


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Of a file saved in the middle of a rollout and of an unroll."""
    path = tmp_path_factory.mktemp("good") / "model.zip"
    settings: dict[str, Any] = {"questions": 6, "unroll_length": 3, "seed": 0, "compile": False, "device": "cpu"}
    model = DGVFA2C("MlpPolicy", puddle(), policy_kwargs=TINY_NETWORK, **settings)
    model.learn(6 * BATCH, SaveAt(path, 5 * BATCH + 2 * COPIES))
    return path.read_bytes()


@pytest.fixture(scope="module")
def file(contents: bytes) -> ModelFile:
    return ModelFile.from_bytes(contents)


def _find(document: Any, path: str) -> tuple[Any, Any]:
    """What holds the encoded value at a path with slashes, and the key that it has there."""
    name, _, rest = path.partition("/")
    holder: Any = document
    key: Any = name
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "record":
        holder = document["attributes"]
    elif kind in ("tuple", "deque"):
        holder = document["items"]
    elif kind == "dict":
        holder, key = next(pair for pair in document["items"] if str(pair[0]) == name), 1
    if isinstance(holder, list) and kind != "dict":
        key = int(name)
    return _find(holder[key], rest) if rest else (holder, key)


MISSING = object()


def _changed(file: ModelFile, path: str, change: Any) -> bytes:
    """The file with another value at a path: JSON, a tensor, or a function of the tensor that is there."""
    document, tensors = copy.deepcopy(file.document), dict(file.tensors)
    holder, key = _find(document, path)
    if change is MISSING:
        del holder[key]
    elif isinstance(change, Tensor) or callable(change):
        tensors["changed"] = change if isinstance(change, Tensor) else change(tensors[holder[key]["name"]].clone())
        holder[key] = {**holder[key], "name": "changed"}
    else:
        holder[key] = change
    return ModelFile(document, tensors, file.pickled).to_bytes()


def _refused(contents: bytes, message: str) -> None:
    with pytest.raises(DamagedFileError, match=message):
        DGVFA2C.load(io.BytesIO(contents), puddle(), device="cpu")


def _refused_cheaply(contents: bytes, message: str) -> None:
    tracemalloc.start()
    start = time.perf_counter()
    _refused(contents, message)
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LIMIT
    assert seconds < SECONDS


def test_the_file_itself_loads_and_training_continues(contents: bytes) -> None:
    model = DGVFA2C.load(io.BytesIO(contents), puddle(), device="cpu")
    assert model.learner.unroll_updates == 2
    assert model._collector.steps == 2
    model.learn(4 * BATCH, reset_num_timesteps=False)


def _with(value: float) -> Callable[[Tensor], Tensor]:
    """The tensor with another number in front."""

    def change(tensor: Tensor) -> Tensor:
        tensor.view(-1)[0] = value
        return tensor

    return change


def _longer(tensor: Tensor) -> Tensor:
    return torch.cat([tensor, tensor[:1]])


def _flat(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1)


def _narrower(tensor: Tensor) -> Tensor:
    return tensor[:, :-1].contiguous()


def _empty(tensor: Tensor) -> Tensor:
    return tensor[:0]


def _other_dtype(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float16)


NAN, INFINITE = _with(float("nan")), _with(float("inf"))
ADAM, UNROLL, ROLLOUT = "learner/meta_optimizer/state/0", "learner/unroll", "learner/unroll/rollouts/0"


def _within(part: str, *names: str) -> list[str]:
    return [f"{part}/{name}" for name in names]


LEARNER = _within(
    "learner", "theta", "eta", "statistics", "meta_optimizer", "unroll", "updates", "metrics", "meta_loss"
)
ADAM_PARTS = [*_within("learner/meta_optimizer", "state", "param_groups"), *_within(ADAM, "step", "exp_avg")]
UNROLL_PARTS = [
    *_within(UNROLL, "start", "rollouts", "learning_rates", "random_states", "start/theta", "start/optimizer"),
    *_within(ROLLOUT, "observations", "actions", "rewards", "terminated", "next_observations", "bootstrap_index"),
]
TRAINING = [
    *_within("training", "device", "environment", "random", "actor", "collecting", "steps", "starts", "exploration"),
    *_within("training", "rollout", "log", "log/values", "log/counts", "actor/generator", "actor/noise"),
    *_within("training/random", "python", "numpy", "torch", "cuda"),
    *_within("training/steps", "_t", "_observed", "_ends", "_actions", "_rewards", "_terminated", "_truncated"),
]
ATTRIBUTES = _within(
    "attributes",
    *("observation_space", "action_space", "policy_class", "policy_kwargs", "n_envs", "n_steps", "num_timesteps"),
    *("_n_updates", "_last_obs", "_last_episode_starts", "ep_info_buffer"),
)
TOP = ["attributes", "pickled", "learner", "statistics", "training"]
PARTS = [*LEARNER, *ADAM_PARTS, *UNROLL_PARTS, *TRAINING]


@pytest.mark.parametrize("path", [*TOP, *PARTS, "learner/metrics/loss", "learner/statistics/second_moment"])
def test_a_missing_key_is_named(path: str, file: ModelFile) -> None:
    _refused(_changed(file, path, MISSING), path.rsplit("/", 1)[-1])


ALLOWED: list[tuple[str, Any]] = [
    ("training/device", "text"),
    ("attributes/policy_class", "text"),
    ("attributes/policy_kwargs", {"a": [1]}),
    ("attributes", {"a": [1]}),
]


@pytest.mark.parametrize("value", [[1, "a"], {"a": [1]}, "text", -1.5], ids=["list", "dict", "text", "number"])
@pytest.mark.parametrize("path", [*TOP, *PARTS, *ATTRIBUTES, ROLLOUT, "learner/metrics/loss"])
def test_a_value_of_another_kind_is_named(path: str, value: Any, file: ModelFile) -> None:
    if (path, value) in ALLOWED:
        pytest.skip("is allowed, or refused as an argument")
    name = path.removesuffix("/0").rsplit("/", 1)[-1]
    _refused(_changed(file, path, value), name)


THETA, ETA = "action_net.weight", "cumulants.weight"
MOMENTS = _within("learner", f"statistics/second_moment/{THETA}", f"unroll/start/optimizer/second_moment/{THETA}")
BATCHES = [
    f"{where}/{name}"
    for where in (ROLLOUT, "training/rollout")
    for name in ("observations", "actions", "rewards", "terminated", "truncated", "next_observations", "bootstrap_slot")
]
TENSORS: list[tuple[list[str], list[Any]]] = [
    (_within("learner", f"theta/{THETA}", f"eta/{ETA}"), [_longer, _flat, _other_dtype, NAN, INFINITE]),
    (MOMENTS, [_longer, _flat, _other_dtype, NAN, INFINITE, _with(-1.0)]),
    ([f"{UNROLL}/start/theta/{THETA}"], [_longer, _flat, _other_dtype, NAN, INFINITE]),
    ([f"{ADAM}/exp_avg"], [_longer, _other_dtype, NAN, INFINITE]),
    ([f"{ADAM}/exp_avg_sq"], [_longer, _other_dtype, NAN, INFINITE, _with(-1.0)]),
    ([f"{ADAM}/step"], [torch.ones(2), _other_dtype, NAN, INFINITE, _with(0.0)]),
    (BATCHES, [_longer, _flat, _narrower, _empty, _other_dtype]),
    (_within(ROLLOUT, "observations", "rewards", "next_observations", "entropy_weight"), [NAN, INFINITE]),
    ([f"{ROLLOUT}/actions", "training/steps/_actions"], [_with(-1), _with(5)]),
    ([f"{ROLLOUT}/bootstrap_index"], [_with(-1), _with(BATCH), _empty, _other_dtype]),
    ([f"{ROLLOUT}/bootstrap_slot"], [_with(-1), _with(BATCH)]),
    ([f"{UNROLL}/learning_rates/0"], [torch.zeros(2), _other_dtype, NAN, INFINITE, _with(-1.0)]),
    ([f"{UNROLL}/random_states/0/0", "training/random/torch"], [_longer, _empty, _other_dtype]),
    (_within("learner", "metrics/loss", "meta_loss", "meta_gradient_norm"), [torch.zeros(2), _other_dtype]),
    (_within("training/steps", "_actions", "_rewards", "_terminated", "_truncated"), [_longer, _flat, _other_dtype]),
    (["training/steps/_rewards"], [NAN, INFINITE, _empty]),
    (["training/steps/_observed/0"], [_longer, _flat, _other_dtype, NAN]),
    (["training/steps/_ends/0/2"], [_longer, NAN]),
    (["training/actor/noise"], [_longer, _flat, _other_dtype, NAN]),
    (["training/random/numpy/1"], [_longer, _empty]),
    (["training/starts", "attributes/_last_episode_starts"], [_longer, _other_dtype]),
    (["attributes/_last_obs"], [_longer, _flat]),
]


@pytest.mark.parametrize(
    ("path", "change"), [(path, change) for paths, changes in TENSORS for path in paths for change in changes]
)
def test_a_tensor_that_does_not_fit_is_named(path: str, change: Any, file: ModelFile) -> None:
    part = next(part for part in reversed(path.split("/")) if not part.isdigit())
    message = "rewards|observations|actions" if part.endswith("rewards") else part.replace(".", r"\W*")  # T, B are its
    _refused(_changed(file, path, change), message)


VALUES: dict[str, tuple[str, Any, str]] = {
    "more rollouts than learning rates": (f"{UNROLL}/learning_rates", [], "equal numbers of rollouts"),
    "more steps than a rollout has": ("training/steps/_t", 6, "_t must be an integer from 0 to 5"),
    "steps without observations": ("training/steps/_observed", [], "_observed must have 2 or 3 observations"),
    "an end in no environment": ("training/steps/_ends/0/1", COPIES, "_ends must be an integer from 0 to 3"),
    "an end in a later step": ("training/steps/_ends/0/0", 4, "_ends must be an integer from 0 to 1"),
    "a position past the state": ("training/random/numpy/2", 10**6, "random.numpy must be a state"),
    "another generator": ("training/actor/generator/state/bit_generator", "MT19937", "PCG64"),
    "a generator's huge state": ("training/actor/generator/state/state/state", 2**200, "training in the file"),
    "a generator's text": ("training/actor/generator/state/state/inc", "x", "training in the file"),
    "a state of Python's": ("training/random/python/1/0", -1, "random.python"),
    "a second parameter": ("learner/meta_optimizer/param_groups/0/params", [0, 1], "param_groups.params must be"),
    "a setting of Adam's": ("learner/meta_optimizer/param_groups/0/betas", "x", "param_groups.betas must be"),
    "a negative epsilon": ("learner/meta_optimizer/param_groups/0/eps", -1.0, "param_groups.eps must be > 0"),
    "a mask of exploration": ("training/exploration", {"sample": 1}, "exploration must have the names"),
    "a tensor that is not there": (f"{ROLLOUT}/rewards", {"kind": "tensor", "name": "nothing"}, "nothing"),
    "a kind that is not there": (f"{ROLLOUT}/rewards", {"kind": "eval"}, "kind must be one of"),
    "another record": (
        "learner",
        {"kind": "record", "type": "SGD", "attributes": {}},
        "learner must be a LearnerState",
    ),
    "an environment of another kind": ("training/environment/inner", [1], "environment"),
}


@pytest.mark.parametrize(("path", "value", "message"), VALUES.values(), ids=VALUES.keys())
def test_a_value_out_of_its_range_is_named(path: str, value: Any, message: str, file: ModelFile) -> None:
    _refused(_changed(file, path, value), message)


MONITOR, WORLD = "training/environment", "training/environment/inner/own/env"


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (f"{WORLD}/steps", _longer),
        (f"{WORLD}/steps", _with(-1)),
        (f"{WORLD}/steps", _other_dtype),
        (f"{WORLD}/done", _longer),
        (f"{WORLD}/done", [1]),
        (f"{WORLD}/state/0", _longer),
        (f"{WORLD}/state/0", NAN),
        (f"{WORLD}/state", "text"),
        (f"{WORLD}/state", []),
        (f"{WORLD}/expected", [1]),
        (f"{WORLD}/streams", []),
        (f"{WORLD}/streams/0/state/state", "x"),
        (f"{WORLD}/streams/0/bit_generator", "MT19937"),
        (f"{WORLD}/seeds", 1),
        (f"{WORLD}/seeds", MISSING),
        (f"{MONITOR}/episode_returns", _longer),
        (f"{MONITOR}/episode_lengths", "x"),
        (f"{MONITOR}/episode_count", -1),
        (f"{MONITOR}/inner", 5),
    ],
)
def test_a_malformed_state_of_the_environment_is_named(path: str, change: Any, file: ModelFile) -> None:
    _refused(_changed(file, path, change), "environment in the file is malformed")


def _sealed(archive: bytes) -> bytes:
    """An archive without comment with its checksum, as `ModelFile.to_bytes` writes it."""
    comment = b"dgvf sha256 "
    whole = archive[:-2] + struct.pack("<H", len(comment) + 64) + comment
    return whole + hashlib.sha256(whole).hexdigest().encode()


def _archive(compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)
    return buffer.getvalue()


def _members(document: bytes = b"{}", tensors: bytes = struct.pack("<Q", 2) + b"{}") -> dict[str, bytes]:
    return {"model.json": document, "tensors.safetensors": tensors}


def test_deflated_members_are_refused_unread() -> None:
    bomb = _archive(zipfile.ZIP_DEFLATED, **_members(tensors=bytes(2**28)))
    assert len(bomb) < 2**20
    _refused_cheaply(_sealed(bomb), "its member model.json must not be compressed")


def test_members_of_unknown_compression_are_refused() -> None:
    archive = bytearray(_archive(**_members()))
    for signature, offset in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        archive[archive.index(signature) + offset : archive.index(signature) + offset + 2] = struct.pack("<H", 99)
    _refused_cheaply(_sealed(bytes(archive)), "its member model.json must not be compressed")


def test_overlapping_members_are_refused_unread() -> None:
    """A thousand entries that all stand for the one large member, as in a bomb without compression."""
    size = 2**20
    archive = _archive(**_members(tensors=bytes(size)))
    end = archive.rindex(b"PK\5\6")
    start = archive.index(b"PK\1\2")
    entry = archive[archive.index(b"PK\1\2", start + 4) : end]
    directory = archive[start:end] + 1000 * entry
    counts = struct.pack("<HHHHIIH", 0, 0, 1002, 1002, len(directory), start, 0)
    _refused_cheaply(_sealed(archive[:start] + directory + b"PK\5\6" + counts), "its members overlap")


@pytest.mark.parametrize("document", [b"[" * 100_000, b'{"format": 4, "a": ' + b"[" * 100_000, b'{"a":' * 100_000])
def test_json_that_is_nested_deep_is_refused(document: bytes) -> None:
    closed = document + b"1" + b"]" * document.count(b"[") + b"}" * document.count(b"{")
    _refused_cheaply(_sealed(_archive(**_members(closed))), "it is not a model file")


@pytest.mark.parametrize("depth", [300, 600, 900])
def test_values_that_are_nested_too_deep_to_decode_are_refused(depth: int, file: ModelFile) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    _refused_cheaply(_changed(file, "training/log", value), "log|training|not a model file")


def test_malformed_files_of_format_3_are_refused() -> None:
    _refused_cheaply(_sealed(_archive(**_members(b'{"format": 3, "parameters": {}}'))), "it is malformed")


def test_one_tensor_is_not_taken_many_times(file: ModelFile) -> None:
    document, tensors = copy.deepcopy(file.document), {**file.tensors, "large": torch.zeros(2**19)}
    document["training"]["log"] = [{"kind": "array", "name": "large"}] * 1500
    _refused_cheaply(ModelFile(document, tensors).to_bytes(), "'large' must be referred to at most 2 times, got 1500")


@pytest.fixture(scope="module")
def a2c() -> dict[str, bytes]:
    buffer = io.BytesIO()
    A2C("MlpPolicy", "CartPole-v1", device="cpu").save(buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_deflate_bombs_in_files_of_stable_baselines3_are_refused_unread(a2c: dict[str, bytes]) -> None:
    model = DGVFA2C("MlpPolicy", "CartPole-v1", compile=False, device="cpu")
    weights = _archive(zipfile.ZIP_DEFLATED, **{"archive/data/0": bytes(2**28)})
    bombs = {
        "data": _archive(zipfile.ZIP_DEFLATED, **{**a2c, "data": bytes(2**28)}),
        "another member": _archive(zipfile.ZIP_DEFLATED, **{**a2c, "policy.optimizer.pth": bytes(2**28)}),
        "in the archive of the weights": _archive(**{**a2c, "policy.pth": weights}),
    }
    for name, bomb in bombs.items():
        assert len(bomb) < 2**20
        if name != "in the archive of the weights":  # which comes after what a model is built from
            _refused_cheaply(bomb, "its contents must take at most 20 times its size")
        tracemalloc.start()
        with pytest.raises(DamagedFileError, match="its contents must take at most 20 times its size"):
            model.set_parameters(io.BytesIO(bomb))
        assert tracemalloc.get_traced_memory()[1] < LIMIT
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "contents"),
    [("data", b"["), ("data", b"[]"), ("data", b'{"a": {":serialized:": 5}}'), ("data", b"\xff")],
)
def test_malformed_files_of_stable_baselines3_are_refused(name: str, contents: bytes, a2c: dict[str, bytes]) -> None:
    _refused_cheaply(_archive(**{**a2c, name: contents}), f"{name}|a in|not a model file")


def test_malformed_weights_of_stable_baselines3_are_refused(a2c: dict[str, bytes]) -> None:
    model = DGVFA2C("MlpPolicy", "CartPole-v1", compile=False, device="cpu")
    with pytest.raises(DamagedFileError, match=r"policy.pth in the file is malformed"):
        model.set_parameters(io.BytesIO(_archive(**{**a2c, "policy.pth": b"x"})))
