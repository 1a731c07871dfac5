"""The documentation site, opened from a disk in Chromium: it fits the screen, follows its theme, and can be searched."""

import re

import pytest

from tests.browser.conftest import DESKTOP, PHONE
from tests.documents.site import built

pytestmark = pytest.mark.browser

PROCFILE = re.compile(r"# Procfile\n")  # its lines cannot be continued
BROKEN = r"""() => {
  const broken = []
  for (const cell of document.querySelectorAll("td, th")) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT)
    for (let text; text = texts.nextNode();) for (const word of text.data.matchAll(/--[a-z][\w-]*|\w+/g)) {
      const range = new Range()
      range.setStart(text, word.index)
      range.setEnd(text, word.index + word[0].length)
      if (new Set([...range.getClientRects()].map((part) => part.top)).size > 1) broken.push(word[0])
    }
  }
  return broken
}"""
WIDER = """() => [...document.querySelectorAll("pre > code")]
    .filter((code) => code.scrollWidth > code.clientWidth).map((code) => code.innerText)"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return built(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_every_page_fits_the_screen_and_breaks_no_word_in_a_table(chromium, site, size, scheme):
    page = chromium.new_context(viewport=size, color_scheme=scheme).new_page()
    for file in site.rglob("*.html"):
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), file
        assert page.evaluate(BROKEN) == [], file
        if size is DESKTOP:
            assert [code for code in page.evaluate(WIDER) if not PROCFILE.match(code)] == [], file


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_the_one_of_the_system(chromium, site, scheme):
    page = chromium.new_context(color_scheme=scheme).new_page()
    page.goto((site / "index.html").as_uri())
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", color))) < 3 * 128) == (scheme == "dark")


def test_the_search_needs_no_server(chromium, site):
    page = chromium.new_context(viewport=DESKTOP).new_page()
    page.goto((site / "index.html").as_uri())
    page.click("input[name=query]")
    page.keyboard.type("unknown_here")
    page.click(".md-search-result__item a")
    page.wait_for_url(lambda address: "failing.html" in address)
