"""What `docs/files.md` promises of files from strangers."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import re
import struct
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from stable_baselines3 import A2C
from torch import Tensor

from dgvf_agents import DGVFA2C, DGVFPPO
from dgvf_agents.storage.files import DamagedFileError
from dgvf_agents.storage.model_file import ModelFile
from tests.small_agents import BATCH, COPIES, TINY_NETWORK, SaveAt, puddle, small_model

LIMIT = 200 * 2**20
"""Bytes that a refusal may allocate."""
SECONDS = 20.0
"""That it may take, on a machine that is busy."""


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Of a file saved in the middle of a rollout and of an unroll."""
    path = tmp_path_factory.mktemp("good") / "model.zip"
    small_model(puddle()).learn(6 * BATCH, SaveAt(path, 5 * BATCH + 2 * COPIES))
    return path.read_bytes()


@pytest.fixture(scope="module")
def file(contents: bytes) -> ModelFile:
    return ModelFile.from_bytes(contents)


@pytest.fixture(scope="module")
def a2c() -> dict[str, bytes]:
    buffer = io.BytesIO()
    A2C("MlpPolicy", "CartPole-v1", device="cpu").save(buffer)
    with zipfile.ZipFile(buffer) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _refused(source: Any, message: str, load: Callable[[Any], Any] | None = None) -> None:
    """Refused as a model, in bounded memory and time."""
    env = puddle()
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(DamagedFileError, match=message) as error:
            (load or (lambda source: DGVFA2C.load(source, env, device="cpu")))(source)
        seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < LIMIT
    assert seconds < SECONDS
    assert "cannot be loaded as a model" in str(error.value)
    assert str(source) in str(error.value)


def test_the_file_itself_loads_and_training_continues(contents: bytes) -> None:
    model = DGVFA2C.load(io.BytesIO(contents), puddle(), device="cpu")
    assert model.learner.unroll_updates == 2
    model.learn(4 * BATCH, reset_num_timesteps=False)


# Malformed values: one of each kind, at every place in a file.

MISSING = object()


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where values are in a document, without more than one item of a list."""
    if isinstance(value, list):
        parts: Any = list(enumerate(value[:1]))
    elif isinstance(value, dict) and value.get("kind") not in ("tensor", "array"):
        parts = [(key, part) for key, part in value.items() if key != "kind"]
    else:
        parts = []
    return [path, *(place for key, part in parts for place in _places(part, (*path, key)))]


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _changed(file: ModelFile, path: tuple[Any, ...], change: Any) -> bytes:
    """The file with another value at a place: JSON, or a function of the tensor that is there."""
    document, tensors = copy.deepcopy(file.document), dict(file.tensors)
    holder, key = _at(document, path[:-1]), path[-1]
    if change is MISSING:
        del holder[key]
    elif callable(change):
        tensors["changed"] = change(tensors[holder[key]["name"]].clone())
        holder[key] = {**holder[key], "name": "changed"}
    else:
        holder[key] = change
    return ModelFile(document, tensors, file.pickled).to_bytes()


def _takes(model: DGVFA2C, contents: bytes) -> str | None:
    """What is wrong with the learner's and training's state in a file; `None` if a model takes it."""
    try:
        model.set_parameters(io.BytesIO(contents))
    except DamagedFileError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def model(contents: bytes) -> DGVFA2C:
    return DGVFA2C.load(io.BytesIO(contents), device="cpu")


FREE = ("device", "log", "environment", "learning_rate", "uinteger", "has_uint32")
"""Values that others of their kind may replace, and the environment's, which it checks itself."""
STATES = ("learner", "training", "statistics")


@pytest.mark.parametrize(
    "value", [MISSING, [1, "a"], {"a": [1]}, "text", -1.5], ids=["missing", "list", "dict", "text", "number"]
)
def test_values_of_another_kind_are_refused_by_name(value: Any, file: ModelFile, model: DGVFA2C) -> None:
    places = [(part, *place) for part in STATES for place in _places(file.document[part]) if place]
    places = [path for path in places if not {*FREE} & {*path} and not (value is MISSING and path[-1] == 0)]
    assert len(places) > 120
    for path in places:
        error = _takes(model, _changed(file, path, value)) or ""
        assert any(name in error for name in path if isinstance(name, str)), (path, error)


