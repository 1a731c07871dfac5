"""Why a task ran, or did not: every sentence with the numbers by which it was judged, and what happens next."""

import json
import re
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from freezegun import freeze_time
from sqlalchemy.orm import Session

import ticker
from tests.factories import MINUTE, NINE, SECOND, a_drop, a_run, an_event, engine_on, ticked
from tests.plans import indexes, plan
from tests.sentences import sentence
from tests.timing_tables import BASE, Replay, tables
from ticker import clock
from ticker.db.steps import run
from ticker.engine.tick import tick
from ticker.errors import BadInput, UnknownRun, UnknownTask
from ticker.model import Reason
from ticker.read import journal


@pytest.fixture
def frozen(environ, monkeypatch):
    """Python's clock stands still at nine, and statements are handed it."""
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")
    with freeze_time(NINE) as frozen, clock.use():
        yield frozen


@pytest.fixture
def task(frozen, db):
    """A task of every minute, made an hour ago, whose last occurrence was now."""
    made = ticker.register(db, "mail.fetch", owner="mail_channels:5", every=60, tolerance=5)
    db.execute("UPDATE ticker.tasks SET created_at = %s, next_run = %s", [NINE - 60 * MINUTE, NINE + 12 * SECOND])
    return made


def words(db, task, **options):
    """Of its runs: tests edit the task by hand, which is an event."""
    return [line.words for line in ticker.why(db, task, **options).lines if line.run]


# -------------------------------------------------------------------------------------------- the arithmetic of a drop


