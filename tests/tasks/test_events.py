"""Whoever stops a task, or lets it go on, by whatever means, leaves one event with the right words."""

from itertools import permutations

import pytest
import sqlalchemy as sa

import ticker
from tests.harness import events
from ticker import owners

EVENT = "what, by, words, told"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stop", "go_on", "stopped", "goes_on"),
    [
        ("paused_by = 'me', paused_reason = 'moving'", "paused_by = NULL, paused_reason = ''",
         ("paused", "me", "moving", False), ("resumed", "", "it was paused by me: moving", False)),
        ("enabled = false", "enabled = true", ("disabled", "", "", False), ("enabled", "", "", False)),
        ("owner_active = false", "owner_active = true", ("owner_inactive", "", "", False), ("owner_active", "", "", False)),
        ("paused_by = 'ticker', failures = 3, paused_reason = '3 failures'",
         "paused_by = NULL, paused_reason = ''", ("auto_paused", "ticker", "3 failures", False),
         ("resumed", "", "it was paused by ticker: 3 failures", False)),
    ],
)  # fmt: skip
def test_each_change_by_raw_sql_leaves_one_event(environ, db, stop, go_on, stopped, goes_on):
    task = ticker.register(db, "poll", every="1m", owner="mail_channels:5", pause_after=3)
    db.execute(f"UPDATE ticker.tasks SET {stop}")
    db.execute(f"UPDATE ticker.tasks SET {go_on}")
    assert events(db, EVENT) == [(what, by or db.info.user, *rest) for what, by, *rest in (stopped, goes_on)]
    [(name, function, owner_type, owner_id)] = db.execute(
        "SELECT DISTINCT task_name, function, owner_type, owner_id FROM ticker.events WHERE task_id = %s", [task.id]
    ).fetchall()
    assert (name, function, owner_type, owner_id) == ("poll", "poll", "mail_channels", "5")


@pytest.mark.slow
@pytest.mark.parametrize("column", ["enabled", "owner_active"])
def test_what_somebody_else_does_to_a_paused_task_is_not_told_as_done_by_who_paused_it(task, db, column):
    db.execute("UPDATE ticker.tasks SET paused_by = 'anna', paused_reason = 'moving'")
    db.execute(f"UPDATE ticker.tasks SET {column} = false")
    db.execute(f"UPDATE ticker.tasks SET {column} = true")
    assert [(by, words) for _, by, words, _ in events(db, EVENT)] == [
        ("anna", "moving"),
        (db.info.user, ""),
        (db.info.user, ""),
    ]


@pytest.mark.parametrize(
    "unrelated",
    ["next_run = now(), failures = 3", "paused_reason = paused_reason", "enabled = true", "paused_by = paused_by",
     "enabled = enabled, owner_active = owner_active, paused_by = NULL"],
)  # fmt: skip
def test_an_update_that_stops_nothing_leaves_none(task, db, unrelated):
    db.execute(f"UPDATE ticker.tasks SET {unrelated}")
    assert events(db, EVENT) == []
    assert ticker.get(db, task).resumed_at is None


def test_an_edit_and_a_registration_that_change_nothing_leave_none(task, db):
    ticker.edit(db, task, every="1m", enabled=True)
    ticker.register(db, "poll", every="1m", owner="mail_channels:5")
    assert events(db, EVENT) == []


def test_a_user_whose_name_is_ticker_is_not_the_ticker(task, db):
    ticker.pause(db, task, by="ticker", reason="moving")
    assert events(db, EVENT) == [("paused", "ticker", "moving", False)]


def test_an_owner_that_becomes_inactive_says_so_through_its_trigger(environ, db):
    channels = sa.Table("mail_channels", sa.MetaData(), sa.Column("id", sa.BigInteger, primary_key=True),
                        sa.Column("enabled", sa.Boolean))  # fmt: skip
    db.execute("CREATE TABLE mail_channels (id bigint PRIMARY KEY, enabled boolean)")
    db.execute("INSERT INTO mail_channels VALUES (5, true)")
    db.execute("\n".join(owners.triggers(channels, active_when="enabled")))
    for name in ("a", "b"):
        ticker.register(db, "poll", name=name, every="1m", owner=("mail_channels", "5"))
    db.execute("UPDATE mail_channels SET enabled = false")
    db.execute("UPDATE mail_channels SET enabled = true")
    assert [what for what, *_ in events(db, EVENT)] == ["owner_inactive"] * 2 + ["owner_active"] * 2


@pytest.mark.parametrize("order", [*permutations(["paused_by = NULL", "enabled = true", "owner_active = true"])])
def test_successes_are_waited_for_from_when_the_last_obstacle_is_gone(task, db, order):
    db.execute("UPDATE ticker.tasks SET enabled = false, owner_active = false, paused_by = 'me'")
    resumed = []
    for columns in order:
        db.execute(f"UPDATE ticker.tasks SET {columns}")
        resumed.append(ticker.get(db, task).resumed_at is not None)
    assert resumed == [False, False, True]


def test_a_task_that_pauses_itself_again_is_no_news_until_it_has_worked(task, db):
    pause = "UPDATE ticker.tasks SET paused_by = 'ticker', pause_after = 1, failures = 9"
    resume = "UPDATE ticker.tasks SET paused_by = NULL"
    for statement in (pause, resume, pause, resume):
        db.execute(statement)
    db.execute("INSERT INTO ticker.events (task_id, what) VALUES (%s, 'recovered')", [task.id])
    db.execute("INSERT INTO ticker.events (task_id, what) VALUES (%s, 'recovered')", [task.id + 1])
    db.execute(pause)
    assert [told for what, _, _, told in events(db, EVENT) if what == "auto_paused"] == [False, True, False]
