"""The algorithm in one file against `DGVFA2C`: the same parameters and the same batches, in double precision."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from dgvf_agents import DGVFA2C
from dgvf_agents.agents.schedules import GeometricSchedule
from dgvf_agents.core.types import Params, Rollout
from dgvf_agents.train.config import preset
from dgvf_agents.train.train import arguments_of
from tests.helpers import example_module
from tests.random_rollouts import random_rollout

pytestmark = pytest.mark.usefixtures("double_precision")

SHAPE, COPIES, STEPS, QUESTIONS, UPDATES = (3, 9, 9), 3, 4, 6, 3
META_NORM = 1e-3
"""Small enough to clip every meta-gradient here."""


example = example_module("discovery_in_one_file")


# --- the same numbers as DGVFA2C --------------------------------------------------------------------------------------

NAMES = {
    "conv1": "encoder.extractor.encoder.layers.0",
    "conv2": "encoder.extractor.encoder.layers.2",
    "hidden": "encoder.extractor.encoder.layers.5",
    "policy": "action_net",
    "value": "value_net",
    "answers": "answers",
    "cumulants": "cumulants",
}
"""Of the example's layers in the learner of `DGVFA2C`."""


def like(params: Params, wanted: Params) -> Params:
    """The example's parameters under the learner's names, in the learner's order."""
    parts = {name: name.rpartition(".") for name in params}
    found = {f"{NAMES[layer]}.{kind}": params[name] for name, (layer, _, kind) in parts.items()}
    assert found.keys() == wanted.keys()
    return {name: found[name].detach() for name in wanted}


def settings_of(**changes: Any) -> Any:
    small = {"n_envs": COPIES, "n_steps": STEPS, "questions": QUESTIONS, "unroll_length": UPDATES}
    return example.Settings(**{**small, "meta_max_norm": META_NORM, **changes})


def agent_of(settings: Any) -> DGVFA2C:
    """The agent of the preset, apart from the settings that make it small."""
    names = ("questions", "n_steps", "unroll_length")
    own = {name: getattr(settings, name) for name in names}
    own |= {"meta_max_grad_norm": settings.meta_max_norm, "encoder_mode": settings.encoder, "compile": False}
    arguments = {**arguments_of(preset("collect-objects-small", "discovered")), **own}
    return DGVFA2C("PaperCnnPolicy", settings.env, n_envs=settings.n_envs, **arguments)


def initial(settings: Any, first: bool) -> tuple[Params, Params, Params]:
    """θ, moments of RMSProp and η, moved away from the zeros among them; before the first update, moments are zero."""
    torch.manual_seed(1)
    envs = example.Collector(settings, settings.n_envs, 0).envs
    heads = ({"policy": 4, "value": 1, "answers": settings.questions}, {"cumulants": settings.questions})
    theta, eta = (
        {name: value + 0.1 * torch.randn(value.shape) for name, value in example.initial_params(envs, of).items()}
        for of in heads
    )
    moments = {name: torch.zeros(p.shape) if first else 0.1 * torch.rand(p.shape) for name, p in theta.items()}
    return theta, moments, {name: value.requires_grad_() for name, value in eta.items()}


def rollouts(count: int) -> list[Rollout]:
    """Batches of binary planes in which episodes end in both ways, each with an entropy coefficient of its own."""
    batches = []
    for seed in range(count):
        drawn = random_rollout(seed, steps=STEPS, num_envs=COPIES, shape=SHAPE, actions=4)
        now, following = ((planes > 0.5).double() for planes in (drawn.observations, drawn.next_observations))
        weight = torch.tensor(0.01 * (seed + 1))
        batches.append(drawn._replace(observations=now, next_observations=following, entropy_weight=weight))
    return batches


def batch_of(rollout: Rollout) -> Any:
    names = ("observations", "actions", "rewards", "next_observations", "terminated", "segment_end")
    fields = {name: getattr(rollout, name) for name in names}
    return example.Batch(**fields, entropy_coef=float(rollout.entropy_weight))


