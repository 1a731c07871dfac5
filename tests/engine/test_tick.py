"""One pass of the ticker: over the doubles, whose promises `test_contract.py` holds, and over the real ones where
only they can tell: races, connections that break, and what RQ makes of a job.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from psycopg import sql
from redis import Redis
from rq import SimpleWorker
from rq.job import Job, JobStatus

import ticker
from tests.doubles import NOW, MemoryQueue, MemoryStore, TaskRow, job_id, planned_id
from ticker import embedded
from ticker.db.connections import connect
from ticker.db.store import PostgresStore
from ticker.engine.jobs import instant
from ticker.engine.tick import Pushed, TickOptions, tick
from ticker.errors import DatabaseUnavailable, QueueUnavailable
from ticker.model import Kind, Outcome, Reason, RunKind
from ticker.queue.rq import RedisQueue

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def rows():
    return MemoryStore()


@pytest.fixture
def jobs():
    return MemoryQueue()


# -------------------------------------------------------------------------------------------------- due and pushed


@pytest.mark.slow
def test_a_new_task_runs_on_the_next_tick(environ, monkeypatch, db, store, queue, redis, function):
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")  # SimpleWorker does not fork
    calls = []
    function("poll")(lambda: calls.append("ran"))
    task = ticker.register(db, "poll", every="1m")
    assert tick(store, queue).enqueued == 1
    SimpleWorker(["polling"], connection=redis).work(burst=True, logging_level="ERROR")
    assert calls == ["ran"]
    [run] = ticker.list_runs(db)
    assert (run.occurrence, run.outcome) == (task.next_run, "succeeded")


def test_each_due_task_is_enqueued_once_and_moves_on_by_its_interval_from_now(rows, jobs):
    late, due = rows.add_task(next_run=NOW - 40 * SECOND), rows.add_task(next_run=NOW, every_ms=90_000)
    other = rows.add_task(next_run=NOW + SECOND)
    report = tick(rows, jobs, NOW)
    assert (report.now, report.due, report.errors) == (NOW, Pushed(due=2, enqueued=2), 0)
    assert jobs.waiting() == [job_id(late, NOW - 40 * SECOND), job_id(due, NOW)]
    assert rows.task(late) == TaskRow(late, NOW + MINUTE, waiting=(NOW - 40 * SECOND,))
    assert rows.task(due) == TaskRow(due, NOW + 90 * SECOND, every_ms=90_000, waiting=(NOW,))
    assert rows.task(other) == TaskRow(other, NOW + SECOND)
    assert tick(rows, jobs, NOW).enqueued == 0
    assert len(jobs.jobs) == 2


def test_nuntiums_own_case_holds(rows, jobs):
    base = datetime(2000, 1, 1, 5, tzinfo=UTC)
    ids = [
        rows.add_task(every_ms=every * 1000, next_run=base + offset * SECOND)
        for every, offset in [(30, 10), (35, 20), (40, 30), (45, 40), (60, 50)]
    ]
    assert tick(rows, jobs, base + 30 * SECOND).enqueued == 3
    assert jobs.waiting() == [job_id(id_, base + n * SECOND) for id_, n in zip(ids[:3], (10, 20, 30), strict=True)]
    assert [rows.task(id_).next_run - base for id_ in ids] == [n * SECOND for n in (60, 65, 70, 40, 50)]


def test_a_job_carries_ids_only_and_a_time_out_behind_the_box(rows, jobs):
    id_ = rows.add_task(queue="mail", function="fetch", box_ms=30_000, grace_ms=1_000)
    tick(rows, jobs, NOW)
    [job] = jobs.jobs.values()
    assert (job.queue, job.description, job.timeout) == ("mail", "fetch", 61)
    assert (job.args[0], instant(job.args[1])) == (id_, NOW)


def test_an_outage_gives_one_late_run_and_never_a_burst(rows, jobs):
    id_ = rows.add_task(next_run=NOW)
    after_the_outage = NOW + 5 * HOUR + 7 * SECOND
    assert tick(rows, jobs, after_the_outage).enqueued == 1
    assert rows.task(id_).next_run == after_the_outage + MINUTE
    assert [tick(rows, jobs, after_the_outage + n * 30 * SECOND).enqueued for n in (1, 2)] == [0, 1]


@pytest.mark.promise("L2", "L3")
def test_a_tick_a_little_early_by_the_look_ahead_keeps_the_rhythm(rows, jobs):
    id_ = rows.add_task(next_run=NOW)
    assert tick(rows, jobs, NOW - SECOND, TickOptions(look_ahead=999)).enqueued == 0
    assert tick(rows, jobs, NOW - SECOND, TickOptions(look_ahead=1000)).enqueued == 1
    assert rows.task(id_).next_run == NOW + 59 * SECOND


def test_without_a_time_the_store_is_asked_once(rows, jobs):
    id_ = rows.add_task(next_run=NOW)
    rows.clock = NOW + 3 * SECOND
    assert tick(rows, jobs).now == NOW + 3 * SECOND
    assert rows.task(id_).next_run == NOW + 63 * SECOND


def test_more_than_a_batch_is_pushed_batch_by_batch_oldest_first(rows, jobs):
    ids = [rows.add_task(next_run=NOW - age * SECOND) for age in range(5)]
    assert tick(rows, jobs, NOW, TickOptions(batch=2)).due == Pushed(due=5, enqueued=5)
    assert jobs.waiting() == [job_id(id_, rows.task(id_).waiting[0]) for id_ in reversed(ids)]


def test_a_ticker_that_is_told_to_stop_stops_between_two_batches(rows, jobs):
    ids = [rows.add_task(next_run=NOW - age * SECOND) for age in range(5)]
    assert tick(rows, jobs, NOW, TickOptions(batch=2, stop=lambda: len(jobs.jobs) > 0)).due == Pushed(due=2, enqueued=2)
    assert [rows.task(id_).next_run > NOW for id_ in ids] == [False, False, False, True, True]
    assert tick(rows, jobs, NOW, TickOptions(batch=2, stop=lambda: True)).due == Pushed()


# ------------------------------------------------------------------------------------------------- what goes wrong


def test_a_task_that_cannot_be_enqueued_costs_only_itself_backs_off_and_is_shown(rows, jobs):
    bad, good = rows.add_task(queue="bad", next_run=NOW - SECOND), rows.add_task()
    jobs.poison("bad")
    report = tick(rows, jobs, NOW)
    assert (report.due, report.errors) == (Pushed(due=2, enqueued=1, errors=1), 1)
    assert jobs.waiting() == [job_id(good, NOW)]
    assert rows.task(good).next_run == NOW + MINUTE
    error = "the queue bad is poisoned"
    assert rows.task(bad) == TaskRow(bad, NOW - SECOND, queue="bad", push_errors=1, push_error=error,
                                     push_after=NOW + 30 * SECOND)  # fmt: skip
    tick(rows, jobs, NOW + 29 * SECOND)
    assert rows.task(bad).push_errors == 1


@pytest.mark.slow
def test_a_full_redis_is_the_servers_trouble_and_no_task_backs_off_on_its_account(environ, db, store):
    task = ticker.register(db, "poll", every="1m")
    with embedded.valkey() as server, Redis.from_url(server.url) as redis:
        queue = RedisQueue(redis)
        redis.config_set("maxmemory", 1)
        with pytest.raises(QueueUnavailable, match="maxmemory"):
            tick(store, queue, task.next_run)
        after = ticker.get(db, task)
        assert (after.next_run, after.push_errors) == (task.next_run, 0)
        redis.config_set("maxmemory", 0)
        assert tick(store, queue, task.next_run).enqueued == 1


def test_while_redis_is_away_nothing_advances(rows, jobs):
    id_ = rows.add_task(waiting=(NOW - MINUTE,))
    run_id = rows.add_run(task_id=id_)
    jobs.down = True
    with pytest.raises(QueueUnavailable):
        tick(rows, jobs, NOW)
    assert rows.task(id_) == TaskRow(id_, NOW, waiting=(NOW - MINUTE,))
    assert [(run.id, run.state) for run in rows.runs()] == [(run_id, "planned")]
    jobs.down = False
    assert (
        tick(rows, jobs, NOW).enqueued == 2
    )  # the run and the task; what had waited is not worth it beside the newer one


def test_while_redis_is_away_a_dead_run_still_gets_its_end(rows, jobs):
    id_ = rows.add_task(next_run=NOW)
    rows.add_run(task_id=id_, state="running", until=NOW - MINUTE)
    jobs.down = True
    with pytest.raises(QueueUnavailable):
        tick(rows, jobs, NOW)
    assert [run.outcome for run in rows.runs()] == [Outcome.LOST]


class Died(Exception):
    """The ticker's end, at the worst moment."""


