"""Pictures of experiments from their result tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.ticker import EngFormatter

from dgvf_agents.experiments.metrics import Curve
from dgvf_agents.experiments.settings import SMOKE_TEST_STEPS, changes_in, is_trial, method_in, words_of
from dgvf_agents.experiments.statistics import SEEDS_FOR_INTERVALS
from dgvf_agents.experiments.tables import QUANTITIES, Quantity, Results, where
from dgvf_agents.experiments.transfer import PRINCIPAL_QUESTIONS
from dgvf_agents.experiments.worlds import SOLVED, reference_of
from dgvf_agents.train.config import PAPER_FRAMES
from dgvf_agents.train.plotting import (
    Bars,
    HeatMap,
    Line,
    Panel,
    Strip,
    plot_bars,
    plot_curves,
    plot_heat_maps,
    plot_strips,
    plot_studies,
)

NAMES = {
    "discovered": "Discovered GVFs",
    "discovered-joint": "Discovered GVFs, joint",
    "discovered-joint-fast": "Joint, meta rate 6e-4",
    "random": "Random GVFs",
    "reward-prediction": "Reward prediction",
    "pixel-control": "Pixel control",
    "a2c": "A2C (main task)",
    "impala": "IMPALA (main task)",
    "sb3-a2c": "A2C (Stable-Baselines3)",
    "none": "No auxiliary task",
    "frozen": "Frozen discovered GVFs",
    **{f"principal-{k}": f"Frozen, first {k} principal" for k in PRINCIPAL_QUESTIONS},
    "other-world": "Frozen, of another world",
    "sum": "Summed meta-loss",
    "end": "End meta-loss",
    "exact": "Exact",
    "surrogate": "Surrogate",
}
"""Names of settings in pictures."""

DISCOVERED_COLOR = "#c0392b"
COLORS = {
    "discovered": DISCOVERED_COLOR,
    "random": "#2c69b0",
    "reward-prediction": "#7a54be",
    "pixel-control": "#3a8a5c",
    "a2c": "#26282c",
    "impala": "#7d8794",
    "none": "#26282c",
    "sb3-a2c": "#9aa0a8",
    # variants of discovered questions: the usual one of each experiment has the method's color
    "sum": DISCOVERED_COLOR,
    "exact": DISCOVERED_COLOR,
    "k=10, d=128": DISCOVERED_COLOR,
}
"""The paper's colors of its methods, the same in every picture."""

_OTHER_COLORS = ("#e08a1e", "#16a2b8", "#d6619e", "#8a9a2b", "#8c5a3c", "#5d6d7e")
"""Of settings that are no method: no method has them."""

_MEASURES = {"evaluation": "mean return in evaluation", "training": "mean return of the last 100 training episodes"}
_GAME_MEASURES = {"evaluation": "mean score in evaluation", "training": "mean score of the last 100 games of training"}


def is_smoke_test(cells: pd.DataFrame) -> bool:
    """Whether all of these runs are too short to learn anything."""
    return bool((cells["steps"] < SMOKE_TEST_STEPS).all())


def draw_curves(results: Results, path: Path, title: str) -> None:
    """Learning curves, a panel per world: see `plot_curves`."""
    panels = [_curves(results, w, results.settings(w), _title(results, w)) for w in results.worlds()]
    plot_curves(path, panels, title)


def draw_curves_by_changes(results: Results, path: Path, title: str) -> None:
    """Learning curves of settings with default labels, a panel per world and changes that several have in common.

    If no two have any in common, a panel per world.
    """
    panels = []
    for world in results.worlds():
        alike: dict[str, list[str]] = {}
        for label in results.settings(world):
            changes = ", ".join(words_of(f"{name}={value}") for name, value in changes_in(label).items())
            alike.setdefault(changes, []).append(label)
        for changes, labels in ((changes, several) for changes, several in alike.items() if len(several) > 1):
            heading = f"{_title(results, world, labels)}\n{changes}"
            panels.append(_curves(results, world, labels, heading, method_in))
    if panels:
        plot_curves(path, panels, title, columns=2)
    else:
        draw_curves(results, path, title)


def draw_study(results: Results, path: Path, parameter: str) -> None:
    """Final and average return over a parameter whose values are the settings' labels, a panel per world."""
    panels = [_study(results, w, {label: float(label) for label in results.settings(w)}) for w in results.worlds()]
    plot_studies(path, panels, parameter)


