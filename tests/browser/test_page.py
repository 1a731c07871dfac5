"""The page in a real browser: screens, the life of a task, keys, and what people need who do not see or use a mouse."""

import re

import pytest

import ticker
from tests.browser.conftest import DESKTOP, SCREENS, opened, served
from tests.sentences import sentence

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("screen", SCREENS)
def test_each_screen_loads_without_a_word_in_the_console(screen, page):
    answer = page.goto(screen)
    assert answer.status == 200
    page.wait_for_function("window.htmx !== undefined")
    assert page.title().endswith("· ticker")
    assert page.locator("h1").count() == 1


def test_what_users_wrote_is_shown_and_never_run(page):
    page.goto("/tasks/2")
    assert "<script>" in page.locator(".details").inner_text()
    assert page.title() == "archive · ticker"
    page.goto("/")
    assert "no route to host <script>" in page.locator("#live").inner_text()
    assert page.title() == "✖ 1 problem · ticker"


def test_a_task_lives_from_its_form_to_its_end(page, db, filled):
    page.goto("/tasks/new")
    page.fill("#function", "poll")
    page.fill("#owner", "mail_channels:9")
    page.fill("#name", "nine")
    page.fill("#schedule", "0 9 * * 1-5")
    page.fill("#zone", "Europe/Berlin")
    page.wait_for_selector("#preview >> text=At 09:00, Monday through Friday")
    page.fill("#schedule", "1m")
    page.fill("#zone", "")
    page.wait_for_selector("#preview >> text=every 1m")
    page.fill("#kwargs", '{"channel_id": 9}')
    page.click("text=Register")
    page.wait_for_url(re.compile(r"/tasks/\d+$"))
    task = ticker.get(db, "nine", owner="mail_channels:9")
    assert (task.every_ms, task.kwargs) == (60_000, {"channel_id": 9})

    page.wait_for_selector("#said:has-text('nine: registered')")

    page.click("summary:has-text('Pause')")
    page.fill("#reason", "their server is moved")
    page.fill("#until", "soon")
    page.click("button:text-is('Pause')")
    page.wait_for_selector("#until-error:not(:empty)")
    page.fill("#until", "2h")
    page.click("button:text-is('Pause')")
    page.wait_for_selector("text=/paused by the page until .*: their server is moved/")
    page.click("text=Resume")
    page.wait_for_selector(".state:not(:has-text('paused'))")

    page.click("text=Run now")
    page.wait_for_selector(f"text={sentence('page.asked_for_by_hand')}")
    filled.at(90)
    filled.tick()
    for taken in filled.take():
        if taken.refusal is None:
            filled.end(taken, "succeeded")
    page.keyboard.press("r")
    page.wait_for_selector(".what.good")

    assert early(filled, task.id, 100, 110) == "too_early"
    page.keyboard.press("r")
    why = sentence("page.too_early_after", since="10 s", last=re.compile(".*"), early="45 s")
    page.wait_for_selector(f"td >> text=/{why.pattern}/")

    page.on("dialog", lambda dialog: dialog.accept())
    page.click("text=Delete")
    page.wait_for_url("**/tasks")
    page.wait_for_selector(f"#said:has-text('task {task.id}: deleted')")
    page.reload()
    assert page.locator("#said").inner_text() == ""
    assert [text for text in page.complaints if "422" not in text] == []
    page.complaints.clear()
    assert [found.name for found in ticker.list_tasks(db, owner="mail_channels:9")] == []


def early(play, task_id, *seconds):
    """The task is due at each of these; what became of the last of its jobs."""
    for at in seconds:
        play.db.execute("UPDATE ticker.tasks SET next_run = %s WHERE id = %s", [play.at(at), task_id])
        play.tick()
        [taken] = [taken for taken in play.take() if taken.task_id == task_id]
        if taken.refusal is None:
            play.end(taken, "succeeded")
    return taken.refusal


def test_a_field_that_is_wrong_says_so_beside_itself_and_nothing_is_stored(page, db):
    before = len(ticker.list_tasks(db))
    page.goto("/tasks/new")
    page.fill("#function", "nobody.knows")
    warning = sentence("page.unannounced_function", function="'nobody.knows'")
    page.wait_for_selector(f"text={warning}")
    page.fill("#schedule", "every tuesday")
    page.wait_for_selector("#preview .error")
    page.click("text=Register")
    page.wait_for_selector("#schedule-error:not(:empty)")
    assert page.get_attribute("#schedule", "aria-invalid") == "true"
    assert len(ticker.list_tasks(db)) == before
    assert [text for text in page.complaints if "422" not in text] == []
    page.complaints.clear()


