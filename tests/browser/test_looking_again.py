"""What a page that is open does while answers fail, and afterwards."""

from contextlib import contextmanager
from datetime import datetime, timedelta

import pytest

import ticker
from tests.browser.conftest import DESKTOP, opened
from ticker.errors import DatabaseUnavailable, RowLocked, UnknownTask
from ticker.web.site import Database

pytestmark = pytest.mark.browser


@pytest.fixture
def quick(page):
    """A page that looks again twenty times as often."""
    page.add_init_script("const real = setInterval; window.setInterval = (work, ms) => real(work, ms / 20)")
    return page


@contextmanager
def failing(error):
    """While it lasts, whatever reads ends in the error."""

    def read(*_):
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Database, "reading", read)
        yield


def forgive(page, *statuses):
    """The browser's own words for these answers."""
    assert [text for text in page.complaints if not any(str(status) in text for status in statuses)] == []
    page.complaints.clear()


def asked(page, milliseconds=1500):
    """The addresses that are asked for meanwhile."""
    found = []
    page.on("request", lambda request: found.append(request.url))
    page.evaluate(f"new Promise(done => setTimeout(done, {milliseconds}))")
    return found


@pytest.mark.parametrize(
    ("error", "status"), [(DatabaseUnavailable("it is away"), 503), (RowLocked("it is locked"), 409)]
)
def test_what_failed_for_a_while_is_looked_at_again_until_it_is_there(error, status, quick):
    quick.goto("/")
    with failing(error):
        quick.wait_for_selector(f"#live >> text={error}")
        assert quick.inner_text("#pace").startswith("refreshes")
    quick.wait_for_selector("#live h1:has-text('Now')")
    assert quick.title() == "✖ 1 problem · ticker"
    forgive(quick, status)


def test_a_screen_that_could_not_be_had_at_first_comes_by_itself(quick):
    with failing(DatabaseUnavailable("it is away")):
        quick.goto("/")
        assert "it is away" in quick.inner_text("#live")
    quick.wait_for_selector("#live h1:has-text('Now')")
    forgive(quick, 503)


def test_a_screen_that_is_gone_stands_still(quick):
    quick.goto("/")
    with failing(UnknownTask("it is gone")):
        quick.wait_for_selector("#live >> text=it is gone")
        quick.wait_for_selector("#pace >> text=does not refresh")
        assert asked(quick) == []
    forgive(quick, 404)


def test_the_page_of_a_proxy_does_not_take_the_place_of_ours(quick):
    quick.goto("/")
    quick.route("**/", lambda route: route.fulfill(status=502, content_type="text/html", body="<h1>Bad Gateway</h1>"))
    quick.wait_for_selector("#said:has-text('the server answered 502')")
    assert quick.inner_text("h1").startswith("Now")
    quick.unroute("**/")
    with quick.expect_response(lambda answer: answer.status == 200):
        pass
    forgive(quick, 502)


def test_what_a_run_left_is_asked_for_again_after_an_error_and_once_otherwise(page, db):
    db.execute("UPDATE ticker.runs SET output = %s WHERE task_id = 2 AND outcome = 'failed'", ["x<b>y"])
    page.goto("/tasks/2")
    summary = page.locator("td summary").first
    with failing(DatabaseUnavailable("it is away")):
        summary.click()
        page.wait_for_selector("td details >> text=it is away")
    assert page.title() == "archive · ticker"
    summary.click()
    summary.click()
    page.wait_for_selector("td pre:text-is('x<b>y')")
    summary.click()
    summary.click()
    assert [url for url in asked(page, 300) if url.endswith("/texts")] == []
    forgive(page, 503)


def test_a_preview_that_fails_says_so_in_its_place(page):
    page.goto("/tasks/new")
    page.route("**/preview?*", lambda route: route.continue_(url=route.request.url.replace("/preview", "/999")))
    page.fill("#schedule", "1m")
    page.wait_for_selector("#preview .problem")
    assert page.locator("h1").count() == 1
    assert page.title() == "New task · ticker"
    forgive(page, 404)


def test_a_selection_a_click_on_a_cell_and_an_open_filter_outlive_a_refresh(quick, db):
    quick.goto("/tasks")
    quick.click("td:text-is('every 5m') >> nth=0")
    quick.locator("summary:has-text('More filters')").click()
    quick.locator("h1").click()
    quick.evaluate("getSelection().selectAllChildren(document.querySelector('#many tbody tr:nth-child(2) .name'))")
    selected = quick.evaluate("String(getSelection())")
    assert "archive" in selected
    db.execute("UPDATE ticker.tasks SET queue = 'elsewhere' WHERE id = 1")
    quick.wait_for_selector("td:text-is('elsewhere')")
    assert quick.evaluate("String(getSelection())") == selected
    assert quick.inner_text("#pace").startswith("refreshes")
    assert quick.locator(".filters details").get_attribute("open") is not None


FLASHES = "[...document.querySelectorAll('tbody tr')].filter((row) => row.getAnimations().length).map((row) => row.dataset.key)"


@pytest.mark.parametrize(("motion", "flashed"), [("no-preference", ["1"]), ("reduce", [])])
def test_a_row_that_says_something_else_flashes_once(motion, flashed, quick, db):
    quick.emulate_media(reduced_motion=motion)
    quick.goto("/tasks")
    db.execute("UPDATE ticker.tasks SET queue = 'elsewhere' WHERE id = 1")
    quick.wait_for_selector("td:text-is('elsewhere')")
    assert quick.evaluate(FLASHES) == flashed
    quick.evaluate("Promise.all(document.getAnimations().map((one) => one.finished))")
    assert quick.evaluate(FLASHES) == []
    assert quick.locator("tbody tr").count() == 5


def test_rows_that_come_first_leave_the_others_where_they_are(quick, db):
    quick.goto("/runs")
    first = quick.query_selector("tbody tr")
    key = first.get_attribute("data-key")
    ticker.pause(db, 1, by="ada")
    quick.wait_for_selector(f"tbody tr:first-child:not([data-key='{key}'])")
    assert first.evaluate("(row) => row.isConnected && row.rowIndex > 1")
    keys = quick.locator("tbody tr").evaluate_all("(rows) => rows.map((row) => row.dataset.key)")
    assert len({*keys}) == len(keys)


def test_times_are_utc_and_the_switch_shows_those_of_the_browser(chromium, address):
    with opened(chromium, address, DESKTOP, timezone_id="Asia/Kolkata") as page:
        page.goto("/runs")
        cell = page.locator("tbody time").first
        utc, title = cell.inner_text(), cell.get_attribute("title")
        local = (datetime.fromisoformat(utc) + timedelta(hours=5, minutes=30)).isoformat(" ")
        assert title == f"{utc} UTC, {local} local time"
        page.click("#switch")
        page.wait_for_selector("th:has-text('Ended (local)')")
        assert page.locator(f"tbody time:text-is('{local}')").count() > 0
        page.keyboard.press("r")
        page.click("#switch")
        page.wait_for_selector("th:has-text('Ended (UTC)')")
        assert page.locator(f"tbody time:text-is('{utc}')").count() > 0
