"""Defines the tables, which `ticker.migrations` creates. Applications join their own with `tasks` and `runs`
(docs/concepts/owners.md).

The other tables are in `side_tables`. Domains, functions and triggers are in `ticker/migrations/versions`.
"""

from sqlalchemy import Computed, MetaData, Table, UniqueConstraint, text

from ticker.db.columns import NOW, check, column, identity, index
from ticker.db.columns import metadata as metadata
from ticker.db.side_tables import installation as installation
from ticker.db.side_tables import tickers as tickers
from ticker.db.sql import rule

RUNNABLE = "enabled AND owner_active AND paused_by IS NULL AND pause_id IS NULL"
DUE = f"{RUNNABLE} AND next_run IS NOT NULL"
FAILING = "cause <> '' AND enabled AND owner_active AND (paused_by IS NULL OR paused_by = 'ticker')"

# What to run, how often, for which owner, and the state of each task.
tasks = Table(
    "tasks",
    metadata,
    identity(),
    column("guid", "uuid", text("gen_random_uuid()")),
    # What to run, and for which owner. Empty strings mean no owner.
    column("owner_type", "plain", ""),
    column("owner_id", "plain", ""),
    column("name", "named", nullable=False),
    column("function", "named", nullable=False),
    column("kwargs", "object", "{}"),
    column("registered", "registered", "{}"),
    column("declared_in", "prose", ""),
    # The schedule.
    column("kind", "kind", nullable=False),
    column("expression", "prose", ""),
    column("zone", "prose", "UTC"),
    column("every_ms", "duration", 0),
    column("tolerance_ms", "duration", 0),
    column("box_ms", "box", nullable=False),
    column("grace_ms", "grace", nullable=False),
    # The queue, and texts for people.
    column("queue", "named", nullable=False),
    column("subject", "prose", ""),
    column("description", "prose", ""),
    column("metadata", "object", "{}"),
    # Whether the task may run: three facts with separate writers.
    column("enabled", "boolean", "true"),
    column("owner_active", "boolean", "true"),
    column("paused_by", "prose"),
    column("paused_reason", "prose", ""),
    column("paused_until", "moment"),
    # Written by the ticker.
    column("next_run", "moment"),
    column("waiting", "moments", "{}"),
    column("push_after", "moment"),
    column("push_errors", "count", 0),
    column("push_error", "prose", ""),
    # Written by the start of a run.
    column("last_run", "moment"),
    column("last_occurrence", "moment"),
    column("run_token", "uuid"),
    column("running_until", "moment"),
    # Written by the end of a run that still has its token.
    column("cursor", "readable"),
    column("last_run_id", "bigint"),
    column("last_outcome", "outcome"),
    column("last_ended_at", "moment"),
    column("last_success_at", "moment"),
    column("last_worked_at", "moment"),
    column("failures", "count", 0),
    column("created_at", "moment", NOW),
    column("updated_at", "moment", NOW),
    # The bounds of the schedule, what happens to missed times, and whether a task for a single time is deleted after
    # its success.
    column("starts_at", "moment"),
    column("ends_at", "moment"),
    column("max_runs", "max_runs"),
    column("started", "started", 0),
    column("catch_up", "catch_up", "one"),
    column("remove", "boolean", "false"),
    # What happens to an occurrence while another job of its task waits or runs, and after it fails.
    column("overlap", "overlap", "queue"),
    column("retries", "retries", 0),
    column("backoff", "short", "10s..5m"),
    # What happens to a task that keeps failing: its longest and its current interval, when it is paused, and when it is
    # probed.
    column("stretch_ms", "span"),
    column("stretched_ms", "span"),
    column("pause_after", "limit"),
    column("probe_ms", "span"),
    # Alerts: the number of intervals without a success, the time of the next check, and what was notified last.
    column("dead_man", "intervals"),
    column("alarm_at", "moment"),
    column("told", "told", ""),
    column("resumed_at", "moment"),
    # Fairness among submitters and groups, and which records are kept.
    column("submitter", "plain", ""),
    column("group_name", "plain", ""),
    column("priority", "priority", 0),
    column("keep", "keep", "all"),
    # Counts of all its runs, whether their rows are kept or not.
    column("succeeded", "total", 0),
    column("failed", "total", 0),
    column("dropped", "total", 0),
    # Whether the task has its own phase.
    column("spread", "boolean", "false"),
    # The ids of jobs that carry waiting occurrences together with those of other tasks, by occurrence in microseconds
    # since 1970.
    column("batch_jobs", "batch_jobs"),
    # The window of a spread task after each of its times, and its phase in that window. An interval task has no
    # `within_ms`: its window is the interval.
    column("within_ms", "span"),
    column("phase_ms", "bigint", None, Computed(rule("phase", metadata.schema or "", ""), persisted=True)),
    # The time until which the task runs alone in its job, or with other suspects, up to `share` of them. The end of the
    # year 9999 means: until one of its runs has ended.
    column("alone_until", "moment"),
    column("share", "batch"),
    # One or two different keys, whose limits the task shares with other tasks.
    column("limits", "keys"),
    # The upper bound of an elastic interval, whose lower bound is `every_ms`, and the interval in force, if it is
    # longer than the lower bound. The `next_run` that a run asked for (`run.again`).
    column("every_most_ms", "span"),
    column("pace_ms", "span"),
    column("again_at", "moment"),
    # The pause for which the due task waits. An occurrence whose job ended before it could start, and why: it is the
    # next run again, and is pushed after `push_after`. The hours of the day, and the days of the week, in which the
    # task is due ('' for always).
    column("pause_id", "bigint"),
    column("waits_again", "moment"),
    column("wait_reason", "short"),
    column("during", "short", ""),
    # The event that counts the occurrences that were not pushed, while none of the task's occurrences is pushed.
    column("enough_jobs_event", "bigint"),
    # Why it has failed, if that was notified: the error without what differs among tasks. A success clears it.
    column("cause", "short", ""),
    UniqueConstraint("owner_type", "owner_id", "name", name="tasks_owner_name"),
    check("tasks_owner", "(owner_type = '') = (owner_id = '')"),
    check(
        "tasks_schedule", "CASE kind WHEN 'interval' THEN every_ms >= 1000 ELSE every_ms = 0 AND expression <> '' END"
    ),
    # Two runs of a task never overlap: one is dead before the next may start.
    check("tasks_fit", "kind <> 'interval' OR tolerance_ms + box_ms + grace_ms <= every_ms"),
    check(
        "tasks_elastic",
        "(every_most_ms IS NULL OR kind = 'interval' AND every_most_ms > every_ms) AND (pace_ms IS NULL OR "
        "coalesce(pace_ms BETWEEN every_ms AND every_most_ms, false))",
    ),
    check("tasks_during", "during = '' OR kind = 'interval'"),
    check("tasks_bounds", "starts_at <= ends_at"),
    check("tasks_hold", "(run_token IS NULL) = (running_until IS NULL)"),
    check("tasks_paused", "paused_by IS NOT NULL OR (paused_until IS NULL AND paused_reason = '')"),
    check(
        "tasks_waiting",
        "array_position(waiting, NULL) IS NULL AND cardinality(waiting) <= 10000 AND "
        "coalesce(array_lower(waiting, 1), 1) = 1 AND '1970-01-01T00:00:00Z' <= ALL (waiting) AND "
        "'9999-12-31T00:00:00Z' >= ALL (waiting)",
    ),
    # The due query: a range on next_run, oldest first. With 1,000 due of 200,000 rows, the first row takes 0.06 ms.
    # Without the index, it takes a scan of the table (tests/db/test_indexes.py checks the plans). Due tasks that wait
    # for a pause are not in it. Tasks with limits have an index of their own, so that what is blocked delays nothing
    # else.
    index("tasks_due", "next_run", "id", where=f"{DUE} AND limits IS NULL"),
    index("tasks_due_limited", "next_run", "id", where=f"{DUE} AND limits IS NOT NULL"),
    index("tasks_at_gate", "pause_id", "next_run", where="pause_id IS NOT NULL"),
    # The sweep: occurrences that were pushed and have not started. Empty while workers keep up.
    index("tasks_waiting_oldest", "id", where="waiting <> '{}'"),
    # The room of a key: what was pushed and has not started will take it.
    index("tasks_waiting_limited", "id", where="waiting <> '{}' AND limits IS NOT NULL"),
    # For the tick, which counts guilty tasks by function. Nearly always empty.
    index("tasks_alone", "alone_until", where="alone_until IS NOT NULL"),
    # For the names of all functions of tasks: one look-up for each name, however many tasks there are. Another tells
    # whether a function has runnable tasks in a queue.
    index("tasks_function", "function", "queue", text(f"({RUNNABLE})")),
    # The sweep: tasks for a single time that has passed, which are to be removed. Nearly always empty.
    index("tasks_done_once", "id", where="kind = 'once' AND remove AND next_run IS NULL"),
    # The sweep: when to check whether a task has had a success.
    index("tasks_alarm_at", "alarm_at", where="alarm_at IS NOT NULL"),
    # The sweep: pauses that end by themselves. Nearly always empty.
    index("tasks_paused_until", "paused_until", where="paused_until IS NOT NULL"),
    # For people, among a million tasks: tasks that fail, most failures first, and tasks that do not run. Small if all
    # is well. Runs rarely touch them: `failures` changes only with a failure, and with the success after it.
    index("tasks_failing", text("failures DESC"), "id", where="failures > 0"),
    # The ticker: the causes of the tasks that fail, and the tasks of each.
    index("tasks_cause", "cause", "id", where=FAILING),
    # Written so that the planner uses it for no pause alone: until autovacuum comes after a pause of many tasks, it would
    # take this index for as good as empty, and read all of it instead of `tasks_at_gate` in order.
    index("tasks_paused", "id", where="(paused_by IS NULL AND pause_id IS NULL) IS NOT TRUE"),
    index("tasks_inactive", "id", where="NOT enabled OR NOT owner_active"),
    # The end of a run touches no index. If the page has room, PostgreSQL writes the row's new version next to the old
    # one (HOT). That saves a third of all WAL. Autovacuum's defaults are enough.
    info={"fillfactor": 85},
)

