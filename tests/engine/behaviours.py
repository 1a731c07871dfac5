"""The columns of `test_what_waits`: what becomes of work while a gate is closed, and after it has opened."""

import re
from collections.abc import Callable
from typing import Any

import ticker
from tests.engine.gates import SECOND, Stage
from tests.harness import handed_out, start
from ticker.errors import BadInput
from ticker.model import TASK_STATES
from ticker.read import formatting, overview


def a_due_task(stage: Stage) -> str:
    """It becomes due while the gate is closed, mostly for longer than its interval."""
    due = stage.register(5 if stage.gate.during else 20)  # of its hours, in which no tick has seen it
    stage.close()
    met = stage.verdict(stage.turns(30, 60, min(600, stage.gate.opens - 20)))
    if met[:5] not in ("", "waits"):
        return met
    is_put_off = stage.now().next_run != due
    assert len(stage.started_after()) == len(stage.runs()) == 1
    is_kept = stage.runs()[0].occurrence == due
    return met or ("put off" if is_put_off else "waits" if is_kept else "due again")


def its_job(stage: Stage) -> str:
    """It was pushed before the gate closed."""
    due = stage.register(5)
    stage.tick(5)
    stage.close()
    met = stage.verdict(stage.take())
    if not met.startswith("waits"):
        assert [(run.occurrence, run.outcome is None) for run in stage.runs()] == [(due, met == "starts")]
        return met
    assert (stage.runs(), stage.now().next_run, stage.now().dropped) == ([], due, 0)
    assert len(stage.started_after()) == 1
    return met if stage.runs()[0].reason == "" else f"{stage.runs()[0].reason}, due again"


def its_older_job(stage: Stage) -> str:
    """Two of its jobs were pushed."""
    stage.register(5)
    stage.tick(5)
    stage.tick(605)
    stage.close(610)
    return stage.verdict(stage.take())


def its_lost_job(stage: Stage) -> str:
    """Redis has lost it."""
    stage.register(5)
    stage.tick(5)
    stage.close()
    stage.play.redis.flushdb()
    stage.tick(30)
    assert stage.now().waiting or len(stage.started_after()) == 1
    return "pushed again" if len(stage.runs()) == 0 else "waits"


def of_times(stage: Stage, ticks: int = 300, **fields: Any) -> str:
    """Further times pass while the gate is closed, or the only one. There is a tick every so many seconds."""
    due = stage.register(**fields)
    begin = stage.play.since_begin(due)
    stage.tick(begin - 20)
    stage.close(begin - 5)
    opens = int(stage.gate.opens)
    if any(one.refusal is None for one in stage.turns(*(begin + after for after in range(1, opens - 20, ticks)))):
        return "starts"
    assert len(stage.started_after(begin + opens)) <= 1
    words = [
        run.outcome if " " in run.reason else run.reason or ("late run" if run.occurrence == due else "last run")
        for run in stage.runs()
    ]
    return ", ".join(dict.fromkeys(map(str, words))) or "no run"


def its_times(stage: Stage) -> str:
    return of_times(stage, cron="*/5 * * * *")


def its_only_time(stage: Stage) -> str:
    return of_times(stage, at=stage.play.begin + 20 * SECOND)


def no_catch_up(stage: Stage) -> str:
    return of_times(stage, 30, cron="*/5 * * * *", catch_up="none")


def a_manual_run(stage: Stage) -> str:
    stage.register(3600)
    stage.close()
    try:
        ticker.run_now(stage.db, stage.task)
    except BadInput:
        return "refused"
    met = stage.verdict(stage.turns(30, 60))
    assert met[:5] not in ("", "waits") or len(stage.started_after()) == 1
    return met or "waits"


def its_manual_job(stage: Stage) -> str:
    stage.register(3600)
    ticker.run_now(stage.db, stage.task)
    stage.tick(5)
    stage.close()
    met = stage.verdict(stage.take())
    assert met[:5] != "waits" or len(stage.started_after()) == 1
    return met


def further(stage: Stage, kind: str) -> str:
    """It is due while the gate is closed, for longer than the interval."""
    met = stage.verdict([one for one in stage.turns(70, 100) if one.kind == kind])
    if met and not met.startswith("waits"):
        return met
    stage.started_after()
    [run] = stage.runs(kind)
    return f"waits, {'starts' if run.started_at else run.reason}"


def a_retry(stage: Stage) -> str:
    stage.register(0, retries=1, backoff="1m")
    [first] = stage.turns(0)
    stage.play.end(first, "failed")
    stage.tick(0)
    stage.close()
    return further(stage, "retry")


def a_piece(stage: Stage) -> str:
    due = stage.register(0)
    handed_out(stage.db, stage.task, "1", occurrence=due, now=due)
    stage.close()
    return further(stage, "piece")


def rows_of_gates(stage: Stage) -> set[tuple[str, str]]:
    tables = ("pauses", "limits", "limited_keys", "slots")
    rows = " UNION ALL ".join(f"SELECT '{table}', ctid::text || xmin FROM ticker.{table}" for table in tables)
    return set(stage.db.execute(rows).fetchall())  # type: ignore[arg-type]


def written(stage: Stage, before: set[tuple[str, str]]) -> str:
    return " ".join(sorted({table for table, _ in rows_of_gates(stage) - before})) or "nothing"


