"""From result tables to what `plotting` draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.ticker import EngFormatter

from dgvf_agents.experiments.cell import method_in
from dgvf_agents.experiments.results import QUANTITIES, CellRow, Quantity, Results, SummaryRow
from dgvf_agents.experiments.worlds import reference_of
from dgvf_agents.runs.atari_config import PAPER_TABLE
from dgvf_agents.runs.plotting import (
    CurvePanel,
    HeatMap,
    StudyLine,
    StudyPanel,
    TrainingCurve,
    plot_curves,
    plot_heat_maps,
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
    "sb3-a2c": "A2C (Stable-Baselines3)",
    "none": "No auxiliary task",
    "sum": "Summed meta-loss",
    "end": "End meta-loss",
    "exact": "Exact",
    "surrogate": "Surrogate",
}
"""What settings are called in pictures."""

COLORS = {
    "discovered": "#c0392b",
    "random": "#2c69b0",
    "reward-prediction": "#7a54be",
    "pixel-control": "#3a8a5c",
    "a2c": "#26282c",
    "sb3-a2c": "#26282c",
    "none": "#e08a1e",
}
"""The paper's colors of its methods."""

_OTHER_COLORS = ("#c0392b", "#e08a1e", "#2c69b0", "#7a54be", "#3a8a5c", "#26282c")

_MEASURES = {"evaluation": "mean return in evaluation", "training": "mean return of the last 100 training episodes"}
_GAME_MEASURES = {"evaluation": "mean score in evaluation", "training": "mean score of the last 100 games of training"}


def draw_curves(results: Results, path: Path, title: str) -> None:
    """Learning curves, a panel per world: every seed faintly, the mean with its interval on top."""
    panels = [
        _curve_panel(results, world, results.settings(world), _title(results, world)) for world in results.worlds()
    ]
    plot_curves(path, panels, title)


def draw_curves_by(results: Results, path: Path, parameter: str, title: str) -> None:
    """Learning curves, a panel per world and value of a parameter that settings are labeled with.

    A panel's title tells everything that its settings change.
    """
    panels = []
    for world in results.worlds():
        values: dict[str, list[str]] = {}
        for label in results.settings(world):
            values.setdefault(_changes(label)[parameter], []).append(label)
        for labels in values.values():
            changes = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in _changes(labels[0]).items())
            heading = f"{_title(results, world, labels)}\n{changes}"
            panels.append(_curve_panel(results, world, labels, heading, method_in))
    plot_curves(path, panels, title, columns=2)


def draw_study(results: Results, path: Path, parameter: str) -> None:
    """Final and average return over a parameter whose values are the settings' labels, a panel per world."""
    panels = [
        _study(results, world, {label: float(label) for label in results.settings(world)}) for world in results.worlds()
    ]
    plot_studies(path, panels, parameter)


def draw_search(results: Results, path: Path) -> None:
    """Final and average return of A2C over learning rate and entropy, then of discovered GVFs over the coefficient."""
    maps = [_heat_map(results, world, quantity) for world in results.worlds() for quantity in QUANTITIES]
    studies = []
    for world in results.worlds():
        values = {
            label: float(_changes(label)["auxiliary_coefficient"])
            for label in results.settings(world)
            if label.startswith("discovered ")
        }
        if values:
            studies.append(_study(results, world, values))
    plot_heat_maps(path, maps, "learning rate", "final entropy coefficient")
    if studies:
        plot_studies(path.with_name(f"{path.stem}-coefficient{path.suffix}"), studies, "auxiliary coefficient")


def _curve_panel(
    results: Results, world: str, labels: Sequence[str], title: str, kind: Callable[[str], str] = str
) -> CurvePanel:
    """Curves of some settings.

    Args:
        results: the tables.
        world: one of theirs.
        labels: of the settings.
        title: above the panel.
        kind: what a label goes by in `NAMES` and `COLORS`.
    """
    methods = [kind(label) for label in labels]
    colors = [COLORS.get(method, _OTHER_COLORS[i % len(_OTHER_COLORS)]) for i, method in enumerate(methods)]
    curves = [
        _curve(results, world, label, NAMES.get(method, label), color)
        for label, method, color in zip(labels, methods, colors, strict=True)
    ]
    reference = reference_of(world)
    frames_per_step = reference.frames_per_step
    return CurvePanel(
        title,
        _ylabel(results, world),
        curves,
        reference.optimal if frames_per_step is None else None,  # on Atari the human's, far from most curves
        reference.logarithmic,
        frames_per_step,
    )


