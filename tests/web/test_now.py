"""The first screen: its verdict, tiles, groups of failing tasks, warnings, chart, and what it says while all is paused."""

import html
import json
import re
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.factories import MINUTE, SECOND, a_drop, a_need, a_run, ticked
from tests.sentences import sentence
from tests.web.asking import API, SCRIPT, problem, text_of
from tests.web.conftest import Serve
from ticker.read.entries import instant

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]
REFUSED = "ConnectionRefusedError: <b>*"


@pytest.fixture
def fleet(environ: dict[str, str], db: Db) -> None:
    """Fourteen tasks, of which twelve fail: eleven for one reason, and one for another."""
    ticked(db)
    for number in range(14):
        ticker.register(db, "poll", name=f"n{number}", every="1h", subject=f"user{number}@example.org")
    db.execute(
        "UPDATE ticker.tasks SET next_run = clock_timestamp() + interval '1 hour', failures = (id > 2)::int,"
        " cause = CASE WHEN id <= 2 THEN '' WHEN id = 3 THEN 'TimeoutError' ELSE %s END",
        [REFUSED],
    )


def counted(db: Db, *rows: tuple[int, str, str, int]) -> None:
    """Minutes that were counted: how many minutes ago, the outcome, the reason, the number."""
    db.execute(
        "UPDATE ticker.installation SET counted_until = date_trunc('minute', clock_timestamp()) - interval '1 minute'"
    )
    for ago, outcome, reason, number in rows:
        db.execute(
            "INSERT INTO ticker.minutes (at, queue, outcome, reason, count)"
            " SELECT date_trunc('minute', clock_timestamp()) - %s * interval '1 minute', 'polling', %s, %s, %s",
            [ago, outcome, reason, number],
        )


def tile(page: Any, name: str) -> str:
    """Returns the class and the number of a tile, or an empty text."""
    found = re.search(rf'<li class="(\w*)"><a [^>]+><b>(\d+)</b> {name}</a>', page.text)
    return " ".join(found.groups()).strip() if found else ""


def test_the_verdict_stands_first_and_in_the_title_and_the_icon(fleet: None, client: TestClient, db: Db) -> None:
    page = client.get("/")
    verdict = sentence("page.verdict_failing", failing=12, tasks=11, cause="ConnectionRefusedError: &lt;b&gt;*")
    assert verdict.within(text_of(page))
    assert "<title>✖ 12 tasks fail · ticker</title>" in page.text and "/static/icon-bad.svg" in page.text
    assert client.get("/static/icon-bad.svg").status_code == client.get("/static/icon-warn.svg").status_code == 200
    [link] = re.findall(r'<a class="button" href="/(tasks\?cause=[^"]+)">Show them', page.text)
    assert text_of(client.get(f"/{link}")).count("failing: 1 in a row") == 11
    db.execute("UPDATE ticker.tasks SET failures = 0, cause = ''")
    page = client.get("/")
    assert "● All is well: 14 tasks, last tick " in text_of(page) and "<title>● all is well" in page.text


def test_a_tile_is_red_where_somebody_must_act_and_rare_states_leave(fleet: None, client: TestClient, db: Db) -> None:
    page = client.get("/")
    assert [tile(page, name) for name in ("tasks", "failing", "late", "paused", "no room")] == ["14", "act 12", "none 0", "", ""]  # fmt: skip
    ticker.pause(db, 1, by="ann")
    assert tile(client.get("/"), "paused") == "1"


def test_failing_tasks_stand_in_groups_with_their_begin_and_examples(fleet: None, client: TestClient, db: Db) -> None:
    said = text_of(client.get("/"))
    assert "11 tasks: ConnectionRefusedError: &lt;b&gt;* . Such as user3@example.org n3 failed 1 time in a row" in said
    assert "1 task: TimeoutError . Such as user2@example.org" in said and "12 of" not in said
    db.execute("UPDATE ticker.tasks SET failures = 0 WHERE id > 5")
    db.execute("UPDATE ticker.tasks SET cause = '' WHERE id > 5")
    said = text_of(client.get("/"))
    assert "2 tasks: ConnectionRefusedError" in said and "1 task: TimeoutError" not in said
    assert "user2@example.org n2 failed 1 time in a row" in said


def test_a_group_names_the_hosts_in_its_last_errors_each_with_its_tasks(
    fleet: None, client: TestClient, db: Db
) -> None:
    for id_ in range(4, 15):
        run = a_run(
            db, ticker.get(db, id_), outcome="failed", reason=f"{REFUSED} imap.{'a' if id_ < 11 else 'b'}.example"
        )
        db.execute("UPDATE ticker.tasks SET last_run_id = %s WHERE id = %s", [run, id_])
    page = client.get("/")
    assert "imap.a.example (7), imap.b.example (4). Such as" in text_of(page)
    [link] = re.findall(r'href="(/tasks\?[^"]+error=imap.b.example)"', page.text)
    listed = client.get(html.unescape(link))
    assert listed.text.count("<tr data-key=") == 4 and 'name="error" value="imap.b.example"' in listed.text
    query = html.unescape(link).partition("?")[2]
    assert "Retry 4 tasks?" in client.get(f"/tasks/all?{query}&action=retry").text
    client.post(f"/tasks/all?{query}&action=retry", headers=SCRIPT)
    planned = db.execute("SELECT task_id FROM ticker.runs WHERE kind = 'manual' ORDER BY task_id").fetchall()
    assert [id_ for (id_,) in planned] == [11, 12, 13, 14]


