"""Notices by cause: the first at once, then at most one an hour, and one recovery."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

import ticker
from tests.factories import create_trace
from tests.notify.stage import MINUTE, NOW, Db, Kept, Played, Post, happens, mail, notices, subject_of, talking
from tests.plans import indexes, plan, read_whole
from tests.running import in_fork, work
from tests.sentences import sentence
from ticker.engine.tick import tick
from ticker.errors import cause, hosts
from ticker.notify import Log, message
from ticker.notify.message import Notice
from ticker.notify.outbox import LEASE, Outbox

SLOW, REFUSED = "TimeoutError: timed out", "ConnectionRefusedError: *"
HOUR = 60 * MINUTE


@pytest.fixture
def by_cause(database_url):
    """Makes the notifier of a channel that gets its notices by cause."""
    made: list[Outbox] = []

    def make(channel: Any) -> Played:
        made.append(Outbox(database_url, "ticker", [channel.name], "https://page.example.org"))
        return Played(channel, [channel.name], made[-1], threading.Event())

    yield make
    for outbox in made:
        outbox.close()


def some_tasks(db: Db, number: int, owner_type: str = "channels") -> list[int]:
    rows = db.execute(
        "INSERT INTO ticker.tasks (name, function, owner_type, owner_id, kind, every_ms, box_ms, grace_ms, queue, next_run)"
        " SELECT 'mail.fetch', 'mail.fetch', %s, n::text, 'interval', 60000, 30000, 1000, 'polling', %s"
        " FROM generate_series(1, %s) n RETURNING id",
        [owner_type, NOW + 365 * 24 * HOUR, number],
    )
    return [id_ for (id_,) in rows]


def fail(db: Db, ids: list[int], why: str = SLOW, at: datetime = NOW) -> None:
    """The tasks fail, as a tick writes it."""
    db.execute(
        "INSERT INTO ticker.events (at, task_id, task_name, function, owner_type, owner_id, what, words)"
        " SELECT %s, id, name, function, owner_type, owner_id, 'failed', 'failed: ' || %s FROM ticker.tasks"
        " WHERE id = ANY (%s) AND told = '' ORDER BY id",
        [at, why, ids],
    )
    db.execute(
        "UPDATE ticker.tasks SET failures = failures + 1, told = 'failed', cause = %s WHERE id = ANY (%s)", [why, ids]
    )


def recover(db: Db, ids: list[int], at: datetime = NOW) -> None:
    db.execute(
        "INSERT INTO ticker.events (at, task_id, task_name, what) SELECT %s, id, name, 'recovered' FROM ticker.tasks"
        " WHERE id = ANY (%s)",
        [at, ids],
    )
    db.execute("UPDATE ticker.tasks SET failures = 0, told = '', cause = '' WHERE id = ANY (%s)", [ids])


def rounds(one: Played, start: datetime, end: datetime, every: timedelta = 10 * MINUTE) -> None:
    while start < end:
        one.round(start)
        start += every


def whats(kept: Kept) -> list[tuple[str, int]]:
    return [(notice.what, notice.digest.tasks) for notice in kept.got]


# -------------------------------------------------------------------------------------------------------- the cause


@pytest.mark.parametrize(
    ("error", "common"),
    [
        ("TimeoutError: timed out", "TimeoutError: timed out"),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "ConnectionRefusedError: [Errno *] Connection refused"),
        ("OSError: [Errno 111] imap.acme.example:993 refused uid 7", "OSError: [Errno *] * refused uid *"),
        ("gaierror: cannot resolve imap.example.org:993 for a@b.org", "gaierror: cannot resolve * for *"),
        ("Http404: no message 'a b' in /var/mail/7 (uid 4711, 4712, 4713)", "Http404: no message * in * (uid *)"),
        ("KeyError: 550e8400-e29b-41d4-a716-446655440000", "KeyError: *"),
        ("OSError: can't read https://x.org/?a=b&c=d, and don't know why.", "OSError: can't read *, and don't know why."),
        ("OperationalError: (psycopg.Error) gone\n[SQL: SELECT 1]", "OperationalError: (*) gone"),
        ("killed: it overran its box of 30 s", "killed: it overran its box of * s"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_cause_of_an_error_leaves_out_what_differs_among_tasks(error, common):
    assert cause(error) == common


@pytest.mark.parametrize("error", ["a'" * 50_000, "1" * 100_000, "é" * 100_000, "\0\x1b" * 1000, "a.b@" * 30_000])
def test_a_cause_is_short_and_printable_whatever_the_error_is(error):
    assert len(cause(error)) <= 200 and cause(error).isprintable()


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ("ConnectionRefusedError: imap.acme.example:993", {"imap.acme.example"}),
        ("HTTPSConnectionPool(host='api.acme.example', port=443): /v1.2/index.html", {"api.acme.example"}),
        (
            "OSError: https://a-1.acme.example/x.json and user@mx2.other.example.",
            {"a-1.acme.example", "mx2.other.example"},
        ),
        ("TimeoutError: 192.168.0.7 after 1.5 s", {"192.168.0.7"}),
        ("urllib3.exceptions.MaxRetryError: too many\nin.second.line", set()),
        ("ValueError: x.y.Z, a..b, -a.example-, .hidden.", set()),
    ],
)
def test_the_hosts_in_an_error_are_found(error, named):
    assert hosts(error) == named


# ------------------------------------------------------------------------------------------------------- the notices


@pytest.mark.slow
def test_a_provider_that_is_away_for_ten_thousand_tasks_makes_three_mails_in_two_hours(db, by_cause):
    tasks, post = some_tasks(db, 10_000), Post()
    with talking(post) as port:
        one = by_cause(mail(port))
        for n in range(4):  # they fail within a minute, and pause themselves later
            fail(db, tasks[n * 2500 : (n + 1) * 2500], at=NOW + n * 20 * MINUTE / 60)
            one.round(NOW + n * 20 * MINUTE / 60)
        db.execute("UPDATE ticker.tasks SET paused_by = 'ticker' WHERE id <= %s", [tasks[4]])
        rounds(one, NOW + MINUTE, NOW + 110 * MINUTE)
        recover(db, tasks[1:], NOW + 110 * MINUTE)
        rounds(one, NOW + 110 * MINUTE, NOW + 115 * MINUTE, MINUTE)
        recover(db, tasks[:1], NOW + 115 * MINUTE)
        rounds(one, NOW + 115 * MINUTE, NOW + 5 * HOUR)
    first, second, third = map(subject_of, post.messages)
    assert sentence("notices.many_fail", number=2500, since="12:00", cause=SLOW).begins(first.strip())
    assert sentence("notices.many_fail", number=10_000, since="12:00", cause=SLOW).begins(second.strip())
    assert third.strip().removeprefix("[ticker] ") == sentence(
        "notices.none_fails", cause=SLOW, number=10_000, since="12:00"
    )
    body = post.messages[1]
    assert "mail.fetch of channels:3 and 9997 more; 5 were paused by the ticker" in body.replace("=\r\n", "")
    assert (
        "page: https://page.example.org/tasks?state=3Dfailing" in body
        or "page: https://page.example.org/tasks?state=failing" in body
    )
    assert db.execute("SELECT count(*) FROM ticker.events WHERE NOT told").fetchone() == (0,)
    assert notices(db) == []


def test_one_failing_task_is_notified_in_the_words_of_a_single_notice(db, by_cause):
    [task], kept = some_tasks(db, 1), Kept()
    fail(db, [task])
    one = by_cause(kept)
    one.round(NOW)
    one.round(NOW + MINUTE)
    recover(db, [task])
    rounds(one, NOW + 2 * MINUTE, NOW + 2 * HOUR)
    assert [message.text(notice) for notice in kept.got] == [
        sentence("notices.failed", task="mail.fetch of channels:1", error=SLOW),
        sentence("notices.works_again_since", task="mail.fetch of channels:1", since="12:00"),
    ]


def test_two_causes_at_the_same_time_are_two_series(db, by_cause):
    tasks, kept = some_tasks(db, 6), Kept()
    fail(db, tasks[:2])
    fail(db, tasks[2:], REFUSED)
    one = by_cause(kept)
    one.round(NOW)
    recover(db, tasks[:2])
    rounds(one, NOW + MINUTE, NOW + 3 * HOUR)
    assert [(notice.what, notice.digest.cause, notice.digest.tasks) for notice in kept.got] == [
        ("failed", REFUSED, 4), ("failed", SLOW, 2), ("recovered", SLOW, 2),
    ]  # fmt: skip
    assert len({notice.key for notice in kept.got}) == 3


def test_a_task_whose_cause_changes_counts_with_the_new_one(db, by_cause):
    tasks, kept = some_tasks(db, 3), Kept()
    fail(db, tasks)
    one = by_cause(kept)
    one.round(NOW)
    fail(db, tasks, REFUSED)
    one.round(NOW + MINUTE)
    rounds(one, NOW + 2 * MINUTE, NOW + 3 * HOUR)
    told = [(notice.what, notice.digest.cause, notice.digest.tasks) for notice in kept.got]
    assert (told[0], sorted(told[1:])) == (("failed", SLOW, 3), [("failed", REFUSED, 3), ("recovered", SLOW, 3)])


@pytest.mark.parametrize(
    "ending",
    [
        "DELETE FROM ticker.tasks",
        "UPDATE ticker.tasks SET enabled = false",
        "UPDATE ticker.tasks SET owner_active = false",
        "UPDATE ticker.tasks SET paused_by = 'ann'",
    ],
)
def test_tasks_that_are_gone_or_do_not_run_keep_no_cause_failing(db, by_cause, ending):
    kept = Kept()
    fail(db, some_tasks(db, 2))
    one = by_cause(kept)
    one.round(NOW)
    db.execute(ending)
    rounds(one, NOW + MINUTE, NOW + 3 * HOUR)
    assert whats(kept) == [("failed", 2), ("recovered", 2)]
    assert message.text(kept.got[1]) == sentence("notices.none_fails", cause=SLOW, number=2, since="12:00")


def test_a_task_that_the_ticker_pauses_still_fails_and_the_pause_is_notified(db, by_cause):
    [task], kept = some_tasks(db, 1), Kept()
    fail(db, [task])
    one = by_cause(kept)
    one.round(NOW)
    db.execute("UPDATE ticker.tasks SET paused_by = 'ticker', pause_after = 1")
    rounds(one, NOW + MINUTE, NOW + 3 * HOUR)
    assert whats(kept) == [("failed", 1), ("failed", 1)]
    assert message.text(kept.got[1]).endswith("; it was paused by the ticker")


def test_a_cause_that_comes_and_goes_is_notified_once_an_hour(db, by_cause):
    tasks, kept = some_tasks(db, 2), Kept()
    one = by_cause(kept)
    for n in range(12):
        fail(db, tasks)
        one.round(NOW + n * 10 * MINUTE)
        recover(db, tasks)
        one.round(NOW + (n * 10 + 5) * MINUTE)
    assert whats(kept) == [("failed", 2), ("recovered", 2)] * 2
    fail(db, tasks)
    one.round(NOW + 3 * HOUR)
    assert whats(kept)[4:] == [("failed", 2)]  # the first one of a cause that was well is not late


def test_more_tasks_after_an_hour_are_notified_within_a_minute_and_fewer_are_not(db, by_cause):
    tasks, kept = some_tasks(db, 6), Kept()
    fail(db, tasks[:4])
    one = by_cause(kept)
    rounds(one, NOW, NOW + 5 * HOUR, 30 * MINUTE)
    recover(db, tasks[:2])
    rounds(one, NOW + 5 * HOUR, NOW + 6 * HOUR, MINUTE)
    assert whats(kept) == [("failed", 4)]
    fail(db, [*tasks[:2], *tasks[4:]])
    rounds(one, NOW + 6 * HOUR, NOW + 6 * HOUR + 2 * MINUTE, MINUTE / 30)
    assert whats(kept) == [("failed", 4), ("failed", 6)]


# ------------------------------------------------------------------------------------------------- what goes wrong


def test_a_delivery_that_failed_is_repeated_and_nothing_is_lost_or_doubled(db, by_cause):
    tasks, kept = some_tasks(db, 3), Kept("kept", *(OSError("no") for _ in range(3)))
    fail(db, tasks[:1])
    rounds(by_cause(kept), NOW, NOW + MINUTE, MINUTE)
    assert notices(db, "cause, tries, error") == [(SLOW, 1, "no")]
    fail(db, tasks[1:])
    rounds(by_cause(kept), NOW + MINUTE, NOW + HOUR, MINUTE)
    assert whats(kept) == [("failed", 3)]
    kept.fails = [OSError("no")]
    recover(db, tasks)
    rounds(by_cause(kept), NOW + HOUR, NOW + 3 * HOUR, MINUTE)
    assert whats(kept) == [("failed", 3), ("recovered", 3)]
    assert notices(db) == []


def test_what_was_over_before_it_could_be_delivered_is_notified_as_over(db, by_cause):
    tasks, kept = some_tasks(db, 3), Kept("kept", OSError("no"))
    fail(db, tasks)
    one = by_cause(kept)
    one.round(NOW)
    recover(db, tasks)
    rounds(one, NOW + MINUTE, NOW + 2 * HOUR, MINUTE)
    assert whats(kept) == [("recovered", 3)]


@pytest.mark.slow
def test_two_tickers_and_restarts_deliver_each_notice_of_a_cause_once(db, by_cause):
    tasks, kept = some_tasks(db, 40), Kept()
    for n, task in enumerate(tasks):
        fail(db, [task], f"Error{chr(65 + n)}: no")
    with ThreadPoolExecutor(2) as pool:
        for minutes in (0, 1, 30, 61, 90, 122):
            both = [pool.submit(by_cause(kept).round, NOW + minutes * MINUTE) for _ in range(2)]
            [done.result(timeout=60) for done in both]
    assert sorted(notice.digest.cause for notice in kept.got) == sorted(f"Error{chr(65 + n)}: no" for n in range(40))


@pytest.mark.slow
def test_the_notice_of_a_cause_whose_ticker_was_killed_is_sent_again_under_the_same_key(db, database_url, by_cause):
    fail(db, some_tasks(db, 2))
    db.execute("CREATE TABLE keys (key text)")

    class Dies(Kept):
        def deliver(self, notice: Notice) -> str:
            with psycopg.connect(database_url) as own:
                own.execute("INSERT INTO keys VALUES (%s)", [notice.key])
            os.kill(os.getpid(), signal.SIGKILL)
            return ""

    def deliver() -> None:
        Played(Dies(), ["kept"], Outbox(database_url, "ticker", ["kept"]), threading.Event()).round(NOW)

    assert in_fork(deliver) == -signal.SIGKILL
    kept = Kept()
    one = by_cause(kept)
    one.round(NOW + LEASE - timedelta(seconds=1))
    assert kept.got == []
    one.round(NOW + LEASE)
    assert db.execute("SELECT key FROM keys").fetchall() == [(notice.key,) for notice in kept.got] != []
    rounds(one, NOW + LEASE, NOW + 3 * HOUR)
    assert whats(kept) == [("failed", 2)]


def test_a_cause_of_a_channel_that_no_ticker_has_goes_after_three_days(db, by_cause, notifier):
    kept = Kept()
    fail(db, some_tasks(db, 2))
    by_cause(kept).round(NOW)
    other = notifier(Kept("other"))
    other.round(NOW + 3 * 24 * HOUR)
    assert len(notices(db)) == 1
    other.round(NOW + 3 * 24 * HOUR + HOUR)
    assert notices(db) == []


# ----------------------------------------------------------------------------------------- other channels, and ticks


def test_other_channels_get_a_notice_of_each_task_whose_data_is_the_same_as_before(db, by_cause, notifier):
    tasks, single = some_tasks(db, 3), Kept("single")
    fail(db, tasks)
    notifier(single).round(NOW)
    by_cause(Kept()).round(NOW)
    recover(db, tasks)
    notifier(single).round(NOW)
    assert [notice.what for notice in single.got] == ["failed"] * 3 + ["recovered"] * 3
    assert not message.data(single.got[0]).keys() & {"cause", "tasks", "digest"}


def test_the_data_and_the_log_line_of_a_cause_have_its_tasks_and_the_page(db, by_cause, caplog):
    kept = Kept()
    fail(db, some_tasks(db, 5))
    by_cause(kept).round(NOW)
    data = message.data(kept.got[0])
    assert {name: data[name] for name in ("what", "cause", "tasks", "paused", "examples", "page")} == {
        "what": "failed", "cause": SLOW, "tasks": 5, "paused": 0,
        "examples": ["mail.fetch of channels:1", "mail.fetch of channels:2", "mail.fetch of channels:3"],
        "page": "https://page.example.org/tasks?state=failing",
    }  # fmt: skip
    by_cause(Log()).round(NOW)
    assert caplog.messages[-1].endswith(f": {message.text(kept.got[0])} https://page.example.org/tasks?state=failing")


def test_an_older_cause_holds_up_no_other_notice_of_its_task(db, by_cause):
    [task], kept = some_tasks(db, 1), Kept()
    fail(db, [task])
    one = by_cause(kept)
    one.round(NOW)
    happens(db, "unknown_function", task_id=task, function="mail.fetch")
    one.round(NOW + MINUTE)
    assert [notice.what for notice in kept.got] == ["failed", "unknown_function"]


@pytest.mark.slow
def test_ticks_store_the_cause_with_the_task_until_it_succeeds(environ, db, store, queue):
    task = ticker.register(db, "fails.saying", every="1m", kwargs={"words": "no route to imap7.example.org"})
    late = ticker.register(
        db, "fails.saying", name="late", every="1m", dead_man=1, queue="nobody", kwargs={"words": ""}
    )
    causes = "SELECT cause, told FROM ticker.tasks WHERE id = %s"
    tick(store, queue)
    work()
    tick(store, queue)
    assert db.execute(causes, [task.id]).fetchone() == ("ValueError: no route to *", "failed")
    db.execute(
        "UPDATE ticker.tasks SET alarm_at = now(), created_at = now() - interval '1 day', resumed_at = NULL WHERE id = %s",
        [late.id],
    )
    db.execute("UPDATE ticker.tasks SET next_run = now() - interval '1 day', waiting = '{}' WHERE id = %s", [late.id])
    tick(store, queue)
    assert db.execute(causes, [late.id]).fetchone() == ("no success in time", "failed")
    db.execute("UPDATE ticker.tasks SET function = 'plain', kwargs = '{}' WHERE id = %s", [task.id])
    create_trace(db)
    ticker.run_now(db, task)
    tick(store, queue)
    work()
    tick(store, queue)
    assert db.execute(causes, [task.id]).fetchone() == ("", "")


# ----------------------------------------------------------------------------------------------------------- indexes


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["note_causes", "claim_cause"])
def test_causes_are_found_by_an_index(statement, db):
    parameters = {"channel": "mail", "now": NOW} | ({"lease": LEASE} if statement == "claim_cause" else {})
    with db.transaction(force_rollback=True):
        fail(db, some_tasks(db, 5000)[:100])
        db.execute("INSERT INTO ticker.events (task_id, what) SELECT n, 'failed' FROM generate_series(1, 20000) n")
        db.execute("INSERT INTO ticker.notices (event_id, channel) SELECT n, 'mail' FROM generate_series(1, 20000) n")
        db.execute("INSERT INTO ticker.notices (event_id, channel, cause) VALUES (0, 'mail', %s)", [SLOW])
        db.execute("ANALYZE ticker.tasks, ticker.notices, ticker.events")
        found = plan(db, statement, **parameters)
    assert {"tasks_cause", "notices_cause"} <= indexes(found)
    assert not read_whole(found) & {"tasks", "notices", "events"}