def _curve(results: Results, world: str, label: str, name: str, color: str) -> TrainingCurve:
    band = [row for row in results.bands if (row.world, row.setting) == (world, label)]
    seeds: dict[int, list[tuple[int, float]]] = {}
    for row in results.curves:
        if (row.world, row.setting) == (world, label):
            seeds.setdefault(row.seed, []).append((row.steps, row.mean_return))
    return TrainingCurve(
        label=name,
        color=color,
        points=[(row.steps, row.mean) for row in band],
        interval=[(row.steps, row.low, row.high) for row in band if row.low is not None and row.high is not None],
        seeds=list(seeds.values()),
    )


def _study(results: Results, world: str, values: dict[str, float]) -> StudyPanel:
    lines = []
    for quantity in QUANTITIES:
        rows = [row for row in _summary(results, world, quantity) if row.setting in values]
        rows.sort(key=lambda row: values[row.setting])
        lines.append(
            StudyLine(
                label=f"{quantity} return",
                dashed=quantity == "final",
                points=[(values[row.setting], row.mean) for row in rows],
                interval=[
                    (values[row.setting], row.mean_low, row.mean_high)
                    for row in rows
                    if row.mean_low is not None and row.mean_high is not None
                ],
                seeds=[(values[cell.setting], cell.value(quantity)) for cell in _cells(results, world, values)],
            )
        )
    reference = reference_of(world)
    title = _title(results, world)
    return StudyPanel(title, _ylabel(results, world), lines, reference.optimal, reference.logarithmic)


def _heat_map(results: Results, world: str, quantity: Quantity) -> HeatMap:
    rows = [row for row in _summary(results, world, quantity) if row.setting.startswith("a2c ")]
    changes = [_changes(row.setting) for row in rows]
    points = [(float(c["learning_rate"]), float(c["final_ent_coef"])) for c in changes]
    chosen = next(choice.setting for choice in results.choices if choice.world == world)
    return HeatMap(
        title=f"{reference_of(world).env}, {quantity} return of A2C",
        cells={point: row.mean for point, row in zip(points, rows, strict=True)},
        marked=next((p for p, row in zip(points, rows, strict=True) if row.setting == chosen), None),
        logarithmic=reference_of(world).logarithmic,
    )


def _changes(label: str) -> dict[str, str]:
    return dict(part.split("=") for part in label.split(" ")[1:])


def _summary(results: Results, world: str, quantity: Quantity) -> list[SummaryRow]:
    return [row for row in results.summary if (row.world, row.quantity) == (world, quantity)]


def _cells(results: Results, world: str, labels: Sequence[str] | dict[str, float]) -> list[CellRow]:
    return [row for row in results.cells if row.world == world and row.setting in labels]


def _title(results: Results, world: str, labels: Sequence[str] | None = None) -> str:
    """The environment, how many seeds each setting has, and on Atari how many frames they were trained for.

    Args:
        results: the tables.
        world: one of theirs.
        labels: of the settings; all on the world when left out.
    """
    counts = sorted(
        {row.seeds for row in results.summary if row.world == world and (labels is None or row.setting in labels)}
    )
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    reference = reference_of(world)
    seeds = f"{number} seed{'' if counts == [1] else 's'}"
    if reference.frames_per_step is None:
        return f"{reference.env}, {seeds}"
    steps = sorted({row.steps for row in results.cells if row.world == world})
    frames = " to ".join(_count(number * reference.frames_per_step) for number in dict.fromkeys((steps[0], steps[-1])))
    return f"{reference.env}, {seeds}, {frames} frames (paper: {_count(PAPER_TABLE.frames)})"


def _count(number: int) -> str:
    """To three digits: runs end with a whole batch."""
    return f"{EngFormatter(sep='', places=None).format_eng(float(f'{number:.3g}'))}"


def _ylabel(results: Results, world: str) -> str:
    measure = next(row.measure for row in results.cells if row.world == world)
    return (_MEASURES if reference_of(world).frames_per_step is None else _GAME_MEASURES)[measure]
