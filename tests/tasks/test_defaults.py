"""Default tasks for a kind of owner: whoever inserts an owner's row, in whatever way, they are there."""

import copy
import pickle
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import ticker
from tests.factories import engine_on
from tests.sentences import sentence
from ticker import Wanted, owners
from ticker.db.connections import connect
from ticker.engine.tick import tick
from ticker.errors import BadInput


class Base(DeclarativeBase):
    pass


class Channel(Base):
    __tablename__ = "mail_channels"
    id: Mapped[int] = mapped_column(sa.BigInteger, primary_key=True)
    enabled: Mapped[bool] = mapped_column(default=True)


FETCH = Wanted(function="mail.fetch", every="1m", queue="slow", kwargs={"folder": "INBOX"}, retries=2, keep="problems")
CLEAN = Wanted(function="mail.clean", every="1d", name="clean")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda wanted: pickle.loads(pickle.dumps(wanted))])
def test_what_is_wanted_can_be_copied_but_not_changed(copied):
    assert copied(FETCH) == FETCH and copied(FETCH) is not FETCH
    with pytest.raises(AttributeError):
        FETCH.every = "5m"


@pytest.fixture
def session(database_url, db):
    """The owners' table, one owner in it, and triggers."""
    engine = engine_on(database_url)
    Base.metadata.create_all(engine)
    db.execute("INSERT INTO mail_channels VALUES (1, true)")
    db.execute("\n".join(owners.triggers(Channel, active_when="enabled")))
    with Session(engine) as session:
        yield session


def names(db, owner_id=None):
    return [(task.owner_id, task.name) for task in ticker.list_tasks(db) if owner_id in (None, task.owner_id)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "add",
    [
        lambda s: s.add_all([Channel(id=7, enabled=True), Channel(id=8, enabled=True)]),
        lambda s: s.execute(sa.insert(Channel), [{"id": 7, "enabled": True}, {"id": 8, "enabled": True}]),
        lambda s: s.execute(sa.text("INSERT INTO mail_channels SELECT n, true FROM generate_series(7, 8) n")),
        lambda s: s.execute(
            sa.text(
                "INSERT INTO mail_channels SELECT n, true FROM generate_series(1, 8) n WHERE n IN (1, 7, 8)"
                " ON CONFLICT (id) DO UPDATE SET enabled = true"
            )
        ),
    ],
    ids=["orm", "bulk", "sql", "upsert"],
)
@pytest.mark.smoke
def test_a_new_owner_has_its_default_tasks_however_it_is_added_and_not_if_that_is_undone(session, db, add):
    ticker.defaults(db, Channel, [FETCH, CLEAN])
    add(session)
    session.flush()
    assert len(ticker.list_tasks(session, owner=("mail_channels", "7"))) == 2
    session.rollback()
    assert names(db) == []
    add(session)
    session.commit()
    assert sorted(names(db)) == [(owner, name) for owner in "78" for name in ("clean", "mail.fetch")]


@pytest.mark.slow
def test_a_default_task_is_as_if_it_had_been_registered(session, db):
    ticker.defaults(db, Channel, [FETCH])
    db.execute("INSERT INTO mail_channels VALUES (2, true)")
    made = ticker.get(db, "mail.fetch", owner=("mail_channels", "2"))
    db.execute("DELETE FROM ticker.templates")
    db.execute("INSERT INTO mail_channels VALUES (3, true)")
    by_hand = ticker.register(
        db, "mail.fetch", owner=("mail_channels", "3"), every="1m", queue="slow", kwargs={"folder": "INBOX"}, retries=2,
        keep="problems",
    )  # fmt: skip
    own = {"id", "guid", "owner_id", "next_run", "created_at", "updated_at"}
    assert {f: getattr(made, f) for f in made.__slots__ if f not in own} == {
        f: getattr(by_hand, f) for f in by_hand.__slots__ if f not in own
    }
    registered = db.execute("SELECT DISTINCT registered FROM ticker.tasks").fetchall()
    assert len(registered) == 1
    assert abs(made.next_run - made.created_at) < timedelta(seconds=5)


@pytest.mark.slow
def test_it_rests_while_its_owner_does(session, db):
    ticker.defaults(db, Channel, [FETCH])
    db.execute("INSERT INTO mail_channels VALUES (2, false), (3, true)")
    assert [(task.owner_id, task.owner_active) for task in ticker.list_tasks(db)] == [("2", False), ("3", True)]
    db.execute("UPDATE mail_channels SET enabled = true")
    assert all(task.owner_active for task in ticker.list_tasks(db))


