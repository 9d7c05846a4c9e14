"""Reads model files of format 3, which kept parameters and the unroll apart, as those of the current format."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

from torch import Tensor

from dgvf_agents.agents.functional_policy import theta_name
from dgvf_agents.core.inner_metrics import InnerMetrics
from dgvf_agents.core.types import Rollout

Tensors = dict[str, Tensor]

_ROLLOUT = Rollout._fields[: Rollout._fields.index("entropy_weight") + 1]
"""Fields of a rollout in this format."""

_METRICS = InnerMetrics._fields[: InnerMetrics._fields.index("auxiliary_gradient") + 1]
"""Fields of the metrics in this format."""

_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def upgraded(document: dict[str, Any], tensors: Tensors) -> dict[str, Any]:
    """The document in the current format.

    Args:
        document: of format 3.
        tensors: of the file; those of the unroll's start, which are packed, are added by name.
    """
    parameters, training, attributes = document["parameters"], document["training"] or {}, document["attributes"]
    policy: dict[str, Any] = {}
    for name, value in parameters["policy"].items():
        if value not in policy.values():  # an extractor that is shared is listed under several names
            policy[theta_name(name)] = value
    statistics = {name: value for name, value in policy.items() if name.endswith(_BUFFERS)}
    theta = {name: value for name, value in policy.items() if name not in statistics}
    theta |= {f"answers.{name}": value for name, value in parameters.get("answer_net", {}).items()}
    optimizers = parameters.get("learner_state.optimizers", {"inner": None, "meta": None})
    learner = {
        "theta": theta,
        "statistics": optimizers["inner"],
        "eta": parameters.get("learner_state.questions", {}),
        "meta_optimizer": optimizers["meta"],
        "unroll": _unroll(training.get("unroll"), theta, optimizers["inner"], tensors),
        "updates": attributes["_n_updates"],
        "meta_updates": attributes.pop("meta_updates"),
        "meta_skipped": attributes.pop("meta_skipped"),
        "metrics": _record("InnerMetrics", _METRICS, training.get("metrics")),
        "meta_loss": training.get("meta_loss"),
        "meta_gradient_norm": training.get("meta_gradient_norm"),
    }
    return {
        "versions": document["versions"],
        "attributes": attributes,
        "pickled": document["pickled"],
        "learner": {"kind": "record", "type": "LearnerState", "attributes": learner},
        "statistics": statistics,
        "training": _training(training),
    }


def _training(old: dict[str, Any]) -> dict[str, Any] | None:
    if not old:
        return None
    unfinished = old["unfinished"] or {}
    random = dict(old["random"])
    return {
        "device": old["device"],
        "environment": old["environment"],
        "random": random,
        "actor": {
            "generator": random.pop("actions"),
            "noise": unfinished.get("noise"),
            "simulated_actions": unfinished.get("foreseen"),
        },
        "collecting": bool(unfinished),
        "steps": unfinished.get("steps"),
        "starts": unfinished.get("starts"),
        "exploration": unfinished.get("exploration", {}),
        "rollout": _record("Rollout", _ROLLOUT, old["rollout"]),
        "log": old["log"],
    }


def _unroll(old: Any, theta: dict[str, Any], statistics: Any, tensors: Tensors) -> Any:
    if old is None:
        return None
    packed_theta, packed_statistics = old["start"]
    start = {
        "theta": _split(packed_theta["packed"]["name"], theta, tensors),
        "optimizer": _split(packed_statistics["packed"]["packed"]["name"], statistics, tensors),
    }
    unroll = {
        "start": {"kind": "record", "type": "InnerState", "attributes": start},
        "rollouts": [_record("Rollout", _ROLLOUT, fields) for fields, _ in old["batches"]],
        "learning_rates": [rate for _, rate in old["batches"]],
        "random_states": old["random"],
    }
    return {"kind": "record", "type": "UnrollState", "attributes": unroll}


def _split(packed: str, shaped: Any, tensors: Tensors) -> Any:
    """A packed tensor taken apart like `shaped`, nested dicts of references to tensors."""
    references = list(_leaves(shaped))
    shapes = [tensors[reference["name"]].shape for reference in references]
    ends = [0, *accumulate(shape.numel() for shape in shapes)]
    whole = tensors[packed]
    for i, ((start, end), shape) in enumerate(zip(pairwise(ends), shapes, strict=True)):
        tensors[f"{packed}.{i}"] = whole[start:end].reshape(shape).clone()
    numbers = iter(range(len(references)))
    return _renamed(shaped, lambda: f"{packed}.{next(numbers)}")


def _leaves(tree: Any) -> Any:
    if tree.get("kind") == "tensor":
        yield tree
    else:
        for part in tree.values():
            yield from _leaves(part)


def _renamed(tree: Any, name: Any) -> Any:
    if tree.get("kind") == "tensor":
        return {"kind": "tensor", "name": name()}
    return {key: _renamed(part, name) for key, part in tree.items()}


def _record(kind: str, names: tuple[str, ...], values: Any) -> Any:
    if values is None:
        return None
    return {"kind": "record", "type": kind, "attributes": dict(zip(names, values, strict=True))}
