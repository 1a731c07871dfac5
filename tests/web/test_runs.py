"""What ended and what happened, over HTTP: runs, the journal, drops; and what is hidden of them."""

import html
import re
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

import ticker
from tests.harness import Played
from tests.sentences import Sentence, sentence
from tests.web.asking import API, problem, text_of
from tests.web.conftest import Serve
from ticker.read import journal
from ticker.web.pages import state

Db = psycopg.Connection[Any]

PIECE = "UPDATE ticker.runs SET kind = 'piece', parent_id = 7, item = '\"s3cr3t\"' WHERE id = 2"
FULL = """UPDATE ticker.runs SET result = '{"a": 1}', output = 'printed s3cr3t', error_output = 'logged s3cr3t', traceback = 'raised s3cr3t'
WHERE id = 2"""


@pytest.fixture
def played(play: Played) -> Played:
    """Task 1 of a:1 succeeded, failed and was dropped, in this order; task 2 of nobody succeeded behind that."""
    ticker.register(play.db, "poll", owner="a:1", every="1m")
    play.run(0, "succeeded")
    play.run(60, "failed", "no route to host")
    play.at(120)
    play.tick()
    play.db.execute("UPDATE ticker.tasks SET enabled = false")
    [dropped] = play.take()
    assert dropped.refusal == "paused"
    play.at(130)
    ticker.register(play.db, "poll", name="other", every="1m")
    play.run(131, "succeeded")
    return play


def outcomes(client: TestClient, **query: Any) -> list[tuple[int, str]]:
    """Of the runs that fit: whose they are, and how they ended."""
    answer = client.get(f"{API}/runs", params=query)
    assert answer.status_code == 200, answer.text
    return [(run["task_id"], run["outcome"]) for run in answer.json()["runs"]]


@pytest.mark.slow
def test_runs_and_drops_are_listed_as_they_ended_the_newest_first(client: TestClient, played: Played) -> None:
    assert outcomes(client) == [(2, "succeeded"), (1, "dropped"), (1, "failed"), (1, "succeeded")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "expected"),
    [({"task": 2}, ["succeeded"]), ({"owner": "a:1"}, ["dropped", "failed", "succeeded"]), ({"owner": "a:2"}, []),
     ({"owner_type": "a"}, ["dropped", "failed", "succeeded"]), ({"outcome": "failed"}, ["failed"]),
     ({"outcome": "dropped"}, ["dropped"]), ({"reason": "paused"}, ["dropped"]), ({"reason": "too_early"}, []),
     ({"until": "2000-01-01T00:00:00Z"}, []),
     ({"function": "poll", "outcome": "failed", "search": "No Route"}, ["failed"]), ({"queue": "polling", "owner": "a:1", "outcome": "failed"}, ["failed"]),
     ({"function": "fetch"}, []), ({"search": "refused"}, []), ({"task": 1, "outcome": "succeeded"}, ["succeeded"]), ({"task": 99}, [])],
)  # fmt: skip
def test_a_filter_leaves_those_runs_that_fit(
    query: dict[str, Any], expected: list[str], client: TestClient, played: Played
) -> None:  # fmt: skip
    assert [outcome for _, outcome in outcomes(client, **query)] == expected


@pytest.mark.slow
def test_all_failures_of_a_function_in_a_span_are_one_address_of_the_page(client: TestClient, played: Played) -> None:
    query = "outcome=failed&function=poll&search=no+route"
    assert "no route to host" in text_of(client.get(f"/runs?{query}&since=2000-01-01T00:00:00Z"))
    page = client.get(f"/runs?{query}&until=2000-01-01T00:00:00Z").text
    assert sentence("page.nothing_fits").within(page) and 'name="until" value="2000-01-01T00:00:00Z"' in page
    refused = client.get("/runs?since=soon")
    assert refused.status_code == 422 and "since" in text_of(refused)