class DiesAfterItsFirstPush(MemoryQueue):
    def push(self, specs):
        first = not self.jobs
        receipts = super().push(specs)
        if specs and first:
            raise Died
        return receipts


def test_after_a_crash_between_push_and_commit_the_same_jobs_are_held_and_the_tasks_advance(rows):
    jobs = DiesAfterItsFirstPush()
    ids = [rows.add_task(next_run=NOW - age * SECOND) for age in range(3)]
    before = [rows.task(id_) for id_ in ids]
    with pytest.raises(Died):
        tick(rows, jobs, NOW)
    pushed = jobs.waiting()
    assert [rows.task(id_) for id_ in ids] == before
    later = NOW + 30 * SECOND
    assert tick(rows, jobs, later).due == Pushed(due=3, held=3)
    assert jobs.waiting() == pushed
    assert {rows.task(id_).next_run for id_ in ids} == {later + MINUTE}
    assert [rows.task(id_).waiting for id_ in ids] == [(row.next_run,) for row in before]


class BreaksTheDatabaseAfterThePush(RedisQueue):
    db = None

    def push(self, specs):
        receipts = super().push(specs)
        if specs and self.db:
            others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ticker'"
            self.db.execute(others + " AND datname = current_database() AND pid <> pg_backend_pid()")
            self.db = None
        return receipts


