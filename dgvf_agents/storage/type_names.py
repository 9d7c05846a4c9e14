"""Short, stable names of the types that files mention: a closed list, whatever modules the types live in.

A file that says `MlpPolicy` can be read after `MlpPolicy` has moved to another module. Layers, losses and optimizers of
PyTorch go by the names that PyTorch documents, `torch.nn.ReLU` and `torch.optim.Adam`.
"""

from __future__ import annotations

import importlib

import torch
from torch import nn

_MODULES = {
    "dgvf_agents.core.inner_metrics": ("InnerMetrics",),
    "dgvf_agents.core.inner_update": ("InnerState",),
    "dgvf_agents.core.types": ("Rollout",),
    "dgvf_agents.impala.settings": ("ActorSettings",),
    "dgvf_agents.learner_state": ("LearnerState", "UnrollState"),
    "dgvf_agents.agents.extractors": (
        "AtariCNNExtractor",
        "EncoderExtractor",
        "GridCNNExtractor",
        "MLPExtractor",
        "MultiInputExtractor",
        "ResNetExtractor",
        "TanhExtractor",
    ),
    "dgvf_agents.core.networks": ("AtariCNNEncoder", "GridCNNEncoder", "MLPEncoder"),
    "dgvf_agents.core.optimizers": ("SGD", "RMSProp", "Adam"),
    "dgvf_agents.core.resnet": ("ResNetEncoder",),
    "dgvf_agents.agents.policies": (
        "CnnPolicy",
        "DGVFPolicy",
        "MlpPolicy",
        "MultiInputPolicy",
        "PaperMlpPolicy",
        "ResNetPolicy",
    ),
    "dgvf_agents.agents.schedules": ("GeometricSchedule",),
    "stable_baselines3.common.buffers": ("DictRolloutBuffer", "RolloutBuffer"),
    "stable_baselines3.common.policies": (
        "ActorCriticCnnPolicy",
        "ActorCriticPolicy",
        "MultiInputActorCriticPolicy",
    ),
    "stable_baselines3.common.sb2_compat.rmsprop_tf_like": ("RMSpropTFLike",),
    "stable_baselines3.common.torch_layers": ("CombinedExtractor", "FlattenExtractor", "NatureCNN"),
    "stable_baselines3.common.utils": ("ConstantSchedule", "FloatSchedule", "LinearSchedule"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

_TORCH = {"torch.nn": (nn, nn.Module), "torch.optim": (torch.optim, torch.optim.Optimizer)}


def type_named(name: str) -> type:
    """The type that a file calls `name`. Nothing outside the list is imported or looked up.

    Raises:
        ValueError: no type has this name.
    """
    namespace, _, last = str(name).rpartition(".")
    if namespace in _TORCH:
        module, base = _TORCH[namespace]
        found = vars(module).get(last)
        if isinstance(found, type) and issubclass(found, base):
            return found
    elif name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise ValueError(f"type must be one of {sorted(_MODULE_OF)}, or a class of torch.nn or torch.optim, got {name!r}")


def name_of(kind: type) -> str | None:
    """The name that a file has for a type; `None` where it has none."""
    name = kind.__name__
    if _MODULE_OF.get(name) == kind.__module__:
        return name
    for namespace, (module, base) in _TORCH.items():
        if issubclass(kind, base) and vars(module).get(name) is kind:
            return f"{namespace}.{name}"
    return None