@pytest.mark.slow
def test_the_drop_of_the_third_table_is_told_with_its_numbers(store, queue, db, redis, function, environ, monkeypatch):
    monkeypatch.setenv("TICKER_HARD_LIMIT", "off")
    [rows] = [rows for name, rows in tables().items() if name.startswith("3.")]
    with freeze_time(BASE) as frozen, clock.use():
        task = ticker.register(db, "poll", every=60, tolerance=5, first=BASE + 30 * SECOND)
        replay = Replay(frozen, store, queue, db, redis, task.id)
        function("poll")(replay.body)
        replay.play(rows)
        lines = [str(line) for line in ticker.why(db, task).lines]
    assert lines == [
        sentence("why.line_succeeded", at="05:01:35", late="65 s", due="05:00:30", took="3 s", box="30 s"),
        (
            sentence(
                "why.line_too_early",
                at="05:02:03",
                since="28 s",
                last="05:01:35",
                early="27 s",
                every="60 s",
                tolerance="5 s",
                earliest="05:02:30",
            )
        ),
        sentence("why.line_succeeded", at="05:02:56", late="26 s", due="05:02:30", took="0 s", box="30 s"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason", "values", "said"),
    [
        ("gone", {}, sentence("why.gone")),
        ("unknown_function", {"worker": "w1", "host": "h", "queue": "polling"}, sentence("why.unknown_function", worker="w1", host="h", function="'mail.fetch'", queue="polling")),
        ("paused", {}, sentence("why.paused_or_inactive")),
        ("done", {}, sentence("why.done")),
        ("clock", {"checked_last_run": NINE + 20 * SECOND}, sentence("why.clock", span="20 s")),
        ("expired", {"occurrence": NINE - 11 * MINUTE},
         sentence("why.expired", waited="11 min", limit="10m")),
        ("expired", {"occurrence": NINE - 2 * SECOND},
         sentence("why.expired_and_not_held", late="2 s")),
        ("duplicate", {"checked_last_run": NINE - 7 * SECOND},
         sentence("why.duplicate", last="08:59:53")),
        ("still_running", {}, sentence("why.still_running")),
        ("too_early", {"checked_last_run": NINE - 54_999 * SECOND / 1000},
         (sentence("why.too_early", since="55 s", last="08:59:05.001", early="0.001 s", every="60 s", tolerance="5 s", earliest="09:00:00.001"))),
        ("too_early", {"checked_last_run": NINE - 10 * 60 * MINUTE, "every_ms": 86_400_000, "tolerance_ms": 4_320_000},
         (sentence("why.too_early", since="10 h", last="2026-02-28 23:00:00", early="12 h", every="1d", tolerance="1h12m", earliest="21:48:00"))),
        ("missed", {"occurrence": NINE - 125 * SECOND},
         sentence("why.missed", late="2 min 5 s", catch_up="catch_up none")),
        ("superseded", {}, sentence("why.superseded")),
        ("no_time", {"checked_last_run": NINE - 53.5 * SECOND},
         sentence("why.no_time", left="0.5 s", next="09:00:00.500", limit="1 s")),
    ],
)  # fmt: skip
def test_each_reason_has_a_sentence_with_its_numbers(reason, values, said, db, task):
    a_drop(db, task, reason, **values)
    [line] = words(db, task)
    assert line.startswith(f"{reason}: ") and line.removeprefix(f"{reason}: ") == said


def test_a_job_that_found_the_task_paused_says_by_whom_and_from_when_to_when(db, task):
    an_event(db, task, "paused", NINE - 5 * MINUTE, by="anna", words="moving house")
    an_event(db, task, "resumed", NINE + 0 * SECOND)
    a_drop(db, task, "paused", checked_at=NINE - MINUTE)
    assert sentence("why.drop_paused", begin="08:55:00", end="09:00:00", by="anna", reason="moving house").within(
        words(db, task)
    )


def test_a_job_that_found_the_task_held_names_the_run_that_held_it(db, task):
    holder = a_run(db, task, kind="manual", occurrence=None, due_at=NINE, started_at=NINE - 10 * SECOND)
    a_drop(db, task, "still_running", checked_at=NINE)
    assert sentence("why.drop_still_running", run=holder, begin="08:59:50", end="09:00:01").within(words(db, task))


def test_an_occurrence_that_was_kept_waiting_names_the_run_that_held_its_task_then(db, task):
    holder = a_run(db, task, kind="manual", occurrence=None, due_at=NINE, started_at=NINE - 10 * SECOND)
    a_drop(db, task, "superseded", checked_at=NINE)
    assert sentence("why.superseded_held", run=holder, begin="08:59:50", end="09:00:01").within(words(db, task))


# ------------------------------------------------------------------------------------------------------------ runs


def test_a_run_tells_how_late_it_was_and_how_long_it_took_of_its_box(db, task):
    a_run(db, task, started_at=NINE - 3 * SECOND, ended_at=NINE - 1 * SECOND, until=NINE + 28 * SECOND,
          occurrence=NINE - 130 * SECOND)  # fmt: skip
    [line] = ticker.why(db, task).lines
    assert str(line) == sentence(
        "why.line_succeeded", at="08:59:57", late="2 min 7 s", due="08:57:50", took="2 s", box="30 s"
    )
    assert (line.due, line.owner, line.run.attempt) == (NINE - 130 * SECOND, "mail_channels:5", 1)


def test_a_run_that_came_before_its_time_says_so(db, task):
    a_run(db, task, started_at=NINE - SECOND / 2, ended_at=NINE)
    assert sentence("why.started_before", early="0.5 s before", due="09:00:00", took="took 0.5 s").begins(
        words(db, task)[0]
    )


def test_attempts_of_an_occurrence_stand_behind_it_with_how_many_there_may_be(db, task):
    db.execute("UPDATE ticker.tasks SET retries = 3")
    first = a_run(db, task, outcome="failed", reason="TimeoutError: no answer", retried=True)
    a_run(db, task, kind="retry", parent_id=first, attempt=2, due_at=NINE + 10 * SECOND, outcome="failed",
          started_at=NINE + 12 * SECOND, until=NINE + 23 * SECOND, ended_at=NINE + 13 * SECOND, retried=True,
          reason="OSError: again")  # fmt: skip
    a_run(db, task, kind="retry", parent_id=first, attempt=3, due_at=NINE + 40 * SECOND, state="planned", outcome=None,
          started_at=None, until=None, ended_at=None, checked_at=None)  # fmt: skip
    answer = ticker.why(db, task)
    assert [f"{line.what}: {line.words}" for line in answer.lines if line.run] == [
        sentence("why.failed_in_time", attempt="1 of 4", took="1 s", box="30 s", error="TimeoutError: no answer"),
        (
            sentence(
                "why.failed_late",
                attempt="2 of 4",
                late="2 s",
                due="09:00:10",
                took="1 s",
                box="10 s",
                error="OSError: again",
            )
        ),
        sentence("why.planned", attempt="3 of 4", due="09:00:40", span="40 s"),
    ]
    assert sentence("why.attempt_is_planned", attempt=3, due="09:00:40").within(answer.next)


def test_the_limit_counts_occurrences_and_not_attempts(db, task):
    for number in range(3):
        first = a_run(db, task, occurrence=NINE - (9 - number) * MINUTE, outcome="failed", retried=True)
        a_run(db, task, occurrence=NINE - (9 - number) * MINUTE, kind="retry", parent_id=first, attempt=2)
    assert [line.due for line in ticker.why(db, task, limit=2).lines] == [NINE - 8 * MINUTE] * 2 + [
        NINE - 7 * MINUTE
    ] * 2


def test_a_run_tells_how_far_its_pieces_have_come(db, task):
    parent = a_run(db, task, state="processing", outcome=None, ended_at=None, pieces=3)
    for item, (state, outcome, retried) in enumerate(
        [("ended", "succeeded", False), ("ended", "failed", True), ("ended", "failed", False), ("planned", None, False)]
    ):
        a_run(db, task, kind="piece", parent_id=parent, item=json.dumps({"uid": item}), state=state, outcome=outcome,
              retried=retried, due_at=NINE, ended_at=NINE if outcome else None, started_at=NINE if outcome else None)  # fmt: skip
    assert words(db, task) == [
        sentence(
            "why.pieces_so_far", span="0 s", pieces="3 pieces", done="1 done", failed="1 failed", left="1 to come"
        ),
    ]
    [piece] = [line.words for line in ticker.journal(db, outcome="succeeded")]
    assert sentence("why.piece", item='{"uid": 0}', run=parent).begins(piece)


def test_pieces_without_a_record_any_more_are_counted_and_said_to_be_so(db, task):
    reason = "1 of 5 pieces failed"
    parent = a_run(db, task, outcome="failed", pieces=5, reason=reason)
    assert words(db, task) == [
        sentence("why.pieces_no_longer_kept", took="1 s", pieces="5 pieces", gone="5 no", reason="1 of 5 pieces failed")
    ]
    a_run(db, task, kind="piece", parent_id=parent, item="1", outcome="failed")
    assert words(db, task) == [
        sentence(
            "why.pieces_kept_in_part",
            took="1 s",
            pieces="5 pieces",
            done="0 done",
            failed="1 failed",
            gone="4 no",
            reason="1 of 5 pieces failed",
        )
    ]


def test_a_run_is_told_with_the_settings_of_its_own_time(db, task):
    a_run(db, task)
    before = words(db, task)
    db.execute("UPDATE ticker.tasks SET every_ms = 2000, tolerance_ms = 500, box_ms = 500, grace_ms = 200, retries = 3")
    assert words(db, task) == before == [sentence("why.in_time", took="1 s", box="30 s")]
    assert [line.words for line in ticker.journal(db) if line.run] == before


def test_a_run_by_times_is_told_with_the_grace_of_its_task(db, task):
    db.execute("UPDATE ticker.tasks SET kind = 'cron', expression = '* * * * *', every_ms = 0, grace_ms = 500")
    a_run(db, task, every_ms=0, until=NINE + 30 * SECOND + SECOND / 2)
    assert words(db, task) == [sentence("why.in_time", took="1 s", box="30 s")]


def test_a_run_that_is_still_open_says_how_many_attempts_there_may_be(db, task):
    db.execute("UPDATE ticker.tasks SET retries = 3")
    a_run(db, task, state="running", outcome=None, ended_at=None, token="6f2c1c3e-8a59-4b5e-9d7a-1f0e5c8b7a60")
    assert words(db, task) == [sentence("why.first_attempt_runs", attempt="1 of 4", span="0 s", box="30 s")]


def test_a_run_that_began_after_the_clock_was_read_has_run_for_no_time(db, task):
    started = NINE + SECOND / 100
    a_run(
        db,
        task,
        state="running",
        outcome=None,
        ended_at=None,
        started_at=started,
        token="6f2c1c3e-8a59-4b5e-9d7a-1f0e5c8b7a60",
    )
    answer = ticker.why(db, task)
    assert "for 0 s now" in str(answer.lines[0])
    assert "has been running for 0 s" in str(answer.next)


def test_an_occurrence_that_waits_says_for_how_long(db, task):
    db.execute("UPDATE ticker.tasks SET waiting = %s", [[NINE - 90 * SECOND, NINE - 30 * SECOND]])
    answer = ticker.why(db, task)
    assert [str(line) for line in answer.lines] == [
        sentence("why.line_waiting", at="08:58:30", late="90 s"),
        sentence("why.line_waiting", at="08:59:30", late="30 s"),
    ]
    assert sentence("why.jobs_wait", number=2, queue="polling", late="90 s").within(answer.next)


def test_events_stand_between_the_occurrences_at_their_times(db, task):
    a_run(db, task, occurrence=NINE - 9 * MINUTE)
    an_event(db, task, "slowed", NINE - 8 * MINUTE, by="ticker", words="every 2m instead of 1m")
    an_event(db, task, "disabled", NINE - 7 * MINUTE)
    a_run(db, task, occurrence=NINE - 6 * MINUTE)
    lines = ticker.why(db, task).lines
    assert [line.what for line in lines] == ["succeeded", "slowed", "disabled", "succeeded"]
    assert str(lines[1]) == "08:52:00  slowed  every 2m instead of 1m"


def test_a_first_failure_is_worded_as_an_event(db, task):
    an_event(db, task, "failed", NINE - 8 * MINUTE, by="ticker", words="failed: ValueError: odd")
    an_event(db, task, "failed", NINE - 7 * MINUTE, by="ticker", words="timed_out")
    [failed, timed_out] = ticker.why(db, task).lines
    assert sentence("why.began_to_fail", error="ValueError: odd") == failed.words
    assert sentence("why.began_to_fail", error="timed_out") == timed_out.words


# ------------------------------------------------------------------------------------------------------------ next


def test_next_it_says_when_the_task_is_due_and_that_a_ticker_lives(db, task):
    ticked(db)
    assert ticker.why(db, task).next == (
        sentence("why.a_ticker_ticked", ago=re.compile("[1-9] s")),
        sentence("why.due_in", due="09:00:12", span="12 s"),
    )


def test_a_task_that_is_due_while_no_ticker_ticks_says_that_first(db, task, frozen):
    frozen.move_to(NINE + 45 * SECOND)
    due = sentence("why.due_since_without_ticks", due="09:00:12", span="33 s")
    assert ticker.why(db, task).next == (sentence("why.no_ticker", remedy="ticker run"), due)
    ticked(db, ago=180 * SECOND)
    assert ticker.why(db, task).next == (
        sentence("why.no_ticker_for", span=re.compile("3 min( [0-9] s)?"), remedy="ticker run"),
        due,
    )
    ticked(db)
    db.execute("UPDATE ticker.tickers SET failure = 'it broke', failing_since = last_tick_at")
    assert ticker.why(db, task).next[-1] == due


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        (["UPDATE ticker.slots SET until = '2026-03-01T09:01:00Z' WHERE kind = 'run'"],
         sentence("why.due_but_no_place", key="imap", due="09:00:12", span="33 s", active="2", places="2", before="1 task")),
        (["UPDATE ticker.tasks SET waiting = ARRAY[next_run] WHERE id <> {id}"],
         sentence("why.due_but_jobs_wait", key="imap", due="09:00:12", span="33 s", active="0", places="2", waiting="2 jobs", before="1 task")),
        (["INSERT INTO ticker.runs (task_id, kind, state, due_at, pushed_at) SELECT id, 'manual', 'pushed', next_run, next_run FROM ticker.tasks WHERE id <> {id}"],
         sentence("why.due_but_jobs_wait", key="imap", due="09:00:12", span="33 s", active="0", places="2", waiting="2 jobs", before="1 task")),
        (["UPDATE ticker.slots SET until = '2026-03-01T09:01:00Z' WHERE kind = 'start'"],
         sentence("why.due_but_no_token", key="imap", due="09:00:12", span="33 s", used="1", burst="1", until="09:01:00", before="1 task")),
        (["UPDATE ticker.limited_keys SET closed_until = '2026-03-01T09:05:00Z'"], sentence("why.due_but_held", key="imap", due="09:00:12", span="33 s", until="09:05:00")),
        ([], sentence("why.due_since", due="09:00:12", span="33 s")),
    ],
)  # fmt: skip
def test_next_it_says_which_limit_a_due_task_waits_for(changes, wanted, db, task, frozen):
    frozen.move_to(NINE + 45 * SECOND)
    ticked(db)
    for other, before in (("sooner", 1), ("later", -1)):
        id_ = ticker.register(db, "poll", name=other, every="1m").id
        db.execute("UPDATE ticker.tasks t SET next_run = o.next_run - %s FROM ticker.tasks o WHERE t.id = %s AND o.id = %s",
                   [before * SECOND, id_, task.id])  # fmt: skip
    db.execute("INSERT INTO ticker.limits (key, concurrency, rate, period_ms, burst) VALUES ('imap', 2, 1, 1000, 1)")
    db.execute("UPDATE ticker.tasks SET limits = '{imap}'")
    for change in changes:
        db.execute(change.format(id=task.id))
    assert ticker.why(db, task).next[-1] == wanted


