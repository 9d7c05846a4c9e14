"""PuddleWorld as a Gymnasium environment and vector environment."""

from __future__ import annotations

from typing import Any, final

from gymnasium.vector import AutoresetMode

from dgvf_envs.argument_checks import arguments_of
from dgvf_envs.functional.env import DynamicsEnv
from dgvf_envs.functional.vector_env import DynamicsVectorEnv
from dgvf_envs.puddle_world.dynamics import PuddleWorld, PuddleWorldState
from dgvf_envs.puddle_world.view import PuddleWorldView


@final
class PuddleWorldEnv(DynamicsEnv[PuddleWorldState]):
    """
    ## Description

    The agent is a point in the unit square. Its task is to reach the goal in the top right corner in as few steps as
    possible while avoiding the puddles: the agent can cross them, but they cost reward, so the shortest path is not the
    best one. The environment is the one described in Degris, White & Sutton, *Off-Policy Actor-Critic* (ICML 2012), and
    used in Veeriah et al., *Discovery of Useful Questions as Auxiliary Tasks* (NeurIPS 2019).

    ## Action Space

    The action space is `Discrete(5)`. Each action displaces the agent by 0.05 or leaves it in place. Whatever the
    action, noise drawn uniformly from [-0.025, 0.025] is added to each coordinate.

    | Num | Action | Displacement (x, y) |
    |-----|--------|---------------------|
    | 0 | left | (-0.05, 0) |
    | 1 | right | (+0.05, 0) |
    | 2 | down | (0, -0.05) |
    | 3 | up | (0, +0.05) |
    | 4 | stay | (0, 0) |

    ## Observation Space

    The observation space is `Box(0, 1, (2,), float32)`. The observation is the agent's position (x, y), clipped to the
    square. Internally the position has double precision.

    ## Rewards

    The reward depends on the position (x, y) at which the agent arrives, also at the last step of an episode:

    r = -1 - 2 · [N(x; .3, .1) N(y; .6, .03) + N(x; .4, .03) N(y; .5, .1) + N(x; .8, .03) N(y; .9, .1)]

    where N(·; m, s) is the *density* of the normal distribution with mean m and standard deviation s. The lowest reward
    is about -135.1, near (0.392, 0.592).

    ## Starting State

    The agent starts at (0.2, 0.4), or uniformly at random in the square if `start="random"`.

    ## Episode End

    - Termination: the L1 distance to the goal, |1 - x| + |1 - y|, is below 0.1.
    - Truncation: the episode is 5000 steps long (`max_episode_steps`).

    `info["is_success"]` is `True` at the step that reaches the goal.

    ## Arguments

    Pass these to `gymnasium.make` or `gymnasium.make_vec`:

    | Argument | Default | Meaning |
    |----------|---------|---------|
    | `start` | `(0.2, 0.4)` | a point outside the goal region, or `"random"` |
    | `noise` | `0.025` | scale of the noise on each coordinate, ≥ 0 |
    | `noise_distribution` | `"uniform"` | `"uniform"` on [-noise, noise], or `"normal"` with deviation `noise` |
    | `puddles` | `"degris-2012"` | `"degris-2012"`, `"sutton-1996"`, `"none"`, or puddles of `dgvf_envs.puddle_world` |
    | `goal` | `(1.0, 1.0)` | a point in the square |
    | `goal_threshold` | `0.1` | L1 distance to the goal below which the episode terminates, > 0 |
    | `thrust` | `0.05` | displacement of a move, > 0 |
    | `stay` | `True` | whether action 4 exists |
    | `reward_scale` | `1.0` | factor applied to every reward, > 0 |
    | `max_episode_steps` | `5000` | the time limit |
    | `screen_size` | `600` | height of the picture in pixels |

    `PuddleWorldSutton-v0` is the environment of Sutton, *Generalization in Reinforcement Learning: Successful Examples
    Using Sparse Coarse Coding* (NeurIPS 1996). It has two capsule-shaped puddles with a penalty of 400 times the
    distance to the nearest edge, four actions, normal noise with standard deviation 0.01 and a random start. Everything
    else is the same.

    ## Version History

    - v0: initial version
    """

    dynamics: PuddleWorld

    @arguments_of(PuddleWorld)
    def __init__(self, *, render_mode: str | None = None, screen_size: int = 600, **world: Any) -> None:
        """
        Args:
            render_mode: `None`, `"human"` or `"rgb_array"`.
            screen_size: height of the picture in pixels.
            world: the fields of `PuddleWorld`.

        Raises:
            TypeError: a keyword argument is unknown.
            ValueError: an argument is out of range.
        """
        dynamics = PuddleWorld(**world)
        super().__init__(dynamics, PuddleWorldView(dynamics), render_mode, screen_size)

    def get_keys_to_action(self) -> dict[tuple[int, ...], int]:
        """The keys for `gymnasium.utils.play.play`, which needs `noop=4`: arrow keys, WASD, and space to stay."""
        import pygame

        moves = {pygame.K_LEFT: 0, pygame.K_RIGHT: 1, pygame.K_DOWN: 2, pygame.K_UP: 3}
        letters = {ord("a"): 0, ord("d"): 1, ord("s"): 2, ord("w"): 3}
        stay = {ord(" "): 4} if self.dynamics.stay else {}
        return {(key,): action for key, action in (moves | letters | stay).items()}


@final
class PuddleWorldVectorEnv(DynamicsVectorEnv[PuddleWorldState]):
    """The vectorized `PuddleWorldEnv`, as returned by `gymnasium.make_vec("PuddleWorld-v0")`."""

    dynamics: PuddleWorld

    @arguments_of(PuddleWorld)
    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = 5000,
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
            world: the fields of `PuddleWorld`.

        Raises:
            TypeError: a keyword argument is unknown.
            ValueError: an argument is out of range.
        """
        dynamics = PuddleWorld(**world)
        view = PuddleWorldView(dynamics)
        super().__init__(dynamics, view, num_envs, max_episode_steps, autoreset_mode, render_mode, screen_size)
