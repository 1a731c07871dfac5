"""What happened and why: retries, overlap, back-off, alarms, pieces of work, events, notices, and how long all is kept."""

from alembic import op

revision = "0003"
down_revision = "0002"

DOMAINS = {
    "ticker_span": "BIGINT CHECK (VALUE BETWEEN 1000 AND 31622400000)",
    "ticker_limit": "INTEGER CHECK (VALUE BETWEEN 1 AND 1000000)",
    "ticker_intervals": "INTEGER CHECK (VALUE BETWEEN 1 AND 1000000)",
    "ticker_total": "BIGINT CHECK (VALUE BETWEEN 0 AND 1000000000000000)",
    "ticker_retries": "INTEGER CHECK (VALUE BETWEEN 0 AND 100)",
    "ticker_priority": "INTEGER CHECK (VALUE BETWEEN -1000 AND 1000)",
    "ticker_overlap": "TEXT CHECK (VALUE IN ('queue', 'skip'))",
    "ticker_keep": "TEXT CHECK (VALUE IN ('all', 'problems', 'none'))",
    "ticker_told": "TEXT CHECK (VALUE IN ('', 'failed'))",
    "ticker_what": "TEXT CHECK (VALUE IN ('paused', 'auto_paused', 'resumed', 'disabled', 'enabled', 'owner_inactive', 'owner_active', 'slowed', 'restored', 'failed', 'recovered', 'dead_man'))",
    "ticker_template": "JSONB CHECK (jsonb_typeof(VALUE) = 'object' AND octet_length(VALUE::text) <= 524288)",
}

TASKS = {
    "overlap": "ticker_overlap DEFAULT 'queue' NOT NULL",
    "retries": "ticker_retries DEFAULT 0 NOT NULL",
    "backoff": "ticker_short DEFAULT '10s..5m' NOT NULL",
    "stretch_ms": "ticker_span",
    "stretched_ms": "ticker_span",
    "pause_after": "ticker_limit",
    "probe_ms": "ticker_span",
    "dead_man": "ticker_intervals",
    "alarm_at": "ticker_moment",
    "told": "ticker_told DEFAULT '' NOT NULL",
    "resumed_at": "ticker_moment",
    "submitter": "ticker_plain DEFAULT '' NOT NULL",
    "group_name": "ticker_plain DEFAULT '' NOT NULL",
    "priority": "ticker_priority DEFAULT 0 NOT NULL",
    "keep": "ticker_keep DEFAULT 'all' NOT NULL",
    "succeeded": "ticker_total DEFAULT 0 NOT NULL",
    "failed": "ticker_total DEFAULT 0 NOT NULL",
    "dropped": "ticker_total DEFAULT 0 NOT NULL",
}
RUNS = {
    "follow_up": "BOOLEAN DEFAULT false NOT NULL",
    "retried": "BOOLEAN DEFAULT false NOT NULL",
    "pieces": "INTEGER",
}
INDEXES = (
    "tasks_alarm_at ON tasks (alarm_at) WHERE alarm_at IS NOT NULL",
    "tasks_troubled ON tasks (owner_type, owner_id) WHERE failures > 0 OR paused_by IS NOT NULL OR NOT owner_active OR NOT enabled",
    "runs_follow_up ON runs (id) WHERE follow_up",
    "runs_of_parent ON runs (parent_id) WHERE parent_id IS NOT NULL",
    "runs_processing ON runs (id) WHERE state = 'processing'",
    "runs_by_outcome ON runs (owner_type, outcome, ended_at) WHERE outcome <> 'dropped'",
    (
        "runs_by_reason ON runs (owner_type, reason, ended_at) INCLUDE (id, task_id, function, owner_id)"
        " WHERE outcome = 'dropped'"
    ),
    "runs_by_owner ON runs (owner_type, owner_id, ended_at) WHERE owner_type <> '' AND ended_at IS NOT NULL",
)
EVENTS = """CREATE TABLE events (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    task_id BIGINT NOT NULL,
    task_name TEXT DEFAULT '' NOT NULL,
    function TEXT DEFAULT '' NOT NULL,
    owner_type TEXT DEFAULT '' NOT NULL,
    owner_id TEXT DEFAULT '' NOT NULL,
    what ticker_what NOT NULL,
    by TEXT DEFAULT '' NOT NULL,
    words TEXT DEFAULT '' NOT NULL,
    run_id BIGINT,
    told BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (id)
)"""
NOTICES = """CREATE TABLE notices (
    event_id BIGINT NOT NULL,
    channel TEXT NOT NULL,
    due_at ticker_moment DEFAULT clock_timestamp() NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    error TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (event_id, channel)
)"""
TEMPLATES = """CREATE TABLE templates (
    owner_type ticker_named NOT NULL,
    name ticker_named NOT NULL,
    task ticker_template NOT NULL,
    PRIMARY KEY (owner_type, name)
)"""

