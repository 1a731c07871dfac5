"""What is done with many tasks on the page: all of one cause, and the ten seconds in which it can be undone."""

import pytest

import ticker

pytestmark = pytest.mark.browser


def questions(page, accept=True):
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept() if accept else dialog.dismiss()))
    return asked


def test_all_tasks_of_a_cause_are_paused_on_the_first_screen_and_it_is_undone(page, db):
    db.execute("UPDATE ticker.tasks SET failures = 1, cause = 'OSError: no route to host' WHERE name <> 'quiet'")
    page.goto("/")
    asked = questions(page)
    page.click("button:text-is('Pause all')")
    page.wait_for_selector("#said:has-text('4 changed')")
    assert asked == ["Pause 4 tasks? They fail with OSError: no route to host."] and page.url.endswith("/")
    page.wait_for_selector("text=Pause all", state="detached")
    page.click("#said button:text-is('Undo')")
    page.wait_for_selector("#said:has-text('4 tasks: resumed')")
    assert [task.name for task in ticker.list_tasks(db, state="paused")] == ["quiet"]
    page.wait_for_selector("button:text-is('Pause all')")


def test_what_was_disabled_on_the_list_is_undone_on_the_next_screen(page, db):
    page.goto("/tasks?function=poll")
    page.click("button:has-text('Disable …')")
    questions(page)
    page.click("button:text-is('Disable 2 tasks')")
    page.wait_for_url("**/tasks?function=poll")
    page.click("#said button:text-is('Undo')")
    page.wait_for_selector("#said:has-text('2 tasks: enabled')")
    assert ticker.list_tasks(db, state="inactive") == []
    page.reload()
    assert page.locator("#said button").count() == 0


def test_after_ten_seconds_nothing_is_offered_and_the_task_has_its_button(page):
    page.clock.install()
    page.goto("/tasks/2")
    page.click("button:text-is('Disable')")
    page.wait_for_selector("#said button:text-is('Undo')")
    page.clock.fast_forward(9000)
    assert page.locator("#said button").count() == 1
    page.clock.fast_forward(1500)
    page.wait_for_selector("#said button", state="detached")
    page.wait_for_selector("button:text-is('Enable')")