def _with(value: float) -> Callable[[Tensor], Tensor]:
    """The tensor with another number in front."""

    def change(tensor: Tensor) -> Tensor:
        tensor.view(-1)[0] = value
        return tensor

    return change


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "longer": lambda t: torch.cat([t.reshape(-1), t.reshape(-1)[:1]]) if t.ndim < 2 else torch.cat([t, t[:, :1]], 1),
    "flat": lambda t: t.reshape(1, -1),
    "empty": lambda t: t.reshape(-1)[:0],
    "other dtype": lambda t: t.to(torch.int16),
    "not finite": _with(float("nan")),
}
METRICS = ("metrics", "meta_loss", "meta_gradient_norm")
"""May be NaN: Var(G) is 0 where all returns are equal."""


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_that_do_not_fit_are_refused_by_name(change: str, file: ModelFile, model: DGVFA2C) -> None:
    places = [(part, *place) for part in STATES for place in _places(file.document[part])]
    tensors = [place for place in places if isinstance(_at(file.document, place), dict)]
    tensors = [place for place in tensors if _at(file.document, place).get("kind") in ("tensor", "array")]
    assert len(tensors) > 60
    for path in tensors:
        tensor = file.tensors[_at(file.document, path)["name"]]
        if {*path} & {"environment", "numpy"} or (change == "not finite" and not tensor.is_floating_point()):
            continue
        if change == "not finite" and {*METRICS} & {*path}:
            continue
        if change in ("flat", "empty") and CHANGES[change](tensor).shape == tensor.shape:
            continue
        if change == "longer" and path[-1] == "bootstrap_index":  # any number of states
            continue
        error = _takes(model, _changed(file, path, CHANGES[change])) or ""
        assert ".".join(map(str, path[:-1])) in error, (path, error)


ADAM, ROLLOUT = ("learner", "meta_optimizer", "moments"), ("learner", "unroll", "rollouts", 0)
COLLECTION, RANDOM = ("training", "collection"), ("training", "random")
RANGES: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "a square": (("learner", "statistics", "second_moment", "action_net.bias"), _with(-1.0), "action_net.bias"),
    "a square of Adam's": ((*ADAM, "exp_avg_sq"), _with(-1.0), "exp_avg_sq"),
    "a step of Adam's": ((*ADAM, "step"), _with(0.0), "step"),
    "an action": ((*ROLLOUT, "actions"), _with(5), r"actions must be in \[0, 4\]"),
    "an action in a rollout's steps": ((*COLLECTION, "actions"), _with(-1), "actions"),
    "an index": ((*ROLLOUT, "bootstrap_index"), _with(BATCH), r"bootstrap_index must be in \[0, 19\]"),
    "a slot": ((*ROLLOUT, "bootstrap_slot"), _with(BATCH), "bootstrap_slot"),
    "an end in no environment": ((*COLLECTION, "end_envs"), _with(COPIES), "end_envs"),
    "an end in a later step": ((*COLLECTION, "end_steps"), _with(2), "end_steps"),
    "a learning rate": (("learner", "unroll", "learning_rates", 0), _with(-1.0), "learning_rates.0"),
    "a state of NumPy's": ((*RANDOM, "numpy", "items", 2), 10**6, "random.numpy"),
    "a state of Python's": ((*RANDOM, "python", "items", 1, "items", 0), -1, "random.python"),
    "another generator": (("training", "generator", "state", "bit_generator"), "MT19937", "PCG64"),
    "a huge state": (("training", "generator", "state", "state", "state"), 2**200, "training is malformed"),
    "a tensor that is not there": ((*ROLLOUT, "rewards"), {"kind": "tensor", "name": "nothing"}, "nothing"),
    "a deque of random states": (
        ("learner", "unroll", "random_states"),
        {"kind": "deque", "items": [], "maxlen": None},
        "random_states must be a list",
    ),
    "a kind that is not there": ((*ROLLOUT, "rewards"), {"kind": "eval"}, "kind must be one of"),
}