def test_a_cause_is_run_or_paused_as_a_whole_and_asks_with_its_number(
    fleet: None, client: TestClient, db: Db, serve: Serve
) -> None:
    buttons = re.findall(r'hx-post="(/tasks/all[^"]+)" hx-vals=\'([^\']+)\' hx-confirm="([^"]+)"', client.get("/").text)
    assert [question.partition(" with ")[0] for _, _, question in buttons] == [
        "Run 11 tasks now? They fail", "Pause 11 tasks? They fail", "Run 1 task now? It fails", "Pause 1 task? It fails",
    ]  # fmt: skip
    assert html.unescape(buttons[0][2]).endswith(f" with {REFUSED}.")
    for (address, fields, _), done in zip(buttons[:2], ("11 runs requested", "11 changed"), strict=True):
        answer = client.post(html.unescape(address), data=json.loads(fields), headers=SCRIPT)
        assert answer.status_code == 204 and "hx-redirect" not in answer.headers
        assert done in json.loads(answer.headers["hx-trigger"])["said"]
    assert db.execute("SELECT count(*) FROM ticker.runs WHERE kind = 'manual'").fetchall() == [(11,)]
    assert db.execute("SELECT DISTINCT cause FROM ticker.tasks WHERE paused_by IS NOT NULL").fetchall() == [(REFUSED,)]
    assert "/tasks/all" not in serve(TICKER_WEB_READ_ONLY="on").get("/").text


def test_a_list_that_goes_on_says_how_many_there_are(fleet: None, client: TestClient, db: Db) -> None:
    db.execute("UPDATE ticker.tasks SET next_run = clock_timestamp() - interval '1 day'")
    page = client.get("/")
    assert "Late 10 of 14, all" in text_of(page) and 'href="/tasks?state=late">all' in page.text


def test_warnings_stand_on_it(fleet: None, client: TestClient, db: Db) -> None:
    a_need(db, average=9, enough=9)
    db.execute('UPDATE ticker.tickers SET last_report = last_report || \'{"crews": [[["polling"], 1, 1]]}\'')
    warned = client.get(f"{API}/stats").json()["health"]["warnings"]
    assert len(warned) == 1 and warned[0] in text_of(client.get("/"))


def test_while_all_is_paused_nothing_is_announced_and_the_counts_agree(fleet: None, client: TestClient, db: Db) -> None:
    ticker.pause_all(db, by="ann")
    page = client.get("/")
    assert sentence("page.all_paused_no_runs").within(text_of(page))
    assert tile(page, "paused") == "14" and "<title>▲ paused" in page.text
    assert text_of(page).count("are paused by ann") == 1  # the banner is the verdict
    assert len(client.get(f"{API}/tasks", params={"state": "paused"}).json()["tasks"]) == 14


def test_the_chart_has_a_column_for_each_minute_that_leads_to_its_runs(fleet: None, client: TestClient, db: Db) -> None:
    assert sentence("page.no_minute").within(text_of(client.get("/")))
    counted(db, (5, "succeeded", "", 40), (5, "failed", "", 2), (5, "dropped", "too_early", 1), (200, "failed", "", 9))
    page = client.get("/")
    assert page.text.count('class="bar-hover"') == 120 and '<path class="bar-failed"' in page.text
    assert "40 succeeded 2 failed 1 too early" in text_of(page)
    assert "UTC, ended: 40 succeeded, 2 failed; dropped: 1 too early" in page.text
    [row] = re.findall(r'<tr><td><a href="/(runs\?since=[^"]+)">', page.text)
    assert "until" in row and client.get(f"/{row.replace('&amp;', '&')}").status_code == 200
    longer = client.get("/", params={"span": "24h"})
    assert longer.text.count('class="bar-hover"') == 24 and "The last 24 hours" in text_of(longer)
    assert client.get("/", params={"span": "1h"}).status_code == 422


def test_the_chart_is_drawn_while_arguments_are_hidden(serve: Any, db: Db) -> None:
    counted(db, (5, "failed", "", 2))
    assert '<path class="bar-failed"' in serve(TICKER_HIDE_ARGS="on").get("/").text


def test_the_api_has_the_series(fleet: None, client: TestClient, db: Db) -> None:
    counted(db, (5, "failed", "", 2))
    found = client.get(f"{API}/activity").json()
    assert (found["span"], found["step_ms"], len(found["points"])) == ("2h", 60_000, 120)
    assert [point["outcomes"] for point in found["points"] if point["outcomes"]] == [{"failed": 2}]
    assert len(client.get(f"{API}/activity", params={"span": "30d"}).json()["points"]) == 120
    assert problem(client.get(f"{API}/activity", params={"span": "1h"}), 422)["field"] == "span"


def test_a_drop_says_its_reason_once_and_a_worker_is_its_host_and_process(
    environ: dict[str, str], client: TestClient, db: Db
) -> None:
    task = ticker.register(db, "poll", every="1m")
    now = instant(db)
    a_drop(db, task, "too_early", ended_at=now, checked_at=now, checked_last_run=now - 50 * SECOND)
    a_run(
        db,
        task,
        state="running",
        outcome=None,
        ended_at=None,
        token=uuid4(),
        until=now + MINUTE,
        worker="6b5b222d",
        host="node-7",
        pid=42,
    )
    said = text_of(client.get("/"))
    assert "1 too early" in said and ": 50 s after" in said and "too_early" not in said
    assert "(node-7/42)" in said and "6b5b222d" not in said
