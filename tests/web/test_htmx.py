"""The copy of htmx that the page brings along: which it is, and that its licence goes with it."""

import tomllib
from hashlib import sha256

from tests.running import ROOT

STATIC = ROOT / "ticker" / "web" / "static"
VERSION = "2.0.10"
AS_PUBLISHED = "71ea67185bfa8c98c39d31717c6fce5d852370fcdfd129db4543774d3145c0de"


def test_it_is_the_file_that_its_authors_published() -> None:
    copy = (STATIC / "htmx.min.js").read_bytes()
    assert sha256(copy).hexdigest() == AS_PUBLISHED
    assert f'version:"{VERSION}"'.encode() in copy
    assert f"htmx](https://htmx.org) {VERSION} " in (ROOT / "docs/operations/page.md").read_text(encoding="utf-8")


def test_its_licence_is_next_to_it_and_among_those_of_the_package() -> None:
    licence = STATIC / "htmx.LICENSE.txt"
    assert licence.read_text(encoding="utf-8").startswith("Zero-Clause BSD\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "0BSD" in project["license"]
    assert str(licence.relative_to(ROOT)) in project["license-files"]
