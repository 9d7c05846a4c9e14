"""Settings of Sphinx."""

from __future__ import annotations

import html
import importlib
import inspect
import pathlib
import pkgutil
import re
from importlib.metadata import version as version_of
from typing import Any

import gymnasium as gym
from docutils import nodes  # type: ignore[import-untyped]
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from dgvf_envs import ENVIRONMENTS

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
html_math_renderer = "mathtext"  # below: MathJax would load its script from another site

myst_enable_extensions = ["attrs_inline", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # the outputs of notebooks are committed; tests/test_notebooks.py runs them

autoclass_content = "both"  # the arguments of constructors
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_rtype = False

_CODE = re.compile(r"(?<![`:])(`[^`]+`)(?!`)(?=(\w)?)")
"""Code in single backticks, and the letter that follows at once."""


def _adapt_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written to be read as they stand; make reStructuredText of them."""
    page = name.rpartition(".")[2].replace("Env", "-v0")
    if what == "class" and page in ENVIRONMENTS:  # its docstring is Markdown, on a page of its own
        lines[:] = [f"A ``gymnasium.Env``; see :doc:`/environments/{page}`."]
        return
    for i, line in enumerate(lines):
        line = _CODE.sub(lambda match: f"`{match[1]}`" + ("\\ " if match[2] else ""), line)
        parts = re.split(r"(``[^`]+``)", line)
        parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]  # |x| is a magnitude
        lines[i] = "".join(parts)
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment, or else napoleon takes what stands before a colon for a type


def _add_environment(app: Any, docname: str, source: list[str]) -> None:
    """Put the docstring of an environment where its page says `<!-- docstring -->`."""
    env_id = pathlib.Path(docname).name
    if docname != f"environments/{env_id}" or env_id not in ENVIRONMENTS:
        return
    env, arguments = gym.make(env_id), ENVIRONMENTS[env_id].get("kwargs", {})
    class_ = type(env.unwrapped)
    made_with = ", ".join(f"`{name}={value!r}`" for name, value in arguments.items()) or "default arguments"
    facts = f"""
| | |
| --- | --- |
| Make | `gymnasium.make("{env_id}")` after `import dgvf_envs` |
| Class | {{py:class}}`~{class_.__module__}.{class_.__name__}` with {made_with} |
| Action space | `{env.action_space}` |
| Observation space | `{env.observation_space}` |
| Time limit | {env.spec.max_episode_steps if env.spec else None} steps |

{"The following describes the environment with its default arguments." if arguments else ""}

"""
    source[0] = source[0].replace("<!-- docstring -->", facts + (inspect.getdoc(class_) or ""))


def _add_modules(app: Any, docname: str, source: list[str]) -> None:
    """Document every module of a package where a page says `<!-- modules of PACKAGE -->`."""

    def documented(match: re.Match[str]) -> str:
        package = importlib.import_module(match[1])
        names = sorted(one.name for one in pkgutil.walk_packages(package.__path__, f"{match[1]}.") if not one.ispkg)
        return "\n\n".join(f"## `{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n```" for name in names)

    source[0] = re.sub(r"<!-- modules of ([\w.]+) -->", documented, source[0])


def _draw_formula(translator: Any, node: Any) -> None:
    """A formula as the paths of an SVG, by matplotlib's subset of LaTeX."""
    path, block = TextPath((0, 0), f"${node.astext()}$", size=17), node.tagname == "math_block"
    letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}
    drawn = " ".join(
        letters[code] + ("" if code == Path.CLOSEPOLY else " ".join(f"{value:.2f}" for value in points))
        for points, code in path.iter_segments(simplify=False)
    )
    box = path.get_extents()
    left, top, width, height = box.x0 - 1, -box.y1 - 1, box.width + 2, box.height + 2
    svg = (
        f'<svg class="formula" role="img" aria-label="{html.escape(node.astext())}" width="{width:.1f}" '
        f'height="{height:.1f}" viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}" '
        f'style="max-width: 100%; vertical-align: {box.y0 - 1:.1f}px">'
        f'<path fill="currentColor" transform="scale(1, -1)" d="{drawn}"/></svg>'
    )
    translator.body.append(f'<div class="math">{svg}</div>' if block else svg)
    raise nodes.SkipNode


def _write_atlases(app: Any, exception: Exception | None) -> None:
    """The atlas of every shipped run is a part of the site."""
    if exception is not None or app.builder.name != "html":
        return
    from dgvf_agents.atlas.page import write_atlas
    from dgvf_agents.train.folder import SHIPPED, output_folder

    for path in SHIPPED.values():
        write_atlas(path, out=pathlib.Path(app.outdir) / output_folder(path, "atlas"))


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathtext", (_draw_formula, None), (_draw_formula, None))
    app.connect("source-read", _add_environment)
    app.connect("source-read", _add_modules)
    app.connect("build-finished", _write_atlases)
    app.connect("autodoc-process-docstring", _adapt_docstring, priority=400)  # before napoleon
