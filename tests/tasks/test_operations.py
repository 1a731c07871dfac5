"""What applications call: in the caller's transaction, idempotent, and whole or not at all."""

import asyncio
import logging
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session, sessionmaker

import ticker
from tests.conftest import admin, copy_of
from tests.doubles import NOW
from tests.factories import engine_on, nested
from tests.sentences import sentence
from ticker import BadInput, UnknownOwner, UnknownTask, Wanted, clock, owners, settings
from ticker.daemon.tick_job import TickJob
from ticker.tasks import preview

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


class Base(DeclarativeBase):
    pass


class MailChannel(Base):
    __tablename__ = "mail_channels"
    id: Mapped[int] = mapped_column(primary_key=True)
    host: Mapped[str] = mapped_column(default="mail.example.org")


owners.follow(MailChannel)


@pytest.fixture(scope="module")
def database_url(servers, template):
    """One for all of them, emptied for each; a copy of its own costs each test a quarter of a second."""
    yield copy_of(servers, template, f"{template}_registration")
    admin(servers, f'DROP DATABASE "{template}_registration" WITH (FORCE)')


@pytest.fixture(scope="module")
def engine(database_url):
    engine = engine_on(database_url)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture(autouse=True)
def empty(environ, engine):
    with engine.begin() as connection:
        for table in ("mail_channels", "ticker.tasks", "ticker.runs"):
            connection.execute(text(f"DELETE FROM {table}"))
    with clock.use(lambda: NOW):
        yield


@pytest.fixture(params=["Session", "scoped_session", "Connection", "psycopg"])
def caller(request, engine, database_url):
    """Each kind of `db`; a transaction begins with its first statement, and the test commits it or not."""
    openers = {
        "Session": lambda: Session(engine),
        "scoped_session": lambda: scoped_session(sessionmaker(engine)),
        "Connection": engine.connect,
        "psycopg": lambda: psycopg.connect(database_url),
    }
    opened = openers[request.param]()
    yield opened
    opened.rollback()
    opened.close()


@pytest.fixture
def channel(db):
    """The id of a mail channel that is there."""
    return db.execute("INSERT INTO mail_channels (host) VALUES ('mail.example.org') RETURNING id").fetchone()[0]


def poll(db, name="poll", **options):
    return ticker.register(db, "poll", name=name, **{"every": "1m", **options})


# -------------------------------------------------------------------------------------- in the caller's transaction


@pytest.mark.slow
@pytest.mark.smoke
def test_a_registration_commits_or_goes_with_the_callers_own_rows(caller, db):
    poll(caller)
    assert ticker.list_tasks(db) == []
    caller.rollback()
    assert ticker.list_tasks(db) == []
    task = poll(caller)
    caller.commit()
    assert ticker.list_tasks(db) == [task]


@pytest.mark.slow
def test_every_other_call_does_too(caller, db, channel):
    owner = ("mail_channels", str(channel))
    before = [poll(db, name, owner=owner) for name in "ab"]
    ticker.edit(caller, "a", owner=owner, every="5m")
    ticker.run_now(caller, owner=owner)
    ticker.pause(caller, owner=owner, reason="why")
    ticker.resume(caller, "a", owner=owner)
    ticker.reconcile(caller, owner, [Wanted(function="poll", name="c", every="1m")])
    ticker.unregister(caller, owner=owner)
    assert ticker.list_tasks(caller) == []
    assert len(ticker.list_runs(caller)) == 2
    caller.rollback()
    assert ticker.list_tasks(db) == before
    assert ticker.list_runs(db) == []


def test_a_new_task_is_due_now_with_the_defaults_of_its_interval(caller):
    task = ticker.register(caller, "poll", every="1m")
    assert (task.name, task.function, task.owner, task.queue, task.kwargs) == ("poll", "poll", "", "polling", {})
    assert (task.every_ms, task.tolerance_ms, task.box_ms, task.grace_ms) == (60_000, 5_000, 30_000, 1_000)
    assert (task.next_run, task.enabled, task.waiting, task.last_run) == (NOW, True, (), None)


