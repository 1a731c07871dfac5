"""The pictures in the documentation show the page as it is."""

import pytest

from tests.browser import shots
from tests.running import ROOT

pytestmark = pytest.mark.browser


def test_the_pictures_are_as_new_as_the_templates():
    note = (ROOT / "docs/pictures" / shots.NOTE).read_text().strip()
    assert note == shots.source(), "make them anew: uv run --group browser python -m tests.browser.shots"


def test_each_picture_of_the_page_is_made_by_the_script():
    made = {file.stem for file in (ROOT / "docs/pictures").glob("*.png")}
    assert made == {*shots.PICTURES}


def test_a_change_of_a_template_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "now.html").write_text("<h1>Now</h1>")
    monkeypatch.setattr(shots, "WEB", tmp_path)
    before = shots.source()
    (tmp_path / "templates" / "now.html").write_text("<h1>Then</h1>")
    assert shots.source() != before
