"""Draw `images/question.png`: the question that the policy of the shipped run in the small rooms relies on most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from dgvf_agents.atlas.domains import Rooms
from dgvf_agents.atlas.report import evaluated_world, read_run
from dgvf_agents.train.folder import SHIPPED, RunFolder
from dgvf_envs.rendering import DIVERGING

INK, GRAY, RED, BLUE, OBJECTS = "#262c3a", "#868c98", "#c0392b", "#2c69b0", {1: "#f0b232", 2: "#7a54be"}
PLACES = {1: (2, 6), 2: (6, 2)}
COLORS = LinearSegmentedColormap.from_list("diverging", [tuple(c / 255 for c in color) for color in DIVERGING])


def main() -> None:
    run = SHIPPED["demo/collect-objects-small"]
    domain, horizon = evaluated_world(RunFolder.existing(run).read_config())
    assert isinstance(domain, Rooms)
    report = read_run(run, domain, horizon, checkpoints=1, untrained=False)
    questions, table = report.asked(), domain.table
    question = int(np.argmax(questions.reliance.policy))
    cumulant, discount, answer = (part[:, question] for part in questions.values[:3])
    lost = questions.reliance.return_lost
    assert lost is not None
    assert report.exact_return is not None
    print(f"question {question}: {questions.captions[question].headline}", *questions.captions[question].facts)
    print(f"expected return {report.exact_return:.2f}, without the answer {report.exact_return - lost[question]:.2f}")

    # the most likely moves, from the starting state that is furthest from the end of the task
    path, ended = [int(np.where(table.start > 0, domain.distance, -1.0).argmax())], False
    rewards: list[float] = []
    while not ended and len(rewards) < horizon:
        action = int(report.agent.log_policy[path[-1]].argmax())
        rewards.append(float(table.reward[path[-1], action]))
        ended, following = bool(table.terminated[path[-1], action]), int(table.next_state[path[-1], action])
        path.append(following)
    u, came = cumulant[path[1:]], np.zeros(len(rewards) + 1)
    for t in reversed(range(len(rewards))):
        came[t] = u[t] + discount[path[t + 1]] * came[t + 1]

    figure = Figure(figsize=(9.0, 7.4), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1.0))
    above, below = parts
    limit, panels = float(np.nanmax(np.abs(cumulant))), above.subplots(1, 2)
    taken = rewards.index(1.0) + 1
    for axes, panel, states in zip(panels, domain.layout.panels, (path[: taken + 1], path[taken:]), strict=True):
        image = axes.imshow(panel.spread(cumulant), cmap=COLORS, vmin=-limit, vmax=limit)
        row, column = domain.position[states].T
        axes.plot(column, row, color=INK, linewidth=2.2)
        for number, there in ((1, panel.example.first), (2, panel.example.second)):
            style = {"facecolor": OBJECTS[number] if there else "white"}
            axes.text(*PLACES[number][::-1], str(number), ha="center", va="center", color=INK, bbox=style)
        axes.set(xticks=[], yticks=[], title=panel.name, facecolor="#464e60")
    panels[0].plot(*domain.position[path[0]][::-1], "o", color=INK, markersize=8)
    above.colorbar(image, ax=panels, label="cumulant of arriving in a cell", shrink=0.85)

    axes, steps = below.subplots(), np.arange(1, len(rewards) + 1)
    axes.bar(steps, u, color=BLUE, alpha=0.35, width=0.8, label="cumulant $u_{t+1}$ of the step")
    axes.plot(steps, answer[path[:-1]], color=RED, linewidth=2.2, label="answer $y_t$, before the step")
    axes.plot(steps, came[:-1], color=GRAY, linewidth=1.8, linestyle="--", label="observed return $G_t$")
    for step, reward in zip(steps, rewards, strict=True):
        if reward:
            axes.axvline(step, color=OBJECTS[int(reward)], linewidth=2.0, zorder=0)
            axes.text(step, 1.0, f"object {reward:.0f}", transform=axes.get_xaxis_transform(), ha="center", va="bottom")
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set(xlabel="step of the episode", xticks=steps)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.savefig(Path(__file__).parent / "images" / "question.png", dpi=150)
    for t in (0, len(rewards) // 4, taken - 1, len(rewards) - 1):
        print(t + 1, f"{u[t]:+.2f} {answer[path[t]]:+.2f} {came[t]:+.2f}")


if __name__ == "__main__":
    main()