def test_a_task_has_what_was_said_of_it(caller, channel):
    task = ticker.register(
        caller, "mail.fetch", name="fetch", owner=("mail_channels", str(channel)), every=timedelta(minutes=2),
        first=NOW + HOUR, queue="mail", kwargs={"channel_id": channel, "text": "Zoë \\u0000 \x7f"}, tolerance=2.5,
        box="PT1M", subject="Zoë", description="fetches <script>", metadata={"a": [1, None]},
    )  # fmt: skip
    assert (task.name, task.function, task.owner) == ("fetch", "mail.fetch", f"mail_channels:{channel}")
    assert (task.every_ms, task.tolerance_ms, task.box_ms) == (120_000, 2_500, 60_000)
    assert (task.next_run, task.queue, task.subject) == (NOW + HOUR, "mail", "Zoë")
    assert task.kwargs == {"channel_id": channel, "text": "Zoë \\u0000 \x7f"}
    assert (task.description, task.metadata) == ("fetches <script>", {"a": [1, None]})


# ----------------------------------------------------------------------------------------------------------- again


def test_registering_again_changes_nothing(caller, db):
    options = {"kwargs": {"a": 1.0, "b": 1e20}, "tolerance": 3, "subject": "x", "metadata": {"c": []}}
    task = poll(caller, **options)
    with clock.use(lambda: NOW + HOUR):
        assert poll(caller, **options) == task
        assert poll(caller) == task
    caller.commit()
    assert ticker.list_tasks(db) == [task]


@pytest.mark.slow
def test_of_8_processes_that_register_the_same_at_once_one_makes_it_and_all_get_it(database_url, db):
    barrier = Barrier(8)

    def one(number):
        with psycopg.connect(database_url) as connection:
            barrier.wait()
            return [poll(connection, f"task {n}").id for n in range(20)]

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(8)))
    ids = [task.id for task in ticker.list_tasks(db)]
    assert len(ids) == 20
    assert [sorted(answer) for answer in answers] == [ids] * 8


@pytest.mark.slow
def test_8_processes_that_reconcile_the_same_owner_in_any_order_do_not_block_each_other(database_url, db):
    barrier, owner = Barrier(8), owners.Owner("nowhere", "1")

    def one(seed):
        items = [Wanted(function="poll", name=f"task {n}", every="1m") for n in range(20)]
        random.Random(seed).shuffle(items)
        with psycopg.connect(database_url) as connection:
            barrier.wait()
            tasks = ticker.reconcile(connection, owner, items)
        assert [task.name for task in tasks] == [item.name for item in items]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))
    assert len(ticker.list_tasks(db)) == 20


@pytest.mark.slow
def test_registering_while_others_unregister_gives_a_task_each_time(database_url):
    barrier = Barrier(4)

    def one(number):
        with psycopg.connect(database_url, autocommit=True) as connection:
            barrier.wait()
            for _ in range(100):
                if number % 2:
                    ticker.unregister(connection, "poll")
                else:
                    assert poll(connection).name == "poll"

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))


def test_an_argument_with_the_name_of_the_run_is_refused(db):
    with pytest.raises(BadInput, match="kwargs: 'run'"):
        ticker.register(db, "poll", every="1m", kwargs={"run": 5})
    assert ticker.list_tasks(db) == []


def test_a_deploy_does_not_undo_what_an_operator_did(db):
    said = {"every": "1m", "kwargs": {"a": 1}, "queue": "mail", "box": 20}
    poll(db, **said)
    ticker.pause(db, "poll", by="me", reason="why")
    ticker.edit(db, "poll", enabled=False, every="5m", kwargs={"a": 2}, queue="slow", box=30, tolerance=9)
    edited = ticker.get(db, "poll")
    assert poll(db, **said) == edited
    assert (edited.paused_by, edited.enabled, edited.every_ms, edited.kwargs) == ("me", False, 300_000, {"a": 2})
    assert (edited.queue, edited.box_ms, edited.tolerance_ms) == ("slow", 30_000, 9_000)


def test_a_field_that_is_registered_anew_is_written_and_no_other(db):
    poll(db, kwargs={"a": 1}, queue="mail")
    ticker.edit(db, "poll", queue="slow", enabled=False)
    task = poll(db, kwargs={"a": 2}, queue="mail")
    assert (task.kwargs, task.queue, task.enabled) == ({"a": 2}, "slow", False)
    assert poll(db, queue="fast").queue == "fast"
    assert ticker.register(db, "other", name="poll").function == "other"


