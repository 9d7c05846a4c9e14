from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pygame
import pytest

from dgvf_envs.rendering import AGENT, GOAL, Color, Overlay
from tests.helpers import each_variant, each_world

SIZE = 192


@pytest.fixture(autouse=True)
def pygame_is_left_as_it_was() -> Iterator[None]:
    yield
    pygame.quit()


@pytest.fixture
def pygame_init_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pygame.init()` starts every part of pygame, sound included."""

    def refuse() -> None:
        raise AssertionError("pygame.init() was called")

    monkeypatch.setattr(pygame, "init", refuse)


def make(env_id: str, mode: str = "rgb_array", **options: Any) -> gym.Env:
    return gym.make(env_id, **{"render_mode": mode, "screen_size": SIZE, **options})


def make_vec(env_id: str, n: int, mode: str = "rgb_array", **options: Any) -> gym.vector.VectorEnv:
    return gym.make_vec(env_id, num_envs=n, **{"render_mode": mode, "screen_size": SIZE, **options})


def pixels_of(picture: np.ndarray, color: Color) -> np.ndarray:
    """`[K, 2]`: (x, y) of the pixels of about this color in the map, the square on the left."""
    near = np.abs(picture[:, :SIZE].astype(int) - color).max(axis=-1) < 12
    return np.argwhere(near)[:, ::-1]


def center(picture: np.ndarray, color: Color) -> np.ndarray:
    return pixels_of(picture, color).mean(axis=0)


def window_is_open() -> bool:
    return pygame.display.get_init() and pygame.display.get_surface() is not None


def window_pixels() -> np.ndarray:
    return pygame.surfarray.array3d(pygame.display.get_surface())


@each_variant
def test_pictures_are_arrays_of_the_size_asked_for(env_id: str, options: dict[str, Any]) -> None:
    env = make(env_id, **options)
    env.reset(seed=0)
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.shape[0] == SIZE
    assert picture.shape[1] > SIZE  # a square and a panel
    assert picture.shape[2] == 3
    np.testing.assert_array_equal(env.render(), picture)  # looking changes nothing
    picture[...] = 0
    assert env.render().any()


def test_puddle_world_shows_the_goal_and_the_reward() -> None:
    env = make("PuddleWorld-v0", screen_size=600)
    env.reset(seed=0)
    picture = env.render()[:, :600].astype(int)
    darkest = np.argwhere(picture.sum(axis=-1) == picture.sum(axis=-1).min()).mean(axis=0)
    assert (darkest[1] / 600, 1.0 - darkest[0] / 600) == pytest.approx((0.392, 0.592), abs=0.03)
    y, x = np.argwhere(np.abs(picture - GOAL).max(axis=-1) < 12).mean(axis=0) / 600
    assert x > 0.9
    assert y < 0.1


@pytest.mark.parametrize(("action", "shift"), [(0, (0, -1)), (1, (0, 1)), (2, (-1, 0)), (3, (1, 0))])
def test_collect_objects_is_drawn_with_row_0_at_the_top(action: int, shift: tuple[int, int]) -> None:
    env = make("CollectObjects-v0", layout=["1.2", ".S.", "..."])
    env.reset(seed=0)
    before = env.render()
    env.step(action)
    moved = center(env.render(), AGENT) - center(before, AGENT)
    assert (np.sign(np.round(moved / 4)) == shift).all()


def test_collect_objects_shows_what_is_left() -> None:
    """Walking to and fro without an object leaves other pixels than taking it does."""
    env = make("CollectObjects-v0", layout=["1S.2"])
    pictures = []
    for first_moves in ((3, 2), (2, 3)):
        env.reset(seed=0)
        for action in first_moves:
            env.step(action)
        pictures.append(env.render())
    cell = SIZE // 4
    quarter = (slice(None), slice(0, cell))
    assert (pictures[0][quarter] != pictures[1][quarter]).mean() > 0.05
    assert (pictures[0][:, 3 * cell : 4 * cell] == pictures[1][:, 3 * cell : 4 * cell]).all()


@each_world
def test_the_window_opens_and_closes_twice(env_id: str, pygame_init_is_refused: None) -> None:
    env = make(env_id, "human").unwrapped
    for _ in range(2):
        env.close()
        assert not pygame.display.get_init()
        env.reset(seed=0)
        assert window_is_open()
        assert env.render() is None
        assert pygame.display.get_surface().get_size() == (round(1.42 * SIZE), SIZE)
        assert not pygame.mixer.get_init()


@each_world
def test_the_window_shows_every_step(env_id: str) -> None:
    env = make(env_id, "human")
    env.reset(seed=0)
    first = window_pixels()
    env.step(1)
    second = window_pixels()
    assert (first != second).any()
    array = make(env_id)
    array.reset(seed=0), array.step(1)
    np.testing.assert_array_equal(second.swapaxes(0, 1), array.render())
    env.close()


@pytest.mark.parametrize("size", [(1000, 300), (300, 500)])
def test_the_window_keeps_the_aspect_ratio_when_it_is_resized(size: tuple[int, int]) -> None:
    """The walls around the rooms form a square."""
    env = make("CollectObjects-v0", "human")
    env.reset(seed=0)
    pygame.display.set_mode(size, pygame.RESIZABLE)
    env.step(0)
    shown = window_pixels()
    walls = np.argwhere((shown == shown[tuple(np.argwhere((shown != shown[0, 0]).any(-1))[0])]).all(-1))
    width, height = np.ptp(walls, axis=0)
    assert abs(width / height - 1.0) < 0.02
    assert width > 0.5 * min(size)
    env.close()


@each_world
@pytest.mark.parametrize("vector", [False, True], ids=["scalar", "vector"])
def test_the_window_closed_by_hand_lets_the_program_go_on(env_id: str, vector: bool) -> None:
    env = make_vec(env_id, 2, "human") if vector else make(env_id, "human")
    action = np.ones(2, dtype=int) if vector else 1
    env.reset(seed=0)
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    env.step(action)
    assert not window_is_open()
    env.step(action)
    env.reset(seed=0)
    assert not window_is_open()
    env.close()


@each_world
def test_the_window_shares_the_screen_with_others(env_id: str) -> None:
    """Pygame has one window: when another environment closes it, ours opens it again."""
    env, other = make(env_id, "human"), make("PuddleWorld-v0", "human")
    env.reset(seed=0), other.reset(seed=0)
    other.close()
    env.step(1)
    assert window_is_open()
    pygame.quit()
    env.step(1)
    assert window_is_open()
    env.close()


@each_world
@pytest.mark.parametrize("n", [1, 3])
def test_the_window_shows_the_copies_of_a_vector_environment(env_id: str, n: int, pygame_init_is_refused: None) -> None:
    env = make_vec(env_id, n, "human")
    env.reset(seed=0)
    before = window_pixels()
    env.step(np.ones(n, dtype=int))
    assert env.render() is None
    changed = (before != window_pixels()).any(axis=-1)
    k = 1 if n == 1 else 2  # tiles a side
    width, height = changed.shape[0] // k, changed.shape[1] // k
    tiles = changed[: k * width, : k * height].reshape(k, width, k, height).any(axis=(1, 3))
    assert tiles.T.ravel().tolist() == [i < n for i in range(k * k)]
    env.close()
    assert not pygame.display.get_init()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_vector_pictures_restart_with_the_episode(mode: str) -> None:
    env = make_vec("CollectObjects-v0", 2, layout=["S12"], autoreset_mode=mode)
    env.reset(seed=0)
    at_start = env.render()
    env.step(np.array([3, 2]))
    env.step(np.array([3, 2]))
    if mode == "NextStep":
        assert (env.render()[0] != at_start[0]).any()  # the last state of the episode is shown
        env.step(np.array([3, 2]))
    np.testing.assert_array_equal(env.render()[0], at_start[0])
    assert (env.render()[1] != at_start[1]).any()


def pictures(env_id: str, overlay: Overlay | None, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Without and with the overlay, values that an agent draws over the map."""
    env = make(env_id, **options)
    env.reset(seed=0)
    plain = env.render()
    env.unwrapped.overlay = lambda: overlay
    return plain, env.render()


@pytest.mark.parametrize("cell", [(1, 1), (1, 11), (11, 1), (5, 8)])
def test_the_overlay_has_a_value_for_each_cell_of_a_grid(cell: tuple[int, int]) -> None:
    values = np.full((13, 13), np.nan)
    values[cell] = 1.0
    plain, overlaid = pictures("CollectObjects-v0", Overlay(values))
    changed = np.argwhere((plain != overlaid)[:, :SIZE].any(axis=-1)) / SIZE * 13
    assert changed.mean(axis=0) == pytest.approx(np.array(cell) + 0.5, abs=0.5)
    assert np.ptp(changed, axis=0).max() < 1.1


@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, 3), (3, 0)])
def test_the_overlay_has_row_0_at_the_bottom_of_the_square(row: int, column: int) -> None:
    values = np.full((4, 4), np.nan)
    values[row, column] = 1.0
    plain, overlaid = pictures("PuddleWorld-v0", Overlay(values), start=(0.5, 0.5), puddles="none")
    changed = np.argwhere((plain != overlaid)[:, :SIZE].any(axis=-1)) / SIZE
    y, x = changed.mean(axis=0)
    assert (x > 0.5) == (column > 1)
    assert (y < 0.5) == (row > 1)


@pytest.mark.parametrize(
    ("values", "given", "limits"),
    [
        ([[1.0, 3.0]], {}, (1.0, 3.0)),
        ([[-1.0, 3.0]], {}, (-3.0, 3.0)),
        ([[-5.0, 3.0]], {}, (-5.0, 5.0)),
        ([[-5.0, -3.0]], {}, (-5.0, -3.0)),
        ([[0.0, 2.0]], {}, (0.0, 2.0)),
        ([[2.0, 2.0]], {}, (1.5, 2.5)),
        ([[-5.0, 3.0]], {"low": -1.0}, (-1.0, 5.0)),
        ([[1.0, 3.0]], {"low": -10.0, "high": 10.0}, (-10.0, 10.0)),
        ([[np.nan, 3.0, 1.0, np.inf]], {}, (1.0, 3.0)),
        ([[np.nan, np.nan]], {}, (0.0, 1.0)),
    ],
)
def test_limits_of_the_overlay(values: Any, given: dict[str, float], limits: tuple[float, float]) -> None:
    assert Overlay(np.array(values), **given).limits == limits


def test_colors_of_the_overlay_run_from_blue_through_white_to_red() -> None:
    image = Overlay(np.array([[-2.0, 0.0, 2.0, np.nan, 99.0, -np.inf]]), low=-2.0, high=2.0, opacity=0.5).image()
    cold, neutral, warm, _, above, below = image[0, :, :3].astype(int)
    assert cold[2] > cold[0] + 50
    assert warm[0] > warm[2] + 50
    assert neutral.min() > 230
    assert (above == warm).all()
    assert (below == cold).all()
    assert image[0, :, 3].tolist() == [127, 127, 127, 0, 127, 127]


def test_bad_arguments_of_the_overlay_are_named() -> None:
    for shape in ((3,), (1, 2, 3)):
        with pytest.raises(ValueError, match=r"^values must have two axes"):
            Overlay(np.zeros(shape))
    for opacity in (1.5, -0.5):
        with pytest.raises(ValueError, match=r"^opacity .* " + str(opacity)):
            Overlay(np.zeros((2, 2)), opacity=opacity)
    with pytest.raises(ValueError, match=r"^values must have the map's shape"):
        pictures("CollectObjects-v0", Overlay(np.zeros((9, 13))))


@pytest.mark.parametrize(
    ("env_id", "keys"),
    [
        ("PuddleWorld-v0", {"LEFT": 0, "RIGHT": 1, "DOWN": 2, "UP": 3, "a": 0, "d": 1, "s": 2, "w": 3, "SPACE": 4}),
        ("CollectObjects-v0", {"UP": 0, "DOWN": 1, "LEFT": 2, "RIGHT": 3, "w": 0, "s": 1, "a": 2, "d": 3}),
    ],
)
def test_keys_become_actions(env_id: str, keys: dict[str, int]) -> None:
    """As `gymnasium.utils.play` asks for them."""
    given = gym.make(env_id).unwrapped.get_keys_to_action()
    assert given == {(getattr(pygame, f"K_{key}"),): action for key, action in keys.items()}
