"""The constructors' arguments that are hyperparameters, written from the record: `make signatures`.

Explicit signatures are what editors, mypy, Sphinx and RL Zoo show. A hyperparameter's annotation, default and
description come from `dgvf_agents/hyperparameters.py`; all other arguments stay as they are.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

from dgvf_agents.hyperparameters import Hyperparameters, arguments
from dgvf_agents.options import Algorithm

PACKAGE = Path(__file__).resolve().parents[1] / "dgvf_agents"
CONSTRUCTORS: dict[Algorithm, Path] = {
    "a2c": PACKAGE / "agents" / "a2c.py",
    "impala": PACKAGE / "impala" / "algorithm.py",
    "ppo": PACKAGE / "agents" / "ppo.py",
}
_SCHEDULE = "a number, or a function of the remaining progress, which falls from 1 to 0"


class _Argument(NamedTuple):
    annotation: str
    default: str
    description: str


def _record(agent: Algorithm) -> dict[str, _Argument]:
    """The hyperparameters of an agent, as its constructor has them."""
    tree = ast.parse((PACKAGE / "hyperparameters.py").read_text(encoding="utf-8"))
    record = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == Hyperparameters.__name__)
    calls: dict[str, tuple[str, ast.Call, str]] = {}
    for field, text in zip(record.body, record.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign):
            description = ast.literal_eval(ast.unparse(text))
            calls[field.target.id] = ast.unparse(field.annotation), field.value, description
    found = {}
    for name, described in arguments(agent).items():
        annotation, default, description = calls[name][0], _default(calls[name][1], agent), calls[name][2]
        if described.schedule:
            final = _default(calls[f"final_{name}"][1], agent)
            optional = annotation.endswith(" | None")
            annotation = f"{annotation.removesuffix(' | None')} | Schedule{' | None' if optional else ''}"
            description = f"{description.rstrip('.')}; {_SCHEDULE}."
            default = default if final == "None" else f"LinearSchedule({default}, {final}, 1.0)"
        found[name] = _Argument(annotation, default, description)
    return found


def _default(call: ast.Call, agent: Algorithm) -> str:
    """The default's own spelling, such as 7e-4."""
    own = {keyword.arg: keyword.value for keyword in call.keywords}
    text = (PACKAGE / "hyperparameters.py").read_text(encoding="utf-8")
    return ast.get_source_segment(text, own.get(agent, call.args[0]))


def formatted(agent: Algorithm) -> str:
    """The text of a constructor's module as it should be."""
    command = [sys.executable, "-m", "ruff", "format", "-", "--stdin-filename", str(CONSTRUCTORS[agent])]
    return subprocess.run(command, input=_written(agent), capture_output=True, check=True, text=True).stdout


def _written(agent: Algorithm) -> str:
    """The text of a constructor's module with the record's arguments, not yet formatted."""
    text = CONSTRUCTORS[agent].read_text(encoding="utf-8")
    record = _record(agent)
    constructor = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    lines = text.split("\n")
    first, doc = constructor.lineno, constructor.body[0]
    head = _head(text, constructor, record)
    body = _documentation("\n".join(lines[doc.lineno - 1 : doc.end_lineno]), list(_names(constructor, record)), record)
    return "\n".join([*lines[: first - 1], head, body, *lines[doc.end_lineno :]])


def _names(constructor: ast.FunctionDef, record: dict[str, _Argument]) -> list[str]:
    """All arguments in order, new hyperparameters last among the hyperparameters."""
    names = [argument.arg for argument in [*constructor.args.args, *constructor.args.kwonlyargs]]
    end = max(i for i, name in enumerate(names) if name in record) + 1
    return [*names[:end], *(name for name in record if name not in names), *names[end:]]


def _head(text: str, constructor: ast.FunctionDef, record: dict[str, _Argument]) -> str:
    given = constructor.args
    defaults = dict(zip([a.arg for a in given.args][::-1], given.defaults[::-1], strict=False))
    defaults |= {
        a.arg: value for a, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None
    }
    nodes = {argument.arg: argument for argument in [*given.args, *given.kwonlyargs]}
    parts = []
    for name in _names(constructor, record):
        if given.kwonlyargs and name == given.kwonlyargs[0].arg:
            parts.append("*")
        if name in record:
            default = record[name].default
            comment = "  # noqa: B008 - never modified" if "(" in default else ""
            parts.append(f"{name}: {record[name].annotation} = {default},{comment}")
        else:
            shown = ast.get_source_segment(text, nodes[name])
            default = f" = {ast.get_source_segment(text, defaults[name])}" if name in defaults else ""
            parts.append(f"{shown}{default}")
    lines = [part if part.split("  #")[0].endswith(",") else f"{part}," for part in parts]
    return "    def __init__(\n" + "".join(f"        {line}\n" for line in lines) + "    ) -> None:"


def _documentation(doc: str, names: list[str], record: dict[str, _Argument]) -> str:
    before, rest = doc.split("Args:\n", 1)
    entries, after = rest.split("\n\n", 1)
    known = dict(re.findall(r"^ {12}(\w+): (.*?)(?=\n {12}\w+: |\Z)", entries, re.S | re.M))
    shown = []
    for name in names:
        if name == "self":
            continue
        described = record[name].description if name in record else " ".join(known[name].split())
        described = " ".join(described.split())
        if re.match(r"[A-Z][a-z]", described):
            described = described[0].lower() + described[1:]
        shown.append(
            textwrap.fill(
                f"{name}: {described}",
                120,
                initial_indent=12 * " ",
                subsequent_indent=16 * " ",
                break_on_hyphens=False,
                break_long_words=False,
            )
        )
    return f"{before}Args:\n" + "\n".join(shown) + f"\n\n{after}"


if __name__ == "__main__":
    for agent, path in CONSTRUCTORS.items():
        path.write_text(formatted(agent), encoding="utf-8")