@pytest.mark.parametrize(("path", "value", "message"), RANGES.values(), ids=RANGES.keys())
def test_values_out_of_their_range_are_refused_by_name(
    path: tuple[Any, ...], value: Any, message: str, file: ModelFile, model: DGVFA2C
) -> None:
    assert re.search(message, _takes(model, _changed(file, path, value)) or "")


@pytest.mark.parametrize("value", ["text", [1, "a"], -1.5, 10**30], ids=str)
def test_malformed_attributes_are_refused_or_harmless(value: Any, file: ModelFile) -> None:
    refused = 0
    for name in file.document["attributes"]:
        changed = io.BytesIO(_changed(file, ("attributes", name), value))
        try:
            DGVFA2C.load(changed, device="cpu")
        except DamagedFileError as error:
            assert "attributes" in str(error) or name in str(error)  # noqa: PT017
            refused += 1
    assert refused > 30


def test_a_list_of_episodes_that_would_grow_for_ever_is_refused(file: ModelFile) -> None:
    for name in ("ep_info_buffer", "ep_success_buffer"):
        with pytest.raises(DamagedFileError, match=f"attributes.{name} must be a deque, got \\[\\]"):
            DGVFA2C.load(io.BytesIO(_changed(file, ("attributes", name), [])), device="cpu")


HUGE: dict[str, tuple[Any, str]] = {
    "questions": (1 << 16, "learner.theta.answers.weight must be a Tensor"),
    "n_envs": (10**9, "_last_obs must be"),
    "n_steps": (10**18, "n_steps must be at most"),
    "question_window": (10**9, "question_window must be at most"),
    "policy_kwargs": ({"features_extractor_kwargs": {"hidden": [10**6, 10**6]}}, "learner.theta.* must be"),
    "action_space": (
        {
            "kind": "space",
            "type": "Discrete",
            "arguments": {"n": 10**12, "start": 0, "dtype": "int64"},
            "generator": None,
        },
        "learner.theta.action_net.weight must be a Tensor",
    ),
    "observation_space": (
        {"kind": "space", "type": "Box", "arguments": {"low": 0.0, "high": 1.0, "shape": [10**9]}, "generator": None},
        "low of a Box must be an array",
    ),
}


@pytest.mark.parametrize("name", HUGE)
def test_sizes_are_compared_before_anything_is_allocated(name: str, file: ModelFile) -> None:
    value, message = HUGE[name]
    changed = io.BytesIO(_changed(file, ("attributes", name), value))
    _refused(changed, message, lambda source: DGVFA2C.load(source, device="cpu"))


def test_a_malformed_iteration_of_ppo_is_refused(tmp_path: Path, file: ModelFile) -> None:
    settings: dict[str, Any] = {
        "auxiliary_task": "discovered", "n_steps": 8, "batch_size": 8, "n_epochs": 1, "questions": 2, "device": "cpu",
    }  # fmt: skip
    DGVFPPO("PaperMlpPolicy", puddle(), policy_kwargs=TINY_NETWORK, **settings).learn(8 * COPIES).save(tmp_path / "ppo")
    own = ModelFile.from_bytes((tmp_path / "ppo.zip").read_bytes())
    iteration = ("learner", "unroll", "iteration")
    changes: list[tuple[tuple[Any, ...], Any]] = [
        *(((*iteration, "minibatches", 0), change) for change in (_with(8 * COPIES), _with(2**62), _with(-1))),
        *(((*iteration, "minibatches", 0), CHANGES[change]) for change in ("flat", "empty", "other dtype")),
        *(((*iteration, "clipping"), given) for given in ([], [None, None], [0.2], [-0.2, None], [0.2, -0.2])),
        *(((*iteration, "clipping"), [float("nan"), None]), ((*iteration, "clipping"), [0.2, float("nan")])),
        *(((*iteration, "answer_lambda"), given) for given in (-0.1, 1.1, float("nan"), None)),
        *((iteration, None), ((*iteration, "minibatches"), []), (("learner", "unroll", "rollouts"), [])),
    ]
    for path, change in changes:
        load = partial(DGVFPPO.load, env=puddle(), device="cpu")
        _refused(io.BytesIO(_changed(own, path, change)), "minibatches|clip|lambda|iteration", load)
    foreign = {"behavior": file.document["learner"]["theta"], "minibatches": [], "clipping": [], "answer_lambda": 1.0}
    _refused(io.BytesIO(_changed(file, iteration, foreign)), "unroll.iteration must be None")


