"""The grid of a filter or an owner: worst first, a mark for each occurrence; and what an owner's screen does."""

import re
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.sentences import sentence
from tests.web.asking import SCRIPT, problem, text_of

pytestmark = pytest.mark.slow

Db = psycopg.Connection[Any]
HOSTILE = "<img src=x onerror=alert(1)>"
RUNS = """INSERT INTO ticker.runs (task_id, task_name, function, owner_type, owner_id, kind, occurrence, state, outcome, reason,
started_at, ended_at) SELECT t.id, t.name, 'poll', t.owner_type, t.owner_id, 'scheduled', i.at, 'ended',
CASE WHEN n %% 10 = 0 AND failures > 0 THEN 'failed' ELSE 'succeeded' END, CASE WHEN n %% 10 = 0 THEN %s ELSE '' END, i.at, i.at + interval '1 s'
FROM ticker.tasks t, generate_series(1, %s) n, LATERAL (SELECT clock_timestamp() - n * interval '50 s' AS at) i"""


@pytest.fixture
def fleet(environ: dict[str, str], db: Db) -> None:
    """Five tasks of mail:5, of which 2 and 4 fail, and one of mail:6; each with 30 occurrences."""
    for number in range(5):
        ticker.register(db, "poll", name=f"n{number}", owner="mail:5", every="1m", subject=f"user{number}@example.org")
    ticker.register(db, "peek", owner="mail:6", every="1m")
    db.execute("UPDATE ticker.tasks SET failures = CASE id WHEN 2 THEN 3 WHEN 4 THEN 7 ELSE 0 END, next_run = now() + interval '1 h'")  # fmt: skip
    db.execute(RUNS, [HOSTILE, 30])


def order(page: Any) -> list[int]:
    """The ids of the rows of the grid, from its top."""
    return [int(id_) for id_ in re.findall(r'<tr data-key="(\d+)">', page.text)]


def test_the_worst_come_first_and_each_occurrence_has_a_mark_that_leads_to_its_run(fleet: None, client: TestClient) -> None:  # fmt: skip
    page = client.get("/tasks/grid")
    assert order(page) == [4, 2, 1, 3, 5, 6]
    assert page.text.count('<a href="/runs/') == 6 * 30
    assert len(re.findall(r'<text class="bad" x="[\d.]+%" y="17">✖<title>[^<]+ failed: &lt;img', page.text)) == 6
    assert HOSTILE not in page.text and "style=" not in page.text
    assert "the last 30: 27 succeeded, 3 failed" in text_of(page)
    run = re.findall(r'<a href="(/runs/\d+)" tabindex', page.text)[0]
    assert client.get(run).status_code == 200


@pytest.mark.parametrize(
    ("query", "ids"),
    [("function=peek", [6]), ("function=peek&sort=failures", [6]), ("owner=mail:5&owner_type=feeds", [4, 2, 1, 3, 5]), ("state=failing", [2, 4]), ("queue=nowhere", [])],
)  # fmt: skip
def test_a_filter_leaves_those_tasks_that_match(query: str, ids: list[int], fleet: None, client: TestClient) -> None:
    page = client.get(f"/tasks/grid?{query}&unknown=<b>")
    assert order(page) == ids and "unknown" not in page.text.partition("<h1>")[2]
    assert ("the worst first" in page.text) == ("state" not in query)


def test_it_is_cut_by_time_and_by_count(fleet: None, client: TestClient, db: Db) -> None:
    db.execute("UPDATE ticker.runs SET occurrence = occurrence - interval '5 h' WHERE task_id = 6")
    pages = {span: client.get("/tasks/grid", params={"span": span, "function": "peek"}) for span in ("1h", "6h")}
    assert [page.text.count('<a href="/runs/') for page in pages.values()] == [0, 30]
    assert sentence("page.no_occurrence").within(text_of(pages["1h"])) and "←</text>" not in pages["6h"].text
    db.execute("DELETE FROM ticker.runs")
    db.execute(RUNS, ["", 100])
    page = client.get("/tasks/grid", params={"span": "6h", "function": "peek"})
    assert page.text.count('<a href="/runs/') == 60 and "←</text>" in page.text
    assert problem_of(client, "/tasks/grid?span=2h") == "span"


