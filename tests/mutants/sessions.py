"""Faults in what keeps sessions of PostgreSQL free of state, so that a pooler may hand them out, and in the drivers."""

from tests.mutants.mutant import Mutant

CONNECTIONS, WORKER = "ticker/db/connections.py", "wrappers/rq/between_jobs.py"
STEPS, DRIVERS, CONTRACT = "ticker/db/steps.py", "ticker/db/drivers.py", "tests/drivers/test_contract.py"
PATHS = "tests/drivers/test_search_path.py"
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
        '[(BEGIN,), (_set_up({"ticker.path": PATH}),)]',
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
        "dead-connection-lent",
        "ticker/db/connections.py",
        "if (connection := self._spare.pop()).is_alive:",
        "if not (connection := self._spare.pop()).closed:",
        "The pool lends only living connections, whatever has ended the others between two ticks.",
        ("tests/web/test_database.py::test_a_spare_connection_that_the_server_has_ended_is_not_lent",),
    ),
    Mutant(
        "operation-in-pieces",
        STEPS,
        "with drivers.explained(), driver.transaction(writes=writes):",
        "with drivers.explained():",
        "An operation on a connection in autocommit is written as a whole, or not at all.",
        (f"{CONTRACT}::test_nothing_is_written_where_an_operation_fails_halfway",),
    ),
    Mutant(
        "asynchronous-operation-in-pieces",
        DRIVERS,
        "        async with self.connection.transaction() if (is_alone := _is_alone(self.connection)) else nullcontext():",
        "        async with nullcontext() if (is_alone := _is_alone(self.connection)) else nullcontext():",
        "An operation on an asynchronous connection outside a transaction is written as a whole, or not at all.",
        (f"{CONTRACT}::test_nothing_is_written_where_an_operation_fails_halfway",),
    ),
    Mutant(
        "own-statements-in-the-path-of-the-role",
        CONNECTIONS,
        '    "search_path": PATH,\n',
        "",
        "What another role has created in a schema of the search_path does not run in our processes.",
        (f"{PATHS}::test_no_process_of_ours_runs_what_a_worker_has_planted",),
    ),
    Mutant(
        "operations-in-the-path-of-the-caller",
        DRIVERS,
        "    f\" pg_catalog.set_config('search_path', '{PATH}', true)\"",
        "    f\" pg_catalog.set_config('search_path', pg_catalog.current_setting('search_path'), true)\"",
        "What another role has created in a schema of the caller's search_path does not run in an operation.",
        (f"{PATHS}::test_no_operation_on_a_callers_connection_runs_what_a_worker_has_planted",),
    ),
    Mutant(
        "path-of-the-caller-not-restored",
        DRIVERS,
        "        if self._is_pinned:\n            self._set(RESTORE)",
        "        pass",
        "After an operation, the caller's search_path is as it was.",
        (f"{PATHS}::test_the_path_is_as_it_was",),
    ),
    Mutant(
        "jsonb-by-the-driver",
        "ticker/tasks/rows.py",
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
        "plan-never-made-again",
        "ticker/db/connections.py",
        "self._uses[key] in PLANNED_AGAIN and",
        "False and",
        "A plan that a worker makes while the tables are empty is made again once they have filled.",
        ("tests/db/test_sessions.py::test_a_plan_of_empty_tables_is_made_again_once_they_have_filled",),
    ),
    Mutant(
        "plan-of-empty-tables-kept",
        "ticker/db/connections.py",
        'BY_INDEX = {"enable_seqscan": "off"}',
        "BY_INDEX: dict[str, str] = {}",
        "A plan that a worker makes while the tables are empty does not read them whole once they have filled.",
        (
            "tests/db/test_sessions.py::test_a_worker_keeps_no_plan_that_reads_all_runs_though_it_made_it_when_there_were_none",
        ),
    ),
)