WORLD = ("training", "environment", "items")
"""The state of a `VecMonitor`; its items are kind, counts, returns, lengths and the state of what is within."""


def _environments(file: ModelFile) -> dict[str, tuple[tuple[Any, ...], Any]]:
    names = [pair[0] for pair in _at(file.document, WORLD)]
    monitor = {name: (*WORLD, i, 1) for i, name in enumerate(names)}
    within = (*monitor["inner"], "items")
    own = (*within, [pair[0] for pair in _at(file.document, within)].index("own"), 1, "env")
    return {
        "more steps": ((*own, "steps"), CHANGES["longer"]),
        "negative steps": ((*own, "steps"), _with(-1)),
        "steps of another kind": ((*own, "steps"), CHANGES["other dtype"]),
        "a list for an array": ((*own, "done"), [1]),
        "more states": ((*own, "state", 0), CHANGES["longer"]),
        "states that are not finite": ((*own, "state", 0), _with(float("nan"))),
        "no streams": ((*own, "streams"), []),
        "no seeds": ((*own, "seeds"), MISSING),
        "returns": (monitor["episode_returns"], CHANGES["longer"]),
        "a count": (monitor["episode_count"], "x"),
        "what is within": (monitor["inner"], 5),
    }


def test_a_malformed_state_of_the_environment_is_refused(file: ModelFile) -> None:
    for path, change in _environments(file).values():
        _refused(io.BytesIO(_changed(file, path, change)), "training.environment is malformed")


# Malformed archives.


def _sealed(archive: bytes) -> bytes:
    """An archive without comment with its checksum, as `ModelFile.to_bytes` writes it."""
    comment = b"dgvf sha256 "
    whole = archive[:-2] + struct.pack("<H", len(comment) + 64) + comment
    return whole + hashlib.sha256(whole).hexdigest().encode()


def _archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)
    return buffer.getvalue()


def _members(document: bytes = b'{"format": 5}', tensors: bytes = struct.pack("<Q", 2) + b"{}") -> dict[str, bytes]:
    return {"model.json": document, "tensors.safetensors": tensors}


def _file(document: bytes = b'{"format": 5}', compression: int = zipfile.ZIP_STORED, **tensors: bytes) -> bytes:
    return _sealed(_archive(_members(document, **tensors), compression))


def _of_unknown_compression() -> bytes:
    archive = bytearray(_archive(_members()))
    for signature, offset in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        archive[archive.index(signature) + offset : archive.index(signature) + offset + 2] = struct.pack("<H", 99)
    return bytes(archive)


def _with_entries(count: int) -> bytes:
    """Many entries that all stand for one large member, as in a bomb without compression."""
    archive = _archive(_members(tensors=bytes(2**20)))
    end, start = archive.rindex(b"PK\5\6"), archive.index(b"PK\1\2")
    entry = archive[archive.index(b"PK\1\2", start + 4) : end]
    directory = archive[start:end] + count * entry
    total = min(count + 2, 2**16 - 1)
    counts = struct.pack("<HHHHIIH", 0, 0, total, total, len(directory), start, 0)
    return archive[:start] + directory + b"PK\5\6" + counts


def _header(**tensors: Any) -> bytes:
    header = json.dumps(tensors).encode()
    return struct.pack("<Q", len(header)) + header


