"""Where an agent stands in training: what it needs, besides its parameters and settings, to go on as if never stopped.

An unroll in progress is a graph, which no file holds. Kept instead are where it began, and the batches since with the
random states that their updates began in: taking the same updates again, which happens when training goes on, gives the
same graph, the units that dropout drops included.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from dgvf_agents.core.inner_update import InnerMetrics, InnerState
from dgvf_agents.core.types import Rollout
from dgvf_envs.functional.env_state import get_env_state, set_env_state

if TYPE_CHECKING:
    from dgvf_agents.a2c import DGVFA2C


_EXPLORATION = ("exploration_mat", "exploration_matrices")
"""Of gSDE: drawn once a rollout."""


def get_training_state(model: DGVFA2C) -> dict[str, Any]:
    """Where `model` stands, as a dict of values that `Encoder` knows.

    Where the environment cannot give its state, the unroll is left out: episodes begin anew, so that nothing goes on as
    if never stopped, and the batches of an unroll on Atari take hundreds of megabytes. It begins anew with them.
    """
    kept = model._pending_environment if model.env is None else None
    along = kept or {
        "environment": _environment(model),
        "random": _random_states(model),
        "unfinished": _unfinished(model),
    }
    return {
        "device": model.device.type,
        **along,
        "unroll": None if along["environment"] is None else _unroll(model),
        "rollout": _listed(model._rollout),
        "metrics": _listed(model.metrics),
        "meta_loss": model._meta_loss,
        "meta_gradient_norm": model._meta_gradient_norm,
        "log": _log(model),
    }


def set_training_state(model: DGVFA2C, state: dict[str, Any], force_reset: bool | None) -> None:
    """Go on from where `state` was taken, as far as `model`'s environment can.

    Args:
        model: set up, with its parameters; its environment may be missing.
        state: what `get_training_state` returned.
        force_reset: true: its environment begins anew. False: it is where it was already, or takes the stored state.
            None: it begins anew unless it takes the stored state.
    """
    state = tree_map_only(torch.Tensor, lambda tensor: tensor.to(model.device), state)
    model._meta_loss, model._meta_gradient_norm = state["meta_loss"], state["meta_gradient_norm"]
    model.metrics = None if state["metrics"] is None else InnerMetrics(*state["metrics"])
    model._rollout = None if state["rollout"] is None else Rollout(*state["rollout"])
    model._pending_log = state["log"]
    model._trained_on = state.get("device")
    if state["unroll"] is not None and model.task.discovers and len(state["unroll"]["batches"]) <= model.unroll_length:
        model._pending_unroll = state["unroll"]
    if model.env is None and force_reset is not True:  # it may come later, from a file that this model is saved to
        model._pending_environment = {name: state[name] for name in ("environment", "random", "unfinished")}
    taken = force_reset is not True and _take_environment(model, state["environment"])
    if model.env is not None and not taken and force_reset is not False:
        model._last_obs = None
    if taken or force_reset is False:
        _take_random_states(model, state["random"])
        _take_unfinished(model, state["unfinished"])


def replay_unroll(model: DGVFA2C) -> None:
    """Take the updates of a stored unroll again, if there is one to go on with.

    Parameters stay what they are. Where the updates lead elsewhere, because weights or settings were changed since they
    were first taken, the unroll begins anew.
    """
    pending, model._pending_unroll = model._pending_unroll, None
    if pending is None or len(pending["batches"]) > model.unroll_length:
        return
    here, start = InnerState(model._theta, model.learner_state.optimizer), InnerState(*pending["start"])
    now, meta_loss, model._unroll = random_state(model.device), model._meta_loss, None
    model._take(start)
    for (fields, learning_rate), before in zip(pending["batches"], _random_states_of(pending), strict=True):
        take_random_state(model.device, before)
        model._train_discovering(Rollout(*fields), learning_rate)
    take_random_state(model.device, now)
    model._meta_loss = meta_loss
    model._take(here)
    if model._unroll is not None and _leads_to(start, model._unroll.state, here):
        model._unroll.set_state(here)
    else:
        model._unroll = None


def _leads_to(start: InnerState, end: InnerState, here: InnerState) -> bool:
    """Whether the way from `start` to `end` leads `here`, up to a tenth of it: other devices round otherwise."""
    norm = torch.linalg.vector_norm
    places = zip(*(tree_leaves(state) for state in (start, end, here)), strict=True)
    return all(bool(norm(h - e) <= 0.1 * norm(e - s)) for s, e, h in places)  # false where one is not a number


def random_state(device: torch.device) -> list[Tensor]:
    """Where PyTorch's random number generators stand that an update on `device` may draw from."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def take_random_state(device: torch.device, state: list[Tensor]) -> None:
    """Put the random number generators where `random_state` found them, as far as there are any."""
    for generator in state[:1]:
        torch.set_rng_state(generator.cpu())
    for generator in state[1:] if device.type == "cuda" else ():
        torch.cuda.set_rng_state(generator.cpu(), device)


