"""Gymnasium environments from "Discovery of Useful Questions as Auxiliary Tasks"; importing this registers them."""

import gymnasium as gym

_PUDDLE_WORLD = {
    "entry_point": "dgvf_envs.puddle_world.env:PuddleWorldEnv",
    "vector_entry_point": "dgvf_envs.puddle_world.env:PuddleWorldVectorEnv",
    "max_episode_steps": 5000,
}
_COLLECT_OBJECTS = {
    "entry_point": "dgvf_envs.collect_objects.env:CollectObjectsEnv",
    "vector_entry_point": "dgvf_envs.collect_objects.env:CollectObjectsVectorEnv",
    "max_episode_steps": 40,
}
_SUTTON_1996 = {
    "puddles": "sutton-1996",
    "noise": 0.01,
    "noise_distribution": "normal",
    "start": "random",
    "stay": False,
}

ENVIRONMENTS: dict[str, dict] = {
    "PuddleWorld-v0": _PUDDLE_WORLD,
    "PuddleWorldSutton-v0": {**_PUDDLE_WORLD, "kwargs": _SUTTON_1996},
    "CollectObjects-v0": _COLLECT_OBJECTS,
    "CollectObjectsOpposite-v0": {**_COLLECT_OBJECTS, "kwargs": {"objects": ((2, 10), (10, 2))}},
    "CollectObjectsSmall-v0": {
        **_COLLECT_OBJECTS,
        "kwargs": {"layout": "four-rooms-9", "objects": ((2, 6), (6, 2))},
    },
}
"""The registered ids, with the arguments of `gymnasium.register`."""

for _id, _arguments in ENVIRONMENTS.items():
    if _id not in gym.registry:
        gym.register(_id, **_arguments)