def draw_search(results: Results, path: Path) -> None:
    """Final and average return of A2C over learning rate and entropy, then of discovered GVFs over the coefficient."""
    maps = [_heat_map(results, world, quantity) for world in results.worlds() for quantity in QUANTITIES]
    plot_heat_maps(path, maps, "learning rate", "final entropy coefficient")
    studies = []
    for world in results.worlds():
        labels = [label for label in results.settings(world) if method_in(label) == "discovered"]
        if labels:
            coefficients = {label: float(changes_in(label)["auxiliary_coefficient"]) for label in labels}
            studies.append(_study(results, world, coefficients))
    if studies:
        plot_studies(path.with_name(f"{path.stem}-coefficient{path.suffix}"), studies, "auxiliary coefficient")


def draw_final_returns(results: Results, path: Path, title: str) -> None:
    """The final return of every seed, a row per setting, beside the return that counts as solved; a panel per world."""
    panels = []
    for world in results.worlds():
        cells = where(results.cells, world=world)
        rows = {
            NAMES.get(label, label): of["final_return"].to_numpy() for label, of in cells.groupby("setting", sort=False)
        }
        reference = reference_of(world)
        panels.append(Strip(_title(results, world), rows, SOLVED.get(world), reference.optimal, reference.logarithmic))
    plot_strips(path, panels, title, "final return")


def draw_protocol(results: Results, path: Path, title: str) -> None:
    """Learning curves of the methods at the hyperparameters that trials chose; heat maps of the trials on a grid.

    Where no method has been run yet, curves of the chosen trials.
    """
    of_methods = [label for label in results.cells["setting"].unique() if not is_trial(label)]
    draw_curves(restricted(results, of_methods or list(results.choices["setting"])), path, title)
    if set(results.choices["setting"].map(method_in)) == {"a2c"}:
        maps = [_heat_map(results, world, quantity) for world in results.worlds() for quantity in QUANTITIES]
        picture = path.with_name(f"{path.stem}-search{path.suffix}")
        plot_heat_maps(picture, maps, "initial learning rate", "final entropy coefficient")


def restricted(results: Results, labels: Sequence[str]) -> Results:
    """The tables with some settings only."""
    tables = {field.name: getattr(results, field.name) for field in dataclasses.fields(results)}
    kept = {name: table[table["setting"].isin(labels)] for name, table in tables.items() if "setting" in table}
    return dataclasses.replace(results, **kept)


def draw_improvements(results: Results, path: Path, title: str) -> None:
    """Relative improvements on each game, then median scores over the games that gain most from pixel control.

    Learning curves if no game has been played by all agents and by humans.
    """
    if results.improvements.empty:
        draw_curves(results, path, title)
        return
    bars, lines = [], []
    for label, rows in results.improvements.groupby("setting", sort=False):
        color = COLORS.get(label, _OTHER_COLORS[0])
        rows = rows.dropna(subset="improvement").sort_values("improvement", ascending=False, kind="stable")
        if len(rows):
            games = [reference_of(world).env for world in rows["world"]]
            bars.append(Bars(NAMES.get(label, label), games, rows[["improvement", "low", "high"]].to_numpy(), color))
        band = where(results.top_games, setting=label, statistic="median")[["games", "value", "low", "high"]]
        lines.append(Line(NAMES.get(label, label), band.to_numpy(float), [], color))
    mark = ", smoke test" if is_smoke_test(results.cells) else ""
    plot_bars(path, bars, f"{title}{mark}", "improvement over plain IMPALA")
    panel = Panel("Games that gain most from pixel control", "median human-normalized score", lines, None)
    plot_studies(path.with_name(f"{path.stem}-median{path.suffix}"), [panel], "number of games")


def _curves(results: Results, world: str, labels: Sequence[str], title: str, kind: Callable[[str], str] = str) -> Panel:
    """Learning curves of some settings.

    Args:
        results: the tables.
        world: one of theirs.
        labels: of the settings.
        title: above the panel.
        kind: from a label to its key in `NAMES` and `COLORS`.
    """
    lines = []
    for i, label in enumerate(labels):
        key = kind(label)
        band = where(results.bands, world=world, setting=label)[["steps", "mean", "low", "high"]].to_numpy()
        seeds = where(results.curves, world=world, setting=label).groupby("seed", sort=False)
        points = [rows[["steps", "mean_return"]].to_numpy() for _, rows in seeds]
        values = np.stack([Curve(*seed.T).at(band[:, 0]) for seed in points], axis=-1)
        color = COLORS.get(key, _OTHER_COLORS[i % len(_OTHER_COLORS)])
        lines.append(Line(NAMES.get(key, label), _as_shown(world, band, list(values)), points, color))
    return _panel(results, world, title, lines)


