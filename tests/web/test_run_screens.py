"""The screens of runs, of one run and of drops: what their filters refuse, where they go on, and when they stand still."""

import re
from datetime import timedelta
from uuid import uuid4

import pytest

import ticker
from tests.factories import NINE, a_run
from tests.sentences import sentence

DROP = """INSERT INTO ticker.runs (task_id, task_name, function, kind, occurrence, state, outcome, reason, owner_type, owner_id, ended_at,
checked_at) SELECT %(task)s + n, 'poll', 'poll', 'scheduled', now() - n * interval '1 s' - m * interval '1 us', 'ended', 'dropped', 'too_early', 'mail',
%(task)s + n, now(), now() FROM generate_series(0, %(more)s) n, generate_series(1, %(times)s) m"""


def text_of(page):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page.text))


@pytest.fixture
def tasks(db, environ):
    """Of mail:5 and of nobody, both of the same name."""
    return [ticker.register(db, "poll", owner="mail:5", every="1m"), ticker.register(db, "poll", every="1m")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("task=1&owner=mail:6", 422, sentence("errors.does_not_go_with_task", field="owner", value="'mail:6'", task=1, owner="mail:5")),
        ("task=2&owner=mail:5", 422, sentence("errors.does_not_go_with_ownerless_task", field="owner", value="'mail:5'", task=2)),
        ("task=1&owner_type=feeds", 422, sentence("errors.does_not_go_with_its_task", field="owner_type", value="'feeds'", task=1, owner="mail:5")),
        ("task=other", 404, sentence("errors.unknown_task_give_its_owner", task="'other'")),
        ("task=other&owner=mail:5", 404, sentence("errors.unknown_task_of_owner_now", task="'other'", owner="mail:5")),
        ("owner=mail", 422, sentence("errors.no_owner_such_as", value="'mail'", remedy="type:id", example="mail_channels:5")),
        ("task=poll&owner=mail:5", 200, sentence("page.nothing_fits")),
    ],
)  # fmt: skip
def test_a_filter_that_fits_nothing_says_what_to_write(query, status, said, client, tasks):
    answer = client.get(f"/runs?{query}")
    assert (answer.status_code, said.within(text_of(answer).replace("&#39;", "'"))) == (status, True), text_of(answer)


def test_a_name_without_an_owner_is_that_of_the_task_of_nobody_and_says_so(client, tasks):
    said = sentence("page.stands_for", name="poll", task=2)
    assert said.within(text_of(client.get("/runs?task=poll")))
    for others in ("task=2", "task=poll&owner=mail:5", "outcome=failed"):
        assert not said.within(text_of(client.get(f"/runs?{others}")))


def test_the_filter_by_a_type_of_owners_can_be_seen_and_taken_back(client, tasks):
    assert 'name="owner_type" value="mail"' in client.get("/runs?owner_type=mail").text
    assert 'name="owner_type"' not in client.get("/runs").text


@pytest.mark.slow
def test_the_name_of_a_deleted_task_leads_to_its_history(client, db, tasks):
    for task in (2, 1):
        db.execute(DROP, {"task": task, "more": 0, "times": 1})
    ticker.unregister(db, 1)
    db.execute(  # as the start of a job that was left over records it
        "INSERT INTO ticker.runs (task_id, kind, occurrence, state, outcome, reason, ended_at, checked_at)"
        " VALUES (1, 'scheduled', now(), 'ended', 'dropped', 'gone', now(), now())"
    )
    for screen in ("/", "/runs?by=reason", "/runs?by=task", "/runs", "/runs?task=1&owner=mail:1", "/runs/2", "/runs/3"):
        page = client.get(screen)
        assert sentence("page.deleted", name="poll", owner="mail:1").within(text_of(page)), screen
        assert 'href="/tasks/1"' in page.text, screen
    assert 'href="/tasks/2"' in client.get("/runs?by=task").text
    assert ">3</a>" in client.get("/runs?outcome=dropped&task=1").text


def test_drops_go_on_behind_the_first_fifty(client, db, environ):
    db.execute(DROP, {"task": 1, "more": 59, "times": 1})
    db.execute(DROP, {"task": 1, "more": 0, "times": 5})
    first = client.get("/runs?by=owner&since=1h")
    assert sentence("page.first_numbers", first=1, last=50).within(text_of(first))
    following = re.search(r'href="(/runs\?[^"]*)" rel="next"', first.text)[1].replace("&amp;", "&")
    second = client.get(following)
    assert sentence("page.last_numbers", first=51, last=60).within(text_of(second))
    assert 'rel="next"' not in second.text
    listed = [re.findall(r"<td>\s*<a [^>]*>(mail:\d+)</a>", page.text) for page in (first, second)]
    assert listed[0][0] == "mail:1"
    assert sorted(listed[0] + listed[1]) == sorted(f"mail:{number}" for number in range(1, 61))
    assert client.get("/runs?by=owner&after=-1").status_code == 422
    assert "Groups" not in text_of(client.get("/runs?by=reason"))