def test_marked_tasks_are_paused_together_and_the_list_stays_filtered(page, db):
    page.goto("/tasks?owner=&search=mail_channels")
    page.check("#all")
    assert page.locator("input[name=id]:checked").count() == 2
    page.click("summary:has-text('Pause')")
    page.fill("#reason", "holiday")
    asked = []
    page.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.accept()))
    page.click("button:text-is('Pause')")
    page.wait_for_selector("#said:has-text('2 tasks: paused')")
    assert asked == ["Pause 2 tasks?"]
    page.wait_for_selector("text=paused by the page: holiday >> nth=1")
    assert "search=mail_channels" in page.url
    assert {task.name for task in ticker.list_tasks(db, state="paused")} == {"support", "archive", "quiet"}


def test_filters_stay_in_the_address(page):
    page.goto("/tasks")
    page.select_option("select[name=state]", "failing")
    page.click("button:has-text('Filter')")
    page.wait_for_url("**state=failing**")
    assert page.locator("tbody tr").count() == 1
    assert "archive of mail_channels:2" in page.locator("tbody").inner_text()


def test_a_mark_leads_to_its_run_and_the_arrows_lead_to_the_marks(page):
    page.goto("/tasks?search=support")
    marks = page.locator(".strip a")
    assert re.fullmatch(r"([\d-]+ )?\d\d:\d\d:\d\d dropped: too early", marks.last.get_attribute("aria-label"))
    marks.last.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/*")
    assert "succeeded" in page.locator(".state").inner_text()


def test_what_a_run_left_is_shown_in_its_row_and_stays_while_it_is_read(page, db):
    db.execute("UPDATE ticker.runs SET output = %s WHERE task_id = 2 AND outcome = 'failed'", ["x<b>y"])
    page.goto("/tasks/2")
    page.locator("td summary").first.click()
    page.wait_for_selector("td pre:text-is('x<b>y')")
    page.locator("h1").click()
    page.wait_for_selector("#pace:has-text('paused')")
    assert page.locator("td pre:text-is('x<b>y')").is_visible()


def test_the_fields_under_more_are_open_where_one_is_set_or_wrong(page, db):
    page.goto("/tasks/new")
    more = page.locator("form details")
    assert more.get_attribute("open") is None
    page.fill("#function", "poll")
    page.fill("#schedule", "1m")
    more.locator("summary").click()
    page.fill("#ends", "2000-01-01T00:00:00Z")
    more.locator("summary").click()
    page.click("text=Register")
    page.wait_for_selector("#ends-error:not(:empty)")
    page.fill("#ends", "")
    page.select_option("#overlap", "skip")
    page.fill("#metadata", '{"team": "mail"}')
    page.click("text=Register")
    page.wait_for_url(re.compile(r"/tasks/\d+$"))
    task = ticker.get(db, "poll")
    assert (task.overlap, task.metadata) == ("skip", {"team": "mail"})
    page.goto(f"/tasks/{task.id}/edit")
    assert more.get_attribute("open") is not None
    page.goto("/tasks/2/edit")
    assert more.get_attribute("open") is None
    page.complaints.clear()


def test_keys_work(page):
    page.goto("/owners")
    page.keyboard.press("?")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog:not([open])", state="attached")
    page.keyboard.press("/")
    page.wait_for_url("**/tasks#search")
    page.wait_for_function("document.activeElement.id === 'search'")


def test_the_list_looks_again_while_it_is_watched_and_not_in_a_hidden_tab(page, db):
    page.add_init_script("const real = setInterval; window.setInterval = (work, ms) => real(work, ms / 20)")
    page.goto("/tasks")
    ticker.register(db, "poll", name="newcomer", every="1h")
    page.wait_for_selector("text=newcomer")
    asked = []
    page.evaluate("Object.defineProperty(document, 'hidden', {get: () => true})")
    page.wait_for_load_state("networkidle")
    page.on("request", lambda request: asked.append(request.url))
    page.evaluate("new Promise(done => setTimeout(done, 1500))")
    assert asked == []


def test_the_address_with_the_token_opens_the_page_and_its_buttons_work(chromium, filled, db):
    """As `ticker web` prints it, in a browser that has not been here."""
    token = "made-at-the-start-0123456789"
    with served(tokens=[token]) as address, opened(chromium, address, DESKTOP) as page:
        page.goto(address.replace("http://", f"http://ticker:{token}@"))
        page.click("nav >> text=Tasks")
        page.click("text=support")
        page.click("button:text-is('Disable')")
        page.wait_for_selector("#said:has-text('disabled')")
        assert page.context.cookies() == []
    assert [task.name for task in ticker.list_tasks(db) if not task.enabled] == ["support"]
