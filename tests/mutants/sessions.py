"""Faults in what keeps sessions of PostgreSQL free of state, so that a pooler may hand them out."""

from tests.mutants.mutant import Mutant

CONNECTIONS, WORKER = "ticker/db/connections.py", "wrappers/rq/worker.py"
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
        "A single statement has the same time-outs and formats as one in a transaction.",
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
)