@pytest.mark.slow
def test_a_connection_that_breaks_between_push_and_commit_loses_and_doubles_nothing(environ, db, store, redis):
    ids = {ticker.register(db, "poll", name=f"task {n}", every="1m").id for n in range(3)}
    queue = BreaksTheDatabaseAfterThePush(redis)
    queue.db = db
    with pytest.raises(DatabaseUnavailable):
        tick(store, queue)
    assert {task.waiting for task in ticker.list_tasks(db)} == {()}
    assert tick(store, queue).due == Pushed(due=3, held=3)  # the same store, on a new connection
    assert {task.id: len(task.waiting) for task in ticker.list_tasks(db)} == dict.fromkeys(ids, 1)
    assert redis.llen("rq:queue:polling") == 3


@pytest.mark.slow
def test_rows_that_somebody_has_locked_cost_only_themselves(environ, db, store, queue, database_url):
    locked, free = (ticker.register(db, "poll", name=name, every="1m") for name in ("locked", "free"))
    ticker.run_now(db, locked)
    run(db, free, until=store.now() - MINUTE)
    dead = run(db, free, until=store.now() - MINUTE)
    db.execute("UPDATE ticker.tasks SET paused_by = 'me', paused_until = %s WHERE id = %s", [store.now(), locked.id])
    with connect(database_url) as other, other.transaction():
        other.execute("SELECT FROM ticker.tasks WHERE id = %s FOR UPDATE", [locked.id])
        other.execute("SELECT FROM ticker.runs WHERE task_id = %s FOR UPDATE", [locked.id])
        other.execute("SELECT FROM ticker.runs WHERE id = %s FOR UPDATE", [dead])
        report = tick(store, queue)
        assert (report.due.due, report.planned.due, report.swept.overdue) == (1, 0, 1)
    report = tick(store, queue)
    assert (report.due.due, report.planned.due, report.swept.overdue) == (1, 1, 1)


