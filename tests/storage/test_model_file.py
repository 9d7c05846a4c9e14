"""A model's file is whole or says that it is not."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from dgvf_agents.storage.model_file import (
    DamagedFileError,
    ModelFile,
    damage_of,
    read_bytes,
    rounded,
    with_ending,
    write_bytes,
)

FILE = ModelFile({"a": [1, {"b": None}]}, {"w": torch.arange(5.0), "é": torch.zeros(0)}, {"f": b"pickle"})
CONTENTS = FILE.to_bytes()


def test_a_file_comes_back_and_is_the_same_for_the_same_contents() -> None:
    back = ModelFile.from_bytes(CONTENTS)
    assert (back.document, back.pickled) == (FILE.document, FILE.pickled)
    assert all(torch.equal(back.tensors[name], tensor) for name, tensor in FILE.tensors.items())
    assert back.to_bytes() == CONTENTS


def test_rounded_tensors_are_smaller_and_come_back_in_single_precision() -> None:
    networks = torch.linspace(-2.0, 2.0, 1000)
    file = ModelFile({}, {"theta": networks, "low": networks.clone()})
    contents = rounded(file, ["theta"]).to_bytes()
    assert len(file.to_bytes()) - len(contents) == pytest.approx(2000, abs=100)
    back = ModelFile.from_bytes(contents)
    assert back.document == {}
    assert torch.equal(back.tensors["low"], networks)
    assert back.tensors["theta"].dtype == torch.float32
    assert torch.equal(back.tensors["theta"], networks.half().float())
    assert torch.equal(file.tensors["theta"], networks)


@pytest.mark.parametrize("names", [["w"], ["nothing"], 1, [[]]])
def test_tensors_that_cannot_have_been_rounded_are_refused(names: object) -> None:
    contents = ModelFile({"half_precision": names}, {"w": torch.zeros(2, dtype=torch.uint8)}).to_bytes()
    with pytest.raises(DamagedFileError, match="malformed"):
        ModelFile.from_bytes(contents)


def test_other_programs_can_read_it() -> None:
    with zipfile.ZipFile(io.BytesIO(CONTENTS)) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("model.json"))["format"] == 4
        assert torch.equal(safetensors.torch.load(archive.read("tensors.safetensors"))["w"], torch.arange(5.0))


@given(place=st.integers(0, len(CONTENTS) - 1), flip=st.integers(1, 255))
def test_any_changed_byte_is_noticed(place: int, flip: int) -> None:
    damaged = bytearray(CONTENTS)
    damaged[place] ^= flip
    with pytest.raises(DamagedFileError, match="checksum"):
        ModelFile.from_bytes(bytes(damaged))


@given(length=st.integers(0, len(CONTENTS) - 1))
def test_a_file_that_was_cut_short_is_noticed(length: int) -> None:
    with pytest.raises(DamagedFileError, match="checksum"):
        ModelFile.from_bytes(CONTENTS[:length])


def test_damage_is_told_from_other_formats(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    path.write_bytes(CONTENTS)
    assert damage_of(path) is None
    path.write_bytes(CONTENTS[:-1])
    assert "checksum" in (damage_of(path) or "")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", "{}")
    assert damage_of(path) is None


def test_contents_that_fit_their_checksum_but_are_none_of_a_model_are_named() -> None:
    whole = ModelFile({"format": 4}).to_bytes()[:-64]
    spoilt = whole.replace(b'"format"', b'"farmot"')
    assert spoilt != whole
    with pytest.raises(DamagedFileError, match="it is not a model file"):
        ModelFile.from_bytes(spoilt + hashlib.sha256(spoilt).hexdigest().encode())


def test_another_version_of_the_format_is_named() -> None:
    newer = ModelFile({"format": 5}).to_bytes()
    with pytest.raises(DamagedFileError, match="its format must be 4, which this version reads, got 5"):
        ModelFile.from_bytes(newer)


def test_paths_get_an_ending_and_open_files_are_used_as_they_are(tmp_path: Path) -> None:
    assert with_ending(tmp_path / "model").name == "model.zip"
    assert with_ending(tmp_path / "model.pth").name == "model.pth"
    write_bytes(str(tmp_path / "new" / "model"), b"contents")
    assert read_bytes(tmp_path / "new" / "model") == read_bytes(str(tmp_path / "new" / "model.zip")) == b"contents"
    buffer = io.BytesIO()
    write_bytes(buffer, b"contents")
    assert read_bytes(buffer) == b"contents"
    assert not buffer.closed
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "nothing")