def test_next_it_names_the_run_that_has_the_room_of_its_key(db, task, frozen):
    frozen.move_to(NINE + 45 * SECOND)
    ticked(db)
    db.execute("INSERT INTO ticker.limits (key, concurrency) VALUES ('imap', 1)")
    other = ticker.register(db, "poll", name="hangs", every="1h", limits="imap")
    run = a_run(db, other, state="running", outcome=None, ended_at=None, token=uuid4(), started_at=NINE)
    db.execute("UPDATE ticker.tasks SET limits = '{imap}'")
    db.execute(
        "UPDATE ticker.slots s SET token = r.token, until = %s FROM ticker.runs r WHERE r.id = %s AND s.kind = 'run'",
        [NINE + MINUTE, run],
    )
    assert ticker.why(db, task).next[-1] == sentence(
        "why.due_but_run_holds", key="imap", due="09:00:12", span="33 s", active=1, places=1, oldest="hangs",
        since="09:00:00", run=run,
    )  # fmt: skip


def test_next_it_says_how_many_workers_listened_to_the_queue_of_its_jobs(db, task, frozen):
    frozen.move_to(NINE + 45 * SECOND)
    db.execute("UPDATE ticker.tasks SET waiting = ARRAY[%s]::timestamptz[], next_run = %s", [NINE, NINE + MINUTE])
    ticked(db, crews=[[["other"], 3, 0]])
    unattended = sentence(
        "why.jobs_wait_unattended", number=1, queue="polling", late="45 s", remedy="ticker worker --tasks ... polling"
    )
    assert unattended in ticker.why(db, task).next
    db.execute("UPDATE ticker.tasks SET waiting = ARRAY[%s, %s]::timestamptz[]", [NINE, NINE + 30 * SECOND])
    crews = {"crews": [[["polling"], 1, 1], [["other", "polling"], 2, 0]]}
    db.execute("UPDATE ticker.tickers SET last_report = %s::text::jsonb", [json.dumps(crews)])
    ticked(db, ago=2 * SECOND, crews=[])  # an older one, which is no longer the last
    busy = sentence("why.jobs_wait_busy", number=2, queue="polling", late="45 s", workers="3 workers", busy=1)
    assert busy in ticker.why(db, task).next
    for number, state in enumerate(("idle", "busy")):
        crews = {"crews": [[["polling"], 1, number]]}
        db.execute("UPDATE ticker.tickers SET last_report = %s::text::jsonb", [json.dumps(crews)])
        one = sentence("why.one_worker_listened", worker="1 worker", state=state)
        assert any(map(one.ends, ticker.why(db, task).next))


