"""The screens: what they show, what they refuse, and that whatever users wrote stays text."""

import json
import re
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import ticker
from tests.factories import a_run, ticked
from tests.harness import command
from tests.sentences import sentence
from tests.web.asking import SCREENS, SCRIPT, text_of
from tests.web.payloads import PAYLOADS
from ticker.read import formatting
from ticker.tasks import filters
from ticker.tasks.fields import SETTINGS
from ticker.web import application
from ticker.web.pages import phrases, state

pytestmark = pytest.mark.slow

LINKS = ("href", "src", "action", "formaction", "hx-get", "hx-post")


class Elements(HTMLParser):
    """What a browser would make of a page: its elements, and attributes that could run something."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.handlers, self.styles = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "script":
            self.scripts.append(dict(attrs).get("src"))
        self.handlers += [name for name, _ in attrs if name.startswith(("on", "hx-on"))]
        self.handlers += [
            name for name, value in attrs if name in LINKS and (value or "").strip().lower().startswith("javascript:")
        ]
        self.styles += [tag for name, _ in attrs if name == "style"] + [tag] * (tag == "style")


class Filled(HTMLParser):
    """The fields of a form, and what they hold."""

    def __init__(self, text):
        super().__init__()
        self.values, self._name, self._area = {}, None, False
        self.feed(text.partition('<form id="task"')[2])

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "option" and self._name and ("selected" in found or self._name not in self.values):
            self.values[self._name] = found["value"]
        elif tag in ("input", "select", "textarea"):
            self._name, self._area = found["name"], tag == "textarea"
            if tag != "select":
                self.values[self._name] = found.get("value", "")

    def handle_data(self, data):
        if self._area:
            self.values[self._name] += data.replace("\n", "\r\n")

    def handle_endtag(self, tag):
        self._name, self._area = None if tag == "select" else self._name, False


@pytest.fixture
def form(client):
    """Sends a form as the page's script does."""
    return lambda path, **fields: client.post(path, data=fields, headers=SCRIPT)


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.smoke
def test_every_screen_is_a_whole_page_under_a_strict_policy(screen, client, task):
    answer = client.get(screen)
    assert answer.status_code == 200, answer.text
    found = Elements(answer.text)
    assert found.scripts == ["/static/htmx.min.js", "/static/ticker.js"]
    assert found.handlers == found.styles == []
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_static_files_are_served(client):
    for name in ("htmx.min.js", "ticker.js", "ticker.css", "icon.svg"):
        assert client.get(f"/static/{name}").status_code == 200


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_users_wrote_is_shown_as_text_wherever_it_stands(payload, client, db):
    plain = "".join(c for c in payload if c.isprintable())
    task = ticker.register(
        db, plain[:200], name=plain[:200], owner=("mail", plain[:200]), every="1m", subject=plain, description=plain,
        kwargs={"said": payload.replace("\0", "")}, group=plain[:200], submitter=plain[:200],
    )  # fmt: skip
    ticker.pause(db, task, by=plain[:200], reason=plain)
    ticker.run_now(db, task)
    usual = Elements(client.get("/healthz").text)
    for screen in (*SCREENS, f"/tasks/{task.id}", f"/tasks/{task.id}/edit", "/runs/1", f"/nowhere/{plain}"):
        answer = client.get(screen)
        found = Elements(answer.text)
        assert answer.status_code < 500
        assert set(found.scripts) <= {"/static/htmx.min.js", "/static/ticker.js"}
        assert found.handlers == found.styles == usual.handlers


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_stands_in_an_address_is_a_filter_and_no_more(payload, client, task, db):
    for name in (
        "search",
        "state",
        "owner",
        "function",
        "queue",
        "after",
        "before",
        "task",
        "by",
        "schedule",
        "zone",
        "back",
        "sort",
        "at",
    ):
        for screen in ("/", "/tasks", "/runs", "/owners", "/runs?by=reason", "/tasks/preview"):
            answer = client.get(screen, params={name: payload})
            assert answer.status_code in (200, 404, 422), (screen, name, answer.status_code)
            assert Elements(answer.text).handlers == []
    assert [found.id for found in ticker.list_tasks(db)] == [task.id]


# ---------------------------------------------------------------------------------------------------------- screens


@pytest.mark.parametrize("change", ["enabled = false", "owner_active = false", "paused_by = 'anna'"])
def test_no_screen_promises_a_next_run_of_a_task_that_will_not_run(change, client, db, task):
    db.execute("UPDATE ticker.tasks SET failures = 1, next_run = next_run + interval '9 minutes'")
    screens = ("/", "/tasks", f"/tasks/{task.id}")
    due = ticker.get(db, task).next_run
    assert all(f'datetime="{formatting.plain_data(due)[:19]}' in client.get(screen).text for screen in screens)
    db.execute(f"UPDATE ticker.tasks SET {change}")
    pages = [client.get(screen).text for screen in screens]
    assert not any(f'datetime="{formatting.plain_data(due)[:19]}' in page for page in pages)
    assert "No upcoming times." in text_of(client.get(screens[-1]))