def run(db, task, until):
    """A run that nobody ended; its id."""
    return db.execute(
        "INSERT INTO ticker.runs (task_id, kind, state, occurrence, token, started_at, until)"
        " VALUES (%s, 'manual', 'running', now(), gen_random_uuid(), now(), %s) RETURNING id",
        [task.id, until],
    ).fetchone()[0]


# -------------------------------------------------------------------------------------------------- several tickers

TASKS = 500


@pytest.mark.slow
@pytest.mark.parametrize("tickers", [2, 5])
def test_tickers_at_once_push_each_occurrence_exactly_once(tickers, environ, db, database_url, redis_url, redis):
    """Rounds of all tickers starting together, in batches small enough for them to meet."""
    db.execute(
        sql.SQL("INSERT INTO ticker.tasks (name, function, kind, queue, every_ms, tolerance_ms, box_ms, grace_ms,"
                " next_run) SELECT n, 'poll', 'interval', 'polling', 60000, 5000, 30000, 1000,"
                " {now} - n * interval '1 microsecond' FROM generate_series(1, {tasks}) n")
        .format(now=NOW, tasks=TASKS)
    )  # fmt: skip
    stores = [PostgresStore(database_url) for _ in range(tickers)]
    queues = [RedisQueue.from_url(redis_url) for _ in range(tickers)]
    barrier, expected = Barrier(tickers), set()

    def one(store, queue, now):
        barrier.wait()
        return tick(store, queue, now, TickOptions(batch=40, waiting_jobs=9))

    with ThreadPoolExecutor(tickers) as pool:
        for number in range(4):
            now = NOW + number * MINUTE
            expected |= {job_id(task.id, task.next_run) for task in ticker.list_tasks(db)}
            reports = list(pool.map(one, stores, queues, [now] * tickers))
            assert sum((report.due for report in reports), Pushed()) == Pushed(due=TASKS, enqueued=TASKS)
            assert {task.next_run for task in ticker.list_tasks(db)} == {now + MINUTE}
    pushed = [id_.decode() for id_ in redis.lrange("rq:queue:polling", 0, -1)]
    assert len(pushed) == len(expected) == 4 * TASKS
    assert set(pushed) == expected
    assert {job_id(task.id, due) for task in ticker.list_tasks(db) for due in task.waiting} == expected
    for connection in (*stores, *queues):
        connection.close()


def test_what_a_dead_ticker_held_is_pushed_by_the_others(rows, jobs):
    first, second = rows.add_task(), rows.add_task()
    with pytest.raises(Died), rows.another().batch() as dying:
        dying.claim_due(NOW, 0, 1)
        assert tick(rows, jobs, NOW).enqueued == 1
        raise Died
    assert tick(rows, jobs, NOW).enqueued == 1
    assert jobs.waiting() == [job_id(second, NOW), job_id(first, NOW)]


# ------------------------------------------------------------------------------------------------------- the sweep


@pytest.mark.slow
def test_the_job_of_a_daily_task_that_redis_lost_is_pushed_again_on_the_next_tick(environ, db, store, queue, redis):
    task = ticker.register(db, "poll", every="1d")
    now = store.now()
    tick(store, queue, now)
    redis.flushdb()
    report = tick(store, queue, now + 30 * SECOND)
    assert (report.due.due, report.swept.repushed, report.enqueued) == (0, 1, 1)
    assert redis.lrange("rq:queue:polling", 0, -1) == [job_id(task.id, task.next_run).encode()]
    assert ticker.get(db, task).waiting == (task.next_run,)
    assert tick(store, queue, now + MINUTE).enqueued == 0


