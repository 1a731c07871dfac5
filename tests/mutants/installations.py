"""Faults in what separates installations and roles: the mark of the tables, the ids of jobs, the leases of queues, rights."""

from tests.mutants.mutant import Mutant

INSTALLATIONS = (
    Mutant(
        "mark-that-compares-nothing",
        "ticker/db/sql/installation.sql",
        "i.marker_oid = i.tableoid\n    AND i.database_oid =",
        "i.marker_oid IS NOT NULL\n    OR i.database_oid =",
        "Tickers and workers refuse a copied or restored database until it is adopted.",
        ("tests/db/test_installation.py::test_a_copied_database_is_refused",),
    ),
    Mutant(
        "adopt-keeps-the-id",
        "ticker/db/sql/installation.sql",
        "DO UPDATE SET id = excluded.id,",
        "DO UPDATE SET id = i.id,",
        "Adopted tables get a new installation id, so their jobs never collide with those of the former installation.",
        ("tests/db/test_installation.py::test_what_is_adopted_rests_under_a_new_id",),
    ),
    Mutant(
        "adopt-pauses-nothing",
        "ticker/db/sql/installation.sql",
        "FROM marked WHERE NOT %(resume)s",
        "FROM marked WHERE false",
        "After the adoption of a copy, its tasks are paused until they are resumed.",
        ("tests/db/test_installation.py::test_one_call_resumes_all_that_adopt_paused_and_nothing_else",),
    ),
    Mutant(
        "adopt-of-a-live-production",
        "ticker/db/installation.py",
        'if not force and (signs := execute("signs_of_life", now=now)):',
        'if force and (signs := execute("signs_of_life", now=now)):',
        "No tables are adopted within 90 s of a tick or a run, except with --force.",
        ("tests/db/test_installation.py::test_a_live_production_is_not_adopted_without_force",),
    ),
    Mutant(
        "kit-that-empties-any-tables",
        "ticker/testing/isolation.py",
        "if here and here.environment != ENVIRONMENT:",
        "if here and not here.id:",
        "The test kit deletes rows only from tables that a kit created.",
        ("tests/testing/test_servers.py::test_a_kit_refuses_tables_that_no_kit_created",),
    ),
    Mutant(
        "job-id-without-the-installation",
        "ticker/engine/jobs.py",
        'return f"{installation}-t{task_id}-{micros(occurrence)}"',
        'return f"t{task_id}-{micros(occurrence)}"',
        "The job ids of two installations never collide.",
        ("tests/db/test_installation.py::test_jobs_of_an_adopted_installation_have_the_new_id",),
    ),
    Mutant(
        "worker-takes-foreign-jobs",
        "wrappers/rq/corrupt_jobs.py",
        "if foreign_jobs.is_foreign(job.id):",
        "if foreign_jobs.is_foreign(job.id) is None:",
        "A worker never runs or drops a job of another installation.",
        ("tests/db/test_installation.py::test_a_worker_puts_a_job_of_another_installation_back",),
    ),
    Mutant(
        "lease-that-nobody-respects",
        "ticker/queue/inspect.py",
        "if holder != here:",
        "if holder is None:",
        "Tickers and workers refuse to start on a queue that another installation has leased.",
        ("tests/db/test_installation.py::test_a_ticker_does_not_start_on_a_queue_that_another_has",),
    ),
    Mutant(
        "trigger-function-for-everybody",
        "ticker/migrations/versions/0001_tables/4_events.sql",
        "ON FUNCTION note_change(), guard_owner(), note_edit(), note_deletion() FROM PUBLIC",
        "ON FUNCTION guard_owner(), note_edit(), note_deletion() FROM PUBLIC",
        "No role can use its own table to run a function of the schema with the rights of the schema's owner.",
        ("tests/test_security.py::test_no_role_can_hang_a_function_of_the_schema_on_its_own_table",),
    ),
)