@pytest.mark.slow
def test_the_first_page_says_how_many_match(
    client: TestClient, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "1 record matches" in text_of(client.get("/runs?outcome=failed"))
    assert "3 records match" in text_of(client.get("/runs?owner=a:1&function=poll"))
    monkeypatch.setattr(state, "ROWS", 1)
    page = client.get("/runs?function=poll&owner=a:1")
    assert "3 records match" in text_of(page)
    [following] = re.findall(r'href="/runs\?([^"]+)" rel="next"', page.text)
    assert "match" not in text_of(client.get(f"/runs?{html.unescape(following)}"))
    monkeypatch.setattr(journal, "SEARCHED", 2)
    assert "match" not in text_of(client.get("/runs?function=poll")).replace("may match", "")
    monkeypatch.setattr(state, "COUNTED", 2)
    assert "over 2 records match" in text_of(client.get("/runs?function=poll&owner=a:1"))


def test_the_filters_suggest_the_functions_and_queues_that_workers_announced(client: TestClient, db: Db) -> None:
    db.execute(
        "INSERT INTO ticker.functions (name, batch, queues, announced_at) VALUES ('poll', 1, '{fast,mail}', now())"
    )
    for screen in ("/tasks", "/runs"):
        page = client.get(screen).text
        assert '<datalist id="functions"><option value="poll"></datalist>' in page
        assert '<datalist id="queues"><option value="fast"><option value="mail"></datalist>' in page


@pytest.mark.slow
def test_a_search_that_ends_before_its_page_is_full_says_so(
    client: TestClient, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEARCHED", 2)
    found = client.get(f"{API}/runs?search=route").json()
    assert (found["runs"], found["looked_through"]) == ([], 2)
    more = client.get(f"{API}/runs?search=route&before={found['next']}").json()
    assert [run["outcome"] for run in more["runs"]] == ["failed"]
    page = text_of(client.get("/runs?search=route"))
    assert sentence("page.no_record_fits", number=2).within(page)


@pytest.mark.slow
def test_since_counts_from_its_instant(client: TestClient, played: Played) -> None:
    ended = client.get(f"{API}/runs", params={"outcome": "failed"}).json()["runs"][0]["ended_at"]
    assert outcomes(client, since=ended, task=1) == [(1, "dropped"), (1, "failed")]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["runs", "journal"])
def test_pages_of_one_row_are_the_same_as_one_page(what: str, client: TestClient, played: Played) -> None:
    name = {"runs": "runs", "journal": "lines"}[what]
    whole = client.get(f"{API}/{what}").json()
    assert whole["next"] is None
    found, query = [], {"limit": 1}
    while True:
        page = client.get(f"{API}/{what}", params=query).json()
        found += page[name]
        if page["next"] is None:
            break
        query["before"] = page["next"]
    assert found == whole[name]


@pytest.mark.slow
def test_the_journal_has_what_happened_beside_the_runs(client: TestClient, played: Played) -> None:
    ticker.pause(played.db, 1, reason="moved", by="ann")
    lines = client.get(f"{API}/journal").json()["lines"]
    happened = {line["what"]: line for line in lines if line["event"]}
    assert sorted(happened) == ["disabled", "failed", "paused"] and len(lines) == 7
    paused = happened["paused"]
    assert (paused["event"]["by"], paused["run"], paused["words"]) == ("ann", None, "by ann: moved")
    assert [line["run"]["reason"] for line in lines if line["what"] == "dropped"] == ["paused"]
    only = client.get(f"{API}/journal", params={"outcome": "failed"}).json()["lines"]
    assert [line["event"] for line in only] == [None]


def test_an_owner_and_a_type_of_owners_are_refused(client: TestClient) -> None:
    refused = client.get(f"{API}/runs", params={"owner": "a:1", "owner_type": "a"})
    assert problem(refused, 422)["field"] == "owner_type"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "field", "said"),
    [({"task": 2, "owner": "a:1"}, "owner", sentence("http.does_not_go_with_ownerless_task", value="'a:1'", task=2)),
     ({"task": 1, "owner": "a:2"}, "owner", sentence("http.does_not_go_with_task", value="'a:2'", task=1, owner="a:1")),
     ({"task": 1, "owner_type": "b"}, "owner_type", sentence("http.does_not_go_with_task", value="'b'", task=1, owner="a:1")),
     ({"outcome": "failed", "reason": "paused"}, "reason", sentence("errors.of_drops", field="reason", value="'paused'", outcome="failed"))],
)  # fmt: skip
@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("what", ["runs", "journal"])
def test_filters_that_exclude_each_other_are_refused(
    query: dict[str, Any], field: str, said: Sentence, deleted: bool, what: str, client: TestClient, played: Played
) -> None:  # fmt: skip
    if deleted:
        for task in (1, 2):
            ticker.unregister(played.db, task)
        played.db.execute("INSERT INTO ticker.runs (task_id, task_name, function, kind, occurrence, state, outcome, reason, ended_at)"
                          " VALUES (1, '', '', 'scheduled', now(), 'ended', 'dropped', 'gone', now())")  # fmt: skip
    refused = problem(client.get(f"{API}/{what}", params=query), 422)
    assert refused["field"] == field and said.within(refused["detail"])


def test_a_name_of_a_task_is_no_id(client: TestClient) -> None:
    refused = problem(client.get(f"{API}/journal", params={"task": "poll"}), 422)
    assert refused["field"] == "task"
    assert sentence("http.no_id", value="'poll'", first=1, remedy="/tasks?name=").within(refused["detail"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "runs"),
    [({"task": 1, "owner": "a:1"}, 3), ({"task": 1, "owner_type": "a"}, 3), ({"task": 99, "owner": "a:1"}, 0)],
)  # fmt: skip
def test_what_is_listed_fits_all_filters(
    query: dict[str, Any], runs: int, client: TestClient, played: Played
) -> None:  # fmt: skip
    assert len(outcomes(client, **query)) == runs