def test_what_runs_wrote_stays_when_a_task_is_registered_anew(db):
    poll(db)
    db.execute("UPDATE ticker.tasks SET cursor = '7', last_run = %(now)s, last_occurrence = %(now)s,"
               " waiting = ARRAY[%(now)s], failures = 3, last_outcome = 'failed'", {"now": NOW})  # fmt: skip
    task = poll(db, every="2m")
    assert (task.cursor, task.last_run, task.last_occurrence, task.waiting) == (7, NOW, NOW, (NOW,))
    assert (task.failures, task.last_outcome) == (3, "failed")


@pytest.mark.parametrize("change", [ticker.edit, lambda db, name, **new: ticker.register(db, "poll", name=name, **new)],
                         ids=["edit", "register"])  # fmt: skip
class TestAChangedInterval:
    def test_takes_the_tolerance_and_box_along_that_were_never_given(self, change, db):
        poll(db)
        task = change(db, "poll", every="10m")
        assert (task.tolerance_ms, task.box_ms, task.grace_ms) == (30_000, 300_000, 1_000)

    @pytest.mark.parametrize("given", [{"tolerance": 7, "box": 20}, {"tolerance": 5, "box": 30}])
    def test_leaves_the_tolerance_and_box_that_were_given(self, given, change, db):
        poll(db, **given)
        task = change(db, "poll", every="10m")
        assert (task.tolerance_ms, task.box_ms) == (given["tolerance"] * 1000, given["box"] * 1000)

    def test_brings_the_next_run_nearer(self, change, db):
        poll(db, every="1h", first=NOW + HOUR)
        assert change(db, "poll", every="1m").next_run == NOW + MINUTE
        assert change(db, "poll", every="59s").next_run == NOW + SECOND

    @pytest.mark.parametrize(("due", "then"), [(70, 70), (120, 120), (140, 20), (210, 90), (280, 40)])
    def test_moves_it_by_whole_intervals_so_that_tasks_stay_apart(self, due, then, change, db):
        poll(db, every="5m", first=NOW + due * SECOND)
        assert change(db, "poll", every="2m").next_run == NOW + then * SECOND

    @pytest.mark.parametrize("column", ["last_run = %s", "waiting = ARRAY[%s]"])
    def test_keeps_an_interval_from_the_last_start_and_the_last_job(self, column, change, db):
        poll(db, every="5m", first=NOW + 290 * SECOND)
        db.execute(f"UPDATE ticker.tasks SET {column}", [NOW - 10 * SECOND])
        assert change(db, "poll", every="2m").next_run == NOW + 110 * SECOND

    def test_never_pushes_the_next_run_away(self, change, db):
        poll(db, first=NOW + SECOND)
        db.execute("UPDATE ticker.tasks SET last_run = %s", [NOW - 59 * SECOND])
        assert change(db, "poll", every="1h").next_run == NOW + SECOND

    def test_is_refused_where_what_was_given_does_not_fit_any_more(self, change, db):
        task = poll(db, box=40)
        with pytest.raises(
            BadInput, check=sentence("errors.over_the_limit", field="box", value="'40s'", limit="24s").within
        ):
            change(db, "poll", every=30)
        assert ticker.get(db, "poll") == task


def test_the_same_tolerance_that_is_registered_with_a_new_interval_is_kept(db):
    poll(db, every="1m", tolerance=5)
    assert poll(db, every="10m", tolerance=5).tolerance_ms == 5_000


# ---------------------------------------------------------------------------------------------------------- owners


def test_an_owner_may_have_several_tasks_and_two_owners_tasks_of_one_name(db):
    names = [poll(db, name, owner=("t", id_)).owner for id_ in "12" for name in "ab"]
    assert names == ["t:1", "t:1", "t:2", "t:2"]
    assert [task.name for task in ticker.list_tasks(db, owner="t:1")] == ["a", "b"]