# Runs of every kind, and drops. There is no foreign key: the record outlives its task.
runs = Table(
    "runs",
    metadata,
    identity(),
    column("task_id", "bigint", nullable=False),
    column("task_name", "short", ""),
    column("function", "short", ""),
    column("owner_type", "short", ""),
    column("owner_id", "short", ""),
    column("kind", "run_kind", nullable=False),
    column("parent_id", "bigint"),
    column("item", "readable"),
    column("occurrence", "moment"),
    column("attempt", "integer", 1),
    column("state", "state", nullable=False),
    column("outcome", "outcome"),
    column("reason", "prose", ""),
    column("token", "uuid"),
    column("due_at", "moment"),
    column("pushed_at", "moment"),
    column("started_at", "moment"),
    column("until", "moment"),
    column("boot", "short"),
    column("uptime_us", "uptime"),
    column("ended_at", "moment"),
    column("created_at", "moment", NOW),
    # The values by which the start was decided, what the function returned and printed, and where it ran. `checked_at`
    # is null for a run that started, because it was decided at `started_at`.
    column("checked_last_run", "moment"),
    column("checked_at", "moment"),
    column("every_ms", "duration"),
    column("tolerance_ms", "duration"),
    column("result", "readable"),
    column("output", "output", ""),
    column("error_output", "output", ""),
    column("traceback", "output", ""),
    column("worker", "prose", ""),
    column("host", "short", ""),
    column("pid", "integer"),
    column("job_id", "prose", ""),
    # Whether the end needs a follow-up that no tick has made yet, whether a retry followed, and how many pieces the run
    # created.
    column("follow_up", "boolean", "false"),
    column("retried", "boolean", "false"),
    column("pieces", "integer"),
    # Who first requested to stop the run, and when. A tick stops it.
    column("stop_requested_by", "short"),
    column("stop_requested_at", "moment"),
    # The queue of the run.
    column("queue", "short", ""),
    # The trace context in which a manual run was requested, as W3C's `traceparent`; its retries and pieces have it,
    # too.
    column("traceparent", "short"),
    check("runs_ended", "(state = 'ended') = (outcome IS NOT NULL) AND (state = 'ended') = (ended_at IS NOT NULL)"),
    check("runs_dropped", "outcome <> 'dropped' OR reason <> ''"),
    check("runs_planned", "state <> 'planned' OR due_at IS NOT NULL"),
    check("runs_running", "state <> 'running' OR (token IS NOT NULL AND started_at IS NOT NULL AND until IS NOT NULL)"),
    check("runs_uptime", "(boot IS NULL) = (uptime_us IS NULL)"),
    check("runs_piece", "kind <> 'piece' OR parent_id IS NOT NULL"),
    check("runs_occurrence", "kind <> 'scheduled' OR occurrence IS NOT NULL"),
    # One record for each occurrence, whatever became of it. A job that is delivered again finds it.
    index("runs_one_record", "task_id", "occurrence", unique=True, where="kind = 'scheduled'"),
    # For people: the last runs of a task, and separately its retries and pieces, because one run may have a million of
    # them. Each row is in one of the two indexes.
    index("runs_of_task", "task_id", "id", where="kind IN ('scheduled', 'manual')"),
    index("runs_further", "task_id", "id", where="kind IN ('retry', 'piece')"),
    # The manual runs of a task around a time.
    index("runs_manual", "task_id", "due_at", where="kind = 'manual'"),
    # The ticker: planned runs that are due, and the first attempts of pieces, which it pushes run by run in turn.
    index("runs_planned", "due_at", where="state = 'planned' AND (kind <> 'piece' OR attempt > 1)"),
    index("runs_planned_pieces", "parent_id", "id", where="state = 'planned' AND kind = 'piece' AND attempt = 1"),
    # The sweep: runs that were pushed.
    index("runs_pushed", "id", where="state = 'pushed'"),
    # The ticker: runs that are to be stopped. Nearly always empty.
    index("runs_to_stop", "id", where="stop_requested_by IS NOT NULL AND state <> 'ended'"),
    # The worker: the record of a dead work-horse, by its token.
    index("runs_running_token", "token", where="state = 'running'"),
    # Deletion: the task's unstarted runs.
    index("runs_unstarted", "task_id", where="state IN ('planned', 'pushed')"),
    # The ticker: ends that it has to handle; runs whose pieces are not done, and the open pieces of each.
    index("runs_follow_up", "id", where="follow_up"),
    index("runs_processing", "id", where="state = 'processing'"),
    index("runs_open_pieces", "parent_id", where="kind = 'piece' AND (state <> 'ended' OR follow_up)"),
    # The pieces and retries of a run.
    index("runs_of_parent", "parent_id", where="parent_id IS NOT NULL"),
    # The journal: the last ends with an outcome; the last drops for a reason, with the columns by which drops are
    # counted (each row is in one of the two); and both for an owner, whose tasks may be gone. The owner's type comes
    # first, because there are few types. So no query reads the rows of others. Only ended rows have an outcome, because
    # a run is written twice.
    index("runs_by_outcome", "owner_type", "outcome", "ended_at", where="outcome <> 'dropped'"),
    index(
        "runs_by_reason",
        "owner_type",
        "reason",
        "ended_at",
        where="outcome = 'dropped'",
        postgresql_include=["id", "task_id", "function", "owner_id"],
    ),
    index("runs_by_owner", "owner_type", "owner_id", "ended_at", where="owner_type <> '' AND ended_at IS NOT NULL"),
)

