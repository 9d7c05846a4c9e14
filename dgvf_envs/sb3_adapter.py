"""An adapter from `gymnasium.vector.VectorEnv` to Stable-Baselines3's `VecEnv`.

Stable-Baselines3 vectorizes environments itself and does not accept vector environments. With this adapter it can train
on them and receives the same data as from its own `DummyVecEnv`.
"""

from __future__ import annotations

import copy
import importlib
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, final

import gymnasium as gym
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper
from gymnasium.wrappers.vector import DictInfoToList, NormalizeObservation
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv, VecMonitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from dgvf_envs.argument_checks import check_count
from dgvf_envs.atari.vector_env import GamesVectorEnv
from dgvf_envs.functional.simulation import SimulatedRollout
from dgvf_envs.functional.vector_env import DynamicsVectorEnv

PARTIAL_RESET = (SyncVectorEnv, AsyncVectorEnv, AtariVectorEnv, DynamicsVectorEnv)
"""The vector environments that support `reset(options={"reset_mask": mask})`."""


_REFUSED = {
    NormalizeObservation: "it has no partial resets; Stable-Baselines3's VecNormalize does the same",
    DictInfoToList: "this adapter turns infos into a list itself",
}


def _wrappers(env: VectorEnv) -> Iterator[VectorWrapper]:
    """The wrappers of a vector environment, the outermost first."""
    while isinstance(env, VectorWrapper):
        yield env
        env = env.env


