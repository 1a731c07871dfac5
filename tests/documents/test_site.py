"""The documentation is plain Markdown, and the site that MkDocs builds of it asks no other host for anything."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from tests.documents.site import built
from tests.running import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))
OF_ONE_THEME = re.compile(r"(!!!|\?\?\?|===) |:(material|octicons|fontawesome)-|\{:? ?[.#]|--8<--|^\[TOC\]|^:::")
LOADED = {
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "video": "src",
    "audio": "src",
    "object": "data",
}
FOREIGN = re.compile(r"(https?:)?//")
COLUMNS = 80  # of code: more scrolls sideways on a screen of 1280 pixels
PROCESS = re.compile(r"(release|web|ticker|worker): ")  # a line of a Procfile, which cannot be continued
LIST = re.compile(r"([*+-]|\d+\.) ")


def prose(page: Path) -> list[str]:
    """Returns the lines of a page, with empty ones for those of code."""
    is_code, lines = False, []
    for line in page.read_text(encoding="utf-8").splitlines():
        is_fence = line.lstrip().startswith("```")
        lines.append("" if is_code or is_fence else re.sub(r"`[^`]*`", "``", line))
        is_code ^= is_fence
    return lines


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_a_page_uses_nothing_that_only_one_theme_understands(page):
    lines = prose(page)
    assert not [line for line in lines if OF_ONE_THEME.search(line)]
    # GitHub begins a list within a paragraph, and MkDocs does not
    assert not [
        two
        for one, two in pairwise(lines)
        if LIST.match(two) and one and not one.startswith(" ") and not LIST.match(one)
    ]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_code_fits_the_page(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    code = [line for line, text in zip(lines, prose(page), strict=True) if not text or line.startswith("    ")]
    assert not [line for line in code if len(line) > COLUMNS and not PROCESS.match(line)]


class Loaded(HTMLParser):
    """Collects what a page makes a browser load: scripts, styles, icons, pictures; not where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "link" and given.get("rel") not in {"prev", "next"}:
            self.addresses.append(given.get("href", ""))
        self.addresses += [given.get(LOADED.get(tag, ""), ""), *given.get("srcset", "").split()]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return built(tmp_path_factory.mktemp("site"))


@pytest.mark.docs
def test_the_site_has_every_page(site):
    assert len(list(site.rglob("*.html"))) >= len(PAGES)


@pytest.mark.docs
def test_the_site_loads_nothing_from_another_host(site):
    for page in site.rglob("*.html"):
        reader = Loaded()
        reader.feed(page.read_text(encoding="utf-8"))
        assert reader.addresses and not [address for address in reader.addresses if FOREIGN.match(address)], page
    for style in site.rglob("*.css"):
        loaded = re.findall(r"(?:@import|url\()\s*[\"']?([^\"')\s]+)", style.read_text(encoding="utf-8"))
        assert not [address for address in loaded if FOREIGN.match(address)], style