def test_a_job_that_a_worker_took_and_never_marked_as_its_own_is_pushed_again(rows, jobs):
    """A worker on several queues takes a job and marks it in two steps."""
    id_ = rows.add_task(next_run=NOW, every_ms=3_600_000)
    tick(rows, jobs, NOW)
    assert jobs.pop() == job_id(id_, NOW)
    assert tick(rows, jobs, NOW + SECOND).swept.repushed == 0
    jobs.ten_seconds_later()
    assert tick(rows, jobs, NOW + 11 * SECOND).swept.repushed == 1
    assert jobs.waiting() == [job_id(id_, NOW)]


def test_of_several_lost_jobs_of_a_task_the_newest_is_pushed_again_and_the_others_are_recorded_as_expired(rows, jobs):
    id_ = rows.add_task(every_ms=60_000)
    for minute in range(5):
        tick(rows, jobs, NOW + minute * MINUTE, TickOptions(waiting_jobs=9))
    jobs.lose()
    report = tick(rows, jobs, NOW + 4.5 * MINUTE)
    assert (report.swept.repushed, report.swept.expired) == (1, 4)
    assert jobs.waiting() == [job_id(id_, NOW + 4 * MINUTE)]
    assert rows.task(id_).waiting == (NOW + 4 * MINUTE,)
    assert [run.occurrence for run in rows.runs()] == [NOW + minute * MINUTE for minute in range(4)]


def test_a_lost_job_whose_queue_takes_nothing_waits_for_a_later_tick(rows, jobs):
    id_ = rows.add_task(queue="bad", waiting=(NOW - MINUTE,), next_run=NOW + MINUTE)
    jobs.poison("bad")
    report = tick(rows, jobs, NOW)
    assert (report.swept.repushed, report.errors, rows.task(id_).waiting) == (0, 1, (NOW - MINUTE,))
    jobs.cure("bad")
    assert tick(rows, jobs, NOW + 30 * SECOND).swept.repushed == 1


@pytest.mark.slow
def test_a_job_that_failed_before_its_start_is_pushed_again_for_ten_minutes(environ, db, store, queue, redis):
    """A worker without its modules, a database that was away: an occurrence of a daily task is worth another try."""
    task = ticker.register(db, "poll", every="1d")
    tick(store, queue, task.next_run)
    id_ = job_id(task.id, task.next_run)
    Job.fetch(id_, connection=redis).set_status(JobStatus.FAILED)
    assert tick(store, queue, task.next_run + SECOND).swept.repushed == 1
    assert Job.fetch(id_, connection=redis).get_status() is JobStatus.QUEUED
    assert ticker.get(db, task).waiting == (task.next_run,)


@pytest.mark.slow
def test_a_job_that_failed_before_its_start_ends_as_lost_after_that(environ, db, store, queue, redis):
    task = ticker.register(db, "poll", every="1d")
    tick(store, queue, task.next_run)
    Job.fetch(job_id(task.id, task.next_run), connection=redis).set_status(JobStatus.FAILED)
    assert tick(store, queue, task.next_run + 600 * SECOND).swept.lost == 1
    after = ticker.get(db, task)
    assert (after.last_outcome, after.failures) == (Outcome.LOST, 1)
    [run] = ticker.list_runs(db)
    assert (run.kind, run.occurrence, run.outcome) == (RunKind.SCHEDULED, task.next_run, Outcome.LOST)
    assert "before its start" in run.reason
    assert ticker.get(db, task).waiting == ()


@pytest.mark.promise("S10")
def test_an_old_occurrence_expires_once_a_newer_one_waits_and_the_newest_never_does(rows, jobs):
    id_ = rows.add_task(next_run=NOW, every_ms=60_000)
    tick(rows, jobs, NOW)
    alone = NOW + 3 * HOUR
    rows.put(id_, next_run=alone + SECOND)
    assert tick(rows, jobs, alone).swept.expired == 0
    assert tick(rows, jobs, alone + SECOND).swept.expired == 1
    assert rows.task(id_).waiting == (alone + SECOND,)
    assert jobs.waiting() == [job_id(id_, alone + SECOND)]
    [dropped] = rows.runs()
    assert (dropped.occurrence, dropped.outcome, dropped.reason) == (NOW, Outcome.DROPPED, Reason.EXPIRED)


