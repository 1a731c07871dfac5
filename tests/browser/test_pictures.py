"""The pictures in a real browser: a mark of the grid leads to its run, whose bar fits, and tasks that are due at once are spread."""

import pytest

from tests.browser.conftest import DESKTOP, PHONE, opened
from tests.sentences import sentence

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_mark_is_inside_its_row_and_leads_to_its_run(size, chromium, address):
    with opened(chromium, address, size) as page:
        page.goto("/owners/one?owner=mail_channels:2")
        row, marks = page.locator("svg.row"), page.locator("svg.row text.bad")
        assert marks.count() == 6
        box, inside = row.bounding_box(), marks.first.bounding_box()
        assert box["x"] <= inside["x"] <= box["x"] + box["width"] and 5 < inside["width"] < 24
        marks.last.locator("..").click()
        page.wait_for_selector("h1:has-text('Run')")
        assert page.locator(".state.bad").count() == 1
        bar = page.locator("svg.life path.bar-failed").bounding_box()
        assert bar["width"] > 100 and bar["x"] + bar["width"] <= size["width"]


def test_tasks_that_are_due_at_once_are_spread_after_a_plan_and_a_question(page, db):
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() + interval '2 min' WHERE kind = 'interval'")
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    page.goto("/")
    page.click("a[href='/tasks/due']")
    page.wait_for_selector("svg.due")
    page.click("text=Spread them …")
    page.click("button:has-text('Spread 4 tasks')")
    page.wait_for_selector("#said:has-text('4 tasks got a phase')")
    assert asked == [sentence("page.spread_question", tasks=4)]
    assert page.url.endswith("/tasks/due")


def test_all_tasks_of_an_owner_are_run_and_paused_after_a_question(page, db):
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    page.goto("/owners/one?owner=mail_channels:1")
    page.click("button:has-text('Run now')")
    page.wait_for_selector("#said:has-text('1 task of mail_channels:1: planned')")
    page.click("summary:has-text('Pause')")
    page.fill("#reason", "unpaid")
    page.click("form button:has-text('Pause')")
    page.wait_for_selector("td:has-text('paused by the page: unpaid')")
    assert asked == ["Run 1 task now?", "Pause 1 task?"]
    page.click("button:has-text('Resume')")
    page.wait_for_selector("#said:has-text('resumed')")