def test_every_list_names_a_task_by_its_subject_first(client, db, task):
    ticker.edit(db, task, subject="support@example.org")
    db.execute("UPDATE ticker.tasks SET failures = 1, next_run = next_run - interval '10 minutes'")
    a_run(db, task, outcome="failed", reason="OSError")
    for screen in ("/", "/tasks", "/runs", "/runs/1", "/owners", f"/tasks/{task.id}"):
        said = text_of(client.get(screen))
        assert "support@example.org mail.fetch" in said or "support@example.org mail_channels:5" in said, screen


def test_now_says_what_is_late_and_why(client, db, task):
    db.execute("UPDATE ticker.tasks SET next_run = next_run - interval '10 minutes'")
    said = text_of(client.get("/"))
    assert sentence("health.no_ticker_start_one", remedy="ticker run").within(said.lower())
    assert sentence("page.was_due", task="mail.fetch of mail_channels:5", ago="10 min").within(said)


@pytest.mark.parametrize(("limits", "state"), [([], "late"), (["a"], "no_room")])
def test_an_overdue_task_is_late_and_one_with_limits_is_limited(limits, state, client, db, task):
    ticker.limit(db, "a", concurrency=1)
    ticker.edit(db, task, limits=limits)
    ticked(db)
    before = text_of(client.get("/tasks"))
    db.execute("UPDATE ticker.tasks SET next_run = next_run - interval '10 minutes'")
    said = state.replace("_", " ")
    assert text_of(client.get("/tasks")).count(said) == before.count(said) + 1
    assert f"1 {said}" in text_of(client.get("/")) and "mail.fetch" in client.get(f"/tasks?state={state}").text


def test_a_task_that_is_due_and_not_late_stands_with_what_comes_next(client, db, task):
    said = text_of(client.get("/"))
    assert "mail.fetch of mail_channels:5 , every 1m." in said


def test_now_says_what_fails_and_what_was_dropped(client, play, db):
    ticker.register(db, "poll", owner="mail_channels:5", every="1m")
    play.at(-300)
    db.execute("UPDATE ticker.tasks SET next_run = %s", [play.now])
    play.run(-300, "failed", "OSError: no route to host")
    db.execute("UPDATE ticker.tasks SET next_run = %s", [play.at(-290)])
    play.tick()
    play.take()
    said = text_of(client.get("/"))
    assert sentence(
        "page.failed_in_a_row",
        task="poll of mail_channels:5",
        number=1,
        ago=re.compile(r".* ago"),
        error="OSError: no route to host",
    ).within(said)
    assert sentence(
        "page.too_early", number=1, task="poll of mail_channels:5", at=re.compile(r".*"), early="45 s"
    ).within(said)


def test_the_strip_tells_what_became_of_each_occurrence_its_last_attempt_counts(client, play, db):
    ticker.register(db, "poll", every="10m", retries=1, backoff="10s")
    play.at(0)
    play.run(1, "failed")
    play.run(20, "succeeded")
    play.run(700, "failed")
    play.run(720, "failed")
    play.run(1400, "nothing_to_do")
    page = client.get("/tasks").text
    assert 'aria-label="the last 3: 1 succeeded, 1 failed, 1 nothing to do"' in page
    assert re.findall(r"[●✖○]", re.search(r'<span class="strip".*?</td>', page, re.DOTALL)[0]) == ["●", "✖", "○"]


def test_each_mark_leads_to_its_run(client, play, db):
    ticker.register(db, "poll", every="10m")
    play.run(1, "failed", "OSError: no route\nto host")
    page = client.get("/tasks").text
    assert re.search(
        r'<a href="/runs/1" class="bad" title="[^"]*failed[^"]*" aria-label="[^"]*\d failed: OSError: no route">✖</a>',
        page,
    )


def test_filters_that_are_seldom_used_are_seen_where_they_are_set(client, db):
    ticker.register(db, "poll", every="1m", group="g", submitter="ada", owner="mail:1")
    assert "<details><summary>More filters" in client.get("/tasks").text
    for name, value in (("group", "g"), ("submitter", "ada"), ("owner_type", "mail")):
        page = client.get("/tasks", params={name: value}).text
        assert "<details open><summary>More filters" in page
        assert f'name="{name}" value="{value}"' in page


def test_the_list_of_tasks_goes_on_behind_its_cursor(client, db):
    for number in range(51):
        ticker.register(db, "poll", name=f"p{number}", owner=f"mail:{number}", every="1m")
    first = client.get("/tasks?search=mail")
    following = re.search(r'href="(/tasks\?[^"]*)" rel="next"', first.text)[1].replace("&amp;", "&")
    assert "search=mail" in following
    second = text_of(client.get(following))
    assert "p50" in second
    assert "p49" not in second
    assert "first page" in second


def test_the_list_of_owners_goes_on_behind_its_cursor_however_long_their_names_are(client, db):
    for number in range(51):
        ticker.register(db, "poll", owner=("t" * 200, f"{number:0200}"), every="1m")
    following = unescape(re.search(r'href="(/owners\?[^"]*)" rel="next"', client.get("/owners").text)[1])
    second = text_of(client.get(following))
    assert f"{50:0200}" in second and f"{49:0200}" not in second and "first page" in second


