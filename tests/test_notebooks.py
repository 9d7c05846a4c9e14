"""The notebooks run from top to bottom in Jupyter, with tiny settings, and what is committed of them is complete."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "docs" / "notebooks").glob("*.ipynb"))

by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def code_of(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def with_steps(notebook: NotebookNode, steps: int) -> NotebookNode:
    """The notebook with a new value of its parameter `steps`."""
    (position,) = (i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", ()))
    assert notebook.cells[position].source.startswith("steps")
    notebook.cells.insert(position + 1, nbformat.v4.new_code_cell(f"steps = {steps}"))
    return notebook


def shown(cell: NotebookNode) -> set[str]:
    """What a cell leaves behind: printed text, a value, a picture."""
    kinds = set()
    for output in cell.outputs:
        if output.output_type == "stream":
            kinds.add(output.name)
        else:
            kinds.add("picture" if "image/png" in output.data else "value")
    return kinds - {"stderr"}  # warnings


@by_name
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    kept, notebook = read(path), with_steps(read(path), 1_600)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    again = [shown(cell) for cell in code_of(notebook) if not cell.source.startswith("steps = 1600")]
    assert again == [shown(cell) for cell in code_of(kept)]  # what is committed ran to its end, too
    assert "picture" in again[-1]
