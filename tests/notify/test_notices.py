"""Events become notices, each told once for a state change, again where it did not arrive, and by one ticker."""

import logging
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

import ticker
from tests.notify.stage import MINUTE, NOW, Kept, Played, happens, notices
from tests.plans import indexes, plan, read_whole
from tests.running import in_fork
from tests.sentences import sentence
from ticker.notify import deliver, message
from ticker.notify.deliver import AFTER_FAILURE, IDLE
from ticker.notify.message import Notice
from ticker.notify.outbox import GIVEN_UP, LEASE, Outbox

# ------------------------------------------------------------------------------------------- events become notices


def test_each_event_of_the_four_kinds_is_told_once_and_the_others_are_not(db, notifier):
    told = [happens(db, what, task_id=n) for n, what in enumerate(("failed", "recovered", "auto_paused", "dead_man"))]
    for what in ("paused", "resumed", "disabled", "enabled", "owner_inactive", "owner_active", "slowed", "restored"):
        happens(db, what)
    kept = Kept()
    assert notifier(kept).round(NOW) == IDLE
    assert notifier(kept).round(NOW) == IDLE
    assert [notice.id for notice in kept.got] == told
    assert notices(db) == []
    assert db.execute("SELECT count(*) FROM ticker.events WHERE NOT told").fetchone() == (0,)


def test_where_nobody_is_to_be_told_events_are_not_kept_for_later(db, notifier):
    happens(db, "failed")
    assert notifier(None).round(NOW) == IDLE
    assert notices(db) == []
    kept = Kept()
    notifier(kept).round(NOW)
    assert kept.got == []


def test_each_channel_has_a_notice_of_its_own(db, notifier):
    event = happens(db, "failed")
    one = Kept("one")
    notifier(one, "two").round(NOW)
    assert [notice.id for notice in one.got] == [event]
    assert notices(db) == [(event, "two", 0)]


def test_more_events_than_one_batch_are_all_told(db, notifier, monkeypatch):
    monkeypatch.setattr("ticker.notify.outbox.BATCH", 3)
    told = [happens(db, "failed", task_id=n) for n in range(8)]
    kept = Kept()
    notifier(kept).round(NOW)
    assert [notice.id for notice in kept.got] == told


def test_a_notice_says_what_the_task_and_its_run_say(db, notifier):
    task = ticker.register(db, "mail.fetch", every="1m", owner=("channels", "7"), subject="Support")
    db.execute("UPDATE ticker.tasks SET failures = 3 WHERE id = %s", [task.id])
    [run_id] = db.execute(
        "INSERT INTO ticker.runs (task_id, kind, occurrence, state, outcome, reason, ended_at) VALUES"
        " (%s, 'scheduled', %s, 'ended', 'killed', 'it overran its box', %s) RETURNING id",
        [task.id, NOW, NOW],
    ).fetchone()
    whose = {"task_id": task.id, "owner_type": "channels", "owner_id": "7"}
    happens(db, "failed", at=NOW - 2 * MINUTE, told=True, **whose)
    event = happens(db, "recovered", run_id=run_id, function="mail.fetch", words="it succeeded again", **whose)
    kept = Kept()
    notifier(kept).round(NOW)
    told = message.data(kept.got[0])
    assert told.pop("host") == socket.gethostname() and told.pop("next_run").endswith("Z")
    assert told == {
        "id": event, "what": "recovered", "at": "2026-03-01T12:00:00.000000Z",
        "task": {"id": task.id, "name": "mail.fetch", "function": "mail.fetch", "owner_type": "channels",
                 "owner_id": "7", "subject": "Support"},
        "text": sentence("notices.works_again_since", task="Support (mail.fetch of channels:7)", since="11:58"),
        "words": "it succeeded again", "failures": 3, "since": "2026-03-01T11:58:00.000000Z",
        "error": "killed: it overran its box", "run_id": run_id, "schema": "ticker",
    }  # fmt: skip


def test_the_notice_of_a_task_that_was_paused_names_no_next_run(db, notifier):
    task = ticker.register(db, "mail.fetch", every="1m")
    ticker.pause(db, task, reason="too many failures")
    happens(db, "auto_paused", task_id=task.id)
    kept = Kept()
    notifier(kept).round(NOW)
    assert [notice.next_run for notice in kept.got] == [None]


