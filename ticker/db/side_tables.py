"""Defines what stands next to tasks and runs: functions, tickers, the installation, limits, pauses and minutes."""

from sqlalchemy import Computed, Table, text
from sqlalchemy.schema import SchemaItem

from ticker.db.columns import NOW, check, column, identity, index, metadata

MARK = """CASE scope WHEN 'all' THEN scope WHEN 'unknown' THEN scope || ' ' || of_queue::text || ' ' || value::text
    ELSE scope || ' ' || value::text END"""

# The default tasks of a type of owner, as columns of a task. A trigger creates the tasks of a new owner from them.
templates = Table(
    "templates",
    metadata,
    column("owner_type", "named", primary_key=True),
    column("name", "named", primary_key=True),
    column("task", "template", nullable=False),
)

# What workers have announced: the functions that they know, and how many tasks of each function one job may carry.
# Without `announced_at`, only an application has declared the function.
functions = Table(
    "functions",
    metadata,
    column("name", "named", primary_key=True),
    column("batch", "batch", 1),
    column("announced_at", "moment"),
    # How many of these tasks run at the same time, and whether an interrupted run is retried even without retries.
    column("concurrency", "batch", 1),
    column("repeatable", "boolean", "false"),
    # How many tasks a job carries after full groups died and their parts did not, and until when.
    column("halved_to", "batch"),
    column("halved_until", "moment"),
    # The queues of the workers that have announced the function, and the average duration of its runs in milliseconds,
    # over the last minutes in which runs ended.
    column("queues", "queues", "{}"),
    column("mean_ms", "bigint"),
    check("functions_mean_ms", "mean_ms > 0"),
)

# One row per ticker process: its heartbeat, the last sign of life between ticks, and why its ticks fail.
tickers = Table(
    "tickers",
    metadata,
    column("id", "uuid", primary_key=True),
    column("host", "text", ""),
    column("pid", "integer", nullable=False),
    column("started_at", "moment", nullable=False),
    column("last_tick_at", "moment"),
    column("last_report", "object", "{}"),
    column("seen_at", "moment"),
    column("failure", "prose", ""),
    column("failing_since", "moment"),
    check("tickers_failure", "(failure = '') = (failing_since IS NULL)"),
)

# The installation to which the tables belong. Its mark survives the promotion of a standby, but not a dump or a copy.
installation = Table(
    "installation",
    metadata,
    column("single", "boolean", "true", primary_key=True),
    column("id", "text", text('"left"((gen_random_uuid())::text, 8)')),
    column("system_identifier", "bigint"),
    column("database_oid", "oid", nullable=False),
    column("marker_oid", "oid", nullable=False),
    column("environment", "plain", ""),
    column("created_at", "moment", NOW),
    column("adopted_at", "moment"),
    # The minutes before these instants were counted, and counted twice.
    column("counted_until", "moment"),
    column("counted_twice_until", "moment"),
    # The traces of runs that ended before this instant are exported.
    column("traced_until", "moment"),
    # The schedulers whose entries were taken over: `ticker run` checks whether they are scheduled there again.
    column("taken_from", "queues", "{}"),
    check("installation_single", "single"),
    check("installation_id", "id ~ '^[a-z0-9]{8}$'"),
)

# Declared limits. A pattern applies to each key that it matches and that has no limit of its own; the longest pattern
# wins.
limits = Table(
    "limits",
    metadata,
    column("key", "key", primary_key=True),
    column("concurrency", "limited"),
    column("rate", "integer"),
    column("period_ms", "span"),
    column("burst", "limited"),
    column("by", "short", ""),
    column("updated_at", "moment", NOW),
    # The module that declares the limit, and the columns of the declaration. Both are empty if it was declared at run
    # time.
    column("declared_in", "prose", ""),
    column("registered", "registered", "{}"),
    check("limits_any", "concurrency IS NOT NULL OR rate IS NOT NULL"),
    check(
        "limits_rate",
        "(rate IS NULL) = (period_ms IS NULL) AND (rate IS NULL) = (burst IS NULL) AND rate BETWEEN 1 AND 1000000 "
        "AND burst <= rate",
    ),
)

# The keys of tasks, each with the limit that applies to it. A NULL means no such limit.
limited_keys = Table(
    "limited_keys",
    metadata,
    column("key", "key", primary_key=True),
    column("limited_by", "key"),
    column("concurrency", "limited"),
    column("burst", "limited"),
    # How long a token of the rate is used up, in microseconds: the burst times the period, divided by the rate.
    column("token_us", "bigint"),
    # The key after a SlowDown: until when no run starts, since when, how often that time has doubled
    # since the last success, and how many runs may be active while the key starts again.
    column("closed_until", "moment"),
    column("closed_at", "moment"),
    column("closed_step", "integer", 0),
    column("allowed", "limited"),
    check("limited_keys_rate", "(burst IS NULL) = (token_us IS NULL)"),
)

