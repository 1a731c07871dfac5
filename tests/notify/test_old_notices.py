"""After three days nobody is told any more: not of an event first seen then, and not by a notice that has waited so long."""

from datetime import timedelta

from tests.notify.stage import MINUTE, NOW, Kept, happens, notices
from tests.sentences import sentence
from ticker.notify.deliver import AFTER_FAILURE


def test_events_older_than_three_days_are_done_with_and_never_become_notices(db, notifier, caplog):
    for n in range(30):
        happens(db, "failed", at=NOW - timedelta(days=200), task_id=n)
    happens(db, "failed", at=NOW - timedelta(days=3), task_id=1)
    young = happens(db, "recovered", at=NOW - timedelta(days=3) + MINUTE, task_id=1)
    kept = Kept()
    notifier(kept, "other").round(NOW)
    assert [notice.id for notice in kept.got] == [young]
    assert notices(db) == [(young, "other", 0)]
    assert caplog.messages == []  # none was given up
    assert db.execute("SELECT count(*) FROM ticker.events WHERE NOT told").fetchone() == (0,)


def test_after_three_days_a_notice_is_given_up_with_a_warning(db, notifier, caplog):
    event = happens(db, "failed")
    one = notifier(Kept("kept", *(OSError("no") for _ in range(3))))
    one.round(NOW)
    one.round(NOW + timedelta(days=2, hours=23))
    assert len(notices(db)) == 1
    one.round(NOW + timedelta(days=3))
    assert notices(db) == []
    assert sentence("logs.notices_given_up", channel="kept", number=1, first=event, last=event, error="no").within(
        caplog.messages
    )


def test_after_an_outage_of_four_days_nothing_of_before_is_delivered(db, notifier, monkeypatch):
    monkeypatch.setattr("ticker.notify.outbox.BATCH", 7)
    for n in range(30):
        happens(db, "failed", task_id=n)
    kept = Kept("kept", OSError("no"))
    one = notifier(kept)
    one.round(NOW)
    assert len(notices(db)) == 30
    new = happens(db, "failed", at=NOW + timedelta(days=4))
    one.round(NOW + timedelta(days=4))
    assert [notice.id for notice in kept.got] == [new]
    assert notices(db) == []


def test_what_is_too_old_goes_although_its_channel_still_fails(db, notifier):
    old = [happens(db, "failed", task_id=n) for n in range(3)]
    one = notifier(Kept("kept", *(OSError("no") for _ in range(3))))
    one.round(NOW)
    new = happens(db, "failed", at=NOW + timedelta(days=2))
    assert one.round(NOW + timedelta(days=2)) == AFTER_FAILURE
    assert {row[0] for row in notices(db)} == {*old, new}
    assert one.round(NOW + timedelta(days=3)) == AFTER_FAILURE
    assert {row[0] for row in notices(db)} == {new}


def test_a_notice_without_its_event_goes_three_days_after_it_was_due(db, notifier):
    db.execute("INSERT INTO ticker.notices (event_id, channel, due_at) VALUES (99, 'kept', %s)", [NOW])
    one = notifier(Kept())
    one.round(NOW + timedelta(days=3) - MINUTE)
    assert len(notices(db)) == 1
    one.round(NOW + timedelta(days=3))
    assert notices(db) == []


def test_what_no_ticker_has_a_channel_for_is_given_up(db, notifier, caplog):
    happens(db, "failed")
    one = notifier(Kept("one"), "nobodys")
    one.round(NOW)
    one.round(NOW + timedelta(days=3) - MINUTE)
    assert len(notices(db)) == 1
    one.round(NOW + timedelta(days=3) + MINUTE)
    assert notices(db) == []
    assert sentence("logs.notices_given_up_so_far", channel="nobodys", number=1).begins(caplog.messages[-1])
