"""A moment has an address: around its end, on the list of runs and on the first screen."""

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from operator import add
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.factories import NINE, SECOND, a_run
from tests.sentences import sentence
from tests.web.asking import text_of
from tests.web.conftest import Serve
from ticker import clock
from ticker.read import journal
from ticker.tasks import filters
from ticker.tasks.fields import Task
from ticker.web import Viewer, application

Db = psycopg.Connection[Any]
AT = "at=2026-03-01T09:10:00.000001Z"


@pytest.fixture
def ended(environ: dict[str, str], db: Db) -> Task:
    """From nine on, 120 runs of a task, each of which ended ten seconds after the one before. Each second one failed."""
    task = ticker.register(db, "poll", owner="mail:5", every="1m")
    for number in range(120):
        at = NINE + 10 * number * SECOND
        a_run(db, task, occurrence=at, ended_at=at, outcome="failed" if number % 2 else "succeeded")
    return task


def listed(page: Any) -> list[int]:
    """Returns how many seconds after nine the listed runs ended. The row of the moment is -1."""
    rows = re.findall(r'<tr (?:data-key="run (\d+)"|class="(?:moment)")', page.text)
    return [(int(id_) - 1) * 10 if id_ else -1 for id_ in rows]


def link(page: Any, words: str) -> str:
    found = re.search(rf'<a href="([^"]+)"[^>]*>{words}</a>', page.text)
    return html.unescape(found[1]) if found else ""


@pytest.mark.slow
@pytest.mark.parametrize("filters", ["", "&task=1", "&owner=mail:5", "&function=poll", "&since=2026-03-01T09:00:00Z"])
def test_runs_around_a_moment_are_those_after_and_before_it(filters: str, client: TestClient, ended: Task) -> None:
    page = client.get(f"/runs?{AT}{filters}")
    assert listed(page) == [*range(850, 600, -10), -1, *range(600, 350, -10)]
    assert "records match" not in text_of(page) and 'data-every="5"' not in page.text
    before = client.get(link(page, "next page"))
    assert listed(before) == [*range(350, -10, -10)]
    assert listed(client.get(link(before, "previous page"))) == listed(page)
    assert listed(client.get(link(page, "later"))) == [*range(1090, 850, -10), 850, -1, *range(840, 590, -10)][:51]
    assert listed(client.get(link(page, "newest")))[:2] == [1190, 1180]


def test_a_filter_leaves_the_runs_around_a_moment_that_match(client: TestClient, ended: Task) -> None:
    assert listed(client.get(f"/runs?{AT}&outcome=failed")) == [*range(1090, 600, -20), -1, *range(590, 90, -20)]
    assert listed(client.get(f"/runs?{AT}&until=2026-03-01T09:10:20Z"))[:3] == [610, -1, 600]
    assert listed(client.get("/runs?at=2026-03-02T09:00:00Z"))[:2] == [-1, 1190]
    assert listed(client.get("/runs?at=2026-02-28T09:00:00Z")) == [*range(240, -10, -10)]


def test_where_too_much_ended_the_list_begins_at_its_moment(
    client: TestClient, ended: Task, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_AROUND", 3)
    db.execute("UPDATE ticker.runs SET ended_at = %s + id * interval '1 ms'", [NINE])
    page = client.get("/runs?at=2026-03-01T09:00:00.050500Z")
    assert listed(page)[:2] == [-1, 490]


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("at=soon", "at"), ("at=2999-01-01T00:00:00Z", "future"), ("at=09:00&by=reason", "at"), ("at=0001-01-01T00:00:00Z", "1970"),
        ("at=0001-03-01T00:00:00Z", "1970"),
    ],
)  # fmt: skip
def test_a_moment_that_makes_no_sense_is_refused(query: str, word: str, client: TestClient, ended: Task) -> None:
    for screen in ("/", "/runs") if "by=" not in query else ("/runs",):
        refused = client.get(f"{screen}?{query}")
        assert refused.status_code == 422 and word in text_of(refused)


def test_a_run_leads_to_what_ended_around_it(client: TestClient, ended: Task, serve: Serve, db: Db) -> None:
    around = link(client.get("/runs/61"), "around its end")
    assert listed(client.get(around)) == [*range(840, 590, -10), -1, *range(590, 340, -10)]
    ticker.run_now(db, ended)
    assert link(client.get("/runs/121"), "around its end") == ""
    viewer = serve(application(trusted=True, who=lambda _: Viewer("ann", False, ["mail:5"])))
    assert listed(viewer.get(around)) == listed(client.get(around))