def test_around_a_time_at_which_it_was_not_due_it_says_when_it_was(db, frozen):
    """A wrong zone looks like a missing run."""
    task = ticker.register(db, "report", cron="0 9 * * *", zone="America/New_York")
    db.execute("UPDATE ticker.tasks SET created_at = %s", [NINE - 48 * 60 * MINUTE])
    no_time = sentence(
        "why.then_not_due", span="60 s", at="08:58:20", due="14:00:00", clock="09:00", zone="America/New_York"
    )
    assert no_time in ticker.why(db, task, at=NINE - 100 * SECOND).then
    assert not any("schedule" in line for line in ticker.why(db, task, at=NINE - 19 * 60 * MINUTE).then)
    db.execute("UPDATE ticker.tasks SET ends_at = %s", [NINE + 60 * MINUTE])
    assert no_time not in ticker.why(db, task, at=NINE - 100 * SECOND).then


def test_the_last_tick_may_be_that_of_a_ticker_that_was_stopped(db, task, frozen):
    ticked(db, ago=5 * MINUTE)  # killed
    ticked(db, ago=3 * MINUTE, ended=True)
    stopped = sentence("why.last_ticker_stopped", at=re.compile(r"([0-9-]{10} )?[0-9:]{8}"), remedy="ticker run")
    assert ticker.why(db, task).next[0] == stopped
    ticked(db, ago=2 * MINUTE)  # killed after that
    assert ticker.why(db, task).next[0] == sentence(
        "why.no_ticker_for", span=re.compile("2 min( [0-9] s)?"), remedy="ticker run"
    )
    ticked(db, ago=SECOND)
    ticked(db, ago=SECOND / 2, ended=True)
    assert ticker.why(db, task).next[0] == sentence("why.a_ticker_ticked", ago=re.compile("[1-9] s"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("enabled = false", sentence("why.disabled", remedy=re.compile("ticker edit [0-9]+ --enable"))),
        ("owner_active = false", sentence("why.owner_is_inactive")),
        ("paused_by = 'anna', paused_reason = 'moving', paused_until = '2026-03-01T10:00:00Z'",
         sentence("why.paused_until", by="anna", until="10:00:00", reason="moving")),
        ("paused_by = 'anna'", sentence("why.paused", by="anna", remedy=re.compile("ticker resume [0-9]+"))),
        ("next_run = NULL, max_runs = 3, started = 3", sentence("why.done_after", number=3)),
        ("push_errors = 2, push_error = 'queue: is no name', push_after = '2026-03-01T09:01:00Z'",
         sentence("why.not_pushed", number=2, due="09:01:00", error="queue: is no name")),
        ("stretched_ms = 240000", sentence("schedules.interval_while_it_fails", longer="4m", every="60 s")),
        ("every_most_ms = 600000, pace_ms = 240000",
         sentence("schedules.interval_while_it_finds_nothing", longer="4m", every="60 s")),
    ],
)  # fmt: skip
def test_next_it_says_what_stands_in_its_way(change, said, db, task):
    db.execute(f"UPDATE ticker.tasks SET {change}")
    assert said.within(ticker.why(db, task).next)


@pytest.mark.parametrize(
    ("reason", "push_after", "said"),
    [
        (Reason.NO_ROOM, None, sentence("why.due_but_had_no_room", due="09:00:12", span="33 s")),
        (Reason.CLOSED, None, sentence("why.due_but_was_paused", due="09:00:12", span="33 s")),
        (Reason.STILL_RUNNING, NINE + MINUTE,
         sentence("why.due_but_was_held_longer", due="09:00:12", span="33 s", again="09:01:00")),
        (Reason.STILL_RUNNING, NINE, sentence("why.due_but_was_held", due="09:00:12", span="33 s")),
    ],
)  # fmt: skip
def test_next_it_says_why_an_occurrence_went_back_and_which_tick_pushes_it(reason, push_after, said, db, task, frozen):
    frozen.move_to(NINE + 45 * SECOND)
    ticked(db)
    db.execute(
        "UPDATE ticker.tasks SET waits_again = next_run, wait_reason = %s, push_after = %s", [reason, push_after]
    )
    assert ticker.why(db, task).next[-1] == said


def test_a_planned_run_that_went_back_says_what_it_waits_for(db, task):
    a_run(db, task, kind="manual", occurrence=None, due_at=NINE + 40 * SECOND, state="planned", outcome=None, started_at=None,
          until=None, ended_at=None, checked_at=None, reason=Reason.STILL_RUNNING)  # fmt: skip
    answer = ticker.why(db, task)
    assert [line.words for line in answer.lines] == [
        sentence("why.manual_waits_for_a_run", due="09:00:40", span="40 s")
    ]
    assert sentence("why.manual_is_planned_after_a_run", due="09:00:40").within(answer.next)


