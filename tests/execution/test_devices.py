"""Device names, equal results on all devices, and mixed precision.

Tests that need a CUDA device are skipped without one. Some use the meta device instead: its tensors hold no data, so
reading a value fails, and so does mixing them with CPU tensors.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from dgvf_agents import DGVFA2C, learner
from dgvf_agents.agents.logging import INPUT_BATCHES
from dgvf_agents.cli import main
from dgvf_agents.core.flat import map_tensors
from dgvf_agents.core.inner_loop import InnerLoop
from dgvf_agents.core.inner_update import MetaLoss
from dgvf_agents.core.optimizers import RMSProp
from dgvf_agents.core.types import Params
from dgvf_agents.execution.devices import device_named, evaluation_device
from dgvf_agents.options import Storage
from dgvf_agents.storage.files import write_bytes
from dgvf_agents.storage.model_file import ModelFile
from dgvf_agents.train.checkpoint import load_checkpoint
from dgvf_agents.train.environments import training_environments
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.train import train
from dgvf_envs.sb3_adapter import make_vec
from tests import small_agents
from tests.core.metagradient_problem import meta_gradient
from tests.devices import needs_cuda
from tests.helpers import refused
from tests.run_folders import tiny_config
from tests.small_agents import BATCH, COPIES

TINY = tiny_config(
    unroll_length=2,
    steps=6 * BATCH,
    evaluation_kwargs={"max_episode_steps": 9},
    evaluate_every=6 * BATCH,
    log_every=3 * BATCH,
    checkpoint_every=3 * BATCH,
)


def small_rooms() -> VecEnv:
    return make_vec("CollectObjectsSmall-v0", COPIES, 0)


def small_model(device: str = "cpu", **changes: Any) -> DGVFA2C:
    network = {"features_extractor_kwargs": {"features_dim": 32}}
    given = {"device": device, "question_discount": None, "policy_kwargs": network}
    return small_agents.small_model(small_rooms(), "PaperCnnPolicy", **given, **changes)


@functools.cache
def rollouts() -> tuple[Any, ...]:
    """Four rollouts of a model on the CPU."""
    model = small_model()
    return tuple(model.learn(BATCH, reset_num_timesteps=False)._rollout for _ in range(4))


def gradient_of(model: DGVFA2C, storage: Storage = "graph") -> Params:
    """The meta-gradient of an untrained model on the CPU's rollouts."""
    state = model.learner.packed_state
    batches = tree_map_only(Tensor, lambda tensor: tensor.to(model.device), list(rollouts()))
    rate: Any = torch.tensor(1e-3, device=model.device)
    update, meta_loss, _ = model.learner.functions.at(0)
    return meta_gradient(update, meta_loss, state, model.learner.packed_eta, batches, rate, storage=storage)


def apart(one: Params, other: Params) -> float:
    """Norm of the difference relative to the norm."""
    a, b = (torch.cat([value.cpu().flatten() for value in params.values()]) for params in (one, other))
    return float((a - b).norm() / b.norm())


# --- names ------------------------------------------------------------------------------------------------------------


def test_auto_is_cuda_if_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for there, kind in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert device_named("auto").type == kind
        assert evaluation_device(None, "cuda:1").type == kind
        assert device_named("cpu") == device_named(torch.device("cpu")) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_named("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ValueError, match="device must be available, got 'cuda:2', and PyTorch finds 2"):
        device_named("cuda:2")


def test_unavailable_devices_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = r"device must be available, got 'cuda(:0)?', and PyTorch finds 0 CUDA devices"
    with pytest.warns(UserWarning, match=message):
        model = small_model("cuda")
    assert model.device == torch.device("cpu")
    model.save(tmp_path / "model")
    with pytest.warns(UserWarning, match=message):
        assert DGVFA2C.load(tmp_path / "model", device="cuda:0").device == torch.device("cpu")
    refusal = refused(capsys, "train", "puddle-world", "a2c", "--device", "cuda", "--out", str(tmp_path / "run"))
    assert "device must be available" in refusal
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="device must be a device name such as 'auto', 'cpu' or 'cuda', got 'gpu'"):
        device_named("gpu")


# --- runs that continue on another device --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("devices") / "run"
    train(TINY, path, show_progress=False)
    return path


def as_if_from_cuda(run: Path, to: Path) -> RunFolder:
    """The first half of the run, as if trained on a CUDA device."""
    folder = RunFolder(to)
    (to / "checkpoints").mkdir(parents=True)
    folder.write_config(dataclasses.replace(TINY, device="cuda"))
    (to / "progress.csv").write_bytes((run / "progress.csv").read_bytes())
    source = RunFolder(run).checkpoints()[0]
    file = ModelFile.from_bytes(source.read_bytes())
    assert file.document["training"]["device"] == "cpu"
    document = {**file.document, "training": {**file.document["training"], "device": "cuda"}}
    write_bytes(to / "checkpoints" / source.name, dataclasses.replace(file, document=document).to_bytes())
    return folder


