"""With A2C's own settings an update is A2C's: the same rollout moves the same parameters to the same place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import A2C
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike

from dgvf_agents import DGVFA2C
from dgvf_agents.core.optimizers import SGD
from tests.small_agents import BOX, Samples, small_model

IMAGE = spaces.Box(0, 255, (3, 36, 36), np.uint8)
SETTINGS: dict[str, Any] = {
    "n_steps": 8,
    "learning_rate": 1e-2,
    "ent_coef": 0.02,
    "max_grad_norm": 0.5,
    "gamma": 0.9,
    "seed": 0,
    "device": "cpu",
}
TF_LIKE = {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"alpha": 0.99, "eps": 1e-5}, "net_arch": [8]}


def _updated(ours: DGVFA2C, theirs: A2C) -> None:
    """One rollout of ours, and one update of both on it."""
    _, callback = ours._setup_learn(ours.n_steps)
    theirs._setup_learn(ours.n_steps)
    assert ours.env is not None
    ours.collect_rollouts(ours.env, callback, ours.rollout_buffer, ours.n_steps)
    ours.rollout_buffer.size()  # fills it
    theirs.rollout_buffer = ours.rollout_buffer._buffer  # type: ignore[attr-defined]
    theirs.train()
    ours.train()


def optimizer(kind: type[torch.optim.Optimizer], **kwargs: Any) -> dict[str, Any]:
    return {"optimizer_class": kind, "optimizer_kwargs": kwargs}


CASES: dict[str, tuple[spaces.Space, spaces.Space, dict[str, Any]]] = {
    "box": (BOX, spaces.Box(-5.0, 5.0, (2,), np.float32), {}),
    "box of two axes": (BOX, spaces.Box(-5.0, 5.0, (2, 2), np.float32), {}),
    "discrete": (spaces.Discrete(5), spaces.Discrete(3), {}),
    "multi-discrete": (spaces.MultiDiscrete([3, 2]), spaces.MultiDiscrete([2, 4]), {}),
    "multi-binary": (spaces.MultiBinary(4), spaces.MultiBinary(3), {}),
    "dict": (spaces.Dict({"a": BOX, "b": spaces.Discrete(3)}), spaces.Discrete(3), {}),
    "image": (IMAGE, spaces.Discrete(3), {}),
    "network of the policy's own": (BOX, spaces.Discrete(3), {"net_arch": {"pi": [4], "vf": [6, 8]}}),
    "lambda": (BOX, spaces.Discrete(3), {"gae_lambda": 0.7}),
    "normalized": (BOX, spaces.Discrete(3), {"normalize_advantage": True, "gae_lambda": 0.9}),
    "gsde": (BOX, spaces.Box(-5.0, 5.0, (2,), np.float32), {"use_sde": True}),
    "gsde, few parameters": (BOX, spaces.Box(-5.0, 5.0, (2,), np.float32), {"use_sde": True, "full_std": False}),
    "gsde, squashed": (BOX, spaces.Box(-5.0, 5.0, (2,), np.float32), {"use_sde": True, "squash_output": True}),
    "gsde, expln": (BOX, spaces.Box(-5.0, 5.0, (2,), np.float32), {"use_sde": True, "use_expln": True}),
    "two extractors": (BOX, spaces.Discrete(3), {"share_features_extractor": False}),
    "sgd": (BOX, spaces.Discrete(3), optimizer(torch.optim.SGD, momentum=0.0)),
    "adam": (BOX, spaces.Discrete(3), optimizer(torch.optim.Adam, betas=(0.8, 0.9), eps=1e-12, foreach=False)),
    "adamw": (BOX, spaces.Discrete(3), optimizer(torch.optim.AdamW, eps=1e-12)),
    "adamw, decay": (BOX, spaces.Discrete(3), optimizer(torch.optim.AdamW, eps=1e-12, weight_decay=0.2)),
    "rmsprop": (BOX, spaces.Discrete(3), optimizer(torch.optim.RMSprop, alpha=0.9, eps=1e-12)),
    "rmsprop as tensorflow's": (BOX, spaces.Discrete(3), optimizer(RMSpropTFLike, alpha=0.9, eps=1e-3)),
}


@pytest.mark.parametrize(("observation_space", "action_space", "changes"), CASES.values(), ids=CASES.keys())
def test_an_update_is_that_of_a2c(
    observation_space: spaces.Space, action_space: spaces.Space, changes: dict[str, Any]
) -> None:
    of_policy = {"net_arch", "share_features_extractor", "full_std", "squash_output", "use_expln"}
    of_policy |= {"optimizer_class", "optimizer_kwargs"}
    kwargs = {**TF_LIKE, **{k: v for k, v in changes.items() if k in of_policy}}
    settings = {**SETTINGS, **{k: v for k, v in changes.items() if k not in kwargs}}
    several = isinstance(observation_space, spaces.Dict)
    policy = "MultiInputPolicy" if several else "CnnPolicy" if observation_space == IMAGE else "MlpPolicy"
    env = Samples(observation_space, action_space)
    ours = small_model(env, policy, auxiliary_task="none", policy_kwargs=kwargs, **settings)
    theirs = A2C(policy, Samples(observation_space, action_space), policy_kwargs=kwargs, **settings)
    before = {name: value.clone() for name, value in theirs.policy.named_parameters()}
    for _ in range(3):
        _updated(ours, theirs)
    for name, value in theirs.policy.named_parameters():
        moved = (value - before[name]).abs().max().item()
        assert moved > 0 or "log_std" in name, name
        own = dict(ours.policy.named_parameters())[name]
        difference = (own - value).abs().max().item()
        assert difference <= 1e-5, f"{name}: moved {moved:g}, differs by {difference:g}"


@pytest.mark.parametrize("batch", [8, 40])
def test_the_defaults_without_a_task_are_a2cs(batch: int) -> None:
    """Networks, initial weights and the update, from the first on; only n_steps and the device are given."""
    given: dict[str, Any] = {"n_steps": batch, "seed": 0, "device": "cpu"}
    env = Samples(BOX, spaces.Discrete(3))
    ours = DGVFA2C("MlpPolicy", env, auxiliary_task="none", compile=False, **given)
    theirs = A2C("MlpPolicy", Samples(BOX, spaces.Discrete(3)), **given)
    before = {name: value.detach().clone() for name, value in theirs.policy.named_parameters()}
    for name, value in ours.policy.named_parameters():
        assert torch.equal(value, before[name]), name
    _updated(ours, theirs)
    assert np.flatnonzero(ours.rollout_buffer.episode_starts).tolist() == list(range(0, batch, 3))
    own = dict(ours.policy.named_parameters())
    for name, value in theirs.policy.named_parameters():
        step, expected = (after - before[name] for after in (own[name], value))
        clear = expected.abs() > 1e-6  # far above rounding
        ratio = step[clear] / expected[clear]
        assert clear.any(), name
        torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=0.0, atol=0.01, msg=name)


@pytest.mark.parametrize("coefficient", [0.5, 2.0])
def test_each_encoder_has_its_own_weight_of_the_auxiliary_task(coefficient: float) -> None:
    """Steps of plain gradient descent, by the auxiliary task's weight: none, a fixed one, and one from gradients."""

    def step(weighting: str, coefficient: float) -> tuple[dict[str, torch.Tensor], DGVFA2C]:
        weight = {"auxiliary_weighting": weighting, "auxiliary_coefficient": coefficient}
        descent = {"inner_optimizer": SGD(), "max_grad_norm": None, "learning_rate": 1.0, "n_steps": 8}
        env = Samples(BOX, spaces.Discrete(3))
        model = small_model(env, "MlpPolicy", auxiliary_task="random", **weight, **descent)
        before = {name: p.detach().clone() for name, p in model.policy.named_parameters()}
        model.learn(8)
        return {name: before[name] - p.detach() for name, p in model.policy.named_parameters()}, model

    main, _ = step("fixed", 0.0)
    fixed, _ = step("fixed", 1.0)
    weighted, model = step("gradient-norm", coefficient)
    assert model.metrics is not None
    assert model.metrics.auxiliary_gradient.item() == pytest.approx(
        coefficient * model.metrics.main_gradient.item(), rel=1e-4
    )
    factors = []
    for encoder in ("mlp_extractor.policy_net.", "mlp_extractor.value_net."):
        names = [name for name in main if name.startswith(encoder)]
        auxiliary = torch.cat([(fixed[name] - main[name]).flatten() for name in names]).double()
        found = torch.cat([(weighted[name] - main[name]).flatten() for name in names]).double()
        factor = (found @ auxiliary) / (auxiliary @ auxiliary)
        torch.testing.assert_close(found, factor * auxiliary, rtol=1e-3, atol=1e-6)
        factors.append(factor.item())
    assert max(factors) > 1.5 * min(factors) > 0
    for head in ("action_net.weight", "value_net.weight"):
        torch.testing.assert_close(weighted[head], main[head])


DTYPES = ["bool", "int8", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float64"]
ACTIONS = [spaces.Discrete(3, dtype=np.int8), spaces.Box(-3, 3, (2,), np.int32), spaces.Box(-1, 1, (2,), np.float64)]


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        *((spaces.Box(0, 1, (3,), np.dtype(name).type), spaces.Discrete(2)) for name in DTYPES),
        *((spaces.Box(0, 1, (3,), np.float32), actions) for actions in ACTIONS),
    ],
    ids=str,
)
def test_every_dtype_trains_and_is_saved(observations: gym.Space, actions: gym.Space, tmp_path: Path) -> None:
    env = Samples(observations, actions)
    model = small_model(env, "MlpPolicy", questions=3).learn(20)
    model.save(tmp_path / "model")
    loaded = DGVFA2C.load(tmp_path / "model", env).learn(10, reset_num_timesteps=False)
    assert loaded.num_timesteps == 30