def test_next_it_says_what_runs_and_until_when_at_the_latest(db, task):
    run = a_run(db, task, occurrence=NINE - 3 * SECOND, state="running", outcome=None, ended_at=None,
                token="00000000-0000-0000-0000-000000000001")  # fmt: skip
    answer = ticker.why(db, task)
    assert sentence("why.runs_now", run=run, span="3 s", end="09:00:28").within(answer.next)
    assert [(line.what, line.words) for line in answer.lines] == [
        ("running", sentence("why.running_in_time", span="3 s", box="30 s"))
    ]


def test_a_waiting_job_that_would_come_too_early_is_foretold(db, task):
    db.execute("UPDATE ticker.tasks SET waiting = %s, last_run = %s", [[NINE], NINE - 5 * SECOND])
    assert sentence("why.will_be_too_early", earliest="09:00:50").within(ticker.why(db, task).next)


# ---------------------------------------------------------------------------------------------- at a time that was


def test_around_a_time_stand_the_occurrences_until_then_and_the_next_one(db, task):
    for minutes in (9, 8, 7, 6, 5):
        a_run(db, task, occurrence=NINE - minutes * MINUTE)
    an_event(db, task, "failed", NINE - 5.5 * MINUTE)
    shown = ticker.why(db, task, at=NINE - 6.5 * MINUTE, limit=2)
    assert [line.at for line in shown.lines] == [NINE - minutes * MINUTE for minutes in (8, 7, 6)]


def test_around_a_time_also_what_was_recorded_long_after_it(db, task):
    for minutes in (20, 19, 3, 2):
        a_run(db, task, occurrence=NINE - minutes * MINUTE)
    a_drop(db, task, "expired", occurrence=NINE - 18 * MINUTE, checked_at=NINE - MINUTE)
    shown = ticker.why(db, task, at=NINE - 18 * MINUTE, limit=1)
    assert [line.due for line in shown.lines] == [NINE - 3 * MINUTE, NINE - 18 * MINUTE]


def test_around_a_time_stand_the_manual_runs_that_are_nearest_to_it_however_many_came_later(db, task):
    for minutes in range(50, 1, -1):
        a_run(db, task, kind="manual", occurrence=None, due_at=NINE - minutes * MINUTE)
    shown = ticker.why(db, task, at=NINE - 40.5 * MINUTE, limit=2)
    assert [line.run.due_at for line in shown.lines] == [NINE - minutes * MINUTE for minutes in (42, 41, 40)]
    a_run(db, task, occurrence=NINE - MINUTE)
    assert ticker.why(db, task, at=NINE - 40.5 * MINUTE, limit=2).lines == shown.lines


@pytest.mark.parametrize(
    ("events", "said"),
    [
        (
            [("paused", 20), ("resumed", 5)],
            sentence("why.then_paused_from_to", begin="08:40:00", end="08:55:00", by="anna", reason="moving"),
        ),
        ([("auto_paused", 20)], sentence("why.then_paused_from", begin="08:40:00", by="anna", reason="moving")),
        ([("resumed", 5)], sentence("why.then_paused_to", end="08:55:00")),
        (
            [("disabled", 20), ("enabled", 5)],
            sentence("why.then_disabled", begin="08:40:00", end="08:55:00", by="anna", reason="moving"),
        ),
        ([("owner_inactive", 20)], sentence("why.then_owner_inactive", begin="08:40:00", by="anna", reason="moving")),
    ],
)
def test_around_a_time_it_says_what_kept_the_task_from_being_pushed_then(events, said, db, task):
    for what, minutes in events:
        an_event(db, task, what, NINE - minutes * MINUTE, by="anna", words="moving")
    ticked(db)
    assert ticker.why(db, task, at=NINE - 10 * MINUTE).then == (said,)


def test_a_pause_that_was_over_by_then_is_not_told(db, task):
    an_event(db, task, "paused", NINE - 20 * MINUTE)
    an_event(db, task, "resumed", NINE - 15 * MINUTE)
    ticked(db)
    assert ticker.why(db, task, at=NINE - 10 * MINUTE).then == ()


def test_around_a_time_it_says_what_ran_then_and_whether_a_ticker_ticked(db, task):
    run = a_run(db, task, occurrence=NINE - 10 * MINUTE, ended_at=NINE - 9 * MINUTE)
    ticked(db, started=NINE - 2 * MINUTE)
    assert ticker.why(db, task, at=NINE - 9.5 * MINUTE).then == (
        sentence("why.then_held", run=run, begin="08:50:00", end="08:51:00"),
        sentence("why.tickers_started_later", first="08:58:00"),
    )
    db.execute("UPDATE ticker.tickers SET last_tick_at = %s", [NINE - 20 * MINUTE])
    assert ticker.why(db, task, at=NINE - 5 * MINUTE).then == (sentence("why.no_tick_since", last="08:40:00"),)


def test_around_a_time_it_tells_of_gates_only_what_is_stored(db, task):
    db.execute("INSERT INTO ticker.limits (key, concurrency) VALUES ('imap', 2)")
    db.execute("UPDATE ticker.tasks SET limits = '{imap}', during = '10-17', zone = 'Europe/Berlin'")
    spans = [NINE - 30 * MINUTE, NINE - 20 * MINUTE]
    db.execute("UPDATE ticker.limited_keys SET closed_at = %s, closed_until = %s", spans)
    columns = "scope, value, of_queue, by, reason, paused_at, resumed_at, resumed_by"
    values = "'unknown', 'mail.fetch', 'polling', 'w1', '', %s, %s, 'w2'"
    db.execute(f"INSERT INTO ticker.pauses ({columns}) VALUES ({values})", spans)
    closed = sentence("why.then_outside_hours", hours="10-17 Europe/Berlin", begins="09:00:00")
    held = sentence("why.then_held_off", key="imap", begin="08:30:00", end="08:40:00")
    unknown = sentence(
        "why.then_unknown_function", function="mail.fetch", begin="2026-03-01 08:30:00Z", end="2026-03-01 08:40:00Z"
    )
    assert ticker.why(db, task, at=spans[0] + MINUTE).then[:3] == (unknown, closed, held)
    assert [line for line in ticker.why(db, task, at=spans[1]).then if line in (unknown, held)] == []
    assert closed.within(ticker.why(db, task, at=spans[1]).then) and not closed.within(
        ticker.why(db, task, at=NINE).then
    )


def test_before_it_was_made_the_task_did_not_exist(db, task):
    assert ticker.why(db, task, at=NINE - 61 * MINUTE).then == (sentence("why.did_not_exist", created="08:00:00"),)


