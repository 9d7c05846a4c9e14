"""Files are replaced whole or stay as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgvf_agents.storage.atomic import replacing


def test_a_file_is_replaced_whole_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    for content in ("first", "second"):
        with replacing(path) as unfinished:
            assert unfinished.suffix == ".json"
            unfinished.write_text(content)
            assert path.exists() == (content == "second")
        assert path.read_text() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_file_stays_as_it_was_where_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("good")

    def fail() -> None:
        with replacing(path) as unfinished:
            unfinished.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_text() == "good"
    assert list(tmp_path.iterdir()) == [path]
