"""Tasks with limits wait in the table: a tick pushes of each key what has room, and looks again when more has."""

from datetime import timedelta

import pytest

import ticker
from tests.harness import handed_out
from ticker.engine.tick import TickOptions, tick

SECOND = timedelta(seconds=1)


@pytest.fixture
def limit(db):
    """Declares a limit as `ticker.limit` does."""

    def declare(key, concurrency=None, rate=None, period_ms=None, burst=None):
        db.execute(
            "INSERT INTO ticker.limits (key, concurrency, rate, period_ms, burst) VALUES (%s, %s, %s, %s, %s)",
            [key, concurrency, rate, period_ms, burst],
        )
        db.execute("SELECT ticker.limit_keys(ARRAY[%s])", [key])

    return declare


@pytest.fixture
def tasks(db):
    """Registers tasks with these keys, which are due in the order of their ids."""

    def register(count, *keys, name="poll", **columns):
        ids = [ticker.register(db, "poll", name=f"{name} {keys} {n}", every="1m", **columns).id for n in range(count)]
        db.execute("UPDATE ticker.tasks SET limits = nullif(%s::text[], '{}'), next_run = next_run - 9 * interval '1 second'"
                   " + id * interval '1 microsecond' WHERE id = ANY (%s)", [list(keys), ids])  # fmt: skip
        return ids

    return register


@pytest.fixture
def waiting(db):
    def ids():
        return {row[0] for row in db.execute("SELECT id FROM ticker.tasks WHERE waiting <> '{}'")}

    return ids


def take(db, key, kind, count, seconds):
    """Marks slots as taken, as starts do."""
    db.execute(
        "INSERT INTO ticker.slots (key, kind, n, token, until) SELECT %(key)s, %(kind)s, n,"
        " CASE %(kind)s WHEN 'run' THEN gen_random_uuid() END, clock_timestamp() + %(seconds)s * interval '1 second'"
        " FROM generate_series(1, %(count)s) n ON CONFLICT (key, kind, n) DO UPDATE SET token = excluded.token, until = excluded.until",
        {"key": key, "kind": kind, "seconds": seconds, "count": count},
    )


def start_all(db):
    """Takes all jobs off, as starts do."""
    db.execute("UPDATE ticker.tasks SET waiting = '{}'")


@pytest.mark.slow
def test_of_a_hundred_due_tasks_of_a_key_twenty_are_pushed_and_others_are_not_delayed(
    environ, db, store, queue, limit, tasks, waiting
):
    limit("imap", concurrency=20)
    blocked, free = tasks(100, "imap"), tasks(30)
    assert tick(store, queue).enqueued == 50
    assert waiting() == {*blocked[:20], *free}
    assert tick(store, queue).enqueued == 0  # those that wait will take the room
    start_all(db)
    take(db, "imap", "run", 15, seconds=30)
    assert tick(store, queue).enqueued == 5
    assert waiting() == set(blocked[20:25])


@pytest.mark.slow
def test_a_key_that_a_full_batch_has_filled_is_looked_at_again(environ, store, queue, limit, tasks):
    limit("api", rate=600, period_ms=60_000, burst=10)
    tasks(25, "api")
    report = tick(store, queue, options=TickOptions(batch=10))
    assert (report.enqueued, report.look_at - report.now) == (10, SECOND / 5)


@pytest.mark.slow
def test_tasks_with_and_without_limits_share_the_room_of_a_queue(environ, store, queue, tasks, waiting):
    limited, free = set(tasks(40, "unheard")), set(tasks(40))
    for depth in (10, 20, 30):
        tick(store, queue, options=TickOptions(depths={"polling": depth}))
    assert len(waiting() & limited) == len(waiting() & free) == 15


@pytest.mark.slow
def test_of_a_rate_as_many_are_pushed_as_there_are_tokens_and_the_tick_says_when_there_are_more(
    environ, db, store, queue, limit, tasks
):
    limit("api", rate=60, period_ms=60_000, burst=5)
    tasks(20, "api")
    report = tick(store, queue)
    assert (report.enqueued, report.look_at - report.now) == (5, SECOND / 5)
    report = tick(store, queue)
    assert (report.enqueued, report.look_at - report.now) == (0, SECOND / 2)  # one of the five may start at any time
    start_all(db)
    take(db, "api", "start", 5, seconds=3)
    report = tick(store, queue)
    assert report.enqueued == 0 and 2 * SECOND < report.look_at - report.now <= 3 * SECOND
    assert tick(store, queue, options=TickOptions(ahead=10_000)).enqueued == 5