def test_a_time_ahead_or_without_a_zone_is_refused(db, task):
    ahead = sentence("errors.in_the_future", field="at", value="'2026-03-01T09:00:01+00:00'")
    with pytest.raises(BadInput, check=ahead.within):
        ticker.why(db, task, at=NINE + SECOND)
    with pytest.raises(BadInput, check=sentence("errors.no_time_with_a_zone").within):
        ticker.why(db, task, at=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(BadInput, match="limit: 0"):
        ticker.why(db, task, limit=0)


# ------------------------------------------------------------------------------------------------------------- gone


def test_of_a_deleted_task_its_id_still_tells_what_was_and_that_it_is_gone(db, task, store, queue):
    a_run(db, task, occurrence=NINE - 2 * MINUTE)
    ticker.unregister(db, task, by="anna")
    answer = ticker.why(db, task.id)
    assert (answer.task, sorted(line.what for line in answer.lines)) == (None, ["deleted", "succeeded"])
    assert sentence("why.gone_by", by="anna").begins(answer.next[0])
    db.execute("DELETE FROM ticker.events")
    assert ticker.why(db, task.id).next == (sentence("why.gone_last_heard_of", last="08:58:00"),)
    with pytest.raises(UnknownTask, check=sentence("errors.unknown_task_no_record", task=77).within):
        ticker.why(db, 77)


def test_a_session_asks_alike(db, task, database_url):
    a_run(db, task)
    with Session(engine_on(database_url)) as session:
        assert ticker.why(session, "mail.fetch", owner="mail_channels:5").lines == ticker.why(db, task).lines
        assert ticker.journal(session) == ticker.journal(db)


# ---------------------------------------------------------------------------------------------------------- journal


@pytest.fixture
def history(db, task):
    """What ended and happened to two tasks, in this order; a run that began first and ended last."""
    other = ticker.register(db, "feed.poll", owner="feeds:1", every=60)
    a_run(db, task, occurrence=NINE - 9 * MINUTE, ended_at=NINE - MINUTE)
    a_drop(db, task, "too_early", checked_at=NINE - 8 * MINUTE, checked_last_run=NINE - 9 * MINUTE + 30 * SECOND)
    a_run(db, other, occurrence=NINE - 8 * MINUTE, ended_at=NINE - 7 * MINUTE, outcome="failed", reason="OSError: no")
    an_event(db, other, "failed", NINE - 6 * MINUTE, words="failed: OSError: no")
    a_drop(db, other, "gone", occurrence=NINE - 6 * MINUTE, checked_at=NINE - 5 * MINUTE)
    a_run(
        db,
        other,
        occurrence=NINE,
        state="running",
        outcome=None,
        ended_at=None,
        token="00000000-0000-0000-0000-000000000001",
    )
    return task, other


def told(db, **wanted):
    return [f"{(NINE - line.at) / MINUTE:g} {line.what} {line.task_name}" for line in ticker.journal(db, **wanted)]


ALL = [
    "8 dropped mail.fetch",
    "7 failed feed.poll",
    "6 failed feed.poll",
    "5 dropped feed.poll",
    "1 succeeded mail.fetch",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        ({}, ALL),
        ({"limit": 2}, ALL[-2:]),
        ({"since": NINE - 6 * MINUTE}, ALL[2:]),
        ({"task": 1}, [ALL[0], ALL[4]]),
        ({"task": "feed.poll", "owner": "feeds:1"}, ALL[1:4]),
        ({"owner": "feeds:1"}, ALL[1:4]),
        ({"owner": "feeds:2"}, []),
        ({"owner_type": "mail_channels"}, [ALL[0], ALL[4]]),
        ({"outcome": "failed"}, [ALL[1]]),
        ({"outcome": "dropped"}, [ALL[0], ALL[3]]),
        ({"reason": "gone"}, [ALL[3]]),
        ({"reason": "gone", "owner": "mail_channels:5"}, []),
        ({"outcome": "dropped", "task": 1}, [ALL[0]]),
    ],
)  # fmt: skip
def test_the_journal_is_in_the_order_in_which_things_ended_and_happened(wanted, lines, db, history):
    assert told(db, **wanted) == lines


@pytest.mark.slow
@pytest.mark.parametrize("of", [{}, {"owner": "feeds:1"}, {"task": 2}])
@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        ({"function": "feed.poll"}, [ALL[3], ALL[1]]),
        ({"function": "feed.poll", "outcome": "failed"}, [ALL[1]]),
        ({"function": "feed"}, []),
        ({"search": "oserror"}, [ALL[1]]),
        ({"search": "%"}, []),
        ({"queue": "other"}, []),
        ({"queue": ""}, [ALL[3], ALL[1]]),
    ],
)
def test_runs_and_drops_are_found_by_function_queue_and_a_part_of_their_reason(of, wanted, lines, db, history):
    if "queue" in wanted:
        of = {"owner": "feeds:1"} | of  # in each of these rows, the queue is empty
    found = journal.page(db, journal.select(db, **of, **wanted))
    assert [f"{(NINE - line.at) / MINUTE:g} {line.what} {line.task_name}" for line in found.lines] == lines
    assert (found.next, found.looked_through) == (None, None)


