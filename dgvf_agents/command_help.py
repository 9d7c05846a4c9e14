"""What each command of `dgvf` does, in one sentence. It imports nothing, so that `dgvf --help` answers at once."""

from __future__ import annotations

DESCRIPTION = "Discovered questions as auxiliary tasks. `dgvf --version` prints the version."

COMMANDS = {
    "train": "Train an agent and write a run folder.",
    "warm-up": "Compile what training on a world with a method needs, into the cache that all processes share.",
    "evaluate": "Mean return of a run's latest checkpoint; on Atari the mean score of whole games, unclipped.",
    "watch": "Show the agent of a run's latest checkpoint in a window.",
    "atlas": "Show what a run's questions ask, over every state of its world or along a game, as one HTML page with "
    "pictures.",
    "probe": "Spectral radius of the inner updates of a run's checkpoints, and what L of them multiply a meta-gradient "
    "by.",
    "reproduce": "Run an experiment of the paper, or what is left of it; add records and draw its picture.",
    "sweep": "Train a method with every combination of settings, for several seeds; write a table and a picture.",
    "aggregate": "Median, interquartile mean and mean of human-normalized scores on Atari, from a table of anyone's "
    "scores.",
    "draw": "Draw an experiment's picture from a folder of records alone.",
    "bench": "Measure speed, side by side in one run.",
}
"""By name."""
