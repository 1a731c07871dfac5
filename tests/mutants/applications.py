"""Faults in what applications call: registration, pauses, owners, and the checks before a start."""

from tests.mutants.mutant import Mutant

APPLICATIONS = (
    Mutant(
        "registration-overwrites-an-edit",
        "ticker/tasks/rows.py",
        "if column not in registered or registered[column] != value}",
        "if row[column] != value}",
        "A deploy that registers the same values again does not undo what an operator changed.",
        ("tests/tasks/test_operations.py::test_a_deploy_does_not_undo_what_an_operator_did",),
    ),
    Mutant(
        "longer-interval-pushes-the-next-run-away",
        "ticker/db/sql/register.sql",
        "least(t.next_run, i.now + p.long, ",
        "least(i.now + p.long, ",
        "A changed interval may bring the next run nearer, but never postpones it, so no edit starves a task.",
        ("tests/tasks/test_operations.py::TestAChangedInterval::test_never_pushes_the_next_run_away",),
    ),
    Mutant(
        "plan-of-many-writes",
        "ticker/tasks/bulk.py",
        "    if apply and (to_change := ",
        "    if (to_change := ",
        "A plan of a change of many tasks writes nothing.",
        ("tests/tasks/test_bulk.py::test_a_plan_says_what_would_change_and_what_is_refused_and_writes_nothing",),
    ),
    Mutant(
        "change-of-many-trusts-what-it-read-before-the-lock",
        "ticker/tasks/bulk.py",
        'matching = [row for row in again if row["id"] in locked]',
        "matching = page.rows",
        "A change of many tasks leaves out a task that no longer matches once it is locked.",
        ("tests/tasks/test_bulk.py::test_a_task_that_no_longer_matches_once_it_is_locked_is_left_out",),
    ),
    Mutant(
        "resume-enables",
        "ticker/db/sql/register.sql",
        "next_run = coalesce(r.first, {resumed})\n",
        "next_run = coalesce(r.first, {resumed}), enabled = true\n",
        "Pauses and `enabled` are separate: the end of a pause enables nothing, and nothing starts while its task is disabled.",
        ("tests/tasks/test_operations.py::test_resuming_does_not_enable_what_was_disabled",),
    ),
    Mutant(
        "no-trigger-for-truncate",
        "ticker/tasks/owner_triggers_sql.py",
        "CREATE OR REPLACE TRIGGER {on_truncated} AFTER TRUNCATE ON {relation}\n"
        "FOR EACH STATEMENT EXECUTE FUNCTION {truncated}();\n\n",
        "",
        "Nothing starts after its owner was deleted, by whatever statement: a TRUNCATE deletes the tasks, too.",
        ("tests/tasks/test_triggers.py::test_an_emptied_table_takes_the_tasks_of_its_owners_and_no_others",),
    ),
    Mutant(
        "no-trigger-for-a-changed-key",
        "ticker/tasks/owner_triggers_sql.py",
        " OR {id_OLD} <> {id_NEW}{or_subject}) EXECUTE",
        "{or_subject}) EXECUTE",
        "Tasks follow their owner's row, even when its key changes.",
        (
            "tests/tasks/test_triggers.py::test_tasks_follow_a_changed_key_even_when_the_condition_changes_with_it",
            "tests/tasks/test_triggers.py::test_keys_of_other_types_and_of_several_columns_are_followed_too",
        ),
    ),
    Mutant(
        "deletion-without-records",
        "ticker/migrations/versions/0001_tables/4_events.sql",
        "array_remove(ARRAY[waits_again]::timestamptz[], NULL)) AS occurrence\n",
        "array_remove(ARRAY[waits_again]::timestamptz[], NULL)) AS occurrence WHERE false\n",
        "A deletion records each waiting occurrence as gone, in the same transaction.",
        ("tests/tasks/test_changes.py::test_a_deletion_ends_each_occurrence_that_waits_and_says_who_did_it",),
    ),
    Mutant(
        "events-by-the-database-user-alone",
        "ticker/migrations/versions/0001_tables/4_events.sql",
        "ELSE left(coalesce(nullif(current_setting('ticker.by', true), ''), session_user), 200)",
        "ELSE left(session_user, 200)",
        "The event of an edit, a switch or a deletion names the author that was passed to the operation.",
        ("tests/tasks/test_changes.py::test_each_operation_says_who_did_it_and_leaves_no_name_behind",),
    ),
    Mutant(
        "evicting-redis-is-accepted",
        "ticker/queue/rq.py",
        'if policy != "noeviction":',
        'if policy == "":',
        "A Redis that may evict jobs is refused before anything is pushed to it.",
        ("tests/daemon/test_loop.py::test_a_redis_that_evicts_is_refused",),
    ),
)
