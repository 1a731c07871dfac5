"""Fixtures that tests of groups share."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the functions of groups leave files; GROUP_FOLDER names it to workers."""
    folder = tmp_path / "group"
    folder.mkdir()
    monkeypatch.setenv("GROUP_FOLDER", str(folder))
    return folder
