"""Settings of Sphinx."""

from __future__ import annotations

import re
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

project = "dgvf"
version = release = version_of("dgvf")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "dgvf"
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the outputs of notebooks are committed; tests/test_notebooks.py runs them

autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_rtype = False

# Environments and worlds have a page of their own that is made from this very docstring.
_ON_A_PAGE = {
    "dgvf_envs.puddle_world.env.PuddleWorldEnv": "PuddleWorld-v0",
    "dgvf_envs.collect_objects.env.CollectObjectsEnv": "CollectObjects-v0",
}

_CODE = re.compile(r"(?<![`:])(`[^`]+`)(?!`)(?=(\w)?)")
"""Code in single backticks, and the letter that follows at once."""


def _adapt_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written to be read as they stand; make reStructuredText of them."""
    if name in _ON_A_PAGE:
        lines[:] = [f"A ``gymnasium.Env``; see :doc:`/environments/{_ON_A_PAGE[name]}`."]
        return
    for i, line in enumerate(lines):
        line = _CODE.sub(lambda match: f"`{match[1]}`" + ("\\ " if match[2] else ""), line)
        parts = re.split(r"(``[^`]+``)", line)
        parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]  # |x| is a magnitude
        lines[i] = "".join(parts)
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment, or else napoleon takes what stands before a colon for a type


def _write_atlases(app: Any, exception: Exception | None) -> None:
    """The atlas of every shipped run is a part of the site."""
    if exception is not None or app.builder.name != "html":
        return
    from dgvf_agents.atlas.page import write_atlas
    from dgvf_agents.train.shipped import SHIPPED, output_folder

    for path in SHIPPED.values():
        write_atlas(path, out=Path(app.outdir) / output_folder(path, "atlas"))


def setup(app: Any) -> None:
    app.connect("build-finished", _write_atlases)
    app.connect("autodoc-process-docstring", _adapt_docstring, priority=400)  # before napoleon
