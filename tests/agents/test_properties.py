"""Any valid configuration trains; combinations that mean nothing are refused before the first step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from dgvf_agents import DGVFA2C
from dgvf_agents.core.optimizers import SGD
from tests import small_agents
from tests.small_agents import Samples

PLANES = spaces.MultiBinary((2, 4, 4))
VECTORS: list[spaces.Space] = [
    spaces.Box(-1.0, 1.0, (3,), np.float32),
    spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    spaces.Discrete(4),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiBinary(3),
]
ACTIONS: list[spaces.Space] = [
    spaces.Discrete(3),
    spaces.Box(-2.0, 1.0, (2,), np.float32),
    spaces.Box(-1.0, 1.0, (1, 2), np.float64),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(2),
]
SMALL: dict[str, Any] = {**small_agents.SMALL, "n_steps": 3, "questions": 3, "unroll_length": 1}


@st.composite
def observation_spaces(draw: st.DrawFn) -> tuple[str, spaces.Space]:
    """A policy's name, and a space that it is for."""
    kind = draw(st.sampled_from(["MlpPolicy", "PaperMlpPolicy", "PaperCnnPolicy", "MultiInputPolicy"]))
    if kind == "PaperCnnPolicy":
        return kind, PLANES
    if kind != "MultiInputPolicy":
        return kind, draw(st.sampled_from(VECTORS))
    parts = draw(st.lists(st.sampled_from(VECTORS), min_size=1, max_size=3))
    return kind, spaces.Dict({f"part{i}": part for i, part in enumerate(parts)})


OPTIMIZERS: list[dict[str, Any]] = [
    {},
    {"use_rms_prop": False},
    {"inner_optimizer": SGD()},
    {"policy_kwargs": {"optimizer_class": RMSpropTFLike}},
    {"policy_kwargs": {"optimizer_class": torch.optim.RMSprop}},
    {"policy_kwargs": {"optimizer_class": torch.optim.SGD}},
    {"policy_kwargs": {"optimizer_class": torch.optim.Adam}},
    {"policy_kwargs": {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.1}}},
]


@st.composite
def configurations(draw: st.DrawFn) -> tuple[str, DummyVecEnv, dict[str, Any]]:
    """A policy's name, environments, and other arguments."""
    policy, observed = draw(observation_spaces())
    actions = draw(st.sampled_from(ACTIONS))
    env = DummyVecEnv([lambda: Samples(observed, actions)] * draw(st.integers(1, 2)))
    chosen = dict(draw(st.sampled_from(OPTIMIZERS)))
    kwargs = dict(chosen.pop("policy_kwargs", {}))
    layers: list[Any] = [[4], {"pi": [3], "vf": [4, 2]}, *([[]] if policy.startswith("Paper") else [])]
    kwargs["net_arch"] = draw(st.sampled_from(layers))
    if kwargs["net_arch"]:
        kwargs["activation_fn"] = draw(st.sampled_from([nn.ReLU, nn.Tanh]))
    kwargs["share_features_extractor"] = draw(st.booleans())
    kwargs["ortho_init"] = draw(st.booleans())
    of_extractor = {"PaperCnnPolicy": {"features_dim": 8}, "PaperMlpPolicy": {"hidden": (8,)}}
    kwargs["features_extractor_kwargs"] = of_extractor.get(policy, {})
    if isinstance(actions, spaces.Box) and draw(st.booleans()):
        chosen |= {"use_sde": True, "sde_sample_freq": draw(st.sampled_from([-1, 2]))}
        kwargs |= {name: draw(st.booleans()) for name in ("squash_output", "full_std", "use_expln")}
    arguments = {
        "gamma": st.sampled_from([0.0, 0.9, 1.0]),
        "gae_lambda": st.sampled_from([0.0, 0.8, 1.0]),
        "ent_coef": st.sampled_from([0.0, 0.05]),
        "max_grad_norm": st.sampled_from([None, 0.5]),
        "normalize_advantage": st.booleans(),
        "learning_rate": st.sampled_from([1e-3, lambda remaining: 1e-3 * remaining]),
        "auxiliary_task": st.sampled_from(["discovered", "random", "reward-prediction", "none"]),
        "encoder_mode": st.sampled_from(["auxiliary", "joint"]),
        "question_discount": st.sampled_from([None, 0.0, 0.9]),
        "question_window": st.sampled_from([1, 2]),
        "objective": st.sampled_from(["sum", "end"]),
        "horizon": st.sampled_from(["unrolled", "myopic"]),
        "convention": st.sampled_from(["exact", "surrogate"]),
        "storage": st.sampled_from(["graph", "recompute"]),
        "unroll_length": st.sampled_from([1, 2]),
    }
    return (
        policy,
        env,
        {**chosen, "policy_kwargs": kwargs, **{name: draw(values) for name, values in arguments.items()}},
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(configurations())
def test_any_valid_configuration_trains_until_questions_moved(case: tuple[str, DummyVecEnv, dict[str, Any]]) -> None:
    policy, env, arguments = case
    model = DGVFA2C(policy, env, **{**SMALL, **arguments})
    before = [value.detach().clone() for value in model.policy.parameters()]
    model.learn(3 * 3 * env.num_envs)  # with L = 2 the third batch scores the second update, and θ moves again
    assert model.num_timesteps == 3 * 3 * env.num_envs
    due = 2 // arguments["unroll_length"]
    assert model.meta_updates + model.meta_skipped == (due if arguments["auxiliary_task"] == "discovered" else 0)
    after = list(model.policy.parameters())
    assert all(value.isfinite().all() for value in after)
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
    observation = env.reset()
    action, _ = model.predict(observation)
    assert action.shape == (env.num_envs, *env.action_space.shape)
    assert env.action_space.contains(action[0] if action.dtype.kind == "f" else action[0].astype(np.int64))