@pytest.mark.parametrize(("every_ms", "limit"), [(60_000, 10 * MINUTE), (3_600_000, 2 * HOUR)])
def test_it_expires_when_it_is_older_than_two_intervals_and_ten_minutes(every_ms, limit, rows, jobs):
    id_ = rows.add_task(every_ms=every_ms, next_run=NOW - limit)
    tick(rows, jobs, NOW - limit)
    rows.put(id_, next_run=NOW)
    assert tick(rows, jobs, NOW).swept.expired == 0
    assert tick(rows, jobs, NOW + timedelta(microseconds=1)).swept.expired == 1
    assert rows.task(id_).waiting == (NOW,)


def test_all_jobs_that_were_lost_are_pushed_again_in_one_pass_batch_after_batch(rows, jobs):
    for _ in range(5):
        rows.add_task(waiting=(NOW - MINUTE,), next_run=NOW + DAY)
    assert [tick(rows, jobs, NOW, TickOptions(batch=2)).swept.repushed for _ in range(2)] == [5, 0]


def test_a_pause_that_ends_and_a_run_whose_worker_is_gone_are_seen_to_in_the_same_pass(rows, jobs):
    id_ = rows.add_task(paused_by="me", paused_until=NOW, next_run=NOW + DAY)
    rows.add_run(task_id=id_, state="running", until=NOW - MINUTE)
    report = tick(rows, jobs, NOW)
    assert (report.due.enqueued, report.swept.overdue) == (1, 1)
    assert rows.runs()[0].outcome == Outcome.LOST


def test_all_pauses_that_end_all_lost_runs_and_all_done_tasks_are_seen_to_batch_after_batch(rows, jobs):
    for _ in range(5):
        id_ = rows.add_task(paused_by="me", paused_until=NOW, next_run=NOW + DAY)
        rows.add_run(task_id=id_, state="running", until=NOW - MINUTE)
        rows.add_task(kind=Kind.ONCE, remove=True, next_run=None, last_outcome=Outcome.SUCCEEDED)
    report = tick(rows, jobs, NOW, TickOptions(batch=2))
    assert (report.due.enqueued, report.swept.overdue, len(rows.tasks)) == (5, 5, 5)


def test_a_stop_is_seen_between_two_batches_of_pauses(rows, jobs):
    ids = [rows.add_task(paused_by="me", paused_until=NOW, next_run=NOW + DAY) for _ in range(5)]
    tick(rows, jobs, NOW, TickOptions(batch=2, stop=lambda: True))
    assert sum(rows.task(id_).paused_by is None for id_ in ids) == 2


# --------------------------------------------------------------------------------------------------- planned runs


def test_a_run_is_past_its_end_by_the_clock_of_the_tables_and_not_by_that_of_the_pass(rows, jobs):
    """A pass that was stopped, while the clock was set back, has a `now` that lies ahead of it."""
    id_ = rows.add_task(next_run=NOW + DAY)
    rows.add_run(task_id=id_, kind=RunKind.SCHEDULED, state="running", started_at=NOW, until=NOW + MINUTE)
    of_the_pass, rows.end_overdue = rows.end_overdue, lambda now, limit, beat: of_the_pass(now and now + HOUR, limit)
    assert tick(rows, jobs).swept.overdue == 0


@pytest.mark.slow
def test_a_planned_run_is_pushed_under_its_own_id_and_the_schedule_stays(environ, db, store, queue, redis):
    task = ticker.register(db, "poll", every="1m", first=store.now() + DAY)
    [run_id] = ticker.run_now(db, task)
    report = tick(store, queue)
    assert (report.planned, report.due) == (Pushed(due=1, enqueued=1), Pushed())
    assert redis.lrange("rq:queue:polling", 0, -1) == [planned_id(run_id).encode()]
    assert Job.fetch(planned_id(run_id), connection=redis).args == (task.id, 0, run_id)
    assert ticker.get(db, task) == task
    assert tick(store, queue).enqueued == 0


