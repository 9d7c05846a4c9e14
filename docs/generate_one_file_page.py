"""Draw the figures and write the tables of the pages on the algorithm in one file, from what `results/one-file/` keeps.

With `--train`, first run `examples/discovery_in_one_file.py` with seeds 0, 1 and 2, and keep its learning curves and a
question of seed 0. With `--check`, fail unless the tables are up to date.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from generated import DOCS, check, table, write
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from dgvf_envs.rendering.canvas import DIVERGING

RESULTS = DOCS / "results" / "one-file"
CURVE, QUESTION = RESULTS / "learning-curve.png", RESULTS / "question.png"
COMMAND = "python docs/generate_one_file_page.py"
SEEDS = (0, 1, 2)
SOLVED = 2.9
"""Return at which a world counts as solved; 3 is optimal."""

INK, GRAY, RED, BLUE, YELLOW, PURPLE = "#262c3a", "#868c98", "#c0392b", "#2c69b0", "#f0b232", "#7a54be"
COLORS = LinearSegmentedColormap.from_list("diverging", [tuple(c / 255 for c in color) for color in DIVERGING])


def train() -> None:
    """Run the example and keep what the pages need; up to half an hour on one core."""
    import torch
    from question_record import one_file, record

    torch.set_num_threads(1)
    for seed in SEEDS:
        settings, printed = one_file.Settings(seed=seed), io.StringIO()
        with contextlib.redirect_stdout(printed):
            theta, eta = one_file.train(settings)
        write({curve_file(seed): without_seconds(printed.getvalue())})
        if seed == 0:
            write({RESULTS / "question.json": json.dumps(record(theta, eta, settings)) + "\n"})


def curve_file(seed: int) -> Path:
    return RESULTS / f"seed-{seed}.csv"


def without_seconds(curve: str) -> str:
    """A learning curve without its last column, which depends on what else the machine does."""
    return "".join(line.rpartition(",")[0] + "\n" for line in curve.splitlines())


def curves() -> list[dict[str, np.ndarray]]:
    """The columns of every seed's learning curve."""
    found = []
    for seed in SEEDS:
        with curve_file(seed).open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        found.append({name: np.array([float(row[name]) for row in rows]) for name in rows[0]})
    return found


def pages() -> dict[Path, str]:
    """The tables that the pages include."""
    question = json.loads((RESULTS / "question.json").read_text(encoding="utf-8"))
    return {RESULTS / "returns.txt": returns_table(), RESULTS / "question.txt": question_text(question)}


def returns_table() -> str:
    rows = []
    for seed, curve in zip(SEEDS, curves(), strict=True):
        firsts = [first_solved(curve["steps"], curve[kind]) for kind in ("sampled", "greedy")]
        last = (f"{curve[kind][-1]:.2f}" for kind in ("sampled", "greedy"))
        rows.append((str(seed), *firsts, in_millions(curve["steps"][-1]), *last))
    reach = (f"{kind} actions reach {SOLVED}" for kind in ("Sampled", "Greedy"))
    headings = ("Seed", *reach, "Last evaluation", "Sampled", "Greedy")
    return table(headings, rows, right=range(6)) + "\n"


def first_solved(steps: np.ndarray, returns: np.ndarray) -> str:
    """After how many steps an evaluation first counts as solved."""
    solved = np.flatnonzero(returns >= SOLVED)
    return in_millions(steps[solved[0]]) if len(solved) else "–"


def in_millions(steps: float) -> str:
    return f"{steps / 1e6:.2f}M"


