"""A function for processes that tests start."""

from torch import Tensor


def doubled(x: Tensor) -> Tensor:
    return 2 * x
