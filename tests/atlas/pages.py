"""What the tests of the atlas do with its pages."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pygame

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def decoded(png: bytes) -> np.ndarray:
    surface = pygame.image.load(io.BytesIO(png), "picture.png")
    return pygame.surfarray.array3d(surface).transpose(1, 0, 2)


class Reader(HTMLParser):
    """Collects what a page refers to, and checks that its tags are balanced."""

    VOID = ("meta", "link", "img", "br", "input")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.pictures: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.attributes.append(found)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        if tag == "img" and "src" in found:
            self.pictures.append(found["src"] or "")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def self_contained(page: Path) -> Reader:
    """The page, if its tags are balanced, it refers to nothing outside, and its pictures can be decoded."""
    text = page.read_text()
    reader = Reader(text)
    assert all(address.startswith(("data:", "#")) for address in reader.addresses)
    assert not re.search(r"https?://|@import|url\(", text)
    assert all(picture(address).size > 0 for address in filter(None, reader.pictures))
    return reader


def record_of(page: Path) -> dict:
    """The data of a page's script."""
    found = re.search(r'<script type="application/json" id="record">(.*?)</script>', page.read_text(), re.DOTALL)
    return json.loads(found.group(1))


def picture(address: str) -> np.ndarray:
    """The pixels of a picture inside a page."""
    assert address.startswith("data:image/png;base64,")
    return decoded(base64.b64decode(address.removeprefix("data:image/png;base64,")))


def opened(address: str, profile: Path) -> str:
    """The page as a browser has it after its script ran, if nothing was written to the console.

    Args:
        address: of the page.
        profile: an empty folder.
    """
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr")
    command = [str(CHROMIUM), *options, f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--dump-dom"]
    shown = subprocess.run([*command, address], capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in shown.stderr
    return shown.stdout