def test_a_run_continues_on_another_device_with_a_warning(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    run = as_if_from_cuda(finished, tmp_path / "run")
    evaluate(run.path, 2)  # evaluates on the CPU without a warning
    assert "device must be available" in refused(capsys, "train", "--resume", str(run.path))
    with pytest.warns(UserWarning, match=r"device was 'cuda' up to step 60 of the run, which continues on 'cpu'"):
        main(["train", "--resume", str(run.path), "--device", "cpu"])
    assert run.is_finished()
    assert run.read_config() == TINY  # where the next resume continues
    models: list[Any] = [
        load_checkpoint(RunFolder(path), lambda: training_environments(TINY)) for path in (run.path, finished)
    ]
    assert torch.equal(
        *(model.learner.packed_state.theta["packed"] for model in models)
    )  # both were computed on the CPU


# --- updates wait for no number and stay on their device --------------------------------------------------------------


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_updates_stay_on_the_device_and_wait_for_nothing(storage: str) -> None:
    model = small_model(storage=storage)
    learner, functions = model.learner, model.learner.functions
    given = (learner.packed_state, learner.packed_eta, rollouts()[:3], torch.tensor(1e-3), torch.zeros(COPIES))
    state, eta, batches, rate, noise = map_tensors(lambda tensor: tensor.detach().to("meta"), given)
    _, meta_loss, both = functions.at(0)
    loop = InnerLoop(state, eta, storage=storage)  # type: ignore[arg-type]
    for batch in batches[:2]:
        metrics, _ = loop.step(both, batch, rate, with_loss=True)
    loop.add_loss(MetaLoss(meta_loss), batches[2])
    results = tree_leaves((loop.state, metrics, loop.gradient()))
    actions = functions.packed.act(state.theta, batches[0].observations[0], noise).actions
    assert {tensor.device.type for tensor in (*results, actions)} == {"meta"}
    assert {tensor.dtype for tensor in results} == {torch.float32}


# --- products of bfloat16 numbers -------------------------------------------------------------------------------------


class Products(TorchDispatchMode):
    """The dtypes of matrix products and convolutions, by the size of their largest operand."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: dict[str, set[torch.dtype]] = {"encoder": set(), "heads": set()}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if "convolution" in name:
            self.dtypes["encoder"].add(args[0].dtype)
        elif name in ("mm", "addmm"):
            shapes = {size for one in args if isinstance(one, Tensor) for size in one.shape}
            self.dtypes["encoder" if 16 * 7 * 7 in shapes else "heads"].add(args[-1].dtype)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_meta_gradients_agree_with_those_of_float32_within_the_tolerance_of_bfloat16(storage: str) -> None:
    """With Atari's optimizer: the first steps of PyTorch's RMSProp are signs, too sensitive to rounding."""
    optimizer = RMSProp.tensorflow()
    exact, same, mixed = (small_model(inner_optimizer=optimizer, mixed_precision=m) for m in (False, False, True))
    assert torch.equal(exact.learner.packed_state.theta["packed"], mixed.learner.packed_state.theta["packed"])
    gradient = gradient_of(mixed, storage)
    assert {value.dtype for value in gradient.values()} == {torch.float32}
    assert 1e-4 < apart(gradient, gradient_of(exact)) < 0.1
    assert apart(gradient_of(same), gradient_of(exact)) == 0.0


def test_updates_agree_with_those_of_float32_within_the_tolerance_of_bfloat16() -> None:
    after = {}
    for mixed in (False, True):
        model = small_model(mixed_precision=mixed)
        state = model.learner.packed_state
        with Products() as products:
            new, metrics = model.learner.functions.update(
                state, model.learner.packed_eta, rollouts()[0], torch.tensor(1.0)
            )
        after[mixed] = {name: new.theta[name] - model.learner.packed_state.theta[name] for name in new.theta}, metrics
        kinds = {torch.bfloat16} if mixed else {torch.float32}
        assert products.dtypes == {"encoder": kinds, "heads": {torch.float32}}
        assert {value.dtype for value in tree_leaves((new, metrics))} == {torch.float32}
    assert 1e-4 < apart(after[True][0], after[False][0]) < 0.05
    for one, other in zip(after[True][1], after[False][1], strict=True):
        assert float(one) == pytest.approx(float(other), rel=0.03, abs=0.01)


def test_a_model_of_mixed_precision_trains_and_is_saved_with_it(tmp_path: Path) -> None:
    model = small_model(mixed_precision=True).learn(6 * BATCH)
    assert model.meta_updates == 1
    model.save(tmp_path / "model")
    model.learn(3 * BATCH, reset_num_timesteps=False)
    resumed = DGVFA2C.load(tmp_path / "model", small_rooms(), device="cpu")
    assert resumed.mixed_precision
    resumed.learn(3 * BATCH, reset_num_timesteps=False)
    assert torch.equal(resumed.learner.packed_state.theta["packed"], model.learner.packed_state.theta["packed"])


@pytest.mark.slow
def test_compiled_updates_of_mixed_precision_are_those_of_eager_ones() -> None:
    eager, compiled = (small_model(mixed_precision=True, compile=compile) for compile in (False, True))
    assert apart(*(model.learn(9 * BATCH).learner.packed_state.theta for model in (compiled, eager))) < 0.05
    assert eager.meta_updates == compiled.meta_updates == 2


def test_cpus_that_emulate_bfloat16_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability, machine, warned in (("AVX2", "x86_64", 1), ("AVX512", "x86_64", 0), ("DEFAULT", "arm64", 0)):
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda capability=capability: capability)
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        for mixed in (True, False):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                small_model(mixed_precision=mixed)
            assert sum("mixed_precision" in str(warning.message) for warning in caught) == warned * mixed


# --- with a CUDA device -----------------------------------------------------------------------------------------------


@needs_cuda
def test_numbers_are_those_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With TensorFlow's RMSProp and without TF32: the first steps of PyTorch's RMSProp are signs of the gradient."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    here, there = (small_model(device, inner_optimizer=RMSProp.tensorflow()) for device in ("cpu", "cuda"))
    there.set_parameters(here.get_parameters())
    assert apart(gradient_of(there), gradient_of(here)) < 1e-3
    assert gradient_of(there)["packed"].device.type == "cuda"
    first: list[Any] = [model.learn(BATCH)._rollout for model in (here, there)]
    for name in ("actions", "rewards", "terminated", "truncated", "observations", "next_observations"):
        one, other = (getattr(rollout, name) for rollout in first)
        assert torch.equal(one, other.cpu()), name
    for model in (here, there):
        model.learn(BATCH, reset_num_timesteps=False)
    assert apart(there.learner.packed_state.theta, here.learner.packed_state.theta) < 1e-3


@needs_cuda
@pytest.mark.parametrize("mixed_precision", [False, True])
def test_the_cpu_waits_for_actions_and_once_per_meta_update(mixed_precision: bool) -> None:
    batches = INPUT_BATCHES + 2  # at least two unrolls, until no inputs are looked at
    model = small_model("cuda", mixed_precision=mixed_precision).learn(batches * BATCH)
    update, waits = model.train, []

    def watched() -> None:
        before = model.meta_updates
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            update()
            torch.cuda.set_sync_debug_mode("default")
        waits.append((sum("called a synchronizing" in str(one.message) for one in seen), model.meta_updates - before))

    model.train = watched  # type: ignore[method-assign]
    model.learn(6 * BATCH, reset_num_timesteps=False)
    assert {count for count, meta in waits if not meta} == {0}
    assert {count for count, meta in waits if meta} == {1}


@needs_cuda
@pytest.mark.parametrize(("first", "then"), [("cuda", "cpu"), ("cpu", "cuda"), ("cuda", "cuda")])
def test_files_go_from_device_to_device(first: str, then: str, tmp_path: Path) -> None:
    model = small_model(first).learn(5 * BATCH)
    model.save(tmp_path / "model")
    loaded = DGVFA2C.load(tmp_path / "model", small_rooms(), device=then)
    assert (loaded.device.type, loaded.trained_on) == (then, first)
    for trained in (model, loaded):
        trained.learn(2 * BATCH, reset_num_timesteps=False)
    assert apart(loaded.learner.packed_state.theta, model.learner.packed_state.theta) < 1e-3
    model.set_parameters(loaded.get_parameters())
    model.set_parameters(tmp_path / "model.zip")
    model.learn(BATCH, reset_num_timesteps=False)


@needs_cuda
@pytest.mark.parametrize("change", [{}, {"mixed_precision": True}, {"storage": "recompute"}, {"compile": True}])
def test_a_run_on_cuda(change: dict[str, Any], tmp_path: Path) -> None:
    config = dataclasses.replace(TINY, device="cuda", **change)
    train(config, tmp_path / "run", show_progress=False)
    folder = RunFolder(tmp_path / "run")
    assert folder.is_finished()
    evaluate(folder.path, 2)
    folder.checkpoints()[-1].unlink()
    with pytest.warns(UserWarning, match="device was 'cuda' up to step 60"):
        train(dataclasses.replace(config, device="cpu"), folder.path, show_progress=False, resume=True)


def test_a_file_from_cuda_loads_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of an unroll; a CUDA generator's state is its seed and offset."""
    state = torch.zeros(16, dtype=torch.uint8)
    cpu_alone = learner.get_random_state
    monkeypatch.setattr(learner, "get_random_state", lambda device: [*cpu_alone(device), state])
    model = small_model("cpu").learn(5 * BATCH)
    assert model.learner.unroll_updates == 2
    model.save(tmp_path / "model")
    loaded = DGVFA2C.load(tmp_path / "model", small_rooms(), device="cpu")
    for each in (model, loaded):
        each.learn(2 * BATCH, reset_num_timesteps=False)
    assert apart(loaded.learner.packed_state.theta, model.learner.packed_state.theta) == 0
