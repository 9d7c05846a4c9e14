"""What `policy_kwargs` say of networks: layers of the encoder, and layers of the heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from dgvf_agents import DGVFA2C
from dgvf_agents.policies import CnnPolicy, DGVFPolicy, MlpPolicy, MultiInputPolicy, PaperMlpPolicy

VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
PLANES = spaces.Box(0.0, 1.0, (2, 5, 5), np.float32)
BOTH = spaces.Dict({"a": VECTOR, "b": spaces.Discrete(4)})
ACTIONS = spaces.Discrete(3)


def _policy(kind: type[DGVFPolicy], space: spaces.Space, **kwargs: Any) -> DGVFPolicy:
    return kind(space, ACTIONS, lambda _: 1e-3, **kwargs)


def _widths(module: nn.Module) -> list[int]:
    return [part.out_features for part in module.modules() if isinstance(part, nn.Linear)]


@pytest.mark.parametrize(
    ("kind", "space", "expected"),
    [
        (MlpPolicy, VECTOR, [7, 5]),
        (PaperMlpPolicy, VECTOR, [7, 5]),
        (CnnPolicy, PLANES, [512, 7, 5]),
        (MultiInputPolicy, BOTH, [128, 128, 7, 5]),
    ],
)
def test_net_arch_is_of_the_encoder_which_answers_and_heads_are_linear_in(
    kind: type[DGVFPolicy], space: spaces.Space, expected: list[int]
) -> None:
    policy = _policy(kind, space, net_arch=[7, 5])
    assert _widths(policy.features_extractor) == expected
    assert _widths(policy.mlp_extractor) == []
    assert policy.action_net.in_features == policy.value_net.in_features == policy.features_dim == 5
    features = policy.extract_features(policy.obs_to_tensor(space.sample())[0])
    assert all(part.shape == (1, 5) for part in (features if isinstance(features, tuple) else [features]))


def test_a_custom_encoder_is_extended() -> None:
    from stable_baselines3.common.torch_layers import FlattenExtractor

    policy = _policy(MlpPolicy, VECTOR, features_extractor_class=FlattenExtractor, net_arch=[6], activation_fn=nn.ELU)
    policy.set_training_mode(False)
    observation, (weight, bias) = torch.randn(2, 3), policy.features_extractor.parameters()
    expected = nn.functional.elu(observation @ weight.T + bias)
    torch.testing.assert_close(policy.extract_features(observation), expected)
    assert isinstance(policy.features_extractor.flatten, nn.Flatten)  # as without these layers
    with pytest.raises(AttributeError, match="unflatten"):
        _ = policy.features_extractor.unflatten


@pytest.mark.parametrize("net_arch", [[4], None])
@pytest.mark.parametrize("kind", [MlpPolicy, PaperMlpPolicy])
def test_the_activation_is_that_of_the_encoder(kind: type[DGVFPolicy], net_arch: list[int] | None) -> None:
    policy = _policy(kind, VECTOR, net_arch=net_arch, activation_fn=nn.ELU)
    assert any(isinstance(module, nn.ELU) for module in policy.features_extractor.modules())
    assert not any(isinstance(module, nn.Tanh | nn.ReLU) for module in policy.modules())


def test_layers_of_the_policy_and_of_the_value_may_differ() -> None:
    policy = _policy(MlpPolicy, VECTOR, net_arch={"pi": [4], "vf": [6, 8]}, head_arch={"pi": [], "vf": [5]})
    assert _widths(policy.pi_features_extractor) == [4]
    assert _widths(policy.vf_features_extractor) == [6, 8]
    assert (policy.action_net.in_features, policy.value_net.in_features) == (4, 5)
    assert _widths(policy.mlp_extractor.value_net) == [5]
    values, _, _ = policy.evaluate_actions(torch.randn(2, 3), torch.zeros(2))
    assert values.shape == (2, 1)


@pytest.mark.parametrize("kind", [PaperMlpPolicy, CnnPolicy])
def test_layers_of_two_encoders_where_there_is_one_are_refused(kind: type[DGVFPolicy]) -> None:
    message = r"net_arch must be a list, since policy and value share one encoder, got .*head_arch"
    with pytest.raises(ValueError, match=message):
        _policy(kind, PLANES, net_arch={"pi": [4], "vf": [6]})


@pytest.mark.parametrize("net_arch", [[7, 5], {"pi": [4], "vf": [6, 8]}])
def test_the_agent_discovers_with_these_layers_and_is_loaded_with_them(net_arch: Any, tmp_path: Path) -> None:
    model = DGVFA2C(
        "MlpPolicy", "CartPole-v1", n_envs=2, unroll_length=2, questions=4, compile=False, device="cpu", seed=0,
        policy_kwargs={"net_arch": net_arch, "head_arch": [3]},
    )  # fmt: skip
    pi, vf = ([7, 5], [7, 5]) if isinstance(net_arch, list) else ([4], [6, 8])
    assert model.answer_net.in_features == pi[-1] + vf[-1]
    assert _widths(model.task.network.encoder)[: len(pi)] == pi  # the question network's is like the policy's
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(100)
    assert all(not torch.equal(value, before[name]) for name, value in model.policy.state_dict().items())
    model.save(tmp_path / "model")
    model.policy.save(tmp_path / "policy")
    loaded, policy = DGVFA2C.load(tmp_path / "model"), MlpPolicy.load(tmp_path / "policy")
    for found in (loaded.policy, policy):
        assert all(torch.equal(value, model.policy.state_dict()[name]) for name, value in found.state_dict().items())