def test_the_journal_goes_on_behind_its_cursor(client, play, db):
    task = ticker.register(db, "poll", every="1m")
    for number in range(60):
        ticker.pause(db, task, reason=f"reason {number}.")
        ticker.resume(db, task)
    first = client.get("/runs")
    following = re.search(r'href="(/runs\?[^"]*)" rel="next"', first.text)[1].replace("&amp;", "&")
    seen = re.findall(r"reason \d+\.", text_of(first))
    while following:
        answer = client.get(following)
        seen += re.findall(r"reason \d+\.", text_of(answer))
        found = re.search(r'href="(/runs\?before[^"]*)" rel="next"', answer.text)
        following = found and found[1].replace("&amp;", "&")
    assert seen == [f"reason {number}." for number in reversed(range(60)) for _ in ("resumed", "paused")]


@pytest.mark.parametrize("text", ["", "1", "x-run-1", "1-drop-1", "9" * 30 + "-run-1", "1-run-" + "9" * 30, "-1-run-1"])
def test_a_place_that_is_none_of_ours_is_refused(text, client):
    assert client.get("/runs", params={"before": text}).status_code == (200 if not text else 422)


def test_a_task_shows_its_warnings_once(client, db):
    ticker.register(db, "poll", every="45s")
    db.execute("INSERT INTO ticker.functions (name, batch, announced_at) VALUES ('mail.fetch', 1, now())")
    page = unescape(client.get("/tasks/1").text)
    assert sentence("warnings.unannounced_function", function="'poll'", known="mail.fetch").times(page) == 1
    assert sentence("warnings.no_multiple", every="45 s").times(page) == 1


def test_a_run_says_in_its_row_why_and_what_it_left(client, play, db):
    ticker.register(db, "poll", every="10m")
    play.run(1, "failed", "OSError: no route\nto host")
    db.execute("UPDATE ticker.runs SET output = 'tried <b>', error_output = 'twice', traceback = 'Traceback: far'")
    page = client.get("/tasks/1").text
    assert re.search(r": OSError: no route\s*to host\s*<details", page)
    assert 'hx-get="/runs/1/texts"' in page
    left = client.get("/runs/1/texts").text
    assert all(text in left for text in ("to host", "tried &lt;b&gt;", "twice", "Traceback: far"))
    assert client.get("/runs/9/texts").status_code == 404


def test_arguments_are_hidden_where_they_are_to_be(serve, db, task):
    db.execute(
        """UPDATE ticker.tasks SET cursor = '"secret"', metadata = '{"key": "secret"}', kwargs = '{"*": ["secret"], "key": "secret"}'"""
    )
    db.execute(
        """INSERT INTO ticker.runs (task_id, task_name, function, kind, state, outcome, reason, started_at, ended_at, parent_id, item, result,
        output, traceback) VALUES (1, 'n', 'f', 'piece', 'ended', 'failed', 'OSError', now(), now(), 1, '"secret"', '"secret"',
        'secret', 'secret')"""
    )
    client = serve(TICKER_HIDE_ARGS="on")
    for screen in (*SCREENS, "/runs/2", "/runs/2/texts"):
        answer = client.get(screen)
        assert (answer.status_code, "secret" in answer.text) == (200, False), screen
    assert "hidden by TICKER_HIDE_ARGS" in client.get("/tasks/1").text


def test_it_works_below_a_path_of_another_application(serve, task):
    client = serve(Starlette(routes=[Mount("/ops/ticker", application(trusted=True))]))
    page = client.get("/ops/ticker/tasks").text
    assert set(re.findall(r'(?:href|src|action|hx-\w+)="(/[^"]*)"', page)) > {
        "/ops/ticker/tasks/1",
        "/ops/ticker/static/ticker.css",
    }
    assert all(path.startswith("/ops/ticker/") for path in re.findall(r'(?:href|src|action|hx-\w+)="(/[^"]*)"', page))
    assert client.get("/ops/ticker/tasks/1").status_code == 200
    assert client.get("/ops/ticker/static/ticker.css").status_code == 200


def test_the_page_of_a_deleted_task_shows_its_history(client, db, task):
    ticker.unregister(db, task, by="anna")
    answer = client.get("/tasks/1")
    assert answer.status_code == 200
    for said in ("mail.fetch deleted, of mail_channels:5", "anna deleted it at", "by anna", "gone"):
        assert said in text_of(answer), said
    assert 'hx-post="/tasks/1/do"' not in answer.text and 'href="/runs/1"' in answer.text
    assert 'href="/tasks/1"' in client.get("/runs").text


def test_a_task_that_never_was_has_no_page(client, db, task):
    assert client.get("/tasks/77").status_code == 404


# ---------------------------------------------------------------------------------------------------------- changes