def _environment(model: DGVFA2C) -> dict[str, Any] | None:
    try:
        return None if model.env is None else get_env_state(model.env)
    except NotImplementedError:  # it begins anew
        return None


def _take_environment(model: DGVFA2C, state: dict[str, Any] | None) -> bool:
    if model.env is None or state is None or model._last_obs is None:
        return False
    try:
        set_env_state(model.env, state)
    except ValueError:  # another world
        return False
    for own, space in (
        (model.env.observation_space, model.observation_space),
        (model.env.action_space, model.action_space),
    ):
        own._np_random = space._np_random  # they are one object while training
    return True


def _random_states(model: DGVFA2C) -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002, that of other people's code
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if model.device.type == "cuda" else [],
        "actions": model._action_rng,
    }


def _take_random_states(model: DGVFA2C, states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])  # noqa: NPY002
    torch.set_rng_state(states["torch"].cpu())
    if model.device.type == "cuda" and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([state.cpu() for state in states["cuda"]])
    model._action_rng = states["actions"]


def _unroll(model: DGVFA2C) -> dict[str, Any] | None:
    if model._pending_unroll is not None or model._unroll is None:
        return model._pending_unroll
    start, batches = model._unroll.history
    return {
        "start": list(start),
        "batches": [[list(rollout), rate] for rollout, rate in batches],
        "random": [list(state) for state in model._unroll_random],
    }


def _random_states_of(pending: dict[str, Any]) -> list[list[Tensor]]:
    """Before each update of a stored unroll; files of earlier versions do not tell, which only matters with dropout."""
    return pending.get("random") or [[] for _ in pending["batches"]]


def _unfinished(model: DGVFA2C) -> dict[str, Any] | None:
    if not model._collecting:
        return None
    exploration = getattr(model.policy, "action_dist", None)
    return {
        "steps": model._builder.get_state(),
        "noise": model._drawn_noise,
        "starts": model._rollout_starts,
        "foreseen": model._foreseen,
        "exploration": {name: getattr(exploration, name, None) for name in _EXPLORATION} if model.use_sde else {},
    }


def _take_unfinished(model: DGVFA2C, state: dict[str, Any] | None) -> None:
    if state is None:
        return
    steps = len(state["steps"]["_rewards"])
    if steps != model.n_steps:
        raise ValueError(
            f"n_steps must be {steps}, since the file was saved in the middle of a rollout of so many, got "
            f"{model.n_steps}: force_reset=True drops that rollout and begins episodes anew"
        )
    model._builder.set_state(state["steps"])
    model._drawn_noise, model._rollout_starts, model._foreseen = state["noise"], state["starts"], state["foreseen"]
    for name, matrix in state["exploration"].items():
        setattr(model.policy.action_dist, name, matrix)
    model._collecting = True


def _log(model: DGVFA2C) -> dict[str, Any] | None:
    """What was recorded since the last row."""
    if model._pending_log is not None:
        return model._pending_log
    logger = getattr(model, "_logger", None)
    if logger is None:
        return None
    values = {key: value for key, value in logger.name_to_value.items() if isinstance(value, int | float | str)}
    return {
        "values": values,
        "counts": {key: logger.name_to_count[key] for key in values if key in logger.name_to_count},
        "excluded": {key: logger.name_to_excluded[key] for key in values},
    }


def restore_log(model: DGVFA2C) -> None:
    """Put what was recorded since the last row into the logger that `model` has now."""
    pending, model._pending_log = model._pending_log, None
    if pending is not None:
        model.logger.name_to_value.update(pending["values"])
        model.logger.name_to_count.update(pending["counts"])
        model.logger.name_to_excluded.update(pending["excluded"])


def _listed(record: tuple | None) -> list[Any] | None:
    return None if record is None else list(record)
