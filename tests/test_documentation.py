"""What the README and the documentation show: code runs, commands parse, names and files exist."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import pkgutil
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tyro

from dgvf_agents import DGVFA2C, DGVFPPO, DGVFImpala
from dgvf_agents.cli import main
from dgvf_agents.experiments.claims import CLAIMS, findings
from dgvf_agents.experiments.records import read_records

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
AGENTS = {f"dgvf_agents.{agent.__name__}": agent for agent in (DGVFA2C, DGVFPPO, DGVFImpala)}
PAGES = [
    ROOT / "README.md",
    *(path for path in sorted(DOCS.rglob("*.md")) if not {"_build", "notebooks"} & set(path.relative_to(DOCS).parts)),
]
"""All but the notebooks, which run as a whole in `test_notebooks.py`."""
TOOLS = {"cd", "git", "pip", "ray", "sbatch", "torchrun"}
"""Commands in blocks of shell whose arguments are not checked."""

FENCE = re.compile(r"^(?P<fence>```+)(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)$", re.M | re.S)
REASON = re.compile(r"<!-- not run: (?P<reason>[^\n]+) -->\n\Z")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    language: str
    body: str
    reason: str | None
    """Why it is not run, given by `<!-- not run: REASON -->` on the line above."""

    def __str__(self) -> str:
        lines = self.body.splitlines()
        return f"{self.page.relative_to(ROOT)}: {lines[0] if lines else ''}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for fence in FENCE.finditer(text):
            info, body = fence["info"].strip(), fence["body"]
            if info.startswith("{code-block}"):
                info, body = info.removeprefix("{code-block}").strip(), re.sub(r"\A(:.*\n)+\n*", "", body)
            reason = REASON.search(text[: fence.start()])
            yield Block(page, info, body, reason["reason"] if reason else None)


BLOCKS = list(blocks())
CODE = [block for block in BLOCKS if not block.language.startswith("{")]


def test_blocks_are_of_known_languages_and_only_python_may_be_left_out() -> None:
    assert len(CODE) > 30
    for block in CODE:
        assert block.language in ("python", "sh", "text"), block
        assert block.language == "python" or block.reason is None, block


@pytest.mark.parametrize("block", [b for b in CODE if b.language == "python"], ids=str)
def test_python_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = compile(block.body, "documentation", "exec")
    if block.reason is None:
        exec(code, {})


@pytest.mark.parametrize("block", [b for b in CODE if b.language == "sh"], ids=str)
def test_commands_exist(block: Block, parsed: None) -> None:
    for command in _commands_in(block.body):
        _check_command(command)


class _Parsed(BaseException):
    """A command of `dgvf` was parsed without an error."""


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of `dgvf` are parsed, and do nothing."""
    parse = tyro.cli

    def stop(target: Any, **options: Any) -> None:
        function = target if inspect.isclass(target) else functools.wraps(target)(lambda *given, **named: None)
        parse(function, **options)
        raise _Parsed

    monkeypatch.setattr(tyro, "cli", stop)


def _commands_in(script: str) -> list[list[str]]:
    lines = script.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def _check_command(command: list[str]) -> None:
    program, *arguments = command
    program = program.removeprefix(".venv/bin/")
    if ">" in arguments:
        arguments = arguments[: arguments.index(">")]
    if "--import" in arguments:  # a module of the reader's
        del arguments[(place := arguments.index("--import")) : place + 2]
    if program == "dgvf":
        with pytest.raises(_Parsed):
            main(arguments)
    elif program == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        assert set(arguments) <= set(targets)
    elif program == "python" and arguments[0] == "-m":
        assert importlib.util.find_spec(arguments[1]) is not None
    elif program == "python":
        assert (ROOT / arguments[0]).is_file()
    else:
        assert program in TOOLS, f"{program} is neither known nor in TOOLS"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_of_python_exist_and_have_a_page(page: Path) -> None:
    """What Sphinx does not check: a role that leads nowhere is shown as plain text."""
    for name in re.findall(r"\{py:[a-z]+\}`~?([\w.]+)`", page.read_text(encoding="utf-8")):
        pkgutil.resolve_name(name)
        assert any(f"{name}.".startswith(f"{package}.") for package in DOCUMENTED), f"{name} is not in docs/api"


DOCUMENTED = {
    name
    for page in (DOCS / "api").glob("*.md")
    for name in re.findall(r"(?:automodule:: |modules of )([\w.]+)", page.read_text(encoding="utf-8"))
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    """Sphinx checks the anchors, and the links between its own pages."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", text) + re.findall(r'src="([^"]+)"', text)
    assert [path for path in linked if not (page.parent / path).exists()] == []


@pytest.mark.filterwarnings("ignore")  # Sphinx's own
def test_the_reference_shows_every_argument_of_the_agents(tmp_path: Path) -> None:
    build = pytest.importorskip("sphinx.cmd.build").main
    (tmp_path / "index.rst").write_text("Agents\n======\n\n" + "\n".join(f".. autoclass:: {name}" for name in AGENTS))
    out = tmp_path / "text"
    assert build(["-q", "-b", "text", "-c", str(DOCS), str(tmp_path), str(out)]) == 0
    pages = re.split(r"^(?:final )?class ", (out / "index.txt").read_text(encoding="utf-8"), flags=re.M)[1:]
    for agent, page in zip(AGENTS.values(), pages, strict=True):
        arguments = list(inspect.signature(agent).parameters)
        assert re.findall(r"^ +\* \*\*(\w+)\*\*", page, re.M)[: len(arguments)] == arguments


def words_of(page: Path) -> list[str]:
    """As a reader sees them: without the targets of links, comments, and the lines of tables."""
    text = re.sub(r"\]\([^)]*\)|<!--.*?-->", "", page.read_text(encoding="utf-8"))
    return [word for word in text.split() if re.search(r"\w", word)]


@pytest.mark.parametrize(("page", "most"), [(ROOT / "README.md", 700), (DOCS / "results.md", 1_500)])
def test_pages_that_everyone_reads_stay_short(page: Path, most: int) -> None:
    assert len(words_of(page)) <= most


def test_the_front_page_has_the_gain_in_the_records() -> None:
    found = findings(read_records(DOCS / "results" / "records"), [c for c in CLAIMS if c.experiment == "own-tasks"])
    (effect,) = (one.effect for one in found)
    stated = f"{effect.value:.2f} of the normalized return, 95% interval [{effect.low:.2f}, {effect.high:.2f}]"
    assert stated in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