def its_end_writes(stage: Stage) -> str:
    """Rows of gates: the run began before the gate closed, and goes on."""
    stage.register(0)
    [taken] = stage.turns(0)
    stage.close()
    before = rows_of_gates(stage)
    stage.play.at(20)
    assert stage.play.end(taken, "succeeded") and [run.outcome for run in stage.runs()] == ["succeeded"]
    return written(stage, before)


def a_start_writes(stage: Stage) -> str:
    """Rows of gates, after the gate has opened."""
    stage.register()
    stage.close()
    stage.open()
    before = rows_of_gates(stage)
    due = stage.now().next_run
    assert due and start(stage.db, stage.task, due, stage.play.now)["refusal"] is None
    return written(stage, before)


def with_a_pause(stage: Stage) -> str:
    """The pause ends before the gate opens. Another one ends after that."""
    other = {"group": "mail"} if stage.name == "its queue is paused" else {"queue": "polling"}
    stage.register()
    stage.close()
    ticker.pause_all(stage.db, **other)
    assert not stage.turns(30)
    ticker.resume_all(stage.db, **other)
    met = stage.verdict(stage.turns(90))
    ticker.pause_all(stage.db, **other)
    assert not stage.started_after()
    ticker.resume_all(stage.db, **other)
    at = stage.gate.opens
    started = [one for one in stage.turns(at + 90, at + 120) if one.refusal is None]
    assert len(started) == (met != "starts")
    return met or "waits for both"


def after_a_step(stage: Stage, seconds: float) -> str:
    """The clock is set while the task waits. Says when it starts after the gate has opened."""
    stage.register(0)
    stage.play.end(*stage.turns(0), "succeeded")
    stage.close(590)
    stage.tick(610)
    now = 610 + seconds
    stage.tick(now)
    stage.open(now + 10)
    for after in range(10, 4000, 30):
        stage.turns(now + after)
        if len(stage.runs()) > 1 and stage.runs()[-1].started_at:
            return "at once" if after < 90 else "in an interval" if after <= 630 else "later"
    return "never"


def clock_set_back(stage: Stage) -> str:
    return after_a_step(stage, -3600)


def set_forward(stage: Stage) -> str:
    return after_a_step(stage, 3600)


def a_tick_reads(stage: Stage) -> str:
    """Counts 2,000 tasks that wait as this one does, after the first tick has seen them."""
    stage.register(5)
    stage.close()
    copy(stage, 2000)
    stage.tick(30)
    stage.db.execute("VACUUM ANALYZE ticker.tasks")
    before = rows_read(stage)
    stage.tick(60)
    count = rows_read(stage) - before
    return "none" if count < 200 else "many"


def copy(stage: Stage, count: int, owner: str = "owner_id") -> None:
    """Makes copies of the task as it is. `owner` is an expression for their owners, by their number n."""
    named = "('id', 'name', 'owner_id') AND attgenerated = ''"
    attributes = f"pg_attribute WHERE attrelid = 'ticker.tasks'::regclass AND attnum > 0 AND attname NOT IN {named}"
    [[columns]] = stage.db.execute(f"SELECT string_agg(quote_ident(attname), ', ') FROM {attributes}").fetchall()
    numbers = f"generate_series(1, {count}) n WHERE id = {stage.task.id}"
    copies = f"SELECT 'copy ' || n, {owner}, {columns} FROM ticker.tasks, {numbers}"
    stage.db.execute(f"INSERT INTO ticker.tasks (name, owner_id, {columns}) {copies}")


def rows_read(stage: Stage) -> int:
    with stage.play.store.pool.connection() as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
    counts = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relid = 'ticker.tasks'::regclass"
    [[count]] = stage.db.execute(counts).fetchall()
    return int(count)


def what_people_read(stage: Stage) -> str:
    """Lists and the page, the API, the states by which lists select and metrics count, `why`, and `why --at`."""
    stage.register()
    stage.close()
    stage.tick(30)
    stage.play.at(40)
    states = [name for name in TASK_STATES if stage.task.id in [t.id for t in ticker.list_tasks(stage.db, state=name)]]
    assert all(getattr(overview.counts(stage.db), name) for name in states if name != "outside_hours")
    answer = ticker.why(stage.db, stage.task, at=stage.play.now - 20 * SECOND)
    said = {
        "page": formatting.state_in_words(stage.now()),
        "api": formatting.state(stage.now()),
        "counted": " ".join(states),
        "why": "; ".join(answer.next[1:]),
        "at": "; ".join(answer.then),
    }
    text = " | ".join(f"{name}: {words}" for name, words in said.items() if words).replace(stage.db.info.user, "USER")
    return re.sub(r"(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(\.\d+|Z)?", "TIME", text)


BEHAVIOURS: dict[str, Callable[[Stage], str]] = {
    function.__name__.replace("_", " "): function
    for function in (
        *(a_due_task, its_job, its_older_job, its_lost_job, its_times, its_only_time, no_catch_up, a_manual_run),
        *(its_manual_job, a_retry, a_piece, its_end_writes, a_start_writes, with_a_pause, clock_set_back, set_forward),
        *(a_tick_reads, what_people_read),
    )
}