def assert_close(actual: Params, expected: Params, tolerance: float) -> None:
    """Each parameter up to a fraction of its norm."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert value.norm() > 0, name
        assert (actual[name] - value).norm() <= tolerance * value.norm(), name


@pytest.mark.parametrize("encoder", ["auxiliary", "joint"])
def test_two_iterations_are_those_of_the_learner(encoder: str) -> None:
    """Clipping, Adam, and the batch that ends one iteration and begins the next."""
    settings = settings_of(encoder=encoder)
    learner, batches = agent_of(settings).learner, rollouts(2 * UPDATES + 1)
    theta, moments, eta = initial(settings, first=False)
    learner.set_theta(like(theta, learner.theta))
    learner.set_statistics({"second_moment": like(moments, learner.theta)})
    learner.set_eta(like(eta, learner.eta))
    before = learner.eta
    for rollout in batches:  # the last one triggers the second meta-update
        learner.step(rollout, settings.learning_rate, settings.meta_learning_rate)
    assert learner.meta_updates == 2

    optimizer = torch.optim.Adam(eta.values(), lr=settings.meta_learning_rate)
    coming = iter(map(batch_of, batches))
    batch = next(coming)
    for _ in range(2):
        theta, moments, batch, gradient = example.unroll(
            theta, moments, eta, batch, lambda theta: next(coming), settings
        )
        example.meta_update(eta, gradient, optimizer, settings.meta_max_norm)
    theta, moments = example.inner_update(theta, moments, eta, batch, settings)  # the learner's update on the last one
    assert_close(like(theta, learner.theta), learner.theta, 1e-11)
    assert_close(like(moments, learner.theta), learner.statistics["second_moment"], 1e-10)
    moves = ({name: after[name] - before[name] for name in before} for after in (like(eta, before), learner.eta))
    assert_close(*moves, 1e-6)  # Adam's first steps are nearly signs of gradients, which tiny ones do not have to 1e-11


# --- experience and training ------------------------------------------------------------------------------------------


def test_batches_are_what_single_environments_return() -> None:
    """Across the ends of episodes, in environments that take the recorded actions."""
    settings = settings_of(n_steps=7, steps=7 * COPIES * 8)
    torch.manual_seed(0)
    theta = example.initial_params(
        gym.make_vec(settings.env, num_envs=1), {"policy": 4, "value": 1, "answers": settings.questions}
    )
    collector = example.Collector(settings, COPIES, 5)
    batches = [collector.collect(theta) for _ in range(8)]
    assert sum(int(batch.segment_end[:-1].sum()) for batch in batches) >= COPIES  # ends within batches
    for b in range(COPIES):
        env = gym.make(settings.env)
        observation, _ = env.reset(seed=5 + b)
        for batch in batches:
            for t in range(settings.n_steps):
                np.testing.assert_array_equal(batch.observations[t, b], observation)
                observation, reward, terminated, truncated, _ = env.step(int(batch.actions[t, b]))
                np.testing.assert_array_equal(batch.next_observations[t, b], observation)
                assert (float(batch.rewards[t, b]), bool(batch.terminated[t, b])) == (reward, terminated)
                assert bool(batch.segment_end[t, b]) == (terminated or truncated or t == settings.n_steps - 1)
                if terminated or truncated:
                    observation, _ = env.reset()
    coefficients = [batch.entropy_coef for batch in batches]
    assert coefficients == pytest.approx([GeometricSchedule(0.03, 0.01)(1 - i / 8) for i in range(8)], rel=1e-12)


def test_learning_curve(capsys: pytest.CaptureFixture[str]) -> None:
    """A row for every evaluation, with the returns of θ at that time."""
    settings = settings_of(steps=120, evaluate_every=40)  # 36 steps per iteration, after the first batch of 12
    theta, eta = example.train(settings)
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == "steps,sampled,greedy,seconds"
    steps, sampled, greedy, seconds = zip(*(map(float, row.split(",")) for row in rows), strict=True)
    assert steps == (48.0, 84.0, 120.0)
    assert sampled[-1] == float(f"{example.evaluate(theta, settings):.3f}")
    assert greedy[-1] == float(f"{example.evaluate(theta, settings, greedy=True):.3f}")
    assert list(seconds) == sorted(seconds)
    assert eta["cumulants.weight"].abs().max() > 0
