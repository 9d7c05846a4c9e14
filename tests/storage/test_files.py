"""Files are replaced whole or stay as they were; a model's file is the same for the same contents."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import torch

from dgvf_agents.storage.files import read_bytes, replacing, with_ending, write_bytes
from dgvf_agents.storage.model_file import ModelFile

FILE = ModelFile({"a": [1, {"b": None}]}, {"w": torch.arange(5.0), "é": torch.zeros(0)}, {"f": b"pickle"})
CONTENTS = FILE.to_bytes()


def test_a_file_is_replaced_whole_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    for content in ("first", "second"):
        with replacing(path) as unfinished:
            assert unfinished.suffix == ".json"
            unfinished.write_text(content)
            assert path.exists() == (content == "second")
        assert path.read_text() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_file_stays_as_it_was_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("good")

    def fail() -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("half")
            raise OSError(28, "disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_text() == "good"
    assert list(tmp_path.iterdir()) == [path]


def test_paths_get_an_ending_and_open_files_are_used_as_they_are(tmp_path: Path) -> None:
    assert with_ending(tmp_path / "model").name == "model.zip"
    assert with_ending(tmp_path / "model.pth").name == "model.pth"
    write_bytes(with_ending(str(tmp_path / "new" / "model")), b"contents")
    assert read_bytes(tmp_path / "new" / "model") == read_bytes(str(tmp_path / "new" / "model.zip")) == b"contents"
    buffer = io.BytesIO()
    write_bytes(buffer, b"contents")
    assert read_bytes(buffer) == b"contents"
    assert not buffer.closed
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nothing")


def test_a_model_file_comes_back_and_other_programs_can_read_it() -> None:
    back = ModelFile.from_bytes(CONTENTS)
    assert (back.document, back.pickled) == (FILE.document, FILE.pickled)
    assert all(torch.equal(back.tensors[name], tensor) for name, tensor in FILE.tensors.items())
    assert back.to_bytes() == CONTENTS
    with zipfile.ZipFile(io.BytesIO(CONTENTS)) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("model.json"))["format"] == 5
        assert torch.equal(safetensors.torch.load(archive.read("tensors.safetensors"))["w"], torch.arange(5.0))
