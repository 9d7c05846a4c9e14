"""Plotting would take most of the time of the short runs here."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_curves() -> Iterator[None]:
    with mock.patch("dgvf_agents.train.recorder.plot_learning_curve"):
        yield
