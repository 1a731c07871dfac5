"""When tasks fall due, second by second, and spreading them: the plan comes first, and changes nothing."""

import re
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.factories import NINE, SECOND
from tests.harness import command
from tests.plans import indexes, plan, read_whole
from tests.sentences import sentence
from tests.web.asking import SCRIPT, problem, rows, text_of
from ticker import clock
from ticker.read.due import due_seconds
from ticker.tasks.spreading import spread, spread_plan

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]


@pytest.fixture
def fleet(environ: dict[str, str], db: Db) -> None:
    """Thirty tasks that are due in two minutes, of which one has a limit, and one that is due a minute after them."""
    for number in range(31):
        ticker.register(db, "poll", owner=f"mail:{number}", every="20m", limits=["imap"] if number == 3 else None)
    db.execute("UPDATE ticker.tasks SET next_run = now() + interval '2 min' + (id = 31)::int * interval '1 min'")  # fmt: skip


def test_each_task_that_may_run_counts_in_the_second_of_its_next_run(environ: dict[str, str], db: Db) -> None:
    for number in range(6):
        ticker.register(db, "poll", owner=f"mail:{number}", every="20m", limits=["imap"] if number == 3 else None)
    seconds = {1: -1.0, 2: 0.0, 3: 5.2, 4: 5.9, 5: 599.0, 6: 600.0}
    for id_, after in seconds.items():
        db.execute("UPDATE ticker.tasks SET next_run = %s WHERE id = %s", [NINE + after * SECOND, id_])
    ticker.pause(db, 2, by="ann")
    with clock.use(lambda: NINE + SECOND / 2):
        seen = due_seconds(db)
    assert {number: count for number, count in enumerate(seen.counts) if count} == {5: 2, 599: 1}
    assert (seen.begin, seen.tasks, seen.is_cut) == (NINE, 3, False)
    assert seen.fullest == [(NINE + 5 * SECOND, 2), (NINE + 599 * SECOND, 1)]


def test_the_second_in_which_counting_stops_has_at_least_so_many(
    fleet: None, client: TestClient, db: Db, monkeypatch: Any
) -> None:
    monkeypatch.setattr("ticker.read.due.COUNTED", 31)
    seen = due_seconds(db)
    assert (seen.tasks, seen.is_cut) == (31, True) and 120 < (seen.counted_until - seen.begin) / SECOND <= 181
    db.execute("UPDATE ticker.tasks SET next_run = now() + interval '9.5 min'")
    said = text_of(client.get("/tasks/due"))
    second = re.compile(r"\d\d:\d\d:\d\d")
    assert sentence("page.due_at_least", tasks=31, most=31, second=second, until=second).within(said)
    assert "at least 31 " in said.partition("The fullest seconds")[2]


def test_the_screen_says_when_most_are_due_and_has_a_table(fleet: None, client: TestClient) -> None:
    page = client.get("/tasks/due")
    said = text_of(page)
    assert sentence("page.due_in_ten_minutes", tasks=31, most=30, second=re.compile(r"\d\d:\d\d:\d\d")).within(said)
    assert re.search(r"Tasks \d\d:\d\d:\d\d 30 \d\d:\d\d:\d\d 1 ", said)
    assert page.text.count('class="bar-hover"') == 2 and "style=" not in page.text
    assert 'href="/tasks/due"' in client.get("/").text


def test_the_plan_changes_nothing_and_spreading_does_what_it_said(fleet: None, client: TestClient, db: Db) -> None:
    before = rows(db)
    assert (
        'hx-get="/tasks/spread/plan?owner_type=mail" hx-trigger="load"'
        in client.get("/tasks/spread?owner_type=mail").text
    )
    page = client.get("/tasks/spread/plan?owner_type=mail")
    assert sentence("page.spread_plan", tasks=31, placed=0).within(text_of(page)) and "30 now" in text_of(page)
    assert "Spread 31 tasks" in text_of(page) and rows(db) == before
    done = client.post("/tasks/spread?owner_type=mail", headers=SCRIPT)
    assert (
        sentence("page.spread_done", number=31).within(done.headers["hx-trigger"])
        and done.headers["hx-redirect"] == "/tasks/due"
    )
    assert len({task.next_run for task in ticker.list_tasks(db)}) == 31
    after = client.get("/tasks/spread/plan?owner_type=mail")
    assert "31 with a phase" in text_of(after) and "hx-post" not in after.text
    assert "0 interval tasks" in text_of(client.get("/tasks/spread/plan?function=nowhere"))


def test_spreading_that_would_raise_the_peak_does_nothing_and_says_so(
    environ: dict[str, str], client: TestClient, db: Db
) -> None:
    """Ten tasks are due a minute apart, as well as can be. By chance, some of their phases are close."""
    for number in range(10):
        ticker.register(db, "poll", owner=f"mail:{number}", every="10m")
    db.execute("UPDATE ticker.tasks SET next_run = date_trunc('minute', now()) + id * interval '1 min'")
    before, planned = rows(db), spread_plan(db)
    assert planned.most_then > planned.most_now == 1
    page = client.get("/tasks/spread/plan")
    said = sentence("page.spread_raises_the_peak", now=1, then=re.compile("[2-9]"))
    assert said.within(text_of(page)) and "hx-post" not in page.text
    refused = problem(client.post("/tasks/spread", headers=SCRIPT), 422)
    assert said.within(refused["detail"]) and rows(db) == before
    _, error = command("spread", code=2)
    assert said.within(error) and rows(db) == before
    db.execute("UPDATE ticker.tasks SET spread = true")
    assert "hx-post" not in client.get("/tasks/spread/plan").text and spread(db) == 0


def test_who_may_only_read_cannot_spread(fleet: None, serve: Any, db: Db) -> None:
    client = serve(TICKER_WEB_READ_ONLY="on")
    assert "hx-post" not in client.get("/tasks/spread/plan").text
    before = rows(db)
    assert client.post("/tasks/spread", headers=SCRIPT).status_code == 403 and rows(db) == before
    assert text_of(client.get("/tasks/due")).count("Spread them …") == 1  # it leads to the plan


def test_indexes_find_what_is_due(fleet: None, db: Db) -> None:
    db.execute("SET enable_seqscan = off")
    found = plan(db, "due_by_second", begin=NINE, until=NINE + 600 * SECOND, most=1000)
    assert indexes(found) == {"tasks_due", "tasks_due_limited"} and read_whole(found) == set()
