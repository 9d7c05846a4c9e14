"""Models are saved without pickle, and loaded without running anything that a file holds."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import cloudpickle
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import VecEnv

from dgvf_agents import DGVFA2C, DGVFImpala
from dgvf_agents.agents.persistence import saved_names
from dgvf_agents.agents.policies import PaperMlpPolicy
from dgvf_agents.core.tasks import RewardPrediction
from dgvf_agents.impala.settings import ActorSettings
from dgvf_agents.options import Task
from dgvf_agents.storage.files import DamagedFileError
from dgvf_agents.storage.model_file import ModelFile
from dgvf_envs.sb3_adapter import make_vec
from tests.small_agents import BATCH, SMALL, small_model

TINY = {"features_extractor_kwargs": {"hidden": (16,)}, "activation_fn": torch.nn.Tanh, "net_arch": [8]}


def _env(seed: int = 0) -> VecEnv:
    return make_vec("PuddleWorld-v0", 4, seed)


def _model(**changes: Any) -> DGVFA2C:
    return small_model(_env(), **{"policy_kwargs": TINY, **changes})


def _actions(model: OnPolicyAlgorithm) -> np.ndarray:
    observations = np.random.default_rng(0).random((64, 2), dtype=np.float32)
    return model.policy.get_distribution(torch.from_numpy(observations)).distribution.logits.detach().numpy()


def _file(model: DGVFA2C) -> ModelFile:
    buffer = io.BytesIO()
    model.save(buffer)
    return ModelFile.from_bytes(buffer.getvalue())


@pytest.mark.parametrize("task", [task for task in get_args(Task) if task != "pixel-control"])
def test_a_model_needs_no_pickle(task: str) -> None:
    model = _model(auxiliary_task=task).learn(5 * BATCH)
    file = _file(model)
    assert file.pickled == {}
    assert any(name.startswith("learner.theta.") for name in file.tensors)  # a person finds the weights by name
    loaded = DGVFA2C.load(io.BytesIO(file.to_bytes()), device="cpu")
    assert np.array_equal(_actions(loaded), _actions(model))
    assert (loaded.policy_class, loaded.policy_kwargs) == (PaperMlpPolicy, TINY)
    assert loaded.observation_space == model.observation_space


def test_what_a_user_excludes_or_changes(tmp_path: Path) -> None:
    model = _model(verbose=0).learn(2 * BATCH)
    model.verbose = 2
    model.note = {"mine": [1, 2]}  # type: ignore[attr-defined]
    model.save(tmp_path / "model", exclude=["verbose", "note"])
    loaded = DGVFA2C.load(tmp_path / "model", device="cpu")
    assert (loaded.verbose, hasattr(loaded, "note")) == (0, False)
    model.save(tmp_path / "model", exclude=["verbose"], include=["verbose"])
    loaded = DGVFA2C.load(tmp_path / "model.zip", device="cpu", custom_objects={"learning_rate": 0.5}, verbose=1)
    assert (loaded.verbose, loaded.learning_rate, loaded.note) == (1, 0.5, {"mine": [1, 2]})  # type: ignore
    assert loaded.lr_schedule(1.0) == 0.5
    zoo = {"learning_rate": 0.0, "lr_schedule": lambda _: 0.0, "clip_range": lambda _: 0.0}
    assert DGVFA2C.load(tmp_path / "model", device="cpu", custom_objects=zoo).learning_rate == 0.0


@pytest.mark.parametrize("name", ["nope", "learner", "predict", "device", "env", "logger", "question_net", "a b"])
def test_only_attributes_of_ones_own_are_included(name: str, tmp_path: Path) -> None:
    """A file that holds another was made to replace a method or a part of the model."""
    model = _model()
    with pytest.raises(ValueError, match=f"include must name attributes of your own that the model has, got {name}"):
        model.save(tmp_path / "model", include=[name])
    file = _file(model)
    document = {**file.document, "attributes": {**file.document["attributes"], name: [1]}}
    if name != "nope":
        with pytest.raises(DamagedFileError, match=f"or plain data of your own, got '{name}'"):
            DGVFA2C.load(io.BytesIO(ModelFile(document, file.tensors).to_bytes()), device="cpu")


class Declared(DGVFA2C):
    """Declares attributes, a method and a property of its own."""

    bonus: float
    scale = 1.0

    @property
    def doubled(self) -> float:
        return 2 * self.scale

    def shaped(self, reward: float) -> float:
        return self.scale * reward + self.bonus


def test_attributes_that_a_subclass_declares_are_saved() -> None:
    model = Declared("PaperMlpPolicy", _env(), **SMALL)
    model.bonus, model.scale = 0.5, 3.0
    model.save(file := io.BytesIO())
    loaded = Declared.load(file, device="cpu")
    assert (loaded.bonus, loaded.scale, loaded.doubled, loaded.shaped(2.0)) == (0.5, 3.0, 6.0, 6.5)
    stored = ModelFile.from_bytes(file.getvalue())
    for name in ("doubled", "shaped"):
        document = {**stored.document, "attributes": {**stored.document["attributes"], name: 1.0}}
        with pytest.raises(DamagedFileError, match=f"or plain data of your own, got '{name}'"):
            Declared.load(io.BytesIO(ModelFile(document, stored.tensors).to_bytes()), device="cpu")


@pytest.mark.parametrize("name", ["learning_rate", "ent_coef", "meta_learning_rate"])
def test_a_schedule_of_the_users_becomes_a_table_without_trust(name: str, tmp_path: Path) -> None:
    def schedule(remaining: float) -> float:
        return 0.75 * remaining**2

    model = _model(**{name: schedule}).learn(2 * BATCH)
    model.save(tmp_path / "model")
    with pytest.warns(UserWarning, match=rf"not restored.*: {name} \(.*TabulatedSchedule.*custom_objects="):
        loaded = DGVFA2C.load(tmp_path / "model", _env(), device="cpu")
    for remaining in (0.0, 1e-3, 0.1234, 1.0):
        assert getattr(loaded, name)(remaining) == pytest.approx(schedule(remaining), abs=1e-6)
    loaded.learn(2 * BATCH, reset_num_timesteps=False).save(tmp_path / "again")
    assert getattr(DGVFA2C.load(tmp_path / "again", device="cpu"), name)(1.0) == 0.75
    assert getattr(DGVFA2C.load(tmp_path / "model", device="cpu", trusted=True), name)(1.0) == 0.75
    given = {name: schedule}
    assert getattr(DGVFA2C.load(tmp_path / "model", device="cpu", custom_objects=given), name) is schedule


class MyExtractor(FlattenExtractor):
    """A class that no list of packages has."""


@pytest.mark.filterwarnings("ignore:.*has no parameters")
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"auxiliary_task": lambda model: RewardPrediction()}, "auxiliary_task"),
        ({"policy_kwargs": {"features_extractor_class": MyExtractor}, "auxiliary_task": "none"}, "policy_kwargs"),
    ],
)
def test_what_a_model_cannot_do_without_is_named(changes: dict[str, Any], name: str, tmp_path: Path) -> None:
    model = _model(**changes).learn(2 * BATCH)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match=rf"{name} \(.*custom_objects=\{{'{name}': ...\}}.*trusted=True"):
        DGVFA2C.load(tmp_path / "model", device="cpu")
    (hub := tmp_path / "hub").mkdir()
    ModelFile.from_bytes((tmp_path / "model.zip").read_bytes()).write_folder(hub)
    with pytest.raises(ValueError, match=rf"{name} \(.*custom_objects=") as refused:
        DGVFA2C.load(hub, device="cpu")
    assert "trusted" not in str(refused.value)  # there is no pickle in it
    custom = {name: changes[name]}
    for loaded in (
        DGVFA2C.load(tmp_path / "model", device="cpu", custom_objects=custom),
        DGVFA2C.load(tmp_path / "model", device="cpu", trusted=True),
    ):
        assert np.array_equal(_actions(loaded), _actions(model))


def test_an_attribute_of_the_users_is_left_out_with_a_warning(tmp_path: Path) -> None:
    model = _model()
    model.mine = MyExtractor  # type: ignore[attr-defined]
    model.save(tmp_path / "model", include=["mine"])
    with pytest.warns(UserWarning, match="not restored from pickles: mine"):
        loaded = DGVFA2C.load(tmp_path / "model", device="cpu")
    assert not hasattr(loaded, "mine")
    model.mine = sys._getframe()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="mine cannot be saved"):
        model.save(tmp_path / "model", include=["mine"])
    assert DGVFA2C.load(tmp_path / "model", device="cpu", trusted=True).mine is MyExtractor  # type: ignore


def _sb3_file(model: DGVFA2C, path: Path) -> Path:
    OnPolicyAlgorithm.save(model, path, exclude={*vars(model)} - saved_names(type(model)))
    return path


@pytest.mark.filterwarnings("ignore:.*has no parameters")
def test_weights_that_a2c_wrote_are_taken_by_a_model_with_the_same_policy(tmp_path: Path) -> None:
    theirs = A2C("MlpPolicy", _env(), device="cpu", seed=1).learn(2 * BATCH)
    theirs.save(tmp_path / "a2c")
    with pytest.raises(ValueError, match=r"the same class and call set_parameters\(path\).*exact_match=False"):
        DGVFA2C.load(tmp_path / "a2c", device="cpu")
    ours = DGVFA2C(ActorCriticPolicy, _env(), compile=False, device="cpu", auxiliary_task="none")
    with pytest.raises(ValueError, match="do not match"):
        ours.set_parameters(tmp_path / "a2c")
    ours.set_parameters(tmp_path / "a2c", exact_match=False)
    ours.learn(BATCH, reset_num_timesteps=False)  # with the statistics of its own optimizer
    ours.set_parameters(tmp_path / "a2c", exact_match=False)
    assert np.array_equal(_actions(ours), _actions(theirs))


def test_a_file_without_what_a_model_needs_says_what_is_missing(tmp_path: Path) -> None:
    model = _model().learn(2 * BATCH)
    model.save(tmp_path / "model", exclude=["action_space"])
    with pytest.raises(ValueError, match=r"the file must hold action_space, which it does not"):
        DGVFA2C.load(tmp_path / "model", device="cpu")
    custom = {"action_space": model.action_space}
    loaded = DGVFA2C.load(tmp_path / "model", device="cpu", custom_objects=custom)
    assert np.array_equal(_actions(loaded), _actions(model))


class Payload:
    """Runs when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Callable, tuple]:
        return os.mkdir, (str(self._mark),)