@pytest.mark.slow
def test_an_interval_task_is_due_at_the_next_tick_and_one_by_cron_waits_for_its_first_time(session, db, store, queue):
    ticker.defaults(db, Channel, [FETCH, Wanted(function="mail.report", cron="0 6 * * *", zone="Europe/Berlin")])
    db.execute("INSERT INTO mail_channels VALUES (2, true)")
    report = tick(store, queue, None)
    assert report.due.enqueued == 1
    cron = ticker.get(db, "mail.report", owner=("mail_channels", "2"))
    assert cron.paused_by is None and cron.last_run is None and cron.waiting == ()
    assert cron.next_run == ticker.validate("0 6 * * *", zone="Europe/Berlin", now=datetime.now(UTC)).times[0]


@pytest.mark.slow
@pytest.mark.parametrize("pause", [
    lambda db: ticker.pause(db, owner=("mail_channels", "2")),
    lambda db: ticker.bulk(db, {"owner_type": "mail_channels"}, "pause", apply=True),
], ids=["pause", "bulk"])  # fmt: skip
def test_a_default_task_that_is_paused_before_its_first_tick_waits_for_its_first_time(pause, session, db, store, queue):
    ticker.defaults(db, Channel, [Wanted(function="mail.report", cron="0 6 1 1 *")])
    db.execute("INSERT INTO mail_channels VALUES (2, true)")
    pause(db)
    tick(store, queue)
    ticker.resume(db, owner=("mail_channels", "2"))
    assert tick(store, queue).due.enqueued == 0
    [task] = ticker.list_tasks(db)
    assert task.next_run == ticker.validate("0 6 1 1 *", now=datetime.now(UTC)).times[0]


@pytest.mark.slow
def test_a_start_in_the_future_is_the_first_time(session, db, store, queue):
    starts = "2199-01-01T00:00:00Z"
    ticker.defaults(
        db,
        Channel,
        [Wanted(function="f", every="1m", starts=starts), Wanted(function="g", cron="0 6 * * *", starts=starts)],
    )
    db.execute("INSERT INTO mail_channels VALUES (2, true)")
    tick(store, queue, None)
    first = {task.name: task.next_run.isoformat() for task in ticker.list_tasks(db)}
    assert first == {"f": "2199-01-01T00:00:00+00:00", "g": "2199-01-01T06:00:00+00:00"}


@pytest.mark.slow
def test_the_list_is_what_the_next_owner_gets_and_changes_nobody_elses_tasks(session, db):
    ticker.defaults(db, Channel, [FETCH, CLEAN])
    db.execute("INSERT INTO mail_channels VALUES (2, true)")
    for _ in range(2):
        ticker.defaults(db, Channel, [Wanted(function="mail.fetch", every="5m")])
    db.execute("INSERT INTO mail_channels VALUES (3, true)")
    assert sorted(names(db)) == [("2", "clean"), ("2", "mail.fetch"), ("3", "mail.fetch")]
    every = {task.owner_id: task.every_ms for task in ticker.list_tasks(db, name="mail.fetch")}
    assert every == {"2": 60_000, "3": 300_000}
    ticker.defaults(db, Channel, [])
    db.execute("INSERT INTO mail_channels VALUES (4, true)")
    assert names(db, "4") == []


@pytest.mark.slow
def test_writing_the_same_list_again_writes_nothing(session, db):
    ticker.defaults(db, Channel, [FETCH, CLEAN])
    versions = "SELECT name, xmin::text FROM ticker.templates ORDER BY name"
    before = db.execute(versions).fetchall()
    ticker.defaults(session, Channel, [CLEAN, FETCH])
    session.commit()
    assert db.execute(versions).fetchall() == before


@pytest.mark.slow
def test_owners_that_are_there_already_get_what_they_lack_if_asked(session, db):
    ticker.register(db, "mail.fetch", every="9m", owner=("mail_channels", "1"))
    assert ticker.defaults(session, Channel, [FETCH, CLEAN]) == 0
    assert len(names(session)) == 1
    assert ticker.defaults(session, Channel, [FETCH, CLEAN], existing=True) == 1
    assert ticker.defaults(session, Channel, [FETCH, CLEAN], existing=True) == 0
    session.commit()
    assert ticker.get(db, "mail.fetch", owner=("mail_channels", "1")).every_ms == 540_000
    assert sorted(names(db)) == [("1", "clean"), ("1", "mail.fetch")]


