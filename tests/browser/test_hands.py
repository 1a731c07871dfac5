"""The page by keyboard and by finger: where the focus goes on, what the Enter key does, what the Tab key and a finger hit."""

import pytest

import ticker
from tests.browser.conftest import DESKTOP, opened
from tests.sentences import sentence

pytestmark = pytest.mark.browser


def pause_by_key(page):
    page.focus("summary:has-text('Pause')")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("holiday")
    page.keyboard.press("Enter")


def test_a_pause_by_key_leaves_the_focus_before_the_first_control_as_its_own_is_gone(page):
    page.goto("/tasks/2")
    pause_by_key(page)
    page.wait_for_selector("text=paused by the page: holiday")
    page.wait_for_selector("#main:focus")


def test_the_enter_key_pauses_the_marked_tasks_and_the_focus_goes_back_to_what_opened_the_form(page, db):
    page.goto("/tasks?search=mail_channels")
    page.check("#all")
    page.on("dialog", lambda dialog: dialog.accept())
    pause_by_key(page)
    page.wait_for_selector("#said:has-text('2 tasks: paused')")
    page.wait_for_selector("summary:focus:has-text('Pause')")
    assert {task.name for task in ticker.list_tasks(db, state="paused")} == {"support", "archive", "quiet"}
    assert page.locator("#all:checked, #many input:checked").count() == 0


def test_an_action_on_all_that_match_asks_with_their_number_and_says_what_it_did(page, db):
    page.goto("/tasks?function=poll")
    page.click("button:has-text('Disable …')")
    questions = []
    page.on("dialog", lambda dialog: (questions.append(dialog.message), dialog.accept()))
    page.click("button:text-is('Disable 2 tasks')")
    page.wait_for_url("**/tasks?function=poll")
    page.wait_for_selector("#said:has-text('2 changed')")
    assert questions == ["Disable 2 tasks?"]
    assert {task.name for task in ticker.list_tasks(db, state="inactive")} == {"support", "archive"}


def test_the_enter_key_on_a_mark_of_a_task_changes_nothing(page, db):
    page.goto("/tasks?search=mail_channels")
    page.check("#mark-1")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.press("#mark-1", "Enter")
    page.evaluate("new Promise(done => setTimeout(done, 500))")
    assert asked == []
    assert page.is_checked("#mark-1")
    assert [task.name for task in ticker.list_tasks(db, state="paused")] == ["quiet"]


def test_a_button_that_was_pressed_by_key_keeps_the_focus(page):
    page.goto("/tasks/2")
    page.focus("button:text-is('Run now')")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"text={sentence('page.asked_for_by_hand')}")
    page.wait_for_selector("button:focus:text-is('Run now')")


def test_a_button_that_was_clicked_takes_no_focus_and_the_page_goes_on_looking(page):
    page.goto("/tasks/2")
    page.click("button:text-is('Run now')")
    page.wait_for_selector(f"text={sentence('page.asked_for_by_hand')}")
    assert page.evaluate("document.activeElement === document.body")


def test_the_tab_key_stops_once_in_a_strip_where_the_arrows_led_to(page):
    page.goto("/tasks?search=mail_channels")
    stops = page.locator(".strip a[tabindex='0']")
    assert stops.count() == page.locator(".strip").count() == 2
    page.evaluate("document.getElementById('live').classList.add('before')")
    page.keyboard.press("r")
    page.wait_for_selector("#live:not(.before)")
    assert stops.count() == 2
    stops.first.focus()
    mark = page.evaluate("document.activeElement.previousElementSibling.href")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.href") == mark


def test_without_a_script_the_tab_key_reaches_each_mark(chromium, address):
    with opened(chromium, address, DESKTOP, java_script_enabled=False) as page:
        page.goto("/tasks")
        assert page.locator(".strip a").count() > 2
        assert page.locator(".strip a[tabindex]").count() == 0


def test_a_finger_hits_a_mark(phone):
    phone.goto("/tasks?search=mail_channels")
    sizes = [mark.bounding_box() for mark in phone.locator(".strip a").all()]
    assert len(sizes) > 2
    assert all(size["width"] >= 24 and size["height"] >= 24 for size in sizes), sizes


@pytest.mark.parametrize(
    "screen", ["/", "/tasks", "/tasks/2", "/owners", "/limits", "/runs", "/runs/1", "/runs?by=reason", "/processes"]
)
def test_no_two_regions_of_a_screen_have_the_same_name(screen, page):
    from axe_playwright_python.sync_playwright import Axe

    page.goto(screen)
    found = Axe().run(page, options={"runOnly": ["landmark-unique"]}).response["violations"]
    assert [node["html"] for one in found for node in one["nodes"]] == []


def test_a_pause_of_all_tasks_is_chosen_and_asks_with_its_number(page, db):
    page.goto("/tasks#pause")
    form = "section[aria-labelledby=pause]"
    assert page.input_value("#many-scope") == ""
    page.click(f"{form} button")
    asked = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.select_option("#many-scope", "all")
    with page.expect_event("dialog"):
        page.click(f"{form} button")
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    page.select_option("#many-scope", "function")
    page.fill("#many-value", "poll")
    page.click(f"{form} button")
    page.wait_for_selector("#said:has-text('are paused')")
    assert [message.partition("?")[0] for message in asked] == ["Pause 5 tasks", "Pause 2 tasks"]
    assert [(pause.scope, pause.value) for pause in ticker.list_pauses(db)] == [("function", "poll")]


def test_an_action_on_marked_tasks_asks_with_their_number_and_one_without_marks_is_not_sent(page, db):
    page.goto("/tasks")
    sent, asked = [], []
    page.on("request", lambda request: request.method == "POST" and sent.append(request.url))
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    page.click("button:text-is('Disable')")
    page.wait_for_selector("#said:has-text('no task is marked')")
    page.check("#mark-1")
    page.check("#mark-2")
    for label in ("Run now", "Disable", "Delete"):
        page.click(f"button:text-is('{label}')")
    assert [message.partition("?")[0] for message in asked] == ["Run 2 tasks now", "Disable 2 tasks", "Delete 2 tasks"]
    assert sent == []


def test_the_filter_of_the_list_names_the_tasks_of_a_pause_and_its_errors_stand_in_its_form(page, db):
    page.goto("/tasks?function=poll")
    assert (page.input_value("#many-scope"), page.input_value("#many-value")) == ("function", "poll")
    page.on("dialog", lambda dialog: dialog.accept())
    page.fill("#many-until", "soon")
    page.click("section[aria-labelledby=pause] button")
    page.wait_for_selector("#many-until-error:has-text('soon')")
    page.wait_for_selector("#many-until:focus")
    page.complaints.clear()  # of the refused request
    assert ticker.list_pauses(db) == []
    page.goto("/tasks?function=poll&queue=polling")
    assert page.input_value("#many-scope") == ""