def test_many_planned_runs_keep_no_due_task_waiting_nor_the_other_way_round(rows, jobs):
    for _ in range(6):
        rows.add_run(task_id=rows.add_task())
    tick(rows, jobs, NOW, TickOptions(batch=2))
    kinds = ["planned" if id_.startswith(planned_id(0)[:-1]) else "due" for id_ in jobs.waiting()]
    assert kinds == ["planned", "planned", "due", "due"] * 3


def test_a_planned_run_that_cannot_be_pushed_is_tried_again_after_30_seconds(rows, jobs):
    task_id = rows.add_task(queue="bad", next_run=NOW + DAY)
    run_id = rows.add_run(task_id=task_id)
    jobs.poison("bad")
    assert tick(rows, jobs, NOW).planned == Pushed(due=1, errors=1)
    [run] = rows.runs()
    assert (run.state, run.due_at, run.reason) == ("planned", NOW + 30 * SECOND, "the queue bad is poisoned")
    jobs.cure("bad")
    assert tick(rows, jobs, NOW + 29 * SECOND).planned == Pushed()
    assert tick(rows, jobs, NOW + 30 * SECOND).planned == Pushed(due=1, enqueued=1)
    assert jobs.waiting("bad") == [planned_id(run_id)]


def test_a_planned_run_that_redis_lost_is_pushed_again_and_one_that_died_is_lost_after_ten_minutes(rows, jobs):
    task_id = rows.add_task(next_run=NOW + DAY)
    missing, dead, alive = (rows.add_run(task_id=task_id) for _ in range(3))
    tick(rows, jobs, NOW)
    for seconds, counts in ((1, (2, 0)), (599, (2, 0)), (600, (1, 1))):
        jobs.forget([planned_id(missing)])
        jobs.set_status(planned_id(dead), "failed")
        swept = tick(rows, jobs, NOW + seconds * SECOND).swept
        assert (swept.repushed, swept.lost) == counts
    assert {run.id: run.outcome for run in rows.runs()} == {missing: None, dead: Outcome.LOST, alive: None}
    assert planned_id(missing) in jobs.waiting()


# ---------------------------------------------------------------------------------------------- the doubles' hours


def test_a_task_that_an_open_transaction_refers_to_by_a_foreign_key_is_pushed_all_the_same(
    environ, db, store, queue, database_url
):
    task = ticker.register(db, "poll", every="1m")
    db.execute("CREATE TABLE notes (task_id bigint REFERENCES ticker.tasks (id))")
    with connect(database_url) as other, other.transaction():
        other.execute("INSERT INTO public.notes VALUES (%s)", [task.id])
        assert tick(store, queue).due == Pushed(due=1, enqueued=1)


def test_a_pass_brings_back_what_lies_ahead_since_the_clock_was_set_back(rows, jobs):
    id_ = rows.add_task(last_occurrence=NOW - MINUTE, next_run=NOW + DAY)
    tick(rows, jobs, NOW)
    assert rows.task(id_).next_run == NOW + MINUTE


class NeverAnswers(MemoryQueue):
    """The connection breaks at the first job."""

    def push(self, specs):
        if specs:
            raise QueueUnavailable("no answer")
        return []


def test_a_task_whose_push_has_no_answer_does_not_advance(rows):
    id_ = rows.add_task(next_run=NOW)
    with pytest.raises(QueueUnavailable):
        tick(rows, NeverAnswers(), NOW)
    assert rows.task(id_) == TaskRow(id_, NOW)


def test_a_row_that_has_no_next_time_costs_only_itself_and_says_why(rows, jobs):
    """As a newer release may have written it: a task without an interval."""
    bad, good = rows.add_task(next_run=NOW - MINUTE, every_ms=0), rows.add_task(next_run=NOW)
    assert tick(rows, jobs, NOW).due == Pushed(due=2, enqueued=1, errors=1)
    assert rows.task(good).waiting == (NOW,)
    assert (rows.task(bad).waiting, rows.task(bad).push_errors) == ((), 1)
    assert "not an interval" in rows.task(bad).push_error