def problem_of(client: TestClient, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 422
    return re.findall(r"(\w+): ", text_of(answer).partition("skip to content")[2])[0]


def test_its_pages_go_on_where_the_last_one_ended(fleet: None, client: TestClient, monkeypatch: Any) -> None:
    monkeypatch.setattr("ticker.web.pages.grid.ROWS", 2)
    found, path = [], "/tasks/grid?span=6h"
    while path:
        page = client.get(path)
        found += order(page)
        following = re.search(r'href="(/tasks/grid\?[^"]*)" rel="next"', page.text)
        path = following[1].replace("&amp;", "&") if following else ""
        assert not path or "span=6h" in path
    assert found == [4, 2, 1, 3, 5, 6]


def test_no_page_between_failing_and_healthy_tasks_is_empty(fleet: None, client: TestClient, db: Db, monkeypatch: Any) -> None:  # fmt: skip
    monkeypatch.setattr("ticker.web.pages.grid.ROWS", 2)
    db.execute("UPDATE ticker.tasks SET failures = 10 - id WHERE id < 5")
    pages = [client.get("/tasks/grid")]
    while following := re.search(r'href="(/tasks/grid\?[^"]*)" rel="next"', pages[-1].text):
        pages.append(client.get(following[1].replace("&amp;", "&")))
    assert [order(page) for page in pages] == [[1, 2], [3, 4], [5, 6]]
    before = [re.search(r'href="([^"]*)" rel="prev"', page.text) for page in pages]
    assert [order(client.get(back[1].replace("&amp;", "&"))) for back in before if back] == [[1, 2], [3, 4]]


def test_an_occurrence_that_started_early_stands_within_the_axis(fleet: None, client: TestClient, db: Db) -> None:
    db.execute("UPDATE ticker.runs SET occurrence = clock_timestamp() + interval '5 min' WHERE id = 1")
    places = [float(x) for x in re.findall(r'<text class="\w*" x="([\d.-]+)%"', client.get("/tasks/grid").text)]
    assert len(places) == 6 * 30 and max(places) <= 100 and min(places) >= 0


def test_more_failing_tasks_than_are_sorted_are_shown_by_id_and_none_is_lost(fleet: None, client: TestClient, monkeypatch: Any) -> None:  # fmt: skip
    monkeypatch.setattr("ticker.read.grid.SORTED", 1)
    for address in ("/tasks/grid", "/tasks/grid?owner_type=mail"):  # also with a filter, the worst of all that match
        assert order(client.get(address)) == [4, 1, 2, 3, 5, 6]


def test_an_owner_has_a_head_a_grid_and_its_last_runs(fleet: None, client: TestClient, db: Db) -> None:
    page = client.get("/owners/one?owner=mail:5")
    said = text_of(page)
    assert order(page)[:5] == [4, 2, 1, 3, 5]
    assert "user0@example.org mail:5 5 tasks · 2 failing · last success never · next run in" in said
    assert page.text.count('data-key="run ') == 10
    ticker.unregister(db, 6)
    gone = text_of(client.get("/owners/one?owner=mail:6"))
    assert sentence("page.owner_without_tasks").within(gone) and "deleted" in gone
    assert client.get("/owners/one?owner=mail:7").status_code == 404
    assert problem_of(client, "/owners/one?owner=mail") == problem_of(client, "/owners/one") == "owner"
    assert 'href="/owners/one?owner=mail%3A5"' in client.get("/owners").text


def test_all_tasks_of_an_owner_are_paused_resumed_and_run(fleet: None, client: TestClient, db: Db) -> None:
    def do(**form: str) -> Any:
        return client.post("/owners/do", data={"owner": "mail:5"} | form, headers=SCRIPT)

    def paused() -> Any:
        return db.execute("SELECT count(*), max(paused_reason) FROM ticker.tasks WHERE paused_by = 'the page'").fetchone()  # fmt: skip

    assert "5 tasks of mail:5: paused" in do(action="pause", reason="unpaid").headers["hx-trigger"]
    assert paused() == (5, "unpaid")
    assert "5 tasks of mail:5: resumed" in do(action="resume").headers["hx-trigger"]
    assert paused() == (0, None)
    assert "5 tasks of mail:5: planned" in do(action="run").headers["hx-trigger"]
    assert problem(do(action="delete"), 422)["field"] == "action"
    assert problem(do(action="run", owner="mail:7"), 404)["detail"]


def test_a_page_without_rights_shows_no_buttons_and_hidden_values_stay_hidden(fleet: None, serve: Any) -> None:
    page = serve(TICKER_WEB_READ_ONLY="on", TICKER_HIDE_ARGS="on").get("/owners/one?owner=mail:5")
    assert page.status_code == 200 and "hx-post" not in page.text and order(page)[:2] == [4, 2]