def test_the_notices_of_a_task_that_is_gone_are_told_all_the_same(db, notifier):
    happens(db, "failed", words="failed: ValueError: x", task_id=99)
    kept = Kept()
    notifier(kept).round(NOW)
    [notice] = kept.got
    assert (notice.failures, notice.next_run) == (None, None)
    assert message.text(notice) == "mail.fetch failed: ValueError: x"


# --------------------------------------------------------------------------------------------- what goes wrong, waits


def test_what_fails_is_tried_again_later_each_time_after_twice_as_long_up_to_an_hour(db, notifier):
    happens(db, "failed")
    kept = Kept("kept", *(OSError("no") for _ in range(9)))
    one, now, waits = notifier(kept), NOW, []
    for _ in range(9):
        assert one.round(now) == AFTER_FAILURE
        [(due, error)] = notices(db, "due_at, error")
        waits.append((due - now).total_seconds())
        assert error == "no"
        assert one.round(due - timedelta(seconds=1)) == IDLE
        now = due
    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert one.round(now) == IDLE
    assert (len(kept.got), notices(db)) == (1, [])


def test_a_failing_channel_holds_up_no_other_and_is_left_alone_for_a_while(db, notifier):
    events = [happens(db, "failed", task_id=n) for n in range(5)]
    dead, well = Kept("dead", *(OSError("no") for _ in range(9))), Kept("well")
    assert notifier(dead, "well").round(NOW) == AFTER_FAILURE
    assert len(dead.fails) == 8  # one try, although five wait
    assert notifier(well).round(NOW) == IDLE
    assert [notice.id for notice in well.got] == events


def test_notices_of_one_task_never_overtake_each_other(db, notifier):
    failed = happens(db, "failed")
    kept = Kept("kept", OSError("no"))
    one = notifier(kept)
    one.round(NOW)
    recovered, other = happens(db, "recovered"), happens(db, "failed", task_id=2)
    one.round(NOW + timedelta(seconds=1))
    assert [notice.id for notice in kept.got] == [other]
    one.round(NOW + timedelta(seconds=31))
    assert [notice.id for notice in kept.got] == [other, failed, recovered]


def test_trouble_is_logged_when_it_begins_and_ends_and_not_with_each_try(db, notifier, caplog):
    one = notifier(Kept("kept", *(OSError("no") for _ in range(5))))
    event = happens(db, "failed")
    with caplog.at_level(logging.INFO, "ticker.notify"):
        for hour in range(8):
            one.round(NOW + timedelta(hours=hour))
    assert [record.getMessage() for record in caplog.records] == [
        sentence("logs.channel_fails", channel="kept", error="no", remedy="ticker notify"),
        sentence("logs.channel_works_again", channel="kept"),
    ]
    assert notices(db) == [] and event


def test_a_channel_that_calls_exit_is_one_that_failed(db, notifier):
    happens(db, "failed")
    assert notifier(Kept("kept", SystemExit(3))).round(NOW) == AFTER_FAILURE
    assert notices(db, "error") == [("SystemExit: 3",)]


def test_a_clock_that_was_set_back_makes_no_notice_wait_for_years(db, notifier):
    happens(db, "failed")
    kept = Kept("kept", OSError("no"))
    one = notifier(kept)
    one.round(NOW)
    one.round(NOW - timedelta(days=400))
    assert len(kept.got) == 1


# ---------------------------------------------------------------------------------------------- several, and killed


@pytest.mark.slow
def test_two_notifiers_at_once_deliver_each_notice_once(db, notifier):
    told = [happens(db, "failed", task_id=n) for n in range(60)]
    channels = [Kept(), Kept()]
    with ThreadPoolExecutor(2) as pool:
        rounds = [pool.submit(notifier(channel).round, NOW) for channel in channels]
        assert [done.result(timeout=60) for done in rounds] == [IDLE, IDLE]
    assert sorted(notice.id for channel in channels for notice in channel.got) == told


def test_while_a_notice_is_under_way_no_lock_is_held_and_no_other_ticker_sends_it(db, notifier):
    happens(db, "failed")
    kept, looked = Kept(), []

    class Looks(Kept):
        def deliver(self, notice: Notice) -> str:
            looked.append(db.execute("SELECT event_id FROM ticker.notices FOR UPDATE NOWAIT").fetchall())
            open_ = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ticker notices' AND xact_start IS NOT NULL"
            looked.append(db.execute(open_).fetchone())
            notifier(kept).round(NOW + timedelta(seconds=5))
            return super().deliver(notice)

    channel = Looks()
    notifier(channel).round(NOW)
    assert (len(channel.got), kept.got, looked[1]) == (1, [], (0,))


