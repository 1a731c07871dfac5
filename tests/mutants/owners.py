"""Faults in how tasks follow their owners' tables, and in what is said about those that they do not follow."""

from tests.mutants.mutant import Mutant

TRIGGERS = "ticker/tasks/owner_triggers_sql.py"
CHECKS = "ticker/tasks/owner_checks.py"
COLUMNS = "tests/tasks/test_owner_columns.py::"
INSTALLING = "tests/tasks/test_installing.py::"
TENANTS = "tests/tasks/test_tenants.py::"
CHECKED = "tests/cli/test_owner_checks.py::"
HIDDEN = "tests/tasks/test_row_security.py::"

OWNERS = (
    Mutant(
        "errors-of-a-condition-are-ignored",
        TRIGGERS,
        "    RETURN found;\n",
        "    RETURN found;\nEXCEPTION WHEN others THEN RETURN true;\n",
        "No trigger ignores an error: the statement fails instead.",
        (f"{COLUMNS}test_an_error_of_the_condition_reaches_the_application",),
    ),
    Mutant(
        "triggers-are-parsed-under-the-callers-path",
        TRIGGERS,
        "PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);\nmeant",
        "meant",
        "Everything that an installation creates is parsed under pg_catalog.",
        (f"{INSTALLING}test_what_others_plant_in_a_schema_of_the_path_is_never_called",),
    ),
    Mutant(
        "a-condition-may-change-its-meaning",
        TRIGGERS,
        "IF understood IS DISTINCT FROM meant THEN",
        "IF understood IS NULL THEN",
        "A condition that means something else without the search_path is refused.",
        (
            f"{INSTALLING}test_a_condition_that_would_silently_mean_something_else_is_refused_with_the_spelling_that_does_not",
        ),
    ),
    Mutant(
        "keys-are-compared-as-texts",
        TRIGGERS,
        "coalesce(e.operator, 'pg_catalog.=')",
        "coalesce('pg_catalog.=', e.operator)",
        "A key is compared as its index does.",
        (f"{INSTALLING}test_a_key_is_compared_as_its_index_does_and_found_by_it",),
    ),
    Mutant(
        "rows-move-to-another-partition-unseen",
        TRIGGERS,
        " AFTER INSERT ON {relation} FOR EACH ROW EXECUTE",
        " AFTER INSERT ON {relation} FOR EACH STATEMENT EXECUTE",
        "Tasks follow a row that an UPDATE moves to another partition.",
        (f"{INSTALLING}test_the_tasks_of_a_row_follow_it_to_another_partition",),
    ),
    Mutant(
        "a-key-by-which-a-table-is-partitioned",
        TRIGGERS,
        "IF names IS NOT NULL AND NOT is_whole_key THEN",
        "IF names IS NOT NULL AND NOT true THEN",
        "A part of a key by which the table is partitioned is refused.",
        (f"{INSTALLING}test_a_part_of_a_key_by_which_a_table_is_partitioned_is_refused",),
    ),
    Mutant(
        "functions-of-others-are-taken-over",
        TRIGGERS,
        "pg_get_userbyid(proowner) <> current_user",
        "pg_get_userbyid(proowner) = ''",
        "An installation takes over no function of another role.",
        (f"{INSTALLING}test_functions_of_another_role_are_not_taken_over",),
    ),
    Mutant(
        "any-guard-is-called",
        "ticker/migrations/versions/0001_tables/4_events.sql",
        "AND pronargs = 1 AND proargtypes[0] = 'text'::regtype AND proname",
        "AND proname",
        "The trigger of tasks calls only a guard that has its own owner's rights.",
        (f"{INSTALLING}test_only_a_guard_with_its_own_owners_rights_is_called",),
    ),
    Mutant(
        "two-tables-share-a-type",
        TRIGGERS,
        "\nIF FOUND THEN\n",
        "\nIF false THEN\n",
        "The rows of two tables are never owners of one type.",
        (f"{INSTALLING}test_one_type_is_one_table",),
    ),
    Mutant(
        "a-renamed-task-runs-too-early",
        "ticker/db/sql/owners.sql",
        "last_run = greatest(t.last_run, g.last_run), next_run = greatest(t.next_run, g.next_run)",
        "last_run = t.last_run, next_run = t.next_run",
        "A task that replaces another one after a rename never runs earlier than that would have.",
        (
            "tests/tasks/test_rename.py::test_a_task_that_was_registered_under_the_new_name_gives_way_and_nothing_runs_earlier",
        ),
    ),
    Mutant(
        "dropped-tables-pass-the-check",
        CHECKS,
        "for type_ in sorted({*guards, *types}):",
        "for type_ in sorted(types):",
        "`ticker db upgrade --check` names owners whose table is gone.",
        (f"{CHECKED}test_a_table_that_is_gone_is_named_with_what_to_do",),
    ),
    Mutant(
        "orphans-that-were-not-listed-are-removed",
        CHECKS,
        " AND owner_id = ANY (%s) ORDER",
        " AND coalesce(%s::text[] IS NOT NULL, true) ORDER",
        "`ticker owners --orphans --remove` deletes the tasks of the owners that it lists, and no others.",
        (f"{CHECKED}test_orphans_are_listed_and_their_tasks_removed_and_no_others",),
    ),
    Mutant(
        "orphans-are-what-a-policy-hides",
        CHECKS,
        'execute("row_security", value="off")',
        'execute("row_security", value="on")',
        "Nothing is removed because a policy hides it.",
        (f"{HIDDEN}test_owners_that_a_policy_hides_are_no_orphans",),
    ),
    Mutant(
        "default-tasks-only-for-owners-in-sight",
        "ticker/tasks/defaults.py",
        'query("row_security", value="off")',
        'query("row_security", value="on")',
        "Owners that exist get default tasks, each of them, or the call fails.",
        (f"{HIDDEN}test_default_tasks_are_for_all_owners_or_refused",),
    ),
    Mutant(
        "owners-that-are-back-lose-their-tasks",
        CHECKS,
        """return f"{of_type} AND NOT EXISTS (SELECT FROM {guard['rows']} o WHERE o.id = t.owner_id)\"""",
        "return of_type",
        "Only tasks whose owner has no row are orphans.",
        (f"{CHECKED}test_an_orphan_whose_row_is_back_keeps_its_tasks",),
    ),
    Mutant(
        "two-tenants-share-a-type",
        "ticker/tasks/identity.py",
        'type_ = f"{schema_on(found.connection, table.schema, table.name)}.{table.name}"',
        "pass",
        "Owners with the same key in two tenants' schemas are two owners.",
        (
            f"{TENANTS}test_owners_of_two_tenants_with_the_same_key_are_two_and_what_happens_to_one_leaves_the_other_alone",
        ),
    ),
    Mutant(
        "the-search-path-of-the-tenant-before",
        "ticker/tasks/identity.py",
        "        db.cursor().close()",
        "        pass",
        "A Django object belongs to the tenant that is selected now, also if no query has been sent since.",
        ("tests/documents/test_tenants.py::test_tenants_of_django_have_their_own_tasks_until_they_go",),
    ),
)