@pytest.fixture
def days_later() -> Iterator[None]:
    """Minutes of the moment are still kept."""
    with clock.use(lambda: NINE + timedelta(days=2)):
        yield


@pytest.mark.usefixtures("days_later")
def test_the_first_screen_of_a_moment_has_its_chart_and_the_runs_around_it(
    client: TestClient, ended: Task, db: Db
) -> None:
    db.execute("UPDATE ticker.installation SET counted_until = clock_timestamp()")
    for at, number in ((NINE, 7), (NINE + timedelta(minutes=11), 9)):
        db.execute(
            "INSERT INTO ticker.minutes (at, queue, outcome, count) VALUES (%s, 'polling', 'succeeded', %s)",
            [at, number],
        )
    page = client.get(f"/?{AT}")
    said = text_of(page)
    assert "At 2026-03-01 09:10:00 UTC" in said and "7 succeeded" in said and "16 succeeded" not in said
    assert (
        "The 2 hours until 2026-03-01 09:11" in said
        and 'data-every="5"' not in page.text
        and "<b>1</b> tasks" not in page.text
    )
    assert listed(page) == [*range(700, 600, -10), -1, *range(600, 500, -10)]
    assert listed(client.get(link(page, "all")))[25] == -1
    earlier = client.get(link(page, "earlier"))
    assert "At 2026-03-01 07:10:00 UTC" in text_of(earlier)
    assert "At 2026-03-01 09:10:00 UTC" in text_of(client.get(link(earlier, "later")))
    assert "at=" in link(client.get("/"), "earlier")
    assert client.get("/?at=soon").status_code == 422

    assert "The 24 hours until 2026-03-01 10:00" in text_of(client.get(f"/?{AT}&span=24h"))


def test_the_chart_of_a_moment_says_from_when_on_counts_are_kept(client: TestClient, db: Db) -> None:
    db.execute("UPDATE ticker.installation SET counted_until = clock_timestamp()")
    for days, is_gone in ((399, False), (400, True)):
        with clock.use(partial(add, NINE, timedelta(days=days))):
            said = text_of(client.get(f"/?{AT}"))
        assert sentence("page.counts_are_gone", moment="2026-03-01 09:00:00").within(said) is is_gone


@pytest.mark.usefixtures("days_later")
def test_the_minutes_of_a_chart_lead_to_their_runs_at_any_moment(client: TestClient, ended: Task, db: Db) -> None:
    db.execute("UPDATE ticker.installation SET counted_until = clock_timestamp()")
    columns = re.findall(r'<a href="(/runs\?[^"]+)" tabindex="-1">', client.get(f"/?{AT}").text)
    assert listed(client.get(html.unescape(columns[-2]))) == [*range(590, 530, -10)]


def test_the_first_screen_asks_why_a_task_did_not_run_at_a_time(client: TestClient, db: Db) -> None:
    task = ticker.register(db, "poll", every="1m", subject="support@example.org")
    other = ticker.register(db, "poll", name="other", every="1m", subject="sales@example.org")
    form = re.search(r'<form [^>]*action="/tasks" method="get">(.*?)</form>', client.get("/").text, re.S)
    assert form and re.findall(r'name="(\w+)"', form[1]) == ["search", "at"]
    answer = client.get("/tasks?search=support&at=2026-03-01T09:00:00Z", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/tasks/{task.id}?at=2026-03-01T09%3A00%3A00Z")
    assert "At 2026-03-01 09:00:00 UTC" in text_of(client.get(answer.headers["location"]))
    several = client.get("/tasks?search=example.org&at=2026-03-01T09:00:00Z")
    for one in (task, other):
        assert link(several, one.subject) == f"/tasks/{one.id}?at=2026-03-01T09%3A00%3A00Z"
    assert link(client.get("/tasks"), task.subject) == f"/tasks/{task.id}"


def test_a_question_leads_to_no_task_if_others_may_match(
    client: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, *_, other = [
        ticker.register(db, "poll", name=f"n{number}", every="1m", subject=subject)
        for number, subject in enumerate(("ann@example.org", "bob@example.com", "eve@example.com", "kim@example.org"))
    ]
    monkeypatch.setattr(filters, "SEARCHED", 2)
    asked = "/tasks?search=example.org&at=2026-03-01T09:00:00Z"
    first = client.get(asked, follow_redirects=False)
    assert first.status_code == 200 and link(first, mine.subject).startswith(f"/tasks/{mine.id}?at=")
    last = client.get(f"{asked}&after={mine.id + 1}", follow_redirects=False)
    assert last.status_code == 200 and link(last, other.subject).startswith(f"/tasks/{other.id}?at=")