def test_an_owner_is_the_same_as_an_object_a_pair_or_a_text(engine):
    with Session(engine) as session:
        channel = MailChannel()
        session.add(channel)
        task = poll(session, owner=channel)  # which flushes it
        pair = ("mail_channels", str(channel.id))
        assert poll(session, owner=pair) == poll(session, owner=":".join(pair)) == poll(session, owner=channel) == task
        session.rollback()
    with Session(engine) as session:
        assert ticker.list_tasks(session) == []


def test_a_task_of_an_owner_that_is_gone_is_refused_and_the_transaction_goes_on(caller, channel, db):
    with pytest.raises(
        UnknownOwner, check=sentence("errors.no_owner_with_the_key", owner_type="mail_channels", key=channel + 1).within
    ):
        poll(caller, owner=("mail_channels", str(channel + 1)))
    task = poll(caller, owner=("mail_channels", str(channel)))
    caller.commit()
    assert ticker.list_tasks(db) == [task]


def test_reconcile_makes_the_owners_tasks_equal_to_the_list(caller, db):
    others = poll(db, owner="t:2")
    kept, _ = poll(db, "kept", owner="t:1"), poll(db, "surplus", owner="t:1")
    items = [{"function": "poll", "name": "new", "every": "2m"}, Wanted(function="poll", name="kept", every="1m")]
    new, same = ticker.reconcile(caller, ("t", "1"), items)
    caller.commit()
    assert (new.name, new.every_ms, same) == ("new", 120_000, kept)
    assert ticker.list_tasks(db) == [others, kept, new]
    assert ticker.reconcile(caller, "t:1", []) == []
    assert ticker.list_tasks(caller) == [others]


@pytest.mark.parametrize(
    ("items", "field"),
    [
        ([{"function": "poll", "every": 0}], "every"),
        ([{"function": "poll", "name": "new"}], "every"),
        ([{"function": "poll", "name": "new", "every": 60, "box": 58}], "box"),
        ([{"function": "poll", "name": "old", "every": 4}], "box"),
        ([{"function": "poll", "every": 60}] * 2, "wanted"),
        ([{"every": 60}], "wanted"),
        ([{"function": "poll", "evry": 60}], "wanted"),
        (["poll"], "wanted"),
        ([None], "wanted"),
    ],
)
def test_a_list_with_one_bad_item_changes_nothing_even_where_each_statement_commits(items, field, db):
    tasks = [poll(db, "surplus", owner="t:1"), poll(db, "old", owner="t:1", box=30)]
    with pytest.raises(BadInput) as caught:
        ticker.reconcile(db, "t:1", [{"function": "poll", "name": "good", "every": 60}, *items])
    assert caught.value.field == field
    assert ticker.list_tasks(db) == tasks


def test_reconcile_without_an_owner_is_refused(db):
    task = poll(db)
    with pytest.raises(BadInput, check=sentence("errors.reconcile_needs_an_owner").within):
        ticker.reconcile(db, None, [])
    assert ticker.list_tasks(db) == [task]


# -------------------------------------------------------------------------------------------------------- operators


def test_an_edit_takes_effect_at_once(caller):
    poll(caller)
    ticker.edit(caller, "poll", every="5m", enabled=False, subject="x", kwargs={"a": 1})
    task = ticker.get(caller, "poll")
    assert (task.every_ms, task.enabled, task.subject, task.kwargs) == (300_000, False, "x", {"a": 1})
    assert task.updated_at == NOW


def test_a_paused_task_says_by_whom_why_and_until_when_and_is_due_when_resumed(caller):
    poll(caller, first=NOW + HOUR)
    [paused] = ticker.pause(caller, "poll", by="me", reason="why", until=NOW + MINUTE)
    assert (paused.paused_by, paused.paused_reason, paused.paused_until) == ("me", "why", NOW + MINUTE)
    [resumed] = ticker.resume(caller, "poll")
    assert (resumed.paused_by, resumed.paused_reason, resumed.paused_until) == (None, "", None)
    assert resumed.next_run == NOW
    assert ticker.resume(caller, "poll") == []