NESTED = 100_000
ARCHIVES: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "checksum"),
    "a bomb": (lambda: _file(tensors=bytes(2**26), compression=zipfile.ZIP_DEFLATED), "must not be compressed"),
    "unknown compression": (lambda: _sealed(_of_unknown_compression()), "must not be compressed"),
    "overlapping members": (lambda: _sealed(_with_entries(1000)), "its members overlap"),
    "many members": (lambda: _sealed(_with_entries(20_000)), "it must have at most 10000 members"),
    "no members": (lambda: _sealed(_archive({})), "its archive is malformed"),
    "an earlier format": (lambda: _file(b'{"format": 4}'), "its format must be 5, .* got 4"),
    "nothing else": (lambda: _file(), "its document must be values named"),
    "no JSON": (lambda: _file(b"{"), "model.json is malformed"),
    "nested lists": (lambda: _file(b"[" * NESTED + b"]" * NESTED), "model.json is malformed"),
    "nested objects": (lambda: _file(b'{"a":' * NESTED + b"1" + b"}" * NESTED), "model.json is malformed"),
    "many values": (lambda: _file(b"[" + b"0," * 2**22 + b"0]"), "at most 1048576 values"),
    "a number of many digits": (lambda: _file(b'{"a": ' + b"9" * 10**6 + b"}"), "model.json is malformed"),
    "a header of any length": (lambda: _file(tensors=b"\xff" * 64), "its archive is malformed"),
    "tensors without numbers": (
        lambda: _file(tensors=_header(a={"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]})),
        "its archive is malformed",
    ),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_malformed_archives_are_refused(name: str) -> None:
    build, message = ARCHIVES[name]
    _refused(io.BytesIO(build()), message)


def test_one_tensor_is_not_taken_many_times(file: ModelFile) -> None:
    document, tensors = copy.deepcopy(file.document), {**file.tensors, "large": torch.zeros(2**19)}
    document["training"]["log"] = [{"kind": "array", "name": "large"}] * 1500
    contents = io.BytesIO(ModelFile(document, tensors).to_bytes())
    _refused(contents, "training is malformed: KeyError: 'large'")


@pytest.mark.parametrize("place", [0.0, 0.2, 0.5, 0.9, 0.999])
def test_files_that_are_cut_short_or_changed_are_refused(place: float, contents: bytes) -> None:
    at = int(place * len(contents))
    for damaged in (contents[:at], contents[:at] + bytes([contents[at] ^ 1]) + contents[at + 1 :]):
        _refused(io.BytesIO(damaged), "its checksum does not match its contents")


# What is no regular file of a plausible size.


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


IRREGULAR: dict[str, tuple[Callable[[Path], Path | None], str]] = {
    "a pipe": (os.mkfifo, "it must be a regular file"),
    "a folder": (Path.mkdir, "the folder must have config.json"),
    "a device": (lambda path: Path("/dev/zero"), "it must be a regular file"),
    "a link to a device": (lambda path: path.symlink_to("/dev/zero"), "it must be a regular file"),
    "a sparse file": (_sparse, "it must take at most 8589934592 bytes"),
    "a file without an end": (lambda path: Path("/proc/self/mem"), "checksum"),
}
"""What makes a file at a path, or another file's path."""


@pytest.mark.skipif(os.name == "nt", reason="pipes and devices are files elsewhere")
@pytest.mark.parametrize("name", IRREGULAR)
def test_what_is_no_plausible_file_is_refused_unread(name: str, tmp_path: Path) -> None:
    make, message = IRREGULAR[name]
    path = tmp_path / "model.zip"
    _refused(make(path) or path, message)


# Files of Stable-Baselines3.


def _their_bombs(a2c: dict[str, bytes]) -> dict[str, tuple[bytes, str]]:
    bomb = _archive({"archive/data/0": bytes(2**26)}, zipfile.ZIP_DEFLATED)
    large = "its contents must take at most 20 times its size"
    return {
        "data": (_archive({**a2c, "data": bytes(2**26)}, zipfile.ZIP_DEFLATED), large),
        "another member": (_archive({**a2c, "policy.optimizer.pth": bytes(2**26)}, zipfile.ZIP_DEFLATED), large),
        "weights": (_archive({**a2c, "policy.pth": bomb}), large),
        "no weights": (_archive({**a2c, "policy.pth": b"x"}), "policy.pth is malformed"),
    }


def test_bombs_and_malformed_weights_of_stable_baselines3_are_refused(a2c: dict[str, bytes]) -> None:
    model = DGVFA2C("MlpPolicy", "CartPole-v1", compile=False, device="cpu")
    for contents, message in _their_bombs(a2c).values():
        assert len(contents) < 2**20
        _refused(io.BytesIO(contents), message, model.set_parameters)
