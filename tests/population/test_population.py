"""Members of a population against the same agents alone."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from dgvf_agents import DGVFA2C, DGVFPPO
from dgvf_agents.core.inner_loop import InnerLoop
from dgvf_agents.core.optimizers import SGD, RMSProp
from dgvf_agents.core.types import Params
from dgvf_agents.execution.packing import KEY
from dgvf_agents.execution.update_functions import UpdateFunctions
from dgvf_agents.population.population import Population
from dgvf_envs.sb3_adapter import make_vec
from tests.compile_keys import recorded_keys
from tests.devices import needs_cuda
from tests.small_agents import small_model

B, T, ITERATIONS = 3, 4, 11
STEPS = ITERATIONS * B * T
WORLD = {"start": "random", "max_episode_steps": 7}


def agent(seed: int, env_id: str = "PuddleWorld-v0", **options: Any) -> DGVFA2C:
    usual = {"n_steps": T, "questions": 3, "seed": seed, "learning_rate": 1e-3, "meta_learning_rate": 1e-3}
    puddles = env_id.startswith("Puddle")
    env = make_vec(env_id, B, seed, env_kwargs=WORLD if puddles else {"max_episode_steps": 7})
    return small_model(env, "PaperMlpPolicy" if puddles else "PaperCnnPolicy", **{**usual, **options})


def together(members: Sequence[DGVFA2C], steps: int, reset: bool = True) -> None:
    """Train the members at once, for `steps` more environment steps each."""
    for member in members:
        member._setup_learn(steps, reset_num_timesteps=reset)
    population = Population(members)
    while members[0].num_timesteps < members[0]._total_timesteps:
        population.collect()
        population.update()
    for p in range(len(members)):
        population.synchronize(p)
        population.restore_environment(p)


def assert_equal(found: DGVFA2C, expected: DGVFA2C) -> None:
    states = [model.learner.get_state() for model in (found, expected)]
    for name in ("theta", "statistics", "eta", "meta_optimizer", "meta_loss", "meta_gradient_norm", "metrics"):
        torch.testing.assert_close(*(getattr(state, name) for state in states), rtol=2e-3, atol=2e-5, msg=name)
    for name in ("updates", "meta_updates", "meta_skipped"):
        assert getattr(states[0], name) == getattr(states[1], name)
    assert (states[0].unroll is None) == (states[1].unroll is None)
    if states[0].unroll is not None and states[1].unroll is not None:
        torch.testing.assert_close(states[0].unroll.start, states[1].unroll.start, rtol=2e-3, atol=2e-5)
        assert len(states[0].unroll.rollouts) == len(states[1].unroll.rollouts)
    assert found.num_timesteps == expected.num_timesteps
    episodes = [[(e["r"], e["l"]) for e in model.ep_info_buffer or ()] for model in (found, expected)]
    assert len(episodes[0]) > 3
    np.testing.assert_allclose(*episodes, rtol=1e-5)
    assert list(found.ep_success_buffer or ()) == list(expected.ep_success_buffer or ())
    np.testing.assert_allclose(found._last_obs, expected._last_obs, rtol=1e-5)  # type: ignore[arg-type]


CASES: dict[str, dict[str, Any]] = {
    "discovered, joint": {},
    "discovered, auxiliary": {"encoder_mode": "auxiliary", "auxiliary_weighting": "fixed", "max_grad_norm": None},
    "learned discounts": {"question_discount": None, "meta_max_discount_grad_norm": 10.0},
    "end, recomputed": {"objective": "end", "storage": "recompute"},
    "myopic, surrogate": {"horizon": "myopic", "convention": "surrogate"},
    "random": {"auxiliary_task": "random"},
    "reward prediction": {"auxiliary_task": "reward-prediction"},
    "none": {"auxiliary_task": "none"},
    "Adam": {"use_rms_prop": False},
    "annealed coefficient, head rate": {"head_rate": 0.5, "auxiliary_coefficient": lambda progress: 0.2 * progress},
    "SGD": {"inner_optimizer": SGD(), "encoder_mode": "joint"},
    "pixel control": {"env_id": "CollectObjectsSmall-v0", "auxiliary_task": "pixel-control"},
    "images": {"env_id": "CollectObjectsSmall-v0", "meta_epsilon": 1e-4},  # rounding moves tiny meta-gradients
}

OWN: list[dict[str, Any]] = [
    {"learning_rate": 2e-3, "gamma": 0.9, "meta_max_grad_norm": 0.01, "max_grad_norm": 0.1},
    {
        "ent_coef": lambda progress: 0.1 * progress,
        "vf_coef": 0.1,
        "auxiliary_coefficient": 0.1,
        "rms_prop_eps": 1e-3,
        "meta_learning_rate": 3e-3,
    },
    {"meta_learning_rate": lambda progress: 1e-2 * progress, "meta_skip_norm": 1e-6},
]
"""Settings of the members."""


@pytest.mark.parametrize("case", CASES)
def test_members_are_what_they_are_alone(case: str) -> None:
    group = [agent(p, **{**own, **CASES[case]}) for p, own in enumerate(OWN)]
    together(group, STEPS)
    for p, own in enumerate(OWN):
        assert_equal(group[p], agent(p, **{**own, **CASES[case]}).learn(STEPS))


@needs_cuda
def test_compiled_members_on_cuda_are_what_they_are_alone() -> None:
    """Alone, in the ordinary loop: the fused loop and CUDA graphs are checked, too."""
    group = [agent(p, **own, device="cuda", compile=True) for p, own in enumerate(OWN)]
    together(group, STEPS)
    for p, own in enumerate(OWN):
        for compiled in (False, True):
            assert_equal(group[p], agent(p, **own, device="cuda", compile=compiled).learn(STEPS))


def test_populations_that_differ_in_numbers_share_compiled_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded_keys(monkeypatch, ITERATIONS)

    def keys(members: Sequence[dict[str, Any]]) -> set[str]:
        asked.clear()
        together([agent(p, compile="auto", **own) for p, own in enumerate(members)], STEPS)
        return set(asked)

    expected = keys([{}, {}, {}])
    assert len(expected) >= 3  # of acting, the inner update and the meta-loss
    assert keys(OWN) == expected
    assert not keys([{}, {}]) & expected


def test_a_member_goes_on_alone_and_back_in_a_population(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file that was saved in the middle of an unroll, which is repeated with the functions of its updates."""
    used: list[int] = []
    functions_at = UpdateFunctions.at

    def recorded(functions: UpdateFunctions, update: int) -> Any:
        used.append(update)
        return functions_at(functions, update)

    monkeypatch.setattr(UpdateFunctions, "at", recorded)
    steps = 5 * B * T
    group = [agent(p) for p in range(2)]
    together(group, steps)
    loaded = []
    for p, member in enumerate(group):
        assert member.learner.unroll_updates == 2
        buffer = io.BytesIO()
        member.save(buffer)
        buffer.seek(0)
        env = make_vec("PuddleWorld-v0", B, p, env_kwargs=WORLD)
        loaded.append(DGVFA2C.load(buffer, env, "cpu"))
    used.clear()
    group[0].learn(steps, reset_num_timesteps=False)
    alone, used[:] = list(used), []
    together(loaded, steps, reset=False)
    assert used == alone == [3, 6, 9]
    assert_equal(loaded[0], group[0])
    assert_equal(loaded[1], agent(1).learn(2 * steps))