def test_a_pause_that_would_be_over_at_once_is_refused(caller):
    poll(caller)
    for until in (NOW - MINUTE, NOW):
        with pytest.raises(
            BadInput,
            check=sentence(
                "errors.until_is_over", field="until", value=re.compile(r".*"), now=re.compile(r"20\S+")
            ).within,
        ):
            ticker.pause(caller, "poll", until=until)
    assert ticker.get(caller, "poll").paused_by is None


def test_resuming_does_not_enable_what_was_disabled(db):
    poll(db)
    ticker.edit(db, "poll", enabled=False)
    ticker.pause(db, "poll")
    [task] = ticker.resume(db, "poll")
    assert not task.enabled


def test_run_now_plans_a_run_and_leaves_the_schedule_alone(caller):
    task = poll(caller, owner="t:1", first=NOW + HOUR)
    [run_id] = ticker.run_now(caller, owner="t:1")
    [run] = ticker.list_runs(caller)
    assert (run.id, run.task_id, run.kind, run.state, run.due_at) == (run_id, task.id, "manual", "planned", NOW)
    assert (run.task_name, run.function, run.owner_type, run.owner_id) == ("poll", "poll", "t", "1")
    assert ticker.get(caller, task) == task


@pytest.mark.slow
def test_run_now_of_an_owner_says_of_all_its_tasks_that_none_can_run(caller):
    for name in "abc":
        ticker.edit(caller, poll(caller, name, owner="t:1"), enabled=False)
    said = sentence("errors.none_can_run", owner="'t:1'", number=3, remedy="ticker edit TASK --enable")
    with pytest.raises(BadInput) as refused:
        ticker.run_now(caller, owner="t:1")
    assert str(refused.value) == said
    ticker.edit(caller, "b", owner="t:1", enabled=True)
    assert len(ticker.run_now(caller, owner="t:1")) == 1


def test_run_now_plans_a_run_of_what_is_paused_and_refuses_what_is_disabled(caller):
    poll(caller, "a", owner="t:1"), poll(caller, "b", owner="t:1")
    ticker.pause(caller, "a", owner="t:1")
    ticker.edit(caller, "b", owner="t:1", enabled=False)
    with pytest.raises(BadInput, check=sentence("errors.disabled_enable_it", task="'b'").within):
        ticker.run_now(caller, "b", owner="t:1")
    assert ticker.list_runs(caller) == []
    ticker.run_now(caller, owner="t:1")
    assert [run.task_name for run in ticker.list_runs(caller)] == ["a"]


def test_unregister_returns_what_it_deleted_and_may_be_repeated(caller):
    task = poll(caller)
    assert ticker.unregister(caller, "poll") == [task]
    assert ticker.unregister(caller, "poll") == []
    assert ticker.unregister(caller, owner="t:1") == []


def test_a_task_is_named_by_itself_its_id_its_name_and_owner_or_all_of_an_owners(db):
    task, other = poll(db, "a", owner="t:1"), poll(db, "b", owner="t:1")
    poll(db, "a")
    for ref in (task, task.id):
        assert [paused.id for paused in ticker.pause(db, ref)] == [task.id]
    assert [paused.id for paused in ticker.pause(db, "a", owner="t:1")] == [task.id]
    assert [paused.id for paused in ticker.pause(db, owner="t:1")] == [task.id, other.id]


@pytest.mark.parametrize("call", [ticker.pause, ticker.resume, ticker.run_now, ticker.edit, ticker.get])
@pytest.mark.parametrize(("ref", "owner"), [("a", None), (2**62, None), ("poll", "t:2")])
def test_a_task_that_is_not_there_is_unknown(call, ref, owner, db):
    poll(db)
    with pytest.raises(UnknownTask, check=sentence("errors.no_such_task").within):
        call(db, ref, owner=owner)


@pytest.mark.parametrize("call", [ticker.pause, ticker.resume, ticker.run_now])
def test_an_owner_without_tasks_has_none_that_is_known(call, db):
    poll(db)
    with pytest.raises(UnknownTask, check=sentence("errors.no_task_of_owner", owner="t:2").within):
        call(db, owner="t:2")


def test_an_edit_of_several_tasks_at_once_is_refused(db):
    tasks = [poll(db, name, owner="t:1") for name in "ab"]
    with pytest.raises(BadInput, check=sentence("errors.several_tasks", number=2).within):
        ticker.edit(db, None, owner="t:1", every=90)
    assert ticker.list_tasks(db) == tasks