# Whoever pauses, disables or resumes a task, be it by raw SQL or through its owner's trigger, leaves an event; and the
# instant from which its successes are waited for again. The table beside `tasks` is found by the trigger's own schema.
NOTED = """CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS $$
DECLARE what text := CASE
    WHEN NEW.paused_by IS DISTINCT FROM OLD.paused_by THEN
        CASE WHEN NEW.paused_by IS NULL THEN 'resumed' WHEN NEW.paused_by = 'ticker' AND NEW.failures >= NEW.pause_after THEN 'auto_paused' ELSE 'paused' END
    WHEN NEW.enabled <> OLD.enabled THEN CASE WHEN NEW.enabled THEN 'enabled' ELSE 'disabled' END
    WHEN NEW.owner_active THEN 'owner_active' ELSE 'owner_inactive' END;
BEGIN
    IF NEW.enabled AND NEW.owner_active AND NEW.paused_by IS NULL THEN
        NEW.resumed_at := clock_timestamp();
    END IF;
    -- that it pauses itself once more is no news, until it has worked again
    EXECUTE format('INSERT INTO %1$I.events (task_id, task_name, function, owner_type, owner_id, what, by, words, told)'
        ' VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $6 = ''auto_paused'' AND EXISTS (SELECT FROM %1$I.events e'
        ' WHERE e.task_id = $1 AND e.what = $6 AND e.id > coalesce((SELECT max(id) FROM %1$I.events'
        ' WHERE task_id = $1 AND what = ''recovered''), 0)))', TG_TABLE_SCHEMA)
    USING NEW.id, NEW.name, NEW.function, NEW.owner_type, NEW.owner_id, what,
        coalesce(NEW.paused_by, ''), CASE what WHEN 'resumed'
            THEN concat_ws(': ', 'it was paused by ' || OLD.paused_by, nullif(OLD.paused_reason, '')) ELSE NEW.paused_reason END;
    RETURN NEW;
END $$"""
NOTING = """CREATE TRIGGER tasks_note_change BEFORE UPDATE OF enabled, owner_active, paused_by ON tasks FOR EACH ROW
WHEN (NEW.enabled IS DISTINCT FROM OLD.enabled OR NEW.owner_active IS DISTINCT FROM OLD.owner_active
      OR NEW.paused_by IS DISTINCT FROM OLD.paused_by)
EXECUTE FUNCTION note_change()"""


# Whether an occurrence has started, or was given up. VOLATILE: each call sees what has been committed by then.
IS_OVER = """CREATE FUNCTION is_over(task bigint, at timestamptz) RETURNS boolean LANGUAGE sql VOLATILE BEGIN ATOMIC
SELECT EXISTS (SELECT FROM runs WHERE task_id = task AND occurrence = at AND kind = 'scheduled' AND started_at IS NOT NULL)
    OR EXISTS (SELECT FROM runs WHERE task_id = task AND occurrence = at AND started_at IS NULL
               AND (reason = 'expired' OR outcome = 'lost'));
END"""


def upgrade() -> None:
    for name, rule in DOMAINS.items():
        op.execute(f"CREATE DOMAIN {name} AS {rule}")
    for table, added in (("tasks", TASKS), ("runs", RUNS)):
        op.execute(f"ALTER TABLE {table} " + ", ".join(f"ADD COLUMN {name} {kind}" for name, kind in added.items()))
    op.execute("ALTER TABLE runs ADD CONSTRAINT runs_piece CHECK (kind <> 'piece' OR parent_id IS NOT NULL)")
    for index in INDEXES:
        op.execute(f"CREATE INDEX {index}")
    op.execute(EVENTS)
    op.execute("CREATE INDEX events_of_task ON events (task_id, id)")
    op.execute("CREATE INDEX events_at ON events (at)")
    op.execute("CREATE INDEX events_untold ON events (id) WHERE NOT told")
    op.execute(NOTICES)
    op.execute("CREATE INDEX notices_due ON notices (due_at)")
    op.execute(TEMPLATES)
    op.execute(IS_OVER)
    op.execute(NOTED)
    op.execute(NOTING)


def downgrade() -> None:
    op.execute("DROP TRIGGER tasks_note_change ON tasks")
    op.execute("DROP FUNCTION note_change()")
    op.execute("DROP FUNCTION is_over(bigint, timestamptz)")
    op.execute("DROP TABLE events, notices, templates")
    op.execute("DROP INDEX tasks_troubled")
    op.execute("DROP INDEX runs_of_parent, runs_processing, runs_by_outcome, runs_by_reason, runs_by_owner")
    op.execute(
        "UPDATE runs SET state = 'ended', outcome = 'lost', ended_at = clock_timestamp() WHERE state = 'processing'"
    )
    for table, added in (("tasks", TASKS), ("runs", RUNS)):
        op.execute(f"ALTER TABLE {table} " + ", ".join(f"DROP COLUMN {name}" for name in added))
    op.execute("ALTER TABLE runs DROP CONSTRAINT runs_piece")
    op.execute(f"DROP DOMAIN {', '.join(DOMAINS)}")