def _as_shown(world: str, band: np.ndarray, seeds: Sequence[np.ndarray]) -> np.ndarray:
    """A band `[N, 4]` without its interval where seeds are few, around a median seed where returns are logarithmic.

    The mean of returns of which one is a hundred times the others lies where no seed is.

    Args:
        world: where the returns come from.
        band: x, mean, and the ends of the interval.
        seeds: the returns of all seeds at each x.
    """
    few, logarithmic = min(map(len, seeds)) < SEEDS_FOR_INTERVALS, reference_of(world).logarithmic
    center = [np.quantile(returns, 0.5, method="inverted_cdf") for returns in seeds] if logarithmic else band[:, 1]
    ends = np.full((2, len(band)), np.nan) if few or logarithmic else band[:, 2:].T
    return np.column_stack([band[:, 0], center, *ends])


def _study(results: Results, world: str, values: dict[str, float]) -> Panel:
    """Returns over the parameter, whose value is given by label."""

    def at_values(table: pd.DataFrame, *columns: str) -> np.ndarray:
        table = table.assign(value=table["setting"].map(values)).dropna(subset="value")
        return table.sort_values("value", kind="stable")[["value", *columns]].to_numpy()

    cells = where(results.cells, world=world)
    lines = []
    for quantity in QUANTITIES:
        summary = where(results.summary, world=world, quantity=quantity)
        band = at_values(summary, "mean", "mean_low", "mean_high")
        seeds = at_values(cells, f"{quantity}_return")
        of_values = [seeds[seeds[:, 0] == value, 1] for value in band[:, 0]]
        lines.append(Line(f"{quantity} return", _as_shown(world, band, of_values), [seeds], dashed=quantity == "final"))
    return _panel(results, world, _title(results, world), lines)


def _panel(results: Results, world: str, title: str, lines: Sequence[Line]) -> Panel:
    reference, measure = reference_of(world), where(results.cells, world=world)["measure"].iloc[0]
    if reference.frames_per_step is None:
        return Panel(title, _MEASURES[measure], lines, reference.optimal, reference.logarithmic)
    # the human score is far from most curves
    return Panel(title, _GAME_MEASURES[measure], lines, None, reference.logarithmic, reference.frames_per_step)


def _heat_map(results: Results, world: str, quantity: Quantity) -> HeatMap:
    summary = where(results.summary, world=world, quantity=quantity)
    means = summary[summary["setting"].str.startswith("a2c ")].set_index("setting")["mean"]
    tried = pd.DataFrame({label: changes_in(label) for label in means.index}).T
    table = tried[["learning_rate", "final_ent_coef"]].astype(float).assign(mean=means)
    values = table.pivot(index="final_ent_coef", columns="learning_rate", values="mean")
    chosen = table.loc[where(results.choices, world=world)["setting"].iloc[0]]
    marked = float(chosen["learning_rate"]), float(chosen["final_ent_coef"])
    logarithmic = reference_of(world).logarithmic
    return HeatMap(f"{_env(results, world)}, {quantity} return of A2C", values, marked, logarithmic)


def _title(results: Results, world: str, labels: Sequence[str] | None = None) -> str:
    """Environment, seeds per setting, and on Atari frames of training.

    Args:
        results: the tables.
        world: one of theirs.
        labels: of the settings; all on the world if `None`.
    """
    summary = where(results.summary, world=world)
    counts = (summary if labels is None else summary[summary["setting"].isin(list(labels))])["seeds"]
    low, high = counts.min(), counts.max()
    seeds = f"{low if low == high else f'{low} to {high}'} seed{'' if high == 1 else 's'}"
    reference = reference_of(world)
    if reference.frames_per_step is None:
        return f"{_env(results, world)}, {seeds}"
    steps = where(results.cells, world=world)["steps"]
    frames = [_count(number * reference.frames_per_step) for number in dict.fromkeys((steps.min(), steps.max()))]
    return f"{_env(results, world)}, {seeds}, {' to '.join(frames)} frames (paper: {_count(PAPER_FRAMES)})"


def _env(results: Results, world: str) -> str:
    """The environment, and whether its runs are a smoke test."""
    mark = ", smoke test" if is_smoke_test(where(results.cells, world=world)) else ""
    return f"{reference_of(world).env}{mark}"


def _count(number: int) -> str:
    """To three digits: runs end with a whole batch."""
    return f"{EngFormatter(sep='', places=None).format_eng(float(f'{number:.3g}'))}"
