"""The record of hyperparameters, and what follows from it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
from itertools import pairwise
from typing import Any, get_args

import pytest

from dgvf_agents import DGVFA2C, DGVFPPO, DGVFImpala
from dgvf_agents.hyperparameters import (
    SCHEDULED,
    Hyperparameters,
    arguments,
    check_hyperparameters,
    differences,
    record,
)
from dgvf_agents.options import Algorithm
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.train import arguments_of
from tests.signatures import CONSTRUCTORS, formatted

AGENTS: dict[Algorithm, Any] = {"a2c": DGVFA2C, "impala": DGVFImpala, "ppo": DGVFPPO}
WRONG = (-1, -0.5, 1.5, math.nan, math.inf, 1e400, "x", True, None, [1], 0)
"""Of all these, every hyperparameter refuses some."""


@pytest.mark.parametrize("agent", CONSTRUCTORS)
def test_constructors_are_written_from_the_record(agent: Algorithm) -> None:
    assert CONSTRUCTORS[agent].read_text(encoding="utf-8") == formatted(agent), "run `make signatures`"


@pytest.mark.parametrize("agent", get_args(Algorithm))
def test_constructors_have_the_defaults_of_the_record(agent: Algorithm) -> None:
    signature = inspect.signature(AGENTS[agent]).parameters
    for name, described in arguments(agent).items():
        default = signature[name].default
        assert (default(1.0) if callable(default) else default) == described.defaults[agent], name
        if name in SCHEDULED:
            final = record()[f"final_{name}"].defaults[agent]
            assert (default(0.0) if callable(default) else None) == final, name


@pytest.mark.parametrize("kind", [Hyperparameters, TrainConfig])
def test_every_field_has_a_description(kind: type) -> None:
    body = ast.parse(inspect.getsource(kind)).body[0].body  # type: ignore[attr-defined]
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign):
            assert isinstance(text, ast.Expr), ast.unparse(field)


@pytest.mark.parametrize("name", record())
def test_every_default_is_in_range_and_some_values_are_not(name: str) -> None:
    for default in record()[name].defaults.values():
        check_hyperparameters({name: default})
    refusals = {repr(value): message for value in WRONG if (message := _refusal(name, value)) is not None}
    assert all(message.startswith(f"{name} must ") and f"got {value}" in message for value, message in refusals.items())
    assert "'x'" in refusals
    assert len(refusals) > 3


@pytest.mark.parametrize("name", arguments("a2c"))
def test_a_configuration_hands_every_hyperparameter_to_its_agent(name: str) -> None:
    usual, changed = TrainConfig(), _changed(name)
    config = dataclasses.replace(usual, **{name: changed})
    given = arguments_of(config)[name]
    assert given == changed
    assert arguments_of(usual)[name] == record()[name].defaults["a2c"] != given


@pytest.mark.parametrize("name", record())
def test_members_may_differ_in_numbers_alone(name: str) -> None:
    usual = {**vars(TrainConfig())}
    other = {**usual, name: _changed(name)}
    was_none = usual[name] is None
    expected = [name] if record()[name].kind == "structure" or was_none else []
    assert list(differences(usual, other)) == expected


def test_a_hyperparameter_of_another_agent_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rho_bar must be left out for the algorithm a2c, got 2.0"):
        TrainConfig(rho_bar=2.0)
    assert TrainConfig(algorithm="impala", rho_bar=2.0).rho_bar == 2.0


def _refusal(name: str, value: Any) -> str | None:
    """Why a value is refused; `None` if it is not."""
    try:
        check_hyperparameters({name: value})
    except ValueError as error:
        return str(error)
    return None


def _changed(name: str) -> Any:
    """Another value in range."""
    usual = getattr(TrainConfig(), name)
    return next(v for v in (0.25, 7, True, *_CHOICES) if _refusal(name, v) is None and v != usual)


_CHOICES = ("tensorflow", "sum", "fixed", "auxiliary", "shared", "end", "myopic", "surrogate", "recompute")