def _replaced(path: Path, name: str, contents: bytes) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for member, old in {**members, name: b""}.items():
            archive.writestr(member, contents if member == name else old)


def _attacks(tmp_path: Path) -> dict[str, Path]:
    """Files that run code where they are read carelessly, by what they are made of."""
    payload = Payload(tmp_path / "ran")
    pickled, torch_pickled = cloudpickle.dumps(payload), io.BytesIO()
    torch.save(payload, torch_pickled)
    model = _model().learn(BATCH)
    paths = {}
    for attribute in ("policy_class", "ep_info_buffer", "learning_rate"):
        paths[f"sb3 {attribute}"] = path = _sb3_file(model, tmp_path / f"{attribute}.zip")
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("data"))
        data[attribute] = {":type:": "<class 'int'>", ":serialized:": base64.b64encode(pickled).decode()}
        _replaced(path, "data", json.dumps(data).encode())
    for member in ("policy.pth", "pytorch_variables.pth"):
        for how, contents in (("torch", torch_pickled.getvalue()), ("raw", pickle.dumps(payload))):
            paths[f"sb3 {member} {how}"] = path = _sb3_file(model, tmp_path / f"{how}-{member}.zip")
            _replaced(path, member, contents)
    file = _file(model)
    for attribute in ("learning_rate", "policy_class", "mine"):
        attributes = {k: v for k, v in file.document["attributes"].items() if k != attribute or k == "learning_rate"}
        document = {**file.document, "attributes": attributes, "pickled": {attribute: "int"}}
        paths[f"ours {attribute}"] = path = tmp_path / f"ours-{attribute}.zip"
        path.write_bytes(ModelFile(document, file.tensors, {attribute: pickled}).to_bytes())
    for attribute, value in {
        "policy_class": {"kind": "class", "name": "subprocess.Popen"},
        "policy_kwargs": {"features_extractor_class": {"kind": "class", "name": "evil_module.Extractor"}},
        "inner_optimizer": {"kind": "record", "type": "subprocess.Popen", "attributes": {"args": "true"}},
        "observation_space": {"kind": "space", "type": "os.system", "arguments": {}, "generator": None},
    }.items():
        document = {**file.document, "attributes": {**file.document["attributes"], attribute: value}}
        paths[f"ours, names {attribute}"] = path = tmp_path / f"named-{attribute}.zip"
        path.write_bytes(ModelFile(document, file.tensors).to_bytes())
    return paths


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_no_file_runs_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_module.py").write_text("import os\nos.mkdir(os.path.join(os.path.dirname(__file__), 'ran'))\n")
    monkeypatch.syspath_prepend(tmp_path)
    model = _model()
    custom = {name: getattr(model, name) for name in ("policy_class", "policy_kwargs", "observation_space")}
    custom["action_space"] = model.action_space
    attacks = _attacks(tmp_path)
    assert len(attacks) == 14
    for name, path in attacks.items():
        for attempt in (
            lambda path=path: DGVFA2C.load(path, device="cpu"),
            lambda path=path: DGVFA2C.load(path, _env(), device="cpu", custom_objects={**custom}),
            lambda path=path: _model().set_parameters(path, device="cpu"),
        ):
            with contextlib.suppress(ValueError, TypeError, KeyError, pickle.UnpicklingError):
                attempt()  # refusing is as good as not looking
            assert not (tmp_path / "ran").exists(), name
    assert "evil_module" not in sys.modules


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_attacks_are_real(tmp_path: Path) -> None:
    for name, load in (
        ("sb3 ep_info_buffer", load_from_zip_file),
        ("ours mine", lambda path: DGVFA2C.load(path, device="cpu", trusted=True)),
    ):
        load(_attacks(tmp_path)[name])
        (tmp_path / "ran").rmdir()


