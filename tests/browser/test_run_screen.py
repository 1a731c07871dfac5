"""The screen of a run in a real browser: it looks again while the run goes on, and stands still when it has ended."""

import pytest

from tests.sentences import sentence

pytestmark = pytest.mark.browser


def test_the_screen_of_a_run_stands_still_once_it_has_ended(page, filled):
    page.add_init_script("const real = setInterval; window.setInterval = (work, ms) => real(work, ms / 20)")
    filled.tick()
    taken = next(taken for taken in filled.take() if taken.refusal is None)
    page.goto(f"/runs/{taken.run_id}")
    page.wait_for_selector("#live >> text=running")
    assert page.locator("#pace").inner_text() == sentence("page.looks_again", span="5 s")
    filled.at(5)
    filled.end(taken, "succeeded")
    page.wait_for_selector("#live >> text=succeeded")
    page.wait_for_selector("#pace >> text=does not refresh")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("new Promise(done => setTimeout(done, 1500))")
    assert asked == []