def question_text(question: dict[str, Any]) -> str:
    """What the page says of the question and of the episode."""
    episode, lost = question["episode"], question["return_lost"]
    rows = [
        (str(t + 1), *(f"{value:+.2f}" for value in (u, y, g)), event(reward))
        for t, (u, y, g, reward) in enumerate(
            zip(episode["cumulants"], episode["answers"], episode["outcomes"], episode["rewards"], strict=True)
        )
        if reward or t in (0, len(episode["rewards"]) // 4)
    ]
    return "\n".join([
        "- **The question**, in the words of the [atlas](atlas.md), which compares cumulants with landmarks of the "
        f"rooms: *{question['headline']}*",
        f"- **What it was used for**: with this answer erased from the features, the policy's expected return is "
        f"{question['return'] - lost:.2f} instead of {question['return']:.2f}.",
        "",
        table(("Step", "Cumulant", "Answer before the step", "Observed return", "Event"), rows, right=range(4)),
        "",
    ])  # fmt: skip


def event(reward: float) -> str:
    return {0.0: "", 1.0: "takes object 1", 2.0: "takes object 2"}[reward]


# --- figures ----------------------------------------------------------------------------------------------------------


def draw_curves() -> None:
    """Returns over training, a line for each seed."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for seed, (curve, color) in enumerate(zip(curves(), (RED, BLUE, PURPLE), strict=True)):
        axes.plot(curve["steps"], curve["sampled"], color=color, linewidth=1.8, label=f"seed {seed}")
        axes.plot(curve["steps"], curve["greedy"], color=color, linewidth=1.0, linestyle=":")
    axes.axhline(3.0, color=GRAY, linewidth=1.0, linestyle="--")
    axes.annotate(
        "optimal",
        (1, 3.0),
        (-4, 4),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        color=GRAY,
    )
    axes.set(xlabel="environment steps", ylabel="mean return of 64 episodes", ylim=(0, 3.3))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.legend(frameon=False, loc="lower right", title="solid: sampled actions\ndotted: greedy actions")
    dress(axes)
    figure.savefig(CURVE, dpi=150)


def draw_question() -> None:
    """A question's cumulant on the maps, and cumulant, answer and outcome along an episode."""
    question = json.loads((RESULTS / "question.json").read_text(encoding="utf-8"))
    maps, episode = question["maps"], question["episode"]
    figure = Figure(figsize=(9.0, 7.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1.0))
    above, below = parts
    limit = max(abs(value) for one in maps for row in one["values"] for value in row if value is not None)
    took = next((t for t, reward in enumerate(episode["rewards"]) if reward == 1.0), None)
    cells = np.array(episode["cells"], dtype=float)
    paths = (cells, cells[:0]) if took is None else (cells[: took + 2], cells[took + 1 :])
    all_axes = above.subplots(1, 2)
    for axes, one, path in zip(all_axes, maps, paths, strict=True):
        image = draw_map(axes, one, limit, path)
    above.colorbar(image, ax=all_axes, label="cumulant of arriving in a cell", shrink=0.85)
    draw_episode(below.add_subplot(), episode)
    figure.savefig(QUESTION, dpi=150)


def draw_map(axes: Axes, one: dict[str, Any], limit: float, path: np.ndarray) -> Any:
    """A cumulant over the rooms, with the objects and a part of the episode's path."""
    values = np.array([[np.nan if value is None else value for value in row] for row in one["values"]])
    axes.set_facecolor("#464e60")
    image = axes.imshow(values, cmap=COLORS, vmin=-limit, vmax=limit)
    if len(path):
        axes.plot(path[:, 1], path[:, 0], color=INK, linewidth=2.2, solid_capstyle="round")
        axes.plot(path[0, 1], path[0, 0], "o", color=INK, markersize=8)
    for name, color, (row, column), there in zip("12", (YELLOW, PURPLE), ((2, 6), (6, 2)), one["objects"], strict=True):
        style = {"facecolor": color if there else "white", "edgecolor": color, "boxstyle": "round,pad=0.3"}
        axes.text(column, row, name, ha="center", va="center", fontsize=12, color=INK, weight="bold", bbox=style)
    axes.set(xticks=[], yticks=[], title=one["name"])
    return image


def draw_episode(axes: Axes, episode: dict[str, Any]) -> None:
    """Cumulant, answer and outcome at every step."""
    steps = np.arange(1, len(episode["rewards"]) + 1)
    axes.bar(steps, episode["cumulants"], color=BLUE, alpha=0.35, width=0.8, label="cumulant $u_{t+1}$ of the step")
    axes.plot(steps, episode["answers"], color=RED, linewidth=2.2, label="answer $y_t$, before the step")
    axes.plot(steps, episode["outcomes"], color=GRAY, linewidth=1.8, linestyle="--", label="observed return $G_t$")
    axes.axhline(0, color=INK, linewidth=0.8)
    for step, reward in zip(steps, episode["rewards"], strict=True):
        if reward:
            axes.axvline(float(step), color=YELLOW if reward == 1.0 else PURPLE, linewidth=2.0, zorder=0)
            axes.annotate(
                f" object {reward:.0f}",
                (step, 1),
                xycoords=("data", "axes fraction"),
                va="bottom",
                ha="center",
                fontsize=10,
            )
    axes.set(xlabel="step of the episode", xlim=(0.4, steps[-1] + 0.6), xticks=steps)
    axes.legend(frameon=False, loc="best", fontsize=10)
    dress(axes)


def dress(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail unless the tables are up to date; write nothing")
    parser.add_argument("--train", action="store_true", help="first run the example, up to half an hour on one core")
    arguments = parser.parse_args()
    if arguments.check:
        check(pages(), COMMAND, [CURVE, QUESTION])
        return
    if arguments.train:
        train()
    write(pages())
    draw_curves()
    draw_question()


if __name__ == "__main__":
    main()