@pytest.mark.slow
def test_keys_of_several_columns_and_odd_names_work_too(db, database_url):
    db.execute('CREATE SCHEMA "My %s"; CREATE TABLE "My %s"."se ""ats" (room int, name text, PRIMARY KEY (room, name));'
               ' INSERT INTO "My %s"."se ""ats" VALUES (1, \'a\')')  # fmt: skip
    where = {"key": ("room", "name"), "table_schema": "My %s"}
    db.execute("\n".join(owners.triggers('se "ats', **where)))
    assert ticker.defaults(db, 'se "ats', [FETCH], existing=True) == 1
    with engine_on(database_url).begin() as connection:
        assert ticker.defaults(connection, 'se "ats', [FETCH], existing=True) == 0
    db.execute('INSERT INTO "My %s"."se ""ats" VALUES (2, \'b "c\')')
    assert names(db) == [('[1, "a"]', "mail.fetch"), ('[2, "b \\"c"]', "mail.fetch")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (
            [Wanted(function="f", at="2199-01-01T00:00:00Z")],
            sentence("errors.not_of_a_default", field="at", value="'2199-01-01T00:00:00Z'"),
        ),
        (
            [Wanted(function="f", every="1m", ends="2199-01-01T00:00:00Z")],
            sentence("errors.cannot_be_said", field="ends", value="'2199-01-01T00:00:00Z'"),
        ),
        (
            [Wanted(function="f", every="0s")],
            sentence("errors.under_the_limit", field="every", value="'0s'", limit="1s"),
        ),
        ([Wanted(function="f", cron="0 0 30 2 *")], sentence("errors.never_fires")),
        ([Wanted(function="f", every="1m"), Wanted(function="f", every="2m")], sentence("errors.a_name_twice")),
        ([{"function": "f"}], sentence("errors.is_no_task")),
    ],
)
def test_what_cannot_be_a_default_is_refused_and_nothing_is_written(session, db, wanted, words):
    with pytest.raises(BadInput) as caught:
        ticker.defaults(db, Channel, [FETCH, *wanted])
    assert words.within(caught.value)
    assert db.execute("SELECT count(*) FROM ticker.templates").fetchall() == [(0,)]


@pytest.mark.slow
def test_without_the_trigger_it_says_so(db):
    with pytest.raises(BadInput, check=sentence("errors.no_trigger_for_new_owners", owner_type="'phones'").within):
        ticker.defaults(db, "phones", [FETCH])


def test_triggers_are_refused_where_the_tables_are_older(db):
    db.execute("CREATE TABLE phones (id int PRIMARY KEY); DROP FUNCTION ticker.guard_owner() CASCADE")
    with pytest.raises(psycopg.DatabaseError, match="ticker db upgrade"), db.transaction():
        db.execute("\n".join(owners.triggers("phones")))


@pytest.mark.slow
def test_who_may_not_touch_tasks_may_add_owners(session, db, database_url):
    ticker.defaults(db, Channel, [FETCH])
    db.execute("GRANT SELECT, INSERT ON mail_channels TO pg_monitor")
    with connect(database_url) as app:
        app.execute("SET ROLE pg_monitor")
        app.execute("INSERT INTO mail_channels VALUES (2, true)")
    assert names(db) == [("2", "mail.fetch")]


def test_existing_tasks_follow_a_changed_default_where_nobody_has_changed_them_since(session, db):
    ticker.defaults(db, Channel, [FETCH, CLEAN])
    db.execute("INSERT INTO mail_channels SELECT n, true FROM generate_series(2, 5) n")
    of = {n: ticker.get(db, "mail.fetch", owner=("mail_channels", str(n))).id for n in range(2, 6)}
    ticker.edit(db, of[3], every="10m")
    ticker.edit(db, of[4], queue="fast")
    ticker.edit(db, of[5], every="3m", retries=0, queue="fast")
    ticker.pause(db, of[2], by="ann")
    later = Wanted(
        function="mail.fetch", every="2m", queue="later", kwargs={"folder": "INBOX"}, retries=3, keep="problems"
    )
    assert ticker.defaults(db, Channel, [later, CLEAN]) == 0
    assert (
        ticker.defaults(db, Channel, [later, CLEAN], existing=True) == 2 + 3
    )  # those of the first owner, and three changes
    found = [ticker.get(db, of[n]) for n in range(2, 6)]
    assert [(task.every_ms // 60_000, task.queue, task.retries) for task in found] == [
        (2, "later", 3), (10, "later", 3), (2, "fast", 3), (3, "fast", 0),
    ]  # fmt: skip
    assert found[0].paused_by == "ann" and found[0].box_ms == 30_000
    assert ticker.defaults(db, Channel, [later, CLEAN], existing=True) == 0


def test_a_changed_default_that_does_not_fit_a_task_leaves_it_as_it_is(session, db):
    ticker.defaults(db, Channel, [FETCH], existing=True)
    [task] = ticker.list_tasks(db)
    ticker.edit(db, task.id, box="25s")
    assert ticker.defaults(db, Channel, [Wanted(function="mail.fetch", every="20s", queue="later")], existing=True) == 0
    assert (ticker.get(db, task.id).every_ms, ticker.get(db, task.id).queue) == (60_000, "slow")