@pytest.mark.smoke
def test_a_form_registers_edits_and_deletes_a_task(client, form, db):
    made = form(
        "/tasks/create",
        function="poll",
        owner="mail:1",
        schedule="0 9 * * 1-5",
        zone="Europe/Berlin",
        kwargs='{"a": 1}',
    )
    assert (made.status_code, made.headers["hx-redirect"]) == (204, "/tasks/1")
    task = ticker.get(db, 1)
    assert (task.expression, task.zone, task.kwargs) == ("0 9 * * 1-5", "Europe/Berlin", {"a": 1})
    assert form("/tasks/1/change", schedule="5m", zone="", kwargs='{"a": 1}', queue="slow").status_code == 204
    task = ticker.get(db, 1)
    assert (task.every_ms, task.zone, task.queue, task.kwargs) == (300_000, "UTC", "slow", {"a": 1})
    assert form("/tasks/1/change", **shown(client, 1) | {"args": '["b", 2]'}).status_code == 204
    assert '["b", 2] {"a": 1}' in unescape(client.get("/tasks/1").text)
    assert form("/tasks/1/change", **shown(client, 1) | {"args": ""}).status_code == 204
    assert (ticker.get(db, 1).args, ticker.get(db, 1).kwargs) == ([], {"a": 1})
    assert form("/tasks/1/change", **shown(client, 1) | {"args": "{"}).json()["field"] == "args"
    assert form("/tasks/1/do", action="delete").headers["hx-redirect"] == "/tasks"
    assert form("/tasks/1/do", action="delete").status_code == 404


def shown(client, task_id):
    """What an edit form is filled with, as a browser sends it back."""
    return Filled(client.get(f"/tasks/{task_id}/edit").text).values


def test_a_form_writes_what_was_changed_in_it_and_not_what_somebody_else_changed(client, form, db, task):
    fields = shown(client, 1)
    ticker.edit(db, task, every="5m", kwargs={"channel_id": 6})
    before = ticker.get(db, 1)
    assert form("/tasks/1/change", **fields).status_code == 204
    assert ticker.get(db, 1) == before
    assert form("/tasks/1/change", **fields | {"subject": "mine"}).status_code == 204
    found = ticker.get(db, 1)
    assert (found.every_ms, found.kwargs, found.subject) == (300_000, {"channel_id": 6}, "mine")


def said_of(answer):
    return next(iter(json.loads(answer.headers["hx-trigger"]).values()))


def test_what_stands_around_a_text_is_no_change(client, form, db):
    ticker.register(db, "poll", every="1m", queue=" q ", subject=" s", group="g ", kwargs={"a": 1, "b": [2]})
    before = ticker.get(db, 1)
    assert said_of(form("/tasks/1/change", **shown(client, 1))) == sentence("page.nothing_was_changed", task="poll")
    assert ticker.get(db, 1) == before


def test_a_zone_or_a_schedule_alone_leaves_the_other_as_it_is_by_now(client, form, db):
    ticker.register(db, "poll", cron="0 9 * * *")
    fields = shown(client, 1)
    ticker.edit(db, "poll", cron="0 10 * * *")
    assert form("/tasks/1/change", **fields | {"zone": "Europe/Berlin"}).status_code == 204
    assert (ticker.get(db, 1).expression, ticker.get(db, 1).zone) == ("0 10 * * *", "Europe/Berlin")
    assert form("/tasks/1/change", **fields | {"schedule": "0 11 * * *"}).status_code == 204
    assert (ticker.get(db, 1).expression, ticker.get(db, 1).zone) == ("0 11 * * *", "Europe/Berlin")
    assert form("/tasks/1/change", **fields | {"schedule": "5m"}).status_code == 204
    assert (ticker.get(db, 1).kind, ticker.get(db, 1).zone) == ("interval", "UTC")
    answer = form("/tasks/1/change", **shown(client, 1) | {"zone": "Europe/Berlin"})
    assert (answer.status_code, answer.json()["field"]) == (422, "zone")


def test_a_form_says_how_a_schedule_is_written_in_it(client, form, db, task):
    fields = shown(client, 1)
    for answer in (form("/tasks/create", function="poll"), form("/tasks/1/change", **fields | {"schedule": ""})):
        assert (answer.status_code, answer.json()["field"]) == (422, "schedule")
        assert answer.json()["detail"] == sentence("page.schedule_is_missing")
    assert len(ticker.list_tasks(db)) == 1 and ticker.get(db, 1).every_ms == 60_000


def test_a_single_time_has_no_zone(client, form, db):
    at, zone = "2100-01-01T00:00:00Z", "Europe/Berlin"
    ticker.register(db, "poll", cron="0 9 * * *", zone=zone)
    ticker.register(db, "once", at=at)
    from_cron, once = shown(client, 1), shown(client, 2)
    for answer in (
        form("/tasks/create", function="new", schedule=at, zone=zone),
        form("/tasks/1/change", **from_cron | {"schedule": at}),
        form("/tasks/2/change", **once | {"zone": zone}),
    ):
        assert (answer.status_code, answer.json().get("field")) == (422, "zone")
        assert answer.json()["detail"] == sentence("page.no_zone_of_a_single_time", zone=zone)
    assert form("/tasks/1/change", **from_cron | {"schedule": at, "zone": ""}).status_code == 204
    assert (ticker.get(db, 1).kind, ticker.get(db, 1).zone) == ("once", "UTC")


def test_a_form_takes_an_event_that_names_its_zone(form, db):
    assert form("/tasks/create", function="poll", schedule="Mon 09:00 Europe/Berlin").status_code == 204
    assert (ticker.get(db, 1).expression, ticker.get(db, 1).zone) == ("Mon *-*-* 09:00:00", "Europe/Berlin")


