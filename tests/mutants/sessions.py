"""Faults in what keeps sessions of PostgreSQL free of state, so that a pooler may hand them out, and in the drivers."""

from tests.mutants.mutant import Mutant

CONNECTIONS, WORKER = "ticker/db/connections.py", "wrappers/rq/worker.py"
STEPS, DRIVERS, CONTRACT = "ticker/db/steps.py", "ticker/db/drivers.py", "tests/drivers/test_contract.py"
OURS = "tests/db/test_sessions.py::test_every_transaction_has_our_settings_and_leaves_none"

SESSIONS = (
    Mutant(
        "settings-that-stay",
        CONNECTIONS,
        "'{value}', true)\"",
        "'{value}', false)\"",
        "Settings end with their transaction, so another client of the pool finds the session unchanged.",
        (OURS,),
    ),
    Mutant(
        "isolation-of-the-role",
        CONNECTIONS,
        'BEGIN = b"BEGIN ISOLATION LEVEL READ COMMITTED"',
        'BEGIN = b"BEGIN"',
        "Every transaction is READ COMMITTED, whatever is set for the role or the database.",
        (OURS,),
    ),
    Mutant(
        "statement-without-settings",
        CONNECTIONS,
        "[(BEGIN,), (self.set_up,)]",
        "[(BEGIN,)]",
        "A single statement has the same timeouts and formats as one in a transaction.",
        (OURS,),
    ),
    Mutant(
        "idle-worker-keeps-its-session",
        WORKER,
        "clock.monotonic() - self._idle_since >= IDLE",
        "clock.monotonic() - self._idle_since >= 1e9",
        "A worker that waits for jobs holds no PostgreSQL session.",
        ("tests/db/test_sessions.py::test_a_worker_without_jobs_holds_no_session",),
    ),
    Mutant(
        "operation-in-pieces",
        STEPS,
        "with drivers.explained(), driver.transaction() if writes else nullcontext():",
        "with drivers.explained():",
        "An operation on a connection in autocommit is written as a whole, or not at all.",
        (f"{CONTRACT}::test_nothing_is_written_where_an_operation_fails_halfway",),
    ),
    Mutant(
        "asynchronous-operation-in-pieces",
        STEPS,
        "    async with driver.transaction() if writes else nullcontext():",
        "    async with nullcontext():",
        "An operation on an asynchronous connection outside a transaction is written as a whole, or not at all.",
        (f"{CONTRACT}::test_nothing_is_written_where_an_operation_fails_halfway",),
    ),
    Mutant(
        "jsonb-by-the-driver",
        "ticker/tasks/queries.py",
        'f"t.{name}::text" if name in JSON_COLUMNS else f"t.{name}"',
        'f"t.{name}"',
        "JSON is read as it was written, whatever codec the application has set for its connection.",
        (f"{CONTRACT}::test_json_is_what_was_written",),
    ),
    Mutant(
        "times-in-the-zone-of-the-session",
        DRIVERS,
        "        return value.astimezone(UTC)",
        "        return value",
        "Every driver returns times in UTC.",
        (f"{CONTRACT}::test_each_schedule_gets_its_first_time_in_utc",),
    ),
    Mutant(
        "plan-of-empty-tables-kept",
        "ticker/db/connections.py",
        'ONE_PLAN = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}',
        'ONE_PLAN = {"plan_cache_mode": "force_generic_plan"}',
        "A plan that a worker makes while the tables are empty does not read them whole once they have filled.",
        (
            "tests/db/test_sessions.py::test_a_worker_keeps_no_plan_that_reads_all_runs_though_it_made_it_when_there_were_none",
        ),
    ),
)