# ------------------------------------------------------------------------------------------------- what db may be


@pytest.mark.parametrize(
    "db",
    [None, "postgresql://", SimpleNamespace(cursor=None), engine_on("postgresql://nobody@/nothing")],
    ids=["nothing", "a URL", "psycopg2", "an engine"],
)
def test_what_is_no_connection_is_refused_with_a_sentence(db):
    with pytest.raises(BadInput, check=sentence("errors.no_connection", field="db", value=re.compile(r".*")).within):
        poll(db)


@pytest.mark.parametrize("kind", ["connect", Session])
def test_another_driver_is_refused_with_a_sentence(kind):
    engine = create_engine("sqlite://")
    with (
        engine.connect() if kind == "connect" else Session(engine) as db,
        pytest.raises(
            BadInput,
            check=sentence(
                "errors.other_driver", field="db", value="'pysqlite'", remedy="postgresql+psycopg://"
            ).within,
        ),
    ):
        poll(db)


class AsyncSession:
    """As SQLAlchemy's looks from outside; the real one needs greenlet, which we do not."""

    async def execute(self, *args):
        raise AssertionError("nothing is executed")


def test_an_async_session_of_sqlalchemy_is_refused_with_a_sentence():
    with pytest.raises(
        BadInput,
        check=sentence(
            "errors.asynchronous", field="db", value=re.compile(r".*"), remedy="await ticker.aio.register(...)"
        ).within,
    ):
        poll(AsyncSession())


def test_an_async_connection_of_psycopg_is_refused_with_a_sentence(database_url):
    async def register():
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            poll(connection)

    with pytest.raises(BadInput, match=r"^db: .* is asynchronous"):
        asyncio.run(register())


# --------------------------------------------------------------------------------------------- warnings, bad input


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"every": 45}, sentence("warnings.no_multiple_of", every="45 s", tick="30 s", real="60 s")),
        ({"every": 1}, sentence("warnings.no_multiple_of", every="1 s", tick="30 s", real="30 s")),
        ({"every": "150.5s"}, sentence("warnings.no_multiple_of", every="2m30s500ms", tick="30 s", real="3m")),
        (
            {"every": "1000001s", "box": "5m"},
            sentence("warnings.no_multiple_of", every="11d13h46m41s", tick="30 s", real="11d13h47m"),
        ),
        ({"every": "1h"}, sentence("warnings.long_box", box="30m", queue="'polling'")),
        ({"every": "1h", "box": "10m"}, None),
        ({"every": 60}, None),
    ],
)
def test_what_was_rarely_meant_is_warned_of(options, warning, db):
    warnings = poll(db, **options).warnings
    assert [warning.begins(found) for found in warnings] == ([True] if warning else [])


def test_the_tick_that_is_set_is_the_one_that_warnings_go_by(db, monkeypatch):
    monkeypatch.setenv("TICKER_TICK", "2s")
    assert poll(db, every=6).warnings == ()
    said = sentence("warnings.no_multiple_of_the_tick", every="5 s", tick="2 s", real="6 s")
    assert poll(db, every=5).warnings == (said,)
    assert preview.validate("5s").warnings == (said,)


@pytest.mark.slow
def test_a_ticker_that_is_alive_is_the_one_that_warnings_go_by(db, store, queue):
    poll(db, every=10)
    beat = TickJob(store, queue, replace(settings.from_environment(), tick_ms=4000), threading.Event())
    beat()
    db.execute("UPDATE ticker.tickers SET last_tick_at = clock_timestamp()")  # tests stop the clock
    said = sentence("warnings.no_multiple_of_the_tick", every="10 s", tick="4 s", real="12 s")
    assert poll(db, every=10).warnings == (said,)
    assert ticker.get(db, "poll").warnings == ticker.list_tasks(db)[0].warnings == (said,)
    assert poll(db, every=12).warnings == ()
    beat.deregister()
    usual = sentence("warnings.no_multiple_of", every="10 s", tick="30 s", real="30 s")
    assert poll(db, every=10).warnings == (usual,)


