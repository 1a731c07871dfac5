"""Paused tasks: every screen gives the same number, and announces none of them as next."""

from datetime import UTC, datetime

import pytest

import ticker
from tests.factories import ticked
from ticker.read import formatting, overview, tasks

LATER = datetime(2100, 1, 1, tzinfo=UTC)
SCOPES = [{}, {"group": "news"}, {"function": "poll"}, {"queue": "mail"}, {"owner_type": "channels"}, {"limit": "imap"}]


@pytest.fixture
def three(environ, db):
    """A task that any pause is for, one that only a pause of all is for, and one that ann has paused by itself."""
    for name, marks in (("poll", {"group": "news", "queue": "mail", "limits": ["imap"]}), ("other", {}), ("own", {})):
        ticker.register(db, name, every="1m", owner="channels:5" if marks else "feeds:1", first=LATER, **marks)
    ticker.pause(db, "own", owner="feeds:1", by="ann")
    ticked(db)


def numbers(db):
    """What each screen says of the number of paused tasks."""
    listed = ticker.list_tasks(db)
    return {
        "tile": overview.counts(db).paused,
        "list": len(ticker.list_tasks(db, state="paused")),
        "pages": len(tasks.page_of_tasks(db, state="paused").tasks),
        "owners": sum(owner.paused for owner in ticker.list_owners(db)),
        "owners that are": sum(owner.paused for owner in ticker.list_owners(db, paused=True)),
        "states": sum(formatting.state(task) == "paused" for task in listed),
    }


@pytest.mark.slow
@pytest.mark.parametrize("scope", SCOPES, ids=lambda scope: next(iter(scope), "all"))
def test_every_screen_counts_the_tasks_that_a_pause_of_many_is_for(db, three, scope):
    ticker.pause_all(db, **scope)
    assert set(numbers(db).values()) == {2 if scope else 3}
    ticker.resume_all(db, **scope)
    assert set(numbers(db).values()) == {1}


def test_what_is_paused_is_not_announced_as_next(db, three):
    def following():
        return sorted(task.name for task in overview.overview(db).next)

    assert following() == ["other", "poll"]
    ticker.pause_all(db, group="news")
    assert following() == ["other"]
    ticker.pause_all(db)
    assert following() == []


@pytest.mark.slow
def test_a_pause_of_many_is_looked_for_among_so_many_tasks(db, three, monkeypatch):
    monkeypatch.setattr(overview, "COUNTED_AT_MOST", 1)
    ticker.pause_all(db)
    assert overview.counts(db).said("paused") == "over 1"