def test_a_form_gives_an_interval_hours_in_a_zone_and_removes_them(client, form, db):
    said = {"function": "poll", "schedule": "5m", "zone": "Europe/Berlin", "during": "9-17 mon-fri"}
    assert form("/tasks/create", **said).status_code == 204
    assert (ticker.get(db, 1).during, ticker.get(db, 1).zone) == ("9-17 mon-fri", "Europe/Berlin")
    assert "every 5m during 9-17 mon-fri Europe/Berlin" in client.get("/tasks/1").text
    assert form("/tasks/1/change", **shown(client, 1) | {"schedule": "10m"}).status_code == 204
    assert (ticker.get(db, 1).every_ms, ticker.get(db, 1).zone) == (600_000, "Europe/Berlin")
    answer = form("/tasks/1/change", **shown(client, 1) | {"during": "9-17 noon"})
    assert (answer.status_code, answer.json()["field"]) == (422, "during")
    assert form("/tasks/1/change", **shown(client, 1) | {"during": ""}).status_code == 204
    assert (ticker.get(db, 1).during, ticker.get(db, 1).zone) == ("", "UTC")


@pytest.mark.parametrize(
    ("change", "now", "reason"),
    [
        ("pace_ms = 240000", "4m", sentence("page.interval_doubled", now="4m")),
        ("pace_ms = 240000, stretched_ms = 480000", "8m", "8m while it fails, otherwise 4m"),
    ],
)
def test_the_interval_in_force_is_shown_everywhere_with_its_reason(change, now, reason, environ, client, db):
    ticker.register(db, "poll", every="1m..30m", stretch="1h")
    db.execute(f"UPDATE ticker.tasks SET {change}")
    screen = client.get("/tasks/1").text
    assert f"every 1m..30m, now {now}" in screen and screen.count(f"its interval is {reason}") >= 1
    assert f"<dt>interval now</dt><dd>{reason}" in screen
    assert f"every 1m..30m, now {now}" in client.get("/tasks").text
    found = client.get("/api/v1/tasks/1").json()
    assert (found["every_most_ms"], found["pace_ms"], found["stretched_ms"]) == (
        1_800_000,
        240_000,
        ticker.get(db, 1).stretched_ms,
    )
    assert f"every 1m..30m, now {now}" in command("list")[0]
    assert str(reason) in command("list", "poll")[0]
    assert f"its interval is {reason}" in command("why", "poll")[0]
    assert f"its interval is {reason}" in command("next", "poll")[1]


def test_the_preview_of_a_form_knows_hours(client):
    there = client.get("/tasks/preview?schedule=5m&during=9-17+mon-fri&zone=Europe/Berlin").text
    assert "Every 5m, during 9-17 mon-fri" in there
    assert "during" in client.get("/tasks/preview?schedule=5m&during=9").text


@pytest.mark.parametrize(
    "value", ["{" * 60_000, "é" * 30_000, [1] * 20_000, [[[[1] * 10]] * 1000]], ids=["signs", "wide", "list", "deep"]
)
def test_arguments_and_metadata_as_large_as_they_may_be_can_be_edited(value, client, form, db):
    ticker.register(db, "poll", every="1m", kwargs={"a": value}, metadata={"a": value}, description="é" * 2000)
    answer = form("/tasks/1/change", **shown(client, 1) | {"subject": "mine"})
    assert said_of(answer) == "poll: changed"
    found = ticker.get(db, 1)
    assert (found.subject, found.kwargs, found.metadata) == ("mine", {"a": value}, {"a": value})


def test_a_field_can_be_emptied_where_empty_means_something(client, form, db):
    ticker.register(db, "poll", cron="0 9 * * *", zone="Europe/Berlin", subject="mine")
    fields = shown(client, 1)
    assert form("/tasks/1/change", **fields | {"subject": "", "zone": ""}).status_code == 204
    found = ticker.get(db, 1)
    assert (found.subject, found.zone) == ("", "UTC")
    answer = form("/tasks/1/change", **fields | {"queue": ""})
    assert (answer.status_code, answer.json()["field"]) == (422, "queue")


FAR = "2100-01-01T09:00:00Z"
BY_KIND = {
    "text": ("mine", ""),
    "number": ("7", ""),
    "flag": ("yes", ""),
    "json": ('{"a": 1}', ""),
    "choice": ("none", None),
}
TYPED = {
    name: (*BY_KIND[field.kind], field.column) for name, field in SETTINGS.items() if field.group and name != "within"
} | {
    "starts": (FAR, "", "starts_at"), "ends": (FAR, "", "ends_at"), "during": ("9-17", "", "during"), "queue": ("slow", None, "queue"),
    "tolerance": ("9s", None, "tolerance_ms"), "box": ("2m", None, "box_ms"), "overlap": ("skip", None, "overlap"),
    "backoff": ("20s", None, "backoff"), "stretch": ("1h", "", "stretch_ms"), "probe": ("30m", "", "probe_ms"),
}  # fmt: skip
"""Fields under More: the text typed, the text that empties the field (None: it cannot be empty), and its column."""