@final
class GymnasiumVecEnv(VecEnv):
    """Wraps a `gymnasium.vector.VectorEnv` as a Stable-Baselines3 `VecEnv`.

    A `VecEnv` resets an environment in the same step in which its episode ends. With the autoreset mode `SAME_STEP` the
    vector environment does this itself. With `NEXT_STEP` and `DISABLED` the adapter immediately resets the finished
    environments through `reset(options={"reset_mask": mask})`, so that no transition is lost or invented.

    `seed(s)` seeds environment i with s + i at the next reset, like Stable-Baselines3's own environments.

    A vector environment with `metadata["reports_episodes"]` adds `episode` to the infos itself; `dgvf_envs.atari` does
    so at the end of whole games. The adapter treats it as wrapped in a `Monitor`: Stable-Baselines3 then logs and
    evaluates the reported episodes, and warns if a `VecMonitor` would overwrite them.
    """

    def __init__(self, env: VectorEnv, partial_reset: bool | None = None) -> None:
        """
        Args:
            env: the vector environment, possibly wrapped.
            partial_reset: whether `env` supports `reset(options={"reset_mask": mask})`; if `None`, this depends on its
                type. Relevant only if the autoreset mode is not `SAME_STEP`.

        Raises:
            TypeError: `env` is not a vector environment.
            ValueError: `env.metadata` has no autoreset mode, or the mode is not `SAME_STEP` and `env` does not support
                partial resets, or is wrapped in what does not.
        """
        if not isinstance(env, VectorEnv):
            raise TypeError(f"env must be a gymnasium.vector.VectorEnv, got {type(env).__name__}")
        mode = (env.metadata or {}).get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise ValueError(f"env.metadata['autoreset_mode'] must be an AutoresetMode, got {mode!r} from {env!r}")
        if partial_reset is None:
            partial_reset = _supports_reset_mask(env.unwrapped)
        if mode is not AutoresetMode.SAME_STEP and not partial_reset:
            raise ValueError(
                "env must autoreset with AutoresetMode.SAME_STEP or support reset(options={'reset_mask': mask}), "
                f"got {env!r} with {mode}: make it by gym.make_vec(id, n, vectorization_mode='sync'), or with "
                "autoreset_mode=AutoresetMode.SAME_STEP or shared_memory=True if its class takes that, or pass "
                "GymnasiumVecEnv(env, partial_reset=True) if it supports the mask"
            )
        for wrapper in _wrappers(env):
            for kind, remedy in _REFUSED.items():
                if isinstance(wrapper, kind):
                    raise ValueError(f"env must not be wrapped in Gymnasium's {kind.__name__}, got {env!r}: {remedy}")
        self.env = env
        self._same_step = mode is AutoresetMode.SAME_STEP
        fresh = isinstance(env.unwrapped, (*PARTIAL_RESET, GamesVectorEnv)) and getattr(env.unwrapped, "copy", True)
        self._reuses_buffers = not fresh  # as with Gymnasium's copy=False; of others nobody knows
        self._actions: np.ndarray | None = None
        self._reset_keys: set[str] = set()  # of the infos of resets
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.metadata = {**(env.metadata or {}), **self.metadata}

    def reset(self) -> VecEnvObs:
        observations, infos = self.env.reset(seed=self._common_seed(), options=self._common_options())
        self.reset_infos = _unbatch(infos, self.num_envs)
        self._reset_keys.update(infos)
        self._reset_seeds()
        self._reset_options()
        return self._owned(observations)

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = np.asarray(actions)

    def step_wait(self) -> VecEnvStepReturn:
        if self._actions is None:
            raise RuntimeError("step_wait() was called without step_async(): call step_async(actions) first")
        actions, self._actions = self._actions, None
        observations, rewards, terminated, truncated, batched = self.env.step(actions)
        observations = self._owned(observations)
        done = np.logical_or(terminated, truncated)
        final_obs, final_info = batched.pop("final_obs", None), batched.pop("final_info", None)
        infos = _unbatch({k: v for k, v in batched.items() if k not in ("_final_obs", "_final_info")}, self.num_envs)
        ended = np.flatnonzero(done).tolist()
        if self._same_step:
            if ended and final_obs is None:
                raise ValueError(
                    "infos must hold final_obs when an episode ends with AutoresetMode.SAME_STEP, as Gymnasium's "
                    f"vector environments do, got {sorted(batched)} from {self.env!r}"
                )
            final_infos = _unbatch(final_info or {}, self.num_envs) if ended else []
            for i in ended:
                self.reset_infos[i] = infos[i]  # but for what wrappers have added to the last step's
                wrapped = isinstance(self.env, VectorWrapper)
                added = {key: value for key, value in infos[i].items() if wrapped and key not in self._reset_keys}
                infos[i] = {**added, **final_infos[i], "terminal_observation": _item(final_obs, i)}
        elif ended:
            for i in ended:
                infos[i]["terminal_observation"] = _item(observations, i)
            initial, reset_batched = self._reset_in_part(done)
            observations = _merged(observations, initial, done)
            reset_infos = _unbatch(reset_batched, self.num_envs)
            for i in ended:
                self.reset_infos[i] = reset_infos[i]
        for info, timed_out in zip(infos, (truncated & ~terminated).tolist(), strict=True):
            info["TimeLimit.truncated"] = timed_out
        return observations, rewards.astype(np.float32), done, infos

    def _reset_in_part(self, mask: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """Reset the environments where the mask is true; what wrappers keep for each of the others stays."""
        kept = [(wrapper, _rows(vars(wrapper), self.num_envs)) for wrapper in _wrappers(self.env)]
        initial, infos = self.env.reset(options={"reset_mask": mask.copy()})
        for wrapper, rows in kept:
            _set_rows(vars(wrapper), rows, np.flatnonzero(~mask).tolist(), self.num_envs)
        return initial, infos

    def outcome_of(self, simulated: SimulatedRollout) -> VecEnvStepReturn:
        """A step that was simulated. As `step_wait`, but without infos of the vector environment in between."""
        done = simulated.terminated | simulated.truncated
        timed_out = simulated.truncated & ~simulated.terminated
        parts = zip(simulated.success.tolist(), timed_out.tolist(), strict=True)
        infos: list[dict[str, Any]] = [{"is_success": success, "TimeLimit.truncated": late} for success, late in parts]
        for i in np.flatnonzero(done).tolist():
            infos[i]["terminal_observation"] = simulated.final_observations[i].copy()
            self.reset_infos[i] = {}
        return simulated.observations, simulated.rewards.astype(np.float32), done, infos

    def get_state(self) -> dict[str, Any]:
        """The state of the vector environment, and the seeds and options of the next reset.

        Raises:
            NotImplementedError: the vector environment has no `get_state` and `set_state`.
        """
        if not (hasattr(self.env, "get_state") and hasattr(self.env, "set_state")):
            raise NotImplementedError(f"{self.env!r} cannot be saved: it has no get_state() and set_state(state)")
        return {"env": self.env.get_state(), "seeds": list(self._seeds), "options": list(self._options)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restore a result of `get_state`.

        Raises:
            ValueError: the state belongs to another environment.
        """
        if not hasattr(self.env, "set_state"):
            raise ValueError(f"state must belong to {self.env!r}, which has no set_state(state)")
        self.env.set_state(state["env"])
        self._seeds, self._options, self._actions = list(state["seeds"]), list(state["options"]), None

    def close(self) -> None:
        self.env.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        if self.render_mode != "rgb_array":
            warnings.warn(f"render_mode must be 'rgb_array' to obtain images, got {self.render_mode!r}", stacklevel=2)
            return [None] * self.num_envs
        frames: Any = self.env.render()
        return [None] * self.num_envs if frames is None else list(frames)

    def render(self, mode: str | None = None) -> np.ndarray | None:
        if self.render_mode == "human":
            self.env.render()  # one window for all environments
            return None
        return super().render(mode)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """The attribute of each environment; an attribute of the vector environment itself is repeated."""
        selected = self._indices(indices)
        if isinstance(self.env.unwrapped, AsyncVectorEnv):
            values = self.env.unwrapped.get_attr(attr_name)
            return [values[i] for i in selected]
        if (envs := self._scalar_envs()) is not None:
            return [envs[i].get_wrapper_attr(attr_name) for i in selected]
        value = _nested_attr(self.env, attr_name)
        return [value for _ in selected]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set the attribute of each environment.

        Raises:
            ValueError: `indices` selects some environments only, and these share the attribute or run in subprocesses.
        """
        selected = self._indices(indices)
        if (envs := self._scalar_envs()) is not None:
            for i in selected:
                envs[i].set_wrapper_attr(attr_name, value)
            return
        if set(selected) != set(range(self.num_envs)):
            raise ValueError(f"indices must select all environments of {self.env!r}, got {indices!r}")
        if isinstance(self.env.unwrapped, AsyncVectorEnv):
            self.env.unwrapped.set_attr(attr_name, [value] * self.num_envs)
        else:
            setattr(self.env.unwrapped, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of each environment; a method of the vector environment itself is called once.

        `AsyncVectorEnv` always calls all environments; `indices` then select among the results.
        """
        selected = self._indices(indices)
        if isinstance(self.env.unwrapped, AsyncVectorEnv):
            results = self.env.unwrapped.call(method_name, *method_args, **method_kwargs)
            return [results[i] for i in selected]
        if (envs := self._scalar_envs()) is not None:
            return [envs[i].get_wrapper_attr(method_name)(*method_args, **method_kwargs) for i in selected]
        result = _nested_attr(self.env, method_name)(*method_args, **method_kwargs)
        return [result for _ in selected]

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        """Whether each environment is wrapped in this class; in `AsyncVectorEnv`, as its spec has it."""
        selected = self._indices(indices)
        if (envs := self._scalar_envs()) is not None:
            return [is_wrapped(envs[i], wrapper_class) for i in selected]
        if isinstance(self.env.unwrapped, AsyncVectorEnv):
            name = f"{wrapper_class.__module__}:{wrapper_class.__name__}"
            specs = self.env.unwrapped.call("spec")
            return [
                any(one.entry_point == name for one in getattr(specs[i], "additional_wrappers", ())) for i in selected
            ]
        monitored = wrapper_class is Monitor and bool(self.metadata.get("reports_episodes", False))
        return [monitored for _ in selected]

    def _owned(self, observations: Any) -> Any:
        """Observations that the next step does not overwrite; Stable-Baselines3 stores them only after it."""
        return copy.deepcopy(observations) if self._reuses_buffers else observations

    def _scalar_envs(self) -> list[gym.Env] | None:
        return self.env.unwrapped.envs if isinstance(self.env.unwrapped, SyncVectorEnv) else None

    def _indices(self, indices: VecEnvIndices) -> list[int]:
        chosen: Iterable[int] = self._get_indices(indices)
        return list(chosen)

    def _common_seed(self) -> int | None:
        """The seed of environment 0; the others' follow, in `VecEnv.seed` as in Gymnasium."""
        first = self._seeds[0]
        if first is None:
            return None
        if self._seeds != [first + i for i in range(self.num_envs)]:
            raise ValueError(f"seeds must be consecutive integers, got {self._seeds}")
        return int(first)

    def _common_options(self) -> dict[str, Any] | None:
        if any(options != self._options[0] for options in self._options):
            raise ValueError(f"options must be the same for all environments, got {self._options}")
        return self._options[0] or None


def make_vec(
    env_id: str,
    n_envs: int = 1,
    seed: int | None = None,
    *,
    env_kwargs: dict[str, Any] | None = None,
    wrapper_class: Callable[[gym.Env], gym.Wrapper] | None = None,
    monitor_dir: str | None = None,
) -> VecMonitor:
    """Create a monitored `VecEnv`; a faster replacement for Stable-Baselines3's `make_vec_env`.

    It uses the id's own vector environment if there is one and the adapter supports it, and Gymnasium's `SyncVectorEnv`
    otherwise.

    Args:
        env_id: a registered id; `"module:Id-v0"` imports the module first.
        n_envs: number of environments ≥ 1.
        seed: environment i is seeded with `seed + i` at the first reset; if `None`, seeds are random.
        env_kwargs: arguments of the environment.
        wrapper_class: a wrapper for each environment; implies `SyncVectorEnv`.
        monitor_dir: the folder of `monitor.csv`; if `None`, none is written.

    Raises:
        ValueError: `n_envs` < 1.
    """
    check_count("n_envs", n_envs)
    arguments = dict(env_kwargs or {})
    venv = (None if wrapper_class else _own_vector_env(env_id, n_envs, arguments)) or GymnasiumVecEnv(
        _sync_vector_env(env_id, n_envs, arguments, [wrapper_class] if wrapper_class else None)
    )
    if seed is not None:
        venv.seed(seed)
        venv.action_space.seed(seed)
    return VecMonitor(venv, None if monitor_dir is None else os.path.join(monitor_dir, "monitor.csv"))


def resetting_in_part(env: VectorEnv) -> VectorEnv:
    """`env`, or with a warning new environments of its id, if `env` cannot reset one environment without the others.

    Some vector environments of Gymnasium, such as CartPole-v1's, spend a step of their own on the reset.
    Stable-Baselines3 cannot skip that step.
    """
    unwrapped, mode = env.unwrapped, (env.metadata or {}).get("autoreset_mode")
    spec = unwrapped.spec
    if mode is AutoresetMode.SAME_STEP or _supports_reset_mask(unwrapped):
        return env
    if env is not unwrapped or spec is None or spec.entry_point is None:
        return env
    warnings.warn(
        f"{type(env).__name__} cannot reset one environment without the others, so SyncVectorEnv is used for {spec.id}",
        stacklevel=6,  # where the user makes a model
    )
    arguments = {name: value for name, value in spec.kwargs.items() if name not in ("num_envs", "vectorization_mode")}
    return _sync_vector_env(spec.id, env.num_envs, arguments, None)


def _sync_vector_env(env_id: str, count: int, arguments: dict[str, Any], wrappers: Any) -> VectorEnv:
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    return gym.make_vec(
        env_id, count, vectorization_mode="sync", vector_kwargs=same_step, wrappers=wrappers, **arguments
    )


def default_num_envs(env_id: str) -> int:
    """The agents' default number of environments: 16 for this package's, as in the paper; 1 for others."""
    return 16 if of_this_package(spec_of(env_id)) else 1


def of_this_package(spec: EnvSpec) -> bool:
    """Whether it is one of this package's environments, which are `Dynamics`."""
    return str(spec.vector_entry_point).startswith("dgvf_envs.")


def _own_vector_env(env_id: str, n_envs: int, arguments: dict[str, Any]) -> GymnasiumVecEnv | None:
    """The id's own vector environment, or `None` if it has none that the adapter supports."""
    spec = spec_of(env_id)
    if spec.vector_entry_point is None or spec.additional_wrappers:
        return None
    if of_this_package(spec):
        arguments = {"autoreset_mode": AutoresetMode.SAME_STEP, **arguments}
    try:
        env = gym.make_vec(spec.id, num_envs=n_envs, vectorization_mode="vector_entry_point", **arguments)
    except TypeError:
        if of_this_package(spec):
            raise
        return None  # it lacks some of the environment's arguments
    if isinstance(env.unwrapped, AtariVectorEnv) and arguments.get("reward_clipping", True):
        warnings.warn(
            f"{env_id} clips its rewards, so logged returns are not scores, and stacks gray frames, other than "
            f"gym.make({env_id!r}); for clipped rewards and true scores use "
            "GymnasiumVecEnv(dgvf_envs.atari.make_atari_vec(game, n))",
            stacklevel=3,
        )
    try:
        return GymnasiumVecEnv(env)
    except ValueError:  # NEXT_STEP without partial resets
        env.close()
        return None


def _supports_reset_mask(env: VectorEnv) -> bool:
    """Whether partial resets work; AsyncVectorEnv without shared memory resets again at the next step."""
    if isinstance(env, AsyncVectorEnv) and env.autoreset_mode is AutoresetMode.NEXT_STEP and not env.shared_memory:
        return False
    return isinstance(env, PARTIAL_RESET)


def _nested_attr(env: VectorEnv, name: str) -> Any:
    """The attribute of a vector environment or of the environment it wraps."""
    while not hasattr(env, name) and isinstance(env, VectorWrapper):
        env = env.env
    return getattr(env, name)


def _unbatch(batched: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Split Gymnasium's dict of arrays with masks into one dict per environment.

    What is no array or list of a value for each environment, such as one number, is the same for all.
    """
    infos: list[dict[str, Any]] = [{} for _ in range(count)]
    for key, values in batched.items():
        if key.startswith("_") and key[1:] in batched:
            continue
        mask = batched.get(f"_{key}")
        if isinstance(values, dict):
            values = _unbatch(values, count)
        elif not _has_rows(values, count):
            values = [values] * count
        elif isinstance(values, np.ndarray) and values.dtype != object and values.ndim == 1:
            values = values.tolist()  # Python scalars, as in a single environment's info
        for info, value, given in zip(infos, values, [True] * count if mask is None else mask.tolist(), strict=True):
            if given:
                info[key] = value
    return infos


def _has_rows(values: Any, count: int) -> bool:
    """Whether these are values of `count` environments."""
    if isinstance(values, list | tuple):
        return len(values) == count
    return not isinstance(values, str | bytes) and np.shape(values)[:1] == (count,)


def _rows(attributes: dict[str, Any], count: int) -> dict[str, Any]:
    """Copies of what has a value for each of `count` environments, dicts within dicts included."""
    found = {name: _rows(value, count) for name, value in attributes.items() if isinstance(value, dict)}
    return found | {name: copy.deepcopy(value) for name, value in attributes.items() if _is_kept(value, count)}


def _is_kept(value: Any, count: int) -> bool:
    """Whether it is an array with a row, or a list with a number, for each environment; not so a stack of frames."""
    if isinstance(value, list):
        return len(value) == count and all(map(np.isscalar, value))
    return isinstance(value, np.ndarray) and value.shape[:1] == (count,)


def _set_rows(attributes: dict[str, Any], rows: dict[str, Any], indices: list[int], count: int) -> None:
    """Set the values of the environments with these indices to a result of `_rows`."""
    for name, before in rows.items():
        after = attributes.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            _set_rows(after, before, indices, count)
        elif _is_kept(after, count):
            for i in indices:
                after[i] = before[i]  # type: ignore[index]


def _item(batch: Any, i: int) -> Any:
    """A copy of element i of a batch of observations (array, dict of arrays, or an array of objects)."""
    if isinstance(batch, dict):
        return {key: _item(values, i) for key, values in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_item(values, i) for values in batch)
    return np.array(batch[i]) if isinstance(batch[i], np.ndarray | np.generic) else batch[i]


def _merged(observations: Any, fresh: Any, mask: np.ndarray) -> Any:
    """`fresh` where the mask is true, `observations` elsewhere."""
    if isinstance(observations, dict):
        return {key: _merged(values, fresh[key], mask) for key, values in observations.items()}
    if isinstance(observations, tuple):
        return tuple(_merged(*both, mask) for both in zip(observations, fresh, strict=True))
    merged = np.array(observations)
    merged[mask] = fresh[mask]
    return merged


def spec_of(env_id: str) -> EnvSpec:
    """The spec of an id; `"module:Id-v0"` imports the module first.

    Raises:
        ValueError: there is no such module.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # of what the module imports
            raise ValueError(f"env must name a module on Python's path before the colon, got {env_id!r}") from error
    return gym.spec(name)