# What the starts of a key use, and until when: a slot for each active run (`run`), and a token of the rate for each
# start (`start`). The end of a run frees its slot. If no end is written, it is free after that time. A limit of N has at
# most the rows 1 to N: up to 10 at first, and more as soon as a start finds none free. All 1,000 slots of each of
# 20,000 keys would take 2.7 GB. Rows above a lowered limit stay, but no start takes them. `took_ms` is how long the
# last run took: it tells how many runs of the key will end soon.
slots = Table(
    "slots",
    metadata,
    column("key", "key", primary_key=True),
    column("kind", "text", primary_key=True),
    column("n", "integer", primary_key=True),
    column("token", "uuid"),
    column("until", "moment"),
    column("took_ms", "integer"),
    check("slots_kind", "kind IN ('run', 'start')"),
    check("slots_token", "kind = 'run' OR token IS NULL"),
    # The end of a run: its slots.
    index("slots_token", "token", where="token IS NOT NULL"),
    info={"fillfactor": 50},
)

# A pause is in force from its commit until it is resumed, or until `until`. Then its waiting tasks are pushed, up to
# `budget` in each tick (`granted_at`). It is done when no task waits for it, and its row is kept. If the scope is
# `unknown`, a worker did not know the function `value` in the queue `of_queue`: its tasks wait for a worker that does.
# The first start of the function there ends the wait.
pauses = Table(
    "pauses",
    metadata,
    identity(),
    column("scope", "text", nullable=False),
    column("value", "short", ""),
    column("of_queue", "short", ""),
    column("by", "short", ""),
    column("reason", "prose", ""),
    column("paused_at", "moment", NOW),
    column("until", "moment"),
    column("resumed_at", "moment"),
    column("resumed_by", "short", ""),
    column("budget", "integer"),
    column("granted_at", "moment"),
    column("done_at", "moment"),
    column("mark", "text", None, Computed(MARK, persisted=True), nullable=False),
    check("pauses_scope", "scope IN ('all', 'group', 'function', 'queue', 'owner_type', 'limit', 'unknown')"),
    check("pauses_value", "(scope = 'all') = (value = '')"),
    check("pauses_done", "done_at IS NULL OR resumed_at IS NOT NULL"),
    index("pauses_in_force", "scope", "value", "of_queue", unique=True, where="resumed_at IS NULL"),
    index("pauses_open", "id", where="done_at IS NULL"),
    index("pauses_ended", "mark", "resumed_at"),
)


def _counts(name: str, *more: SchemaItem) -> Table:
    """Defines the counts of each minute or hour."""
    return Table(
        name,
        metadata,
        column("at", "moment", primary_key=True),
        column("function", "text", "", primary_key=True),
        column("queue", "text", primary_key=True),
        column("outcome", "text", "", primary_key=True),
        column("reason", "text", "", primary_key=True),
        column("kind", "text", "", primary_key=True),
        column("count", "integer", 0),
        column("started", "integer", 0),
        column("late_ms", "bigint", 0),
        column("took_ms", "bigint", 0),
        # The number of values in each bucket. The first bucket of `late` ends at 1 s, that of `took` at 50 ms, and each
        # further one at twice as much.
        column("late", "integers", "{}"),
        column("took", "integers", "{}"),
        # What ticks measured of the queue, in a separate row whose `outcome` is empty. Each number is a sum over
        # `samples` measurements: workers that listen to the queue, busy ones, and waiting jobs. `needed` is the number
        # of workers that were enough at that time, if it was computed. `demand`, in the last such row, is the average
        # number of busy workers, and what each function contributes to it.
        column("samples", "integer", 0),
        column("listening", "bigint", 0),
        column("busy", "bigint", 0),
        column("waiting", "bigint", 0),
        column("needed", "integer"),
        *more,
    )


# How many runs and drops ended in a minute, and how late and how long the runs were that had started. Up to 200
# functions; the others are added up as `(other)`. `reason` is empty unless the outcome is `dropped`. Lost runs, and
# runs in pieces, are in no bucket of `took`, because their durations are unknown.
minutes = _counts(
    "minutes",
    column("demand", "registered"),
    index("minutes_of_queues", "at", "queue", where="outcome = ''"),
)
# The same for hours, with the largest `needed` and without `demand`. The rows of the function `(all)` contain the sums of all
# functions, for charts of many days; they omit values that charts do not show.
hours = _counts("hours", index("hours_of_all", "at", where="function = '(all)'"))