def test_a_window_goes_with_spread_and_times(client, form, db):
    said = {"function": "poll", "schedule": "0 6 * * *", "spread": "yes", "within": "2h"}
    assert form("/tasks/create", **said).status_code == 204
    was = shown(client, 1)
    assert (was["spread"], was["within"], ticker.get(db, 1).within_ms) == ("yes", "2h", 7_200_000)
    assert form("/tasks/1/change", **was | {"spread": "", "within": ""}).status_code == 204
    assert ticker.get(db, 1).within_ms is None


@pytest.mark.parametrize("name", TYPED)
def test_each_field_is_stored_shown_filled_in_again_and_emptied(name, client, form, db):
    text, empty, column = TYPED[name]
    usual = ticker.register(db, "usual", every="5m")
    assert form("/tasks/create", function="poll", schedule="5m", **{name: text}).status_code == 204
    task = ticker.get(db, 2)
    assert getattr(task, column) != getattr(usual, column)
    said = {"next run", "id", "name", "function", "created", "changed"}
    kept = [{key: one for key, one in formatting.details(each).items() if key not in said} for each in (task, usual)]
    assert kept[0] != kept[1] or name == "starts"  # which the next run says, too
    was = shown(client, 2)
    assert was[name] == text if name != "metadata" else json.loads(was[name]) == {"a": 1}
    assert "<details open><summary>More" in client.get("/tasks/2/edit").text
    assert form("/tasks/2/change", **was).status_code == 204
    assert ticker.get(db, 2) == task
    answer = form("/tasks/2/change", **was | {name: empty or ""})
    if empty is None:
        assert (answer.status_code, answer.json()["field"]) == (422, name)
    else:
        assert answer.status_code == 204, answer.text
        assert getattr(ticker.get(db, 2), column) == getattr(usual, column)


def test_more_is_closed_where_nothing_under_it_is_set(client, db):
    ticker.register(db, "poll", every="5m")
    ticker.register(db, "poll", name="other", cron="0 9 * * *")
    for screen in ("/tasks/new", "/tasks/1/edit", "/tasks/2/edit"):
        assert "<details><summary>More" in client.get(screen).text


def test_the_function_can_be_edited_and_the_first_time_be_said(client, form, db):
    form("/tasks/create", function="poll", schedule="5m", first=FAR)
    assert formatting.at(ticker.get(db, 1).next_run) == "2100-01-01 09:00:00Z"
    was = shown(client, 1)
    assert "first" not in was and 'name="first"' not in client.get("/tasks/1/edit").text
    assert form("/tasks/1/change", **was | {"function": "fetch"}).status_code == 204
    assert ticker.get(db, 1).function == "fetch"


def test_a_new_task_does_not_replace_one_that_is_there(form, db, task):
    answer = form("/tasks/create", function="other", name="mail.fetch", owner="mail_channels:5", schedule="9m")
    assert (answer.status_code, answer.json()["field"]) == (422, "name")
    assert sentence("errors.is_there_already", task=1).within(answer.json()["detail"])
    assert ticker.get(db, 1).function == "mail.fetch"


@pytest.mark.parametrize(
    "address", ["/tasks/" + "9" * 5000, "/runs/" + "9" * 5000, "/runs?task=" + "9" * 5000, "/tasks/\u00b2", "/tasks/-1"]
)
def test_an_address_of_nothing_is_no_error_of_ours(address, client):
    assert client.get(address).status_code in (404, 422)


def test_each_screen_says_so_where_redis_does_not_answer(serve, task):
    client = serve(REDIS_URL="unix:///nowhere")
    for screen in SCREENS:
        assert client.get(screen).status_code == 200
    assert sentence("page.not_known_redis", setting="REDIS_URL").within(text_of(client.get("/processes")))
    assert sentence("errors.redis_refuses", setting="REDIS_URL").within(text_of(client.get("/")))


@pytest.mark.parametrize(
    ("action", "column", "value"),
    [("pause", "paused_by", "the page"), ("disable", "enabled", False), ("run", "name", "mail.fetch")],
)
def test_each_action_does_what_it_says(action, column, value, form, db, task):
    answer = form("/tasks/1/do", action=action, reason="why not")
    assert answer.status_code == 204
    assert json.loads(answer.headers["hx-trigger"])["said"].startswith("task 1: ")
    assert getattr(ticker.get(db, 1), column) == value


def test_a_run_is_stopped_on_its_screen(client, form, db, task):
    assert 'hx-post="/runs/1/stop"' in client.get("/runs/1").text
    answer = form("/runs/1/stop")
    assert (answer.status_code, ticker.get_run(db, 1).run.stop_requested_by) == (204, "the page")
    assert json.loads(answer.headers["hx-trigger"])["said"].startswith("run 1: ")
    page = client.get("/runs/1")
    assert "/runs/1/stop" not in page.text
    assert sentence("why.asked_to_stop", by="the page", at=re.compile(r"[0-9:.]+")).within(text_of(page))
    assert form("/runs/99/stop").status_code == form("/runs/x/stop").status_code == 404


def test_a_run_that_has_ended_has_no_button_and_neither_has_a_page_that_only_reads(client, serve, form, db, task):
    assert "/runs/1/stop" not in serve(TICKER_WEB_READ_ONLY="on").get("/runs/1").text
    db.execute("UPDATE ticker.runs SET state = 'ended', outcome = 'succeeded', ended_at = now()")
    assert "/runs/1/stop" not in client.get("/runs/1").text
    assert form("/runs/1/stop").status_code == 422


