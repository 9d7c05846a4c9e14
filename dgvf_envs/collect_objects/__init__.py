"""Collect-Objects: four rooms with two objects to collect in order."""

from dgvf_envs.collect_objects.dynamics import CollectObjects, CollectObjectsState
from dgvf_envs.collect_objects.env import CollectObjectsEnv, CollectObjectsVectorEnv
from dgvf_envs.collect_objects.grid_map import GridMap

__all__ = ["CollectObjects", "CollectObjectsEnv", "CollectObjectsState", "CollectObjectsVectorEnv", "GridMap"]
