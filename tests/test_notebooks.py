"""The notebooks run from top to bottom, with tiny settings, and their pages show what they hold."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
COLUMNS = 88

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("generate_notebook_pages")


def code_of(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_there_are_two_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["discover_questions", "own_idea"]


@by_name
@pytest.mark.filterwarnings("ignore:No artists with labels:UserWarning")  # so few steps make no curve
def test_a_notebook_runs(path: Path, pages: ModuleType) -> None:
    notebook = pages.read(path)
    for cell in code_of(notebook):
        cell["outputs"] = []
    pages.run(notebook, {"steps": 1_600})
    shown = [output for cell in code_of(notebook) for output in cell["outputs"]]
    assert [cell["execution_count"] for cell in code_of(notebook)] == list(range(1, len(code_of(notebook)) + 1))
    kept = [output for cell in code_of(pages.read(path)) for output in cell["outputs"]]
    assert [kind_of(output) for output in shown] == [kind_of(output) for output in kept]
    assert "image/png" in shown[-1]["data"]


def kind_of(output: dict[str, Any]) -> str:
    return output["output_type"] + "".join(output.get("data", {}))


@by_name
def test_the_page_of_a_notebook_is_up_to_date(path: Path, pages: ModuleType) -> None:
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    assert page == pages.page_of(path)
    for number, cell in enumerate(pages.read(path)["cells"]):
        assert cell["cell_type"] == "markdown" or cell["execution_count"] is not None
        if any("image/png" in output.get("data", {}) for output in cell.get("outputs", ())):
            assert (DOCS / "notebooks" / pages.picture_file(path.stem, number)).read_bytes()[:4] == b"\x89PNG"


@by_name
def test_a_notebook_is_as_jupyter_writes_it(path: Path, pages: ModuleType) -> None:
    text = path.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert text == pages.text_of(notebook)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    lines = [line.rstrip("\n") for cell in code_of(notebook) for line in cell["source"]]
    assert max(map(len, lines)) <= COLUMNS


def test_cells_leave_outputs_as_in_jupyter(pages: ModuleType) -> None:
    sources = ["n = 1", "print(n)\nn + 1", "from matplotlib import pyplot\npyplot.figure()\npyplot.plot([n]);", "n;"]
    cells = [{"cell_type": "code", "metadata": {}, "source": [source]} for source in sources]
    cells[0]["metadata"] = {"tags": ["parameters"]}
    pages.run({"cells": cells}, {"n": 5})
    kinds = [[kind_of(output) for output in cell["outputs"]] for cell in cells]
    assert kinds == [[], ["stream", "execute_resulttext/plain"], ["display_dataimage/png"], []]
    assert cells[1]["outputs"][0]["text"] == ["5\n"]
    assert cells[1]["outputs"][1]["data"] == {"text/plain": ["6"]}
    with pytest.raises(AssertionError):  # a parameter that the notebook does not have
        pages.run({"cells": cells}, {"m": 5})