def test_groups_of_drops_are_those_of_a_span_and_of_no_other_filter(client, db, environ):
    db.execute(DROP, {"task": 1, "more": 0, "times": 2})
    page = client.get("/runs?by=reason")
    assert '<option value="1h" selected>' in page.text and 'reason=too_early&amp;since=1h"' in page.text
    assert client.get("/runs?by=reason&outcome=dropped&since=1h&function=&task=").status_code == 200
    for filters in ("outcome=failed", "function=poll", "owner=mail:1", "task=1", "search=x"):
        assert client.get(f"/runs?by=reason&{filters}").status_code == 422


def test_groups_of_drops_can_be_skipped(db, environ):
    db.execute(DROP, {"task": 1, "more": 2, "times": 1})
    keys = [one.key for one in ticker.drops(db, by="owner")]
    assert [one.key for one in ticker.drops(db, by="owner", limit=1, after=1)] == keys[1:2]
    assert ticker.drops(db, by="owner", after=3) == []
    for after in (-1, 1_000_001, True):
        with pytest.raises(ticker.BadInput) as caught:
            ticker.drops(db, after=after)
        assert caught.value.field == "after"


@pytest.mark.slow
def test_the_screen_of_a_run_looks_again_until_all_of_it_has_ended(client, play, db):
    ticker.register(db, "poll", every="10m", retries=1, backoff="1m")
    play.at(0)
    play.tick()
    [taken] = play.take()
    assert 'data-every="5"' in client.get("/runs/1").text
    play.at(1)
    play.end(taken, "failed")
    assert "data-every" not in client.get("/runs/1").text
    play.tick()
    assert 'data-every="5"' in client.get("/runs/1").text  # its further attempt is planned


@pytest.mark.slow
def test_the_life_of_a_run_is_a_bar_with_its_words_and_hides_what_is_hidden(serve, play, db):
    ticker.register(db, "poll", every="10m")
    play.tick()
    [taken] = play.take()
    play.at(3)
    play.end(taken, "failed")
    for page in (serve().get("/runs/1"), serve(TICKER_HIDE_ARGS="on").get("/runs/1")):
        assert '<path class="bar-failed" d="M0.0 4h1000.0v12h-1000.0z"><title>3 s at work: failed</title>' in page.text
        assert "3 s at work: failed quota 5 min after its start" in text_of(page)
        assert "style=" not in page.text


@pytest.mark.slow
def test_a_task_has_an_address_for_a_moment_that_shows_what_was_around_it(client, play, db):
    task = ticker.register(db, "poll", every="10m")
    for minute in (0, 10, 20, 30):
        a_run(db, task, occurrence=play.at(60 * minute - 3600))
    moment = play.at(11 * 60 - 3600).isoformat().replace("+00:00", "Z")
    page = client.get("/tasks/1", params={"at": moment})
    assert re.findall(r'data-key="run (\d)"', page.text) == ["3", "2", "1"]
    assert "At " + f"{play.now:%H:%M:%S}" in text_of(page) and f'value="{moment}"' in page.text
    assert "timing chart" not in page.text and "timing chart" in client.get("/tasks/1").text
    assert client.get("/tasks/1?at=2h").status_code == 200
    for at in ("2100-01-01T00:00:00Z", "yesterday", "<b>"):
        answer = client.get("/tasks/1", params={"at": at})
        assert answer.status_code == 422 and "at: " in text_of(answer) and "<b>" not in text_of(answer)


def test_the_limits_of_a_run_by_times_are_after_the_grace_of_its_task(client, db, environ):
    task = ticker.register(db, "report", calendar="*:*:0/5", box="3s")
    until = NINE + timedelta(seconds=3, milliseconds=task.grace_ms)
    ended = a_run(db, task, every_ms=None, until=until)
    assert all("of its 3 s" in text_of(client.get(path)) for path in ("/runs", f"/runs/{ended}", "/tasks/1"))
    assert client.get("/api/v1/journal").json()["lines"][0]["words"].endswith("of its 3 s")
    run = a_run(db, task, every_ms=None, until=until, state="running", outcome=None, ended_at=None, token=uuid4())
    page = text_of(client.get(f"/runs/{run}"))
    assert task.grace_ms == 500
    assert "quota 3 s after its start" in page and "of its 3 s" in page