@pytest.mark.parametrize(("field", "value"), [("enabled", 1), ("enabled", "yes"), ("first", NOW), ("id", 1)])
def test_an_edit_of_what_cannot_be_edited_writes_nothing(field, value, db):
    task = poll(db)
    with pytest.raises(BadInput) as caught:
        ticker.edit(db, task, **{field: value})
    assert caught.value.field == (field if field == "enabled" else "edit")
    assert ticker.list_tasks(db) == [task]


@pytest.mark.parametrize(
    "kwargs",
    [{"a": "x" * 65_527}, {"ä": "\n\x01€\"\\" * 4_368}, {"a": [1e-3, 1e20, -0.0, 10**300, 1.5e-300]}, nested(200)],
    ids=["64 kB", "escapes", "numbers", "nested"],
)  # fmt: skip
def test_arguments_are_kept_as_they_are_up_to_64_kb(kwargs, db):
    assert poll(db, kwargs=kwargs).kwargs == kwargs


# --------------------------------------------------------------------------------------- rows that are edited by hand


NONSENSE = [
    *(f"{column} = '{value}'" for column in ("next_run", "last_run", "last_occurrence", "push_after")
      for value in ("infinity", "-infinity", "294276-12-31T23:59:59Z", "0001-01-01T00:00:00Z")),
    *(f"{column} = NULL" for column in ("name", "function", "kwargs", "kind", "every_ms", "tolerance_ms", "box_ms",
                                        "grace_ms", "queue", "enabled", "owner_active", "waiting", "push_errors")),
    *(f"{column} = ''" for column in ("name", "function", "queue", "kind")),
    *(f"{column} = E'a\\nb'" for column in ("name", "function", "queue")),
    *(f"name = repeat('x', {length})" for length in (201, 1_000_000)),
    "kind = 'cron'", "every_ms = 0", "every_ms = -60000", "every_ms = 999", "every_ms = 9223372036854775807",
    "tolerance_ms = -1", "tolerance_ms = 29001", "box_ms = 0", "box_ms = -1", "box_ms = 54001", "grace_ms = 0",
    "grace_ms = 1001", "every_ms = 35999",
    "kwargs = '[]'", "kwargs = 'null'", "kwargs = jsonb_build_object('a', repeat('x', 65536))",
    "owner_type = 't'", "owner_id = '1'", "paused_reason = 'why'", "paused_until = now()",
    "paused_by = 'me', paused_until = 'infinity'", "waiting = ARRAY[NULL]::timestamptz[]",
    "waiting = ARRAY['infinity'::timestamptz]", "waiting = array_fill(now(), ARRAY[10001])",
    "running_until = now()", "run_token = gen_random_uuid()",
]  # fmt: skip


@pytest.mark.slow
def test_the_table_itself_refuses_nonsense(db):
    task = poll(db)
    for change in NONSENSE:
        with pytest.raises((psycopg.errors.CheckViolation, psycopg.errors.NotNullViolation)):
            db.execute(f"UPDATE ticker.tasks SET {change}")
            pytest.fail(change)
    assert ticker.list_tasks(db) == [task]


def test_a_warning_of_a_registration_is_logged_and_issued_once_for_each_function_and_kind(db, caplog):
    with pytest.warns(ticker.TickerWarning) as issued:
        ticker.register(db, "seen.once", every="45s")
        ticker.register(db, "seen.once", name="another", every="50s")
        ticker.register(db, "seen.once", name="large", every="1h", box="20m")
        ticker.register_many(db, [{"function": "seen.in_many", "every": "45s"}])
    assert [str(one.message).split()[0] for one in issued] == ["every", "a", "every"]
    assert {one.filename for one in issued} == {__file__}
    assert [line.split(" was registered")[0] for line in caplog.messages] == [
        "a task of seen.once", "a task of seen.once", "a task of seen.in_many",
    ]  # fmt: skip


def test_a_script_that_configures_no_logging_shows_a_warning_once(db, monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger("ticker"), "propagate", False)
    with pytest.warns(ticker.TickerWarning):
        ticker.register(db, "seen.in_a_script", every="45s")
    assert capsys.readouterr().err == ""