@pytest.mark.slow
@pytest.mark.parametrize(("took_ms", "pushed"), [(30_000, 0), (800, 2), (0, 6), (None, 0)])
def test_as_many_more_are_pushed_as_runs_of_the_key_will_end_soon(
    environ, db, store, queue, limit, tasks, took_ms, pushed
):  # fmt: skip
    limit("imap", concurrency=6, rate=6000, period_ms=60_000, burst=100)
    tasks(20, "imap")
    take(db, "imap", "run", 6, seconds=30)
    db.execute("UPDATE ticker.slots SET took_ms = %s WHERE kind = 'run' AND n < 4", [took_ms])
    assert tick(store, queue).enqueued == 0
    assert tick(store, queue, options=TickOptions(ahead=300)).enqueued == pushed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "pushed"), [("allowed = 1", 1), ("closed_until = clock_timestamp() + interval '9 seconds'", 0)]
)
def test_a_key_that_is_held_gets_nothing_and_after_that_as_much_as_is_allowed(
    environ, db, store, queue, limit, tasks, column, pushed
):  # fmt: skip
    limit("api", concurrency=4)
    tasks(20, "api")
    db.execute(f"UPDATE ticker.limited_keys SET {column}")
    report = tick(store, queue)
    assert report.enqueued == pushed
    assert pushed or 8 * SECOND < report.look_at - report.now <= 9 * SECOND


@pytest.mark.slow
def test_slots_over_a_lowered_limit_are_no_room(environ, db, store, queue, limit, tasks):
    limit("imap", concurrency=5)
    tasks(20, "imap")
    db.execute("UPDATE ticker.limits SET concurrency = 2")
    db.execute("SELECT ticker.limit_keys(ARRAY['imap'])")
    assert tick(store, queue).enqueued == 2


@pytest.mark.slow
def test_no_key_starves_behind_many_that_have_no_room(environ, store, queue, limit, tasks, waiting):
    limit("full", concurrency=1)
    tasks(40, "full")
    for n in range(5):
        tasks(2, f"key:{n}")
    tick(store, queue, options=TickOptions(batch=10))
    assert len(waiting()) == 11


@pytest.mark.slow
def test_of_planned_runs_as_many_are_pushed_as_their_keys_have_room_for(environ, db, store, queue, limit, tasks):
    limit("imap", concurrency=2)
    ids = tasks(5, "imap")
    db.execute("UPDATE ticker.tasks SET next_run = NULL")
    for id_ in ids:
        ticker.run_now(db, id_)
    assert tick(store, queue).enqueued == 2
    report = tick(store, queue)
    assert report.enqueued == 0 and report.look_at is not None
    db.execute(
        "UPDATE ticker.runs SET state = 'ended', outcome = 'succeeded', ended_at = clock_timestamp() WHERE state = 'pushed'"
    )
    assert tick(store, queue, options=TickOptions(batch=1)).enqueued == 2


@pytest.mark.slow
def test_pieces_wait_in_the_table_until_their_key_has_room_and_delay_no_others(environ, db, store, queue, limit, tasks):
    limit("imap", concurrency=2)
    blocked, free = (ticker.get(db, tasks(1, *keys)[0]) for keys in [("imap",), ()])
    for task in (blocked, free):
        handed_out(db, task, *map(str, range(5)))
    db.execute("UPDATE ticker.tasks SET next_run = NULL")
    assert tick(store, queue).enqueued == 2 + 5
    assert tick(store, queue).enqueued == 0


@pytest.mark.slow
def test_a_full_queue_delays_no_other_queue_of_the_same_key(environ, store, queue, limit, tasks, waiting):
    limit("imap", concurrency=2)
    tasks(20, "imap")
    [other] = tasks(1, "imap", name="other", queue="reports")
    tick(store, queue, options=TickOptions(depths={"polling": 1}))
    tick(store, queue, options=TickOptions(depths={"polling": 1}))
    assert other in waiting() and len(waiting()) == 2


def test_after_a_step_back_slots_are_free_as_soon_as_from_now_on(environ, db, store, limit, tasks):
    limit("imap", concurrency=3, rate=60, period_ms=60_000, burst=2)
    [task] = tasks(1, "imap")
    db.execute(
        "INSERT INTO ticker.runs (task_id, kind, state, token, started_at, until) SELECT %s, 'manual', 'running', token,"
        " clock_timestamp() + interval '1 hour', clock_timestamp() + interval '61 minutes'"
        " FROM (SELECT gen_random_uuid() AS token) t RETURNING token", [task],
    )  # fmt: skip
    take(db, "imap", "run", 2, seconds=3660)
    db.execute("UPDATE ticker.slots s SET token = r.token FROM ticker.runs r WHERE s.kind = 'run' AND n = 1")
    take(db, "imap", "start", 1, seconds=3600)
    db.execute(
        "UPDATE ticker.limited_keys SET closed_at = clock_timestamp() + interval '1 hour', closed_until = clock_timestamp() + interval '61 minutes'"
    )
    store.clamp(None, 100)
    held = "SELECT round(extract(epoch FROM closed_until - clock_timestamp()) + 0.4) FROM ticker.limited_keys"
    assert db.execute(held).fetchall() == [(60,)]
    left = "SELECT round(extract(epoch FROM until - clock_timestamp()) + 0.4) FROM ticker.slots ORDER BY kind, n"
    assert [seconds for (seconds,) in db.execute(left)] == [60, 600, None, 2, None]
