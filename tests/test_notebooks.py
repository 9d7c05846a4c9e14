"""The notebooks run from top to bottom with tiny settings, and what is committed of them is complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def kept(cell: dict[str, Any]) -> set[str]:
    """What a committed cell shows besides warnings."""
    pictures = {"picture" for output in cell["outputs"] if "image/png" in output.get("data", ())}
    return pictures | {output["name"] for output in cell["outputs"] if output["output_type"] == "stream"} - {"stderr"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        exec("".join(cell["source"]), names)
        if "parameters" in cell["metadata"].get("tags", ()):
            names["steps"] = 1_600
        shown = {"picture"} if plt.get_fignums() else set()
        shown |= {"stdout"} if capsys.readouterr().out else set()
        assert shown == kept(cell), "what is committed ran to its end, too"
        plt.close("all")
    assert names["steps"] == 1_600
    assert "picture" in kept(cells[-1])
