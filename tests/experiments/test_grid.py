"""`dgvf sweep`: combinations of settings, their runs and their table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from dgvf_agents.cli import main
from dgvf_agents.experiments.reproduce import Grid, Reproduction
from dgvf_agents.experiments.runs import Cell
from dgvf_agents.experiments.settings import SCALES

TINY = ["sweep", "puddle-world", "a2c", "--scale", "tiny", "--seeds", "1", "--jobs", "2"]


def test_all_combinations_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vary = ["--vary", "learning-rate=1e-4,1e-3", "final-ent-coef=0.01,None"]
    main([*TINY, "--out", str(tmp_path), *vary])
    folder = tmp_path / "results" / "puddle-world-a2c-learning_rate-final_ent_coef"
    runs = pd.read_csv(folder / "runs.csv")
    expected = {
        f"a2c learning_rate={rate} final_ent_coef={weight}" for rate in (0.0001, 0.001) for weight in (0.01, None)
    }
    assert set(runs[["label", "seed"]].itertuples(index=False)) == {(e, 0) for e in expected}
    assert (folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
    means = runs.groupby("label")["final"].mean()
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("best: ")]
    assert means[said[0].removeprefix("best: ")] >= means.max() - 0.02 * abs(means.max())
    main([*TINY, "--out", str(tmp_path), *vary])
    assert "finished in" not in capsys.readouterr().out


def test_a_sweep_runs_on_the_given_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[Cell] = []
    monkeypatch.setattr("dgvf_agents.experiments.reproduce.run_sweep", lambda cells, *_: ran.extend(cells))
    with pytest.raises(SystemExit):  # nothing has run
        main([*TINY, "--out", str(tmp_path), "--device", "auto"])
    assert {cell.config.device for cell in ran} == {"auto"}


@pytest.mark.parametrize(
    "given",
    [
        ("speed=1",),
        ("seed=1,2",),
        ("gamma=",),
        ("gamma=0.9,,0.99",),
        ("gamma=0.9", "gamma=0.99"),
    ],
)
def test_what_cannot_be_varied_is_named(given: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"vary must .*got "):
        Grid(world="puddle-world", method="a2c", vary=given)
    for name, value in (("device", "gpu"), ("seeds", 0), ("jobs", 0), ("steps", 0)):
        with pytest.raises(ValueError, match=f"{name} must be .*got {value!r}"):
            Grid(world="puddle-world", method="a2c", **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", ["n-steps=abc", "n-steps=0", "final-learning-rate=-1e-5", "env-kwargs=3"])
@pytest.mark.parametrize("scale", ["full", "tiny"])
def test_values_of_the_wrong_kind_are_named(given: str, scale: Any, tmp_path: Path) -> None:
    grid = Grid(world="puddle-world", method="a2c", vary=(given,), scale=scale)
    with pytest.raises(ValueError, match=f"{given.split('=')[0].replace('-', '_')} must be"):
        Cell.of(grid.experiment.settings("puddle-world")[0], 0, SCALES[scale], tmp_path)


def test_as_many_processes_as_cores_or_one_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("os.cpu_count", lambda: 5)
    given = [(jobs, device) for jobs in (None, 3) for device in ("cpu", "cuda")]
    grids = [Grid(world="puddle-world", method="a2c", jobs=jobs, device=device) for jobs, device in given]
    experiments = [Reproduction(experiment="figure-2", jobs=jobs, device=device) for jobs, device in given]
    assert [each.processes for each in (*grids, *experiments)] == [5, 1, 3, 3] * 2
    assert Reproduction(experiment="atari", game=("Pong",)).processes == 5