@pytest.mark.slow
def test_one_run_is_told_with_what_it_printed_and_its_attempts(client: TestClient, played: Played) -> None:
    played.db.execute(FULL)
    found = client.get(f"{API}/runs/2").json()
    assert (found["outcome"], found["reason"], found["took_ms"]) == ("failed", "no route to host", 1000)
    assert (found["result"], found["output"], found["error_output"]) == ({"a": 1}, "printed s3cr3t", "logged s3cr3t")
    assert [run["id"] for run in found["attempts"]] == [2] and (found["made"], found["next"]) == ([], None)


@pytest.mark.slow
def test_the_pieces_of_a_run_are_told_page_by_page(client: TestClient, played: Played) -> None:
    played.db.execute("UPDATE ticker.runs SET kind = 'piece', parent_id = 1 WHERE id > 1")
    found = client.get(f"{API}/runs/1", params={"limit": 2}).json()
    assert ([run["id"] for run in found["made"]], found["next"]) == ([2, 3], "3")
    rest = client.get(f"{API}/runs/1", params={"limit": 2, "after": found["next"]}).json()
    assert ([run["id"] for run in rest["made"]], rest["next"]) == ([4], None)


@pytest.mark.parametrize("id_", ["99", "0", "x", "9" * 30, "-1"])
def test_a_run_that_is_not_there_is_not_found(id_: str, client: TestClient) -> None:
    assert sentence("http.no_run").begins(problem(client.get(f"{API}/runs/{id_}"), 404)["detail"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "keys"), [("reason", ["paused"]), ("owner", ["a:1"]), ("task", ["1"]), ("function", ["poll"])]
)
def test_drops_are_counted_by_what_they_have_in_common(by: str, keys: list[str], client: TestClient, played: Played) -> None:  # fmt: skip
    found = client.get(f"{API}/drops", params={"by": by}).json()["drops"]
    assert [(drops["key"], drops["count"], drops["example"]["what"]) for drops in found] == [(keys[0], 1, "dropped")]


@pytest.mark.slow
def test_drops_are_counted_by_reason_and_since_a_time_that_has_passed(client: TestClient, played: Played) -> None:
    assert client.get(f"{API}/drops").json()["drops"][0]["key"] == "paused"
    now = played.now.isoformat()
    assert client.get(f"{API}/drops", params={"since": now}).json() == {"drops": []}
    assert problem(client.get(f"{API}/drops", params={"since": "2100-01-01T00:00:00Z"}), 422)["field"] == "since"


@pytest.mark.slow
def test_a_run_is_stopped_by_the_user_whom_the_request_names(client: TestClient, played: Played) -> None:
    played.db.execute("UPDATE ticker.tasks SET enabled = true")
    [run_id] = ticker.run_now(played.db, 1)
    answer = client.post(f"{API}/runs/{run_id}/stop", json={"by": "ann"})
    assert (answer.status_code, answer.json()["stop_requested_by"]) == (202, "ann")
    [run_id] = ticker.run_now(played.db, 1)
    assert client.post(f"{API}/runs/{run_id}/stop", json={}).json()["stop_requested_by"] == "the HTTP API"
    assert problem(client.post(f"{API}/runs/1/stop", json={}), 422)["field"] == "run"
    problem(client.post(f"{API}/runs/99/stop", json={}), 404)


# ---------------------------------------------------------------------------------------------------------- hidden


@pytest.mark.slow
def test_what_is_to_be_hidden_is_in_no_answer(serve: Serve, played: Played) -> None:
    db, secret = played.db, '{"*": ["s3cr3t"], "password": "s3cr3t"}'
    db.execute("UPDATE ticker.tasks SET kwargs = %s, metadata = %s, cursor = %s", [secret, secret, '"s3cr3t"'])
    db.execute(FULL)
    db.execute(PIECE)
    open_, closed = serve(), serve(TICKER_HIDE_ARGS="on")
    for path in ("/tasks", "/tasks/1", "/tasks/1/why", "/runs", "/runs/2", "/journal", "/drops"):
        assert "s3cr3t" not in closed.get(API + path).text, path
        assert "s3cr3t" in open_.get(API + path).text or path in ("/drops",), path


@pytest.mark.slow
def test_what_is_hidden_is_null_and_the_statistics_say_so(serve: Serve, played: Played) -> None:
    played.db.execute(FULL)
    client = serve(TICKER_HIDE_ARGS="on")
    task, run = client.get(f"{API}/tasks/1").json(), client.get(f"{API}/runs/2").json()
    assert [task[name] for name in ("args", "kwargs", "metadata", "cursor")] == [None] * 4
    assert [run[name] for name in ("item", "result", "output", "error_output", "traceback")] == [None] * 5
    assert run["reason"] == "no route to host"
    assert client.get(f"{API}/stats").json()["hides_args"] is True