@pytest.mark.slow
def test_a_notice_whose_ticker_was_killed_is_sent_again_when_the_lease_has_passed(db, database_url, notifier):
    event = happens(db, "failed")

    class Dies(Kept):
        def deliver(self, notice: Notice) -> str:
            os.kill(os.getpid(), signal.SIGKILL)
            return ""

    code = in_fork(lambda: Played(Dies(), ["kept"], Outbox(database_url, "ticker"), threading.Event()).round(NOW))
    assert code == -signal.SIGKILL
    kept = Kept()
    one = notifier(kept)
    one.round(NOW + LEASE - timedelta(seconds=1))
    assert kept.got == [] and notices(db) == [(event, "kept", 1)]
    one.round(NOW + LEASE)
    assert [notice.id for notice in kept.got] == [event]


def test_a_notice_that_arrived_while_the_tables_went_away_is_not_sent_again(db, notifier, caplog):
    now = datetime.now(UTC)
    happens(db, "failed", at=now)

    class Hides(Kept):
        def deliver(self, notice: Notice) -> str:
            db.execute("ALTER TABLE ticker.notices RENAME TO hidden")
            return super().deliver(notice)

    channel = Hides()
    one = notifier(channel)
    assert one.try_round() == deliver.WITHOUT_DATABASE
    assert sentence("errors.run_the_upgrade", remedy="ticker db upgrade").within(caplog.messages[0])
    db.execute("ALTER TABLE ticker.hidden RENAME TO notices")
    one.round(now + timedelta(days=1))
    assert (len(channel.got), notices(db)) == (1, [])


@pytest.mark.slow
def test_a_connection_that_was_cut_during_a_delivery_is_replaced(db, notifier):
    happens(db, "failed")

    class Cuts(Kept):
        def deliver(self, notice: Notice) -> str:
            db.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                " WHERE application_name = 'ticker notices' AND datname = current_database()"
            )
            return super().deliver(notice)

    channel = Cuts()
    assert (notifier(channel).round(NOW), len(channel.got), notices(db)) == (IDLE, 1, [])


@pytest.mark.slow
def test_a_right_that_is_missing_is_said_once(db, notifier, caplog):
    db.execute("ALTER TABLE ticker.events RENAME TO hidden")
    one = notifier(Kept())
    assert [one.try_round(), one.try_round()] == [deliver.WITHOUT_DATABASE] * 2
    assert len(caplog.messages) == 1 and sentence("errors.run_the_upgrade", remedy="ticker db upgrade").within(
        caplog.messages[0]
    )


# ----------------------------------------------------------------------------------------------------------- indexes

MAKE = {"channels": ["log"], "kinds": ["failed"], "by_cause": [], "after": GIVEN_UP, "limit": 1000, "now": NOW}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    ("statement", "parameters", "wanted"),
    [
        ("make_notices", MAKE, {"events_untold"}),
        ("claim_notice", {"channel": "log", "lease": LEASE, "now": NOW}, {"notices_due", "events_of_task"}),
        ("remove_old_notices", {"after": LEASE, "limit": 1000, "now": NOW}, {"notices_pkey", "events_pkey"}),
    ],
)
def test_what_a_notifier_asks_is_found_by_an_index(mode, statement, parameters, wanted, db):
    with db.transaction(force_rollback=True):
        db.execute(
            "INSERT INTO ticker.events (task_id, what, told, at) SELECT n %% 5000, 'failed', n <= 49900, %s"
            " FROM generate_series(1, 50000) n",
            [NOW],
        )
        db.execute(
            "INSERT INTO ticker.notices (event_id, channel, due_at)"
            " SELECT id, 'log', at + id * interval '1 second' FROM ticker.events WHERE id > 30000"
        )
        db.execute("ANALYZE ticker.events")
        db.execute("ANALYZE ticker.notices")
        db.execute(f"SET LOCAL plan_cache_mode TO {mode}")
        found = plan(db, statement, **parameters)
    assert wanted <= indexes(found)
    assert not read_whole(found) & {"events", "notices"}