# What happened to a task apart from its runs, such as who paused it, and since when it has failed. Events outlive
# their task.
events = Table(
    "events",
    metadata,
    identity(),
    column("at", "moment", NOW),
    column("task_id", "bigint", nullable=False),
    column("task_name", "short", ""),
    column("function", "short", ""),
    column("owner_type", "short", ""),
    column("owner_id", "short", ""),
    column("what", "what", nullable=False),
    column("by", "prose", ""),
    column("words", "words", ""),
    column("run_id", "bigint"),
    column("told", "boolean", "false"),
    # How often it happened, and when last, if an event counts. Its `at` is the first time.
    column("count", "integer"),
    column("until", "moment"),
    # The events of a task.
    index("events_of_task", "task_id", "id"),
    # The journal: the last events.
    index("events_at", "at"),
    # The ticker: events that have not been notified yet.
    index("events_untold", "id", where="NOT told"),
    # One event for each function that no worker has announced, however many tickers there are.
    index("events_unknown_function", "function", unique=True, where="what = 'unknown_function'"),
    # One event for each function and minute counts the jobs that ended or were lost before their start.
    index("events_expired", "function", "at", unique=True, where="what = 'expired'"),
)

# One event on its way through one channel (log, webhook, mail, ...), until it is delivered. If a channel gets its
# notices by cause, there is one row for each cause instead, for as long as it must not be notified again. `tasks` and
# `paused` are how many failing and paused tasks were notified, and `sent_at` is when.
notices = Table(
    "notices",
    metadata,
    column("event_id", "bigint", primary_key=True),
    column("channel", "text", primary_key=True),
    column("due_at", "moment", NOW),
    column("tries", "integer", 0),
    column("error", "text", ""),
    column("cause", "short", "", primary_key=True),
    column("tasks", "integer", 0),
    column("paused", "integer", 0),
    column("sent_at", "moment"),
    index("notices_cause", "channel", "cause", unique=True, where="cause <> ''"),
    # The ticker: notices that are due.
    index("notices_due", "due_at"),
)


def define(schema: str = "ticker") -> MetaData:
    """Returns the tables in another schema, such as TICKER_SCHEMA."""
    other = MetaData(schema=schema)
    for table in metadata.sorted_tables:
        table.to_metadata(other, schema=schema)
    return other
