"""Collect-Objects as a Gymnasium environment and vector environment."""

from __future__ import annotations

from typing import Any, final

from gymnasium.vector import AutoresetMode

from dgvf_envs.argument_checks import arguments_of
from dgvf_envs.collect_objects.dynamics import CollectObjects, CollectObjectsState
from dgvf_envs.collect_objects.view import CollectObjectsView
from dgvf_envs.functional.env import DynamicsEnv
from dgvf_envs.functional.vector_env import DynamicsVectorEnv


@final
class CollectObjectsEnv(DynamicsEnv[CollectObjectsState]):
    """
    ## Description

    The agent moves through four rooms and must collect two objects in the right order within the time limit. The
    objects are in the same cells in every episode; the agent's starting cell is random. The environment follows the
    Collect-Objects domain in Veeriah et al., *Discovery of Useful Questions as Auxiliary Tasks* (NeurIPS 2019). The
    paper specifies neither the map nor the objects' cells; the default map is the one in Sutton, Precup & Singh (1999).

    ## Action Space

    The action space is `Discrete(4)`. Moves are deterministic; a move into a wall leaves the agent in place.

    | Num | Action | Displacement (row, column) |
    |-----|--------|----------------------------|
    | 0 | up | (-1, 0) |
    | 1 | down | (+1, 0) |
    | 2 | left | (0, -1) |
    | 3 | right | (0, +1) |

    ## Observation Space

    The observation space depends on the argument `observation`:

    | `observation` | Space | Meaning |
    |---------------|-------|---------|
    | `"planes"` | `MultiBinary((3, rows, columns))` | one plane each for the agent, the first and the second object |
    | `"rgb"` | `Box(0, 255, (rows, columns, 3), uint8)` | one pixel per cell; the agent hides the object in its cell |
    | `"state"` | `MultiDiscrete([rows, columns, 2, 2])` | the agent's row and column, whether each object is present |

    The plane of a collected object is all zeros.

    ## Rewards

    The reward is 1 for collecting the first object, 2 for collecting the second object after the first, and 0
    otherwise. By default, nothing happens when the agent reaches the second object before the first; see `wrong_order`.

    ## Starting State

    The agent starts uniformly at random in the free cells without an object, or in the cells marked `S` if the map has
    any.

    ## Episode End

    - Termination: the second object is collected after the first. With `wrong_order="terminate"`, also when the second
      object is reached too early; with `wrong_order="remove"`, also when no object is left.
    - Truncation: the episode is 40 steps long (`max_episode_steps`). On the registered maps this suffices to collect
      both objects from every starting cell.

    `info["is_success"]` is `True` at the step that collects the second object after the first.

    ## Arguments

    Pass these to `gymnasium.make` or `gymnasium.make_vec`:

    | Argument | Default | Meaning |
    |----------|---------|---------|
    | `layout` | `"four-rooms-13"` | `"four-rooms-13"`, `"four-rooms-9"`, a multi-line string, or a sequence of lines |
    | `objects` | `((2, 10), (9, 10))` | (row, column) of the first and the second object |
    | `observation` | `"planes"` | `"planes"`, `"rgb"` or `"state"` |
    | `wrong_order` | `"ignore"` | what happens when the second object is reached first; see below |
    | `max_episode_steps` | `40` | the time limit |
    | `screen_size` | `600` | height of the picture in pixels |

    In a `layout`, `#` is a wall, a space or `.` a free cell, `S` a starting cell, and `1` and `2` are the objects.
    `wrong_order` decides what happens when the agent reaches the second object before the first: `"ignore"` does
    nothing, `"remove"` removes the object without a reward, and `"terminate"` ends the episode.

    `CollectObjectsOpposite-v0` has the objects in opposite rooms, at (2, 10) and (10, 2), which makes exploration much
    harder. `CollectObjectsSmall-v0` has a 9x9 map with the objects at (2, 6) and (6, 2), for quick experiments.

    ## Version History

    - v0: initial version
    """

    dynamics: CollectObjects

    @arguments_of(CollectObjects)
    def __init__(self, *, render_mode: str | None = None, screen_size: int = 600, **world: Any) -> None:
        """
        Args:
            render_mode: `None`, `"human"` or `"rgb_array"`.
            screen_size: height of the picture in pixels.
            world: the fields of `CollectObjects`.

        Raises:
            TypeError: a keyword argument is unknown.
            ValueError: an argument is invalid, or the objects cannot be collected from every starting cell.
        """
        dynamics = CollectObjects(**world)
        super().__init__(dynamics, CollectObjectsView(dynamics), render_mode, screen_size)

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """The keys for `gymnasium.utils.play.play`: arrow keys and WASD.

        No action stays in place, so `play` needs `wait_on_player=True`.
        """
        import pygame

        arrows = (pygame.K_UP, pygame.K_DOWN, pygame.K_LEFT, pygame.K_RIGHT)
        return {(key,): action % 4 for action, key in enumerate((*arrows, *map(ord, "wsad")))}


@final
class CollectObjectsVectorEnv(DynamicsVectorEnv[CollectObjectsState]):
    """The vectorized `CollectObjectsEnv`, as returned by `gymnasium.make_vec("CollectObjects-v0")`."""

    dynamics: CollectObjects

    @arguments_of(CollectObjects)
    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = 40,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        screen_size: int = 600,
        **world: Any,
    ) -> None:
        """
        Args:
            num_envs: number of environments N ≥ 1.
            max_episode_steps: the time limit; `None` for no limit.
            autoreset_mode: `NEXT_STEP`, `SAME_STEP` or `DISABLED`.
            render_mode: `None`, `"human"` or `"rgb_array"`.
            screen_size: height of each picture in pixels.
            world: the fields of `CollectObjects`.

        Raises:
            TypeError: a keyword argument is unknown.
            ValueError: an argument is invalid, or the objects cannot be collected from every starting cell.
        """
        dynamics = CollectObjects(**world)
        view = CollectObjectsView(dynamics)
        super().__init__(dynamics, view, num_envs, max_episode_steps, autoreset_mode, render_mode, screen_size)