def test_a_pause_has_a_reason_and_an_end(form, db, task):
    assert form("/tasks/1/do", action="pause", reason="holiday", until="2h").status_code == 204
    found = ticker.get(db, 1)
    assert found.paused_reason == "holiday"
    assert timedelta(0) <= found.paused_until - found.updated_at - timedelta(hours=2) < timedelta(minutes=1)
    form("/tasks/do", action="pause", id="1", reason="longer", until=FAR)
    found = ticker.get(db, 1)
    assert (found.paused_reason, formatting.at(found.paused_until)) == ("longer", "2100-01-01 09:00:00Z")


@pytest.mark.parametrize("until", ["0", "2020-01-01T00:00:00Z"])
def test_a_pause_that_is_over_already_is_refused(until, form, db, task):
    for path in ("/tasks/1/do", "/tasks/do"):
        answer = form(path, action="pause", until=until, id="1")
        assert (answer.status_code, answer.json()["field"]) == (422, "until")
        assert sentence("errors.over_already", year=20).within(answer.json()["detail"])
    assert ticker.get(db, task).paused_by is None


def test_a_number_beyond_its_limit_is_told_the_limit(form, db, task):
    for text in ("99999999999", "-1", "1e3", "9" * 5000):
        answer = form("/tasks/1/change", max_runs=text)
        assert sentence("errors.whole_number_up_to", first=0, last="1,000,000,000").ends(answer.json()["detail"])


def test_what_was_done_is_said_on_the_screen_to_which_it_leads(client, form, db):
    told = form("/tasks/create", function="poll", schedule="1m").headers
    assert (told["hx-redirect"], json.loads(told["hx-trigger"])) == ("/tasks/1", {"said_there": "poll: registered"})
    was = shown(client, 1)
    told = form("/tasks/1/change", **was).headers
    assert json.loads(told["hx-trigger"]) == {"said_there": sentence("page.nothing_was_changed", task="poll")}
    told = form("/tasks/1/do", action="delete").headers
    assert (told["hx-redirect"], json.loads(told["hx-trigger"])) == ("/tasks", {"said_there": "task 1: deleted"})


def test_the_page_says_that_nothing_follows_the_owner_of_a_new_task(form):
    told = form("/tasks/create", function="poll", schedule="1m", owner="crm:5").headers
    warning = sentence("warnings.unknown_owner_type", type="'crm'", near="", external='owners.external("crm")')
    assert warning.within(json.loads(told["hx-trigger"])["said_there"])


def test_a_task_that_would_drop_its_run_cannot_be_run_now(client, form, db, task):
    other = ticker.register(db, "poll", every="1m")
    assert "Run now" in client.get("/tasks/1").text
    ticker.edit(db, task, enabled=False)
    ticker.pause(db, other)
    assert "Run now" not in client.get("/tasks/1").text
    answer = form("/tasks/1/do", action="run")
    assert (answer.status_code, answer.json()["detail"]) == (
        422, sentence("errors.disabled", task="'mail.fetch'", remedy="ticker edit 1 --enable"),
    )  # fmt: skip
    answer = form("/tasks/do", action="run", id=["1", str(other.id)])
    assert json.loads(answer.headers["hx-trigger"])["said"] == (
        sentence("page.passed_over", number=1, task="mail.fetch", remedy="ticker edit 1 --enable")
    )


def test_many_are_changed_together_and_those_that_are_gone_are_passed_over(form, db, task):
    other = ticker.register(db, "poll", every="1m")
    answer = form("/tasks/do", action="resume", id=[str(task.id), str(other.id)])
    assert json.loads(answer.headers["hx-trigger"]) == {"said": "0 tasks: resumed"}
    answer = form("/tasks/do", action="pause", id=[str(task.id), str(other.id), "999"])
    undo = {"path": "/tasks/do", "values": {"action": "resume", "id": [task.id, other.id]}}
    assert json.loads(answer.headers["hx-trigger"]) == {"said": "2 tasks: paused", "undo": undo}
    assert [found.paused_by for found in ticker.list_tasks(db)] == ["the page", "the page"]


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        ("/tasks/create", {"function": "poll"}, "schedule"),
        ("/tasks/create", {"schedule": "5m"}, "function"),
        ("/tasks/create", {"function": "poll", "schedule": "2020-01-01T00:00:00Z"}, "schedule"),
        ("/tasks/create", {"function": "poll", "schedule": "5m", "zone": "Europe/Berlin"}, "zone"),
        ("/tasks/create", {"function": "poll", "schedule": "5m", "owner": "a:"}, "owner"),
        ("/tasks/create", {"function": "poll", "schedule": "0s"}, "schedule"),
        ("/tasks/create", {"function": "poll", "schedule": "1m", "zone": "Mars"}, "zone"),
        ("/tasks/create", {"function": "poll", "schedule": "1m", "kwargs": "[1"}, "kwargs"),
        ("/tasks/create", {"function": "poll", "schedule": "1m", "retries": "-1"}, "retries"),
        ("/tasks/create", {"function": "poll", "schedule": "1m", "box": "2m"}, "box"),
        ("/tasks/create", {"function": "poll", "schedule": "1m", "first": "soon"}, "first"),
        ("/tasks/create", {"function": "poll", "schedule": "1m", "remove": "perhaps"}, "remove"),
        ("/tasks/create", {"function": "poll", "schedule": "1m", "priority": "many"}, "priority"),
        ("/tasks/create", {"function": "poll", "schedule": "1m", "metadata": "[1]"}, "metadata"),
        ("/tasks/create", {"function": "poll", "schedule": "1m", "ends": "2000-01-01T00:00:00Z"}, "ends"),
        ("/tasks/1/change", {"function": "", "was": '{"function": "mail.fetch"}'}, "function"),
        ("/tasks/1/do", {"action": "pause", "until": "soon"}, "until"),
        ("/tasks/do", {"action": "pause", "until": "soon", "id": "1"}, "until"),
        ("/tasks/1/change", {"schedule": "1m", "queue": "a\0b"}, "queue"),
        ("/tasks/1/do", {"action": "explode"}, "action"),
        ("/tasks/do", {"action": "pause"}, "id"),
        ("/tasks/do", {"action": "pause", "id": "x"}, "id"),
        ("/tasks/do", {"action": "pause", "id": ["1"] * 1001}, "id"),
    ],
)
def test_what_cannot_be_taken_is_named_and_nothing_is_written(path, fields, field, form, db, task):
    before = ticker.list_tasks(db)
    answer = form(path, **fields)
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text
    assert ticker.list_tasks(db) == before


