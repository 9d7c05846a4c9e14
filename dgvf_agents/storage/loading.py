"""How a model is built from its file, as Stable-Baselines3's `load` does."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from stable_baselines3.common.utils import check_for_correct_spaces, get_system_info

from dgvf_agents.storage.saving import NEEDED, Source, StoredModel, on_device, read_stored
from dgvf_agents.storage.training_state import set_training_state

if TYPE_CHECKING:
    from dgvf_agents.a2c import DGVFA2C

Model = TypeVar("Model", bound="DGVFA2C")


def load_model(
    cls: type[Model],
    source: Source | Any,
    env: Any,
    device: torch.device | str,
    custom_objects: dict[str, Any] | None,
    print_system_info: bool,
    force_reset: bool | None,
    trusted: bool,
    changes: dict[str, Any],
) -> Model:
    """`cls.load`, which says what the arguments are."""
    stored = read_stored(source, custom_objects, trusted)
    if print_system_info:
        print("== CURRENT SYSTEM INFO ==")
        get_system_info()
        print(f"== SAVED MODEL SYSTEM INFO ==\n{stored.versions}")
    needed = {name: value for name, value in (custom_objects or {}).items() if name in NEEDED}
    attributes = {**stored.attributes, **needed}  # those that the file lacks too
    _check(attributes, changes)
    if env is not None:
        env = cls._wrap_env(env, attributes.get("verbose", 0))
        check_for_correct_spaces(env, attributes["observation_space"], attributes["action_space"])
        attributes["n_envs"] = env.num_envs
    attributes["tensorboard_log"] = None  # a file does not decide where its reader's logs go
    model = cls(attributes["policy_class"], env, device=device, _init_setup_model=False)
    model.__dict__.update({**attributes, **changes})
    model._setup_model()
    _set_parameters(model, stored)
    if model.use_sde:  # before random number generators are put where they were, since it draws
        model.policy.reset_noise()
    if stored.training is not None:
        set_training_state(model, stored.training, force_reset)
    elif env is not None and force_reset is not False:
        model._last_obs = None
    return model


def _check(attributes: dict[str, Any], changes: dict[str, Any]) -> None:
    missing = [name for name in NEEDED if name not in attributes]
    if missing:
        raise ValueError(f"the file must hold {', '.join(missing)}, which it does not: give them in custom_objects=")
    kwargs = attributes["policy_kwargs"]
    kwargs.pop("device", None)
    if "policy_kwargs" in changes and changes["policy_kwargs"] != kwargs:
        raise ValueError(f"policy_kwargs must be those in the file, {kwargs}, got {changes['policy_kwargs']}")


def _set_parameters(model: DGVFA2C, stored: StoredModel) -> None:
    parameters = on_device(stored.parameters, model.device)
    without_training = set(model._get_torch_save_params()[0]) - set(parameters) <= {"learner_state.optimizers"}
    if without_training and stored.training is None:  # a file for prediction: statistics begin anew
        parameters = {"learner_state.optimizers": model.learner_state.optimizers.state_dict(), **parameters}
    try:
        model.set_parameters(parameters, exact_match=True, device=model.device)
    except RuntimeError as error:
        if "pi_features_extractor" not in str(error) or "Missing key(s) in state_dict" not in str(error):
            raise
        model.set_parameters(parameters, exact_match=False, device=model.device)
        warnings.warn(
            "the policy in the file has no pi_features_extractor, as those of Stable-Baselines3 before 1.7: what it "
            "has is restored; save the model again to be rid of this warning",
            stacklevel=3,
        )