def test_an_infinite_meta_gradient_is_skipped_where_no_norm_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient_of = InnerLoop.gradient

    def infinite(loop: Any) -> Params:
        """Of the second member of a population, or of an agent alone."""
        gradient = gradient_of(loop)[KEY].clone()
        (gradient[1] if gradient.ndim == 2 else gradient)[0] = math.inf
        return {KEY: gradient}

    monkeypatch.setattr(InnerLoop, "gradient", infinite)
    group = [agent(p, meta_skip_norm=math.inf) for p in range(2)]
    together(group, STEPS)
    assert [member.learner.meta_skipped for member in group] == [0, 3]
    alone = agent(1, meta_skip_norm=math.inf).learn(STEPS)
    assert alone.learner.meta_skipped == 3
    torch.testing.assert_close(group[1].learner.eta, alone.learner.eta)
    assert all(bool(value.isfinite().all()) for value in group[0].learner.eta.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"questions": 4}, "agree in questions, got 3 and 4"),
        ({"auxiliary_task": "none"}, "agree in auxiliary_task"),
        ({"max_grad_norm": None}, "agree in max_grad_norm, got"),
        ({"unroll_length": 2}, "agree in unroll_length, got 3 and 2"),
        ({"head_rate": 0.5}, "agree in head_rate, got 1.0 and 0.5"),
        ({"question_window": 2}, "agree in question_window, got 1 and 2"),
        ({"inner_optimizer": RMSProp.pytorch(decay=0.9)}, "agree in inner_optimizer apart from ε"),
        ({"inner_optimizer": RMSProp.tensorflow()}, "agree in inner_optimizer apart from ε"),
        ({"env_id": "CollectObjectsSmall-v0"}, "agree in policy"),
    ],
)
def test_members_that_cannot_train_at_once_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        together([agent(0), agent(1, **change)], B * T)


def test_members_of_ppo_are_refused() -> None:
    members = [DGVFPPO("PaperMlpPolicy", "PuddleWorld-v0", n_steps=8, seed=seed, device="cpu") for seed in (0, 1)]
    with pytest.raises(ValueError, match="members must be of A2C, got DGVFPPO"):
        Population(members)


def test_members_with_other_environments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"env must be an environment of dgvf_envs under one VecMonitor"):
        together([agent(0), DGVFA2C("PaperMlpPolicy", "CartPole-v1", n_envs=B, n_steps=T, device="cpu")][1:], 1)
    other = make_vec("PuddleWorld-v0", B, 1, env_kwargs={**WORLD, "max_episode_steps": 8})
    group = [agent(0), agent(1)]
    group[1].set_env(other)
    with pytest.raises(ValueError, match="equal dynamics, time limits"):
        together(group, B * T)