@pytest.mark.parametrize("path", ["/tasks/create", "/tasks/1/do", "/tasks/do", "/tasks/1/change", "/runs/1/stop"])
@pytest.mark.parametrize(
    "headers",
    [
        {}, {"Origin": "http://evil.example"}, {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"},
    ],
)  # fmt: skip
def test_a_form_of_somebody_else_changes_nothing(path, headers, client, db, task):
    fields = {"action": "delete", "id": "1", "function": "poll", "schedule": "1m"}
    shown = SCRIPT | headers if headers else {}
    assert client.post(path, data=fields, headers=shown).status_code == 403
    assert len(ticker.list_tasks(db)) == 1


def test_a_form_of_one_process_is_taken_by_another_that_serves_the_same(serve, db, task):
    one, other = serve(), serve()
    assert one.get("/tasks/1").status_code == 200
    answer = other.post("/tasks/1/do", data={"action": "pause"}, headers=SCRIPT)
    assert (answer.status_code, ticker.get(db, 1).paused_by) == (204, "the page")


def test_nothing_is_changed_and_no_button_is_shown_where_it_is_read_only(serve, db, task):
    client = serve(TICKER_WEB_READ_ONLY="on")
    assert client.post("/tasks/1/do", data={"action": "delete"}, headers=SCRIPT).status_code == 403
    for screen in SCREENS:
        assert '<button type="button" hx-post' not in client.get(screen).text
    assert len(ticker.list_tasks(db)) == 1


def test_times_are_told_in_their_two_largest_units():
    now = phrases.datetime(2026, 3, 1, 12, tzinfo=phrases.UTC)
    far = {
        0.4: "now",
        3: "in 3 s",
        -61: "61 s ago",
        -130: "2 min 10 s ago",
        3600: "in 1 h",
        -90_061: "1 d 1 h ago",
        86_460: "in 1 d",
    }
    for seconds, words in far.items():
        assert phrases.ago(now + timedelta(seconds=seconds), now) == words
    assert phrases.ago(None, now) == "never"


def test_a_search_says_how_far_it_looked_and_goes_on(client, db, task, monkeypatch):
    monkeypatch.setattr(filters, "SEARCHED", 1)
    ticker.register(db, "poll", name="found late", every="1m")
    page = client.get("/tasks", params={"search": "found late"})
    assert sentence("page.no_task_fits", number=1).within(text_of(page))
    following = unescape(re.search(r'href="([^"]+)" rel="next"', page.text)[1])
    assert "found late" in client.get(following).text


def test_the_pieces_of_a_run_come_page_by_page(client, db, task, monkeypatch):
    monkeypatch.setattr(state, "PIECES", 2)
    rows = """INSERT INTO ticker.runs (task_id, kind, parent_id, item, state, outcome, pieces, started_at, ended_at, occurrence, due_at)
        SELECT 1, kind, parent, item::jsonb, 'ended', 'succeeded', pieces, at, at, at, at FROM clock_timestamp() AS at, (VALUES
            ('scheduled', NULL, NULL, 3), ('piece', %(parent)s, '"one"', NULL), ('piece', %(parent)s, '"two"', NULL),
            ('piece', %(parent)s, '"three"', NULL)) AS v (kind, parent, item, pieces)"""
    [(parent,)] = db.execute("SELECT coalesce(max(id), 0) + 1 FROM ticker.runs").fetchall()
    db.execute(rows, {"parent": parent})
    page = client.get(f"/runs/{parent}")
    assert "Pieces of 3" in text_of(page) and "two" in page.text and "three" not in page.text
    following = unescape(re.search(r'href="([^"]+)" rel="next"', page.text)[1])
    assert "three" in client.get(following).text