def test_a_file_does_not_decide_what_is_connected_to_or_written(tmp_path: Path) -> None:
    """Neither a cluster, whose messages are unpickled, nor a folder of the author's choice."""
    settings = ActorSettings(address="ray://somewhere:10001")
    impala = DGVFImpala("PaperMlpPolicy", _env(), device="cpu", compile=False, actor_settings=settings)
    impala.save(tmp_path / "impala")
    assert b"somewhere" not in (tmp_path / "impala.zip").read_bytes()
    file = ModelFile.from_bytes((tmp_path / "impala.zip").read_bytes())
    file.document["attributes"]["actor_settings"] = {"address": "ray://somewhere:10001"}
    with pytest.raises(DamagedFileError, match="got 'actor_settings'"):
        DGVFImpala.load(io.BytesIO(file.to_bytes()), device="cpu")
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    _model(tensorboard_log=str(theirs)).save(tmp_path / "model")
    loaded = DGVFA2C.load(tmp_path / "model", _env())
    assert loaded.tensorboard_log is None
    loaded.learn(BATCH)
    assert not theirs.exists()
    DGVFA2C.load(tmp_path / "model", _env(), tensorboard_log=str(ours)).learn(BATCH)
    assert list(ours.rglob("events*"))
    assert not theirs.exists()
