"""The first screen in a real browser: its verdict, in the title and the icon too, its chart, and the table behind it."""

import pytest

import ticker
from tests.browser.conftest import opened
from tests.factories import ticked

pytestmark = pytest.mark.browser

DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture
def counted(filled, db):
    """Two hours of which one minute in seven failed, and twelve tasks that fail for one reason."""
    now = filled.at(0)
    db.execute("UPDATE ticker.installation SET counted_until = date_trunc('minute', %s::timestamptz)", [now])
    db.execute("DELETE FROM ticker.minutes")
    db.execute(
        "INSERT INTO ticker.minutes (at, queue, outcome, reason, count, late)"
        " SELECT date_trunc('minute', %s::timestamptz, 'UTC') - n * interval '1 minute', 'polling', o, r, c, ARRAY[c, n %% 7, n %% 3]"
        " FROM generate_series(1, 118) n, LATERAL (VALUES ('succeeded', '', 30 + n %% 11), ('failed', '', 9 * (n %% 7 / 6)),"
        " ('dropped', 'too_early', n %% 4), ('dropped', 'expired', n %% 9 / 8)) v (o, r, c)",
        [now],
    )
    db.execute(
        "INSERT INTO ticker.minutes (at, queue, samples, listening, busy)"
        " SELECT date_trunc('minute', %s::timestamptz, 'UTC') - n * interval '1 minute', 'polling', 2, 8, n %% 9 FROM generate_series(1, 118) n",
        [now],
    )
    for number in range(12):
        ticker.register(db, "poll", name=f"inbox{number}", every="1h", subject=f"user{number}@acme.example")
    db.execute(
        "UPDATE ticker.tasks SET failures = 3, cause = CASE WHEN id %% 4 = 0 THEN 'TimeoutError: timed out' ELSE 'ConnectionRefusedError: [Errno *] *' END,"
        " last_outcome = 'failed', last_ended_at = %s WHERE name LIKE 'inbox%%'", [now]
    )  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_chart_fits_its_screen_and_axe_finds_nothing(size, scheme, counted, chromium, address, axe, tmp_path):
    with opened(chromium, address, size, color_scheme=scheme) as page:
        page.goto("/")
        box = page.locator(".activity svg").bounding_box()
        assert box["x"] > 0 and box["x"] + box["width"] <= size["width"] and box["width"] > 0.55 * size["width"]
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        assert page.locator(".bar-hover").count() == 120
        page.screenshot(path=tmp_path / "now.png", full_page=True)
        assert axe(page) == []
        page.click("text=As a table")
        assert page.locator("section table tbody tr").count() == 118
        assert axe(page) == []


def test_a_click_on_a_minute_leads_to_its_runs(counted, page):
    page.goto("/")
    page.locator(".activity a").nth(110).click()
    page.wait_for_url("**/runs?since=*&until=*")
    assert page.locator("[name=since]").count() == page.locator("input[name=until]").count() == 1


def test_title_and_icon_follow_the_verdict(counted, page, db):
    page.goto("/")
    assert page.title() == "✖ 1 problem · ticker"
    icon = page.locator("link[rel=icon]")
    assert icon.get_attribute("href") == "/static/icon-bad.svg"
    db.execute("UPDATE ticker.tasks SET failures = 0, cause = '', next_run = clock_timestamp() + interval '1 hour'")
    db.execute("UPDATE ticker.tasks SET waiting = '{}'")
    ticked(db)
    db.execute("DELETE FROM ticker.functions")
    page.keyboard.press("r")
    page.wait_for_selector(".verdict.good")
    assert page.title().startswith("● all is well") and icon.get_attribute("href") == "/static/icon.svg"