@pytest.mark.slow
@pytest.mark.parametrize("searched", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("limit", [1, 2, 50])
def test_a_search_is_bounded_says_so_and_goes_on(searched, limit, db, history, monkeypatch):
    monkeypatch.setattr(journal, "SEARCHED", searched)
    wanted, before, lines, pages = journal.select(db, function="feed.poll"), None, [], []
    while not pages or before:
        page = journal.page(db, wanted, before=before, limit=limit)
        lines += [line.what for line in page.lines]
        pages, before = [*pages, page], page.next
    assert lines == ["dropped", "failed"]
    assert {page.looked_through for page in pages} <= {None, searched}
    assert all(len(page.lines) == limit or page.looked_through for page in pages[:-1])
    assert any(page.looked_through for page in pages) or searched > 3 or limit < searched


def test_the_journal_of_an_owner_keeps_what_was_of_its_deleted_tasks(db, history):
    ticker.unregister(db, owner="feeds:1")
    for wanted in ({"owner": "feeds:1"}, {"task": 2}):
        kept = told(db, **wanted)
        assert [line for line in kept if "deleted" not in line] == ALL[1:4] and len(kept) == 4


def test_a_journal_of_what_is_nothing_is_refused(db):
    for wanted, said in [
        ({"outcome": "fine"}, sentence("errors.none_of", field="outcome", value="'fine'", values="succeeded, partial")),
        ({"reason": "mood"}, sentence("errors.none_of", field="reason", value="'mood'", values="gone, ")),
        (
            {"reason": "gone", "outcome": "failed"},
            sentence("errors.of_drops", field="reason", value="'gone'", outcome="failed"),
        ),
        (
            {"owner": "a:1", "owner_type": "a"},
            sentence("errors.stands_beside_an_owner", field="owner_type", value="'a'"),
        ),
        ({"limit": 10_001}, sentence("errors.no_whole_number", field="limit", value=10001)),
    ]:
        with pytest.raises(BadInput, check=said.within):
            ticker.journal(db, **wanted)


@pytest.mark.slow
def test_a_journal_that_goes_on_brings_each_line_once_also_one_that_came_late(db, history, frozen):
    task, _ = history
    tail = journal.Tail(journal.select(db))
    assert len(run(db, tail.begin(None, None, 2))) == 2
    assert run(db, tail.more()) == []
    a_run(db, task, ended_at=NINE - 20 * SECOND)  # its transaction took so long
    frozen.tick(5)
    an_event(db, task, "paused", NINE + 5 * SECOND)
    assert [line.what for line in run(db, tail.more())] == ["succeeded", "paused"]
    frozen.tick(1)
    assert run(db, tail.more()) == []


# ------------------------------------------------------------------------------------------------------------ drops


def test_drops_are_counted_by_what_they_have_in_common_the_most_first(db, history):
    task, _ = history
    a_drop(db, task, "paused", checked_at=NINE - 4 * MINUTE)
    a_drop(db, task, "paused", checked_at=NINE - 3 * MINUTE)

    def counted(by, **options):
        return [(one.key, one.count) for one in ticker.drops(db, by=by, **options)]

    assert counted("reason") == [("paused", 2), ("gone", 1), ("too_early", 1)]
    assert counted("owner") == [("mail_channels:5", 3), ("feeds:1", 1)]
    assert counted("task") == [("1", 3), ("2", 1)]
    assert counted("function") == [("mail.fetch", 3), ("feed.poll", 1)]
    assert counted("reason", since=NINE - 4.5 * MINUTE) == [("paused", 2)]
    assert counted("reason", limit=1) == [("paused", 2)]
    first = ticker.drops(db)[0]
    assert (first.newest, first.example.at, first.example.run.reason) == (
        NINE - 3 * MINUTE,
        NINE - 3 * MINUTE,
        "paused",
    )
    with pytest.raises(
        BadInput,
        check=sentence("errors.none_of", field="by", value="'mood'", values="reason, owner, task, function").within,
    ):
        ticker.drops(db, by="mood")


@pytest.mark.parametrize("by", ["reason", "owner", "task", "function"])
def test_drops_are_counted_from_an_instant_on_in_each_reason_of_the_index(by, db):
    """Without the leading columns the index is read in full, before PostgreSQL 18 at least, which skips through it."""
    db.execute("SET enable_seqscan = off")
    found = plan(db, "drops", by=by, reasons=journal.REASONS, since=NINE, until=None, limit=20)
    asked = [
        node["Index Cond"] for node in found if node.get("Index Name") == "runs_by_reason" and "Index Cond" in node
    ]
    assert any(all(column in one for column in ("owner_type", "reason", "ended_at")) for one in asked)


def test_drops_are_counted_of_every_type_of_owner(db, task):
    a_drop(db, task, "paused")
    a_drop(db, task, "no_time")
    a_drop(db, task, "paused", owner_type="", owner_id="")
    a_drop(db, task, "paused", owner_type="a", owner_id="1", ended_at=NINE - MINUTE)
    assert {(one.key, one.count) for one in ticker.drops(db)} == {("paused", 3), ("no_time", 1)}
    assert {(one.key, one.count) for one in ticker.drops(db, by="owner", since=NINE)} == {
        ("mail_channels:5", 2),
        ("", 1),
    }


# ------------------------------------------------------------------------------------------------------- many pieces

PIECES = """INSERT INTO ticker.runs (task_id, task_name, kind, parent_id, item, state, outcome, due_at, started_at, ended_at)
SELECT %(task)s, 'mail.fetch', 'piece', %(parent)s, to_jsonb(n), 'ended', 'succeeded', at, at, at
FROM generate_series(1, %(count)s) n, (SELECT %(at)s::timestamptz AS at) w"""


@pytest.fixture
def of_pieces(db, task):
    """A run that made 1,500 pieces, and ended behind them; a manual one before it."""
    before = a_run(db, task, kind="manual", occurrence=NINE - MINUTE)
    parent = a_run(db, task, pieces=1500, ended_at=NINE + MINUTE)
    db.execute(PIECES, {"task": task.id, "parent": parent, "count": 1500, "at": NINE + SECOND})
    return before, parent


@pytest.mark.slow
def test_a_run_stands_in_the_journal_of_its_task_however_many_pieces_it_made(db, task, of_pieces, frozen):
    frozen.tick(MINUTE)
    found = [line.run.id for line in ticker.journal(db, task=task.id, limit=1500) if line.run]
    assert len(found) == 1500 and found[-1] == of_pieces[1]
    for _ in range(1200):
        a_drop(db, task, "still_running", ended_at=NINE)
    assert [line.run.id for line in ticker.journal(db, task=task.id, limit=1)] == [of_pieces[1]]


def test_pages_of_a_journal_go_on_through_the_pieces_to_the_run_before(db, task, of_pieces, frozen):
    frozen.tick(MINUTE)
    wanted, before, found = journal.Wanted(task_id=task.id, events=False), None, []
    while (page := journal.page(db, wanted, before=before, limit=400)).lines:
        found += [line.run.id for line in page.lines]
        if (before := page.next) is None:
            break
    assert len(found) == len(set(found)) == 1502
    assert (found[0], found[-1]) == of_pieces[::-1]


def test_the_last_runs_of_a_task_are_those_that_were_made_last_of_any_kind(db, task, of_pieces):
    newest, last = a_run(db, task, kind="manual"), max(of_pieces) + 1500
    assert [run.id for run in ticker.list_runs(db, task=task.id, limit=3)] == [newest, last, last - 1]
    assert [run.id for run in ticker.list_runs(db, task=task.id, before=of_pieces[1] + 1)] == [*of_pieces[::-1]]


def test_the_last_occurrences_are_found_without_reading_pieces(db, task, of_pieces):
    db.execute("ANALYZE ticker.runs")
    db.execute("SET enable_seqscan = off")
    both = [("last_occurrences", {"task_id": task.id}), ("last_occurrences_of", {"ids": [task.id], "since": None})]
    for statement, values in both:
        found = [node for node in plan(db, statement, limit=20, **values) if node.get("Relation Name") == "runs"]
        assert indexes(found) & {"runs_of_task", "runs_one_record"}
        assert not any("piece" in str(node) for node in found)


def test_pieces_are_told_page_by_page(db, task, of_pieces):
    first = ticker.get_run(db, of_pieces[1], pieces=1000)
    assert (len(first.pieces), first.next, first.run.pieces) == (1000, first.pieces[-1].id, 1500)
    rest = ticker.get_run(db, of_pieces[1], pieces=1000, after=first.next)
    assert (len(rest.pieces), rest.next, rest.pieces[0].item) == (500, None, 1001)
    assert len(ticker.get_run(db, of_pieces[1]).pieces) == 1500
    assert [run.item for run in ticker.get_run(db, rest.pieces[0].id).attempts] == [1001]


# --------------------------------------------------------------------------------------------------- one run in full


def test_one_run_in_full_has_its_output_its_attempts_and_its_pieces(db, task):
    first = a_run(db, task, outcome="failed", retried=True, output="fetched 3\n", error_output="slow\n", traceback="T")
    second = a_run(db, task, kind="retry", parent_id=first, attempt=2, pieces=1)
    piece = a_run(db, task, kind="piece", parent_id=second, item='{"uid": 3}', outcome="failed", retried=True)
    again = a_run(db, task, kind="piece", parent_id=second, item='{"uid": 3}', attempt=2)
    a_run(db, task, kind="piece", parent_id=second, item='{"uid": 4}')

    whole = ticker.get_run(db, first)
    assert (whole.output, whole.error_output, whole.run.traceback) == ("fetched 3\n", "slow\n", "T")
    assert (
        [run.id for run in whole.attempts] == [run.id for run in ticker.get_run(db, second).attempts] == [first, second]
    )
    assert [run.item for run in ticker.get_run(db, second).pieces] == [{"uid": 3}, {"uid": 3}, {"uid": 4}]
    assert [run.id for run in ticker.get_run(db, again).attempts] == [piece, again]
    with pytest.raises(UnknownRun, check=sentence("errors.unknown_run", run=77).within):
        ticker.get_run(db, 77)


@pytest.mark.slow
def test_a_real_run_by_hand_and_a_real_retry_are_told(frozen, store, queue, db, redis, function):
    from rq import SimpleWorker

    @function("poll")
    def poll():
        if ticker.get(db, "poll").succeeded == 0:
            frozen.tick(1)
            db.execute("UPDATE ticker.tasks SET succeeded = 1")
            raise OSError("no route")

    def work():
        tick(store, queue, datetime.now(UTC))
        SimpleWorker(["polling"], connection=redis).work(burst=True, logging_level="ERROR")

    ticker.register(db, "poll", every="10m", retries=2, backoff="10s")
    work()
    frozen.tick(40)
    for _ in range(2):
        work()
    frozen.tick(60)
    ticker.run_now(db, "poll")
    work()
    lines = [f"{line.what}: {line.words}" for line in ticker.why(db, "poll").lines if line.run]
    assert sentence("why.failed_in_time_so_far", attempt="1 of 3", took="1 s").begins(lines[0])
    assert lines[0].endswith(": OSError: no route")
    assert sentence("why.succeeded_attempt", attempt="2 of 3").begins(lines[1])
    assert sentence("why.succeeded_by_hand").begins(lines[2])


# ---------------------------------------------------------------------------------------------------------- indexes


OUTCOMES = {
    "outcomes": journal.ENDED,
    "reasons": journal.REASONS,
    "since": None,
    "limit": 100,
    "before": None,
    "before_run": 2**63 - 1,
    "most": journal.SEARCHED,
    "function": "poll",
    "queue": None,
    "search": "refused",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "parameters", "wanted"),
    [
        ("last_occurrences", {"task_id": 7, "limit": 20}, {"runs_of_task"}),
        ("occurrences_around", {"task_id": 7, "at": NINE, "limit": 20}, {"runs_manual", "runs_one_record"}),
        ("pieces_of", {"parents": [7]}, {"runs_of_parent"}),
        ("journal", {**OUTCOMES, "owner_type": "a"}, {"runs_by_outcome", "runs_by_reason"}),
        ("journal_of_task", {**OUTCOMES, "task_id": 7, "owner_type": None, "owner_id": None}, {"runs_of_task", "runs_further"}),
        ("journal_of_owner", {**OUTCOMES, "owner_type": "a", "owner_id": "1"}, {"runs_by_owner"}),
        ("journal_of_events", {"since": None, "task_id": None, "owner_type": None, "owner_id": None, "limit": 9,
          "before": NINE, "before_event": 5}, {"events_at"}),
        ("drops", {"by": "reason", "reasons": journal.REASONS, "since": NINE, "until": None, "limit": 20}, {"runs_by_reason"}),
        ("deleted_tasks", {"ids": [7]}, {"runs_of_task", "tasks_pkey"}),
    ],
)  # fmt: skip
def test_what_people_ask_can_be_found_by_an_index(statement, parameters, wanted, db):
    """Of small tables, a plan reads all."""
    db.execute("TRUNCATE ticker.runs, ticker.events")  # what earlier tests left would change the plan
    db.execute("DELETE FROM pg_statistic WHERE starelid = 'ticker.runs'::regclass")
    db.execute("SET enable_seqscan = off")
    db.execute("SET enable_sort = off")
    assert wanted <= indexes(plan(db, statement, **parameters))


def test_the_next_time_is_also_shown_by_the_clocks_of_its_zone(frozen, db):
    ticker.register(db, "report", cron="0 9 * * *", zone="America/New_York")
    assert ticker.why(db, "report").next[-1].startswith("due at 14:00:00 (09:00 in America/New_York), in 5 h")
