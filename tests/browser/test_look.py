"""How the page looks on three screens in both themes: nothing is cut or scrolls sideways, and axe finds nothing."""

import pytest

from tests.browser.conftest import SCREENS, opened, served
from tests.sentences import sentence

pytestmark = pytest.mark.browser

SIZES = {"desktop": (1440, 900), "tablet": (1024, 768), "phone": (390, 844)}
CUT = """() => [...document.querySelectorAll("body, body *:not(svg *)")]
    .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible")
    .map((one) => one.tagName + "." + one.className)"""
"""The elements that are wider inside than outside."""
BROKEN = """() => [...document.querySelectorAll("td a, td time, td .what")]
    .filter((one) => !/\\s/.test(one.textContent.trim()) && one.getClientRects().length > 1).map((one) => one.textContent)"""
"""The words in tables that take more than one line."""


def shown(chromium, address, size, scheme="light"):
    width, height = SIZES[size]
    touch = {"has_touch": True, "is_mobile": True} if size == "phone" else {}
    return opened(chromium, address, {"width": width, "height": height}, color_scheme=scheme, **touch)


@pytest.fixture
def failing(filled):
    """The last ten minutes of the scene once more and once more: 26 failures in a row."""
    filled.db.execute("SELECT setval('ticker.runs_id_seq', 1832000)")  # ids as long as those after a year
    for minute in range(20):
        filled.at(60 * minute + 60)
        filled.tick()
        for taken in filled.take():
            if taken.refusal is None:
                filled.at(60 * minute + 63)
                reason = "ConnectionRefusedError: [Errno 111] Connection refused: imap.example.org:993"
                filled.end(taken, "failed" if taken.task_id == 2 else "succeeded", reason * (taken.task_id == 2))
    filled.at(0)
    return filled


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_nothing_is_cut_on_any_screen_and_axe_finds_nothing(size, scheme, chromium, failing, environ, axe, db):
    db.execute(
        "UPDATE ticker.tasks SET subject = 'archive@customer.example.org', name = 'mail_archive.fetch' WHERE id = 2"
    )
    with served() as address, shown(chromium, address, size, scheme) as page:
        for screen in SCREENS:
            page.goto(screen)
            page.wait_for_function("window.htmx !== undefined")
            of_phone = {"NAV.", "DIV.wide chart"} if size == "phone" else set()
            assert {*page.evaluate(CUT)} <= of_phone, screen
            assert page.evaluate(BROKEN) == [], screen
            assert axe(page) == [], screen


@pytest.mark.parametrize(("size", "most"), [("desktop", 2500), ("phone", 3500)])
def test_a_failing_task_is_short_and_begins_with_what_is_wrong(size, most, chromium, failing, environ, db):
    db.execute("UPDATE ticker.tasks SET last_success_at = now() - interval '1 h' WHERE id = 2")
    with served() as address, shown(chromium, address, size) as page:
        page.goto("/tasks/2")
        assert page.evaluate("document.documentElement.scrollHeight") <= most
        first = page.locator(".sentence").first.inner_text()
        assert sentence("page.failing_since").within(first)
        assert page.locator("tbody tr").count() == 20


def test_each_row_of_a_list_is_a_card_on_a_phone_and_its_cells_are_labelled(phone):
    phone.goto("/tasks")
    card = phone.locator("tbody tr", has_text="archive")
    label = "(cell) => getComputedStyle(cell, '::before').content"
    assert [cell.evaluate(label) for cell in card.locator("td:visible").all()[2:5]] == [
        '"Schedule"',
        '"State"',
        '"Last 20"',
    ]
    box, marks = card.bounding_box(), card.locator(".strip").bounding_box()
    assert box["width"] > 300 and marks["x"] + marks["width"] <= box["x"] + box["width"]


def test_the_navigation_of_a_phone_is_one_line_and_begins_at_the_screen(phone):
    phone.goto("/processes")
    here = phone.locator("nav [aria-current]").bounding_box()
    assert here["x"] >= 0 and here["x"] + here["width"] <= 390
    assert phone.locator("nav").bounding_box()["height"] < 50
