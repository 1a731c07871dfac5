"""What happened and why: retries, overlap, back-off, alarms, pieces of work, events, notices, and how long all is kept."""

from alembic import op

revision = "0003"
down_revision = "0002"

EARLIEST, LATEST = "'1970-01-01T00:00:00Z'", "'9999-12-31T00:00:00Z'"
LONGEST = 31_622_400_000

TASKS = {
    "overlap": "TEXT DEFAULT 'queue' NOT NULL",
    "retries": "INTEGER DEFAULT 0 NOT NULL",
    "backoff": "TEXT DEFAULT '10s..5m' NOT NULL",
    "stretch_ms": "BIGINT",
    "stretched_ms": "BIGINT",
    "pause_after": "INTEGER",
    "probe_ms": "BIGINT",
    "dead_man": "INTEGER",
    "alarm_at": "TIMESTAMP WITH TIME ZONE",
    "told": "TEXT DEFAULT '' NOT NULL",
    "resumed_at": "TIMESTAMP WITH TIME ZONE",
    "submitter": "TEXT DEFAULT '' NOT NULL",
    "group_name": "TEXT DEFAULT '' NOT NULL",
    "priority": "INTEGER DEFAULT 0 NOT NULL",
    "keep": "TEXT DEFAULT 'all' NOT NULL",
    "succeeded": "BIGINT DEFAULT 0 NOT NULL",
    "failed": "BIGINT DEFAULT 0 NOT NULL",
    "dropped": "BIGINT DEFAULT 0 NOT NULL",
}
RUNS = {
    "follow_up": "BOOLEAN DEFAULT false NOT NULL",
    "retried": "BOOLEAN DEFAULT false NOT NULL",
    "pieces": "INTEGER",
}
CHECKS = {
    "tasks_policy": "overlap IN ('queue', 'skip') AND keep IN ('all', 'problems', 'none')"
    " AND retries BETWEEN 0 AND 100 AND length(backoff) <= 200",
    "tasks_failing": f"stretch_ms BETWEEN 1000 AND {LONGEST} AND stretched_ms BETWEEN 1000 AND {LONGEST}"
    f" AND probe_ms BETWEEN 1000 AND {LONGEST} AND pause_after BETWEEN 1 AND 1000000",
    "tasks_alarm": "dead_man BETWEEN 1 AND 1000000 AND told IN ('', 'failed')"
    f" AND alarm_at BETWEEN {EARLIEST} AND {LATEST} AND resumed_at BETWEEN {EARLIEST} AND {LATEST}",
    "tasks_whose": "length(submitter) <= 200 AND submitter !~ '[[:cntrl:]]'"
    " AND length(group_name) <= 200 AND group_name !~ '[[:cntrl:]]' AND priority BETWEEN -1000 AND 1000",
    "tasks_totals": "0 <= least(succeeded, failed, dropped) AND greatest(succeeded, failed, dropped) <= 1000000000000000",
    "runs_state": "state IN ('planned', 'pushed', 'running', 'processing', 'ended')",
    "runs_output": "length(output) <= 100000 AND length(error_output) <= 100000",
    "runs_piece": "kind <> 'piece' OR parent_id IS NOT NULL",
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
EVENTS = f"""CREATE TABLE events (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    task_id BIGINT NOT NULL,
    task_name TEXT DEFAULT '' NOT NULL,
    function TEXT DEFAULT '' NOT NULL,
    owner_type TEXT DEFAULT '' NOT NULL,
    owner_id TEXT DEFAULT '' NOT NULL,
    what TEXT NOT NULL,
    by TEXT DEFAULT '' NOT NULL,
    words TEXT DEFAULT '' NOT NULL,
    run_id BIGINT,
    told BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT events_what CHECK (what IN ('paused', 'auto_paused', 'resumed', 'disabled', 'enabled', 'owner_inactive',
        'owner_active', 'slowed', 'restored', 'failed', 'recovered', 'dead_man')),
    CONSTRAINT events_finite CHECK (at BETWEEN {EARLIEST} AND {LATEST})
)"""
NOTICES = f"""CREATE TABLE notices (
    event_id BIGINT NOT NULL,
    channel TEXT NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    error TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (event_id, channel),
    CONSTRAINT notices_finite CHECK (due_at BETWEEN {EARLIEST} AND {LATEST})
)"""
TEMPLATES = """CREATE TABLE templates (
    owner_type TEXT NOT NULL,
    name TEXT NOT NULL,
    task JSONB NOT NULL,
    PRIMARY KEY (owner_type, name),
    CONSTRAINT templates_named CHECK (owner_type <> '' AND name <> ''
        AND length(owner_type) <= 200 AND owner_type !~ '[[:cntrl:]]' AND length(name) <= 200 AND name !~ '[[:cntrl:]]'),
    CONSTRAINT templates_task CHECK (jsonb_typeof(task) = 'object' AND octet_length(task::text) <= 524288)
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
    for table, added in (("tasks", TASKS), ("runs", RUNS)):
        op.execute(f"ALTER TABLE {table} " + ", ".join(f"ADD COLUMN {name} {kind}" for name, kind in added.items()))
    op.execute("ALTER TABLE runs DROP CONSTRAINT runs_state")
    for name, rule in CHECKS.items():
        op.execute(f"ALTER TABLE {name.partition('_')[0]} ADD CONSTRAINT {name} CHECK ({rule})")
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
    op.execute("ALTER TABLE runs DROP CONSTRAINT runs_state, DROP CONSTRAINT runs_output, DROP CONSTRAINT runs_piece")
    op.execute("ALTER TABLE runs ADD CONSTRAINT runs_state CHECK (state IN ('planned', 'pushed', 'running', 'ended'))")
