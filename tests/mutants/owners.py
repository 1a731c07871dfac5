"""Faults in how tasks follow their owners' tables, and in what is said about those that they do not follow."""

from tests.mutants.mutant import Mutant

TRIGGERS = "ticker/registration/owner_triggers_sql.py"
CHECKS = "ticker/registration/owner_checks.py"
COLUMNS = "tests/registration/test_owner_columns.py::"
CHECKED = "tests/cli/test_owner_checks.py::"

OWNERS = (
    Mutant(
        "errors-of-a-condition-are-ignored",
        TRIGGERS,
        "    IF FOUND THEN\n        RETURN NEW;\n    END IF;\n    RETURN NULL;\n",
        "    IF FOUND THEN\n        RETURN NEW;\n    END IF;\n    RETURN NULL;\nEXCEPTION WHEN others THEN RETURN NEW;\n",
        "No trigger ignores an error: the statement fails instead.",
        (f"{COLUMNS}test_an_error_of_the_condition_reaches_the_application",),
    ),
    Mutant(
        "unfit-triggers-pass-the-check",
        CHECKS,
        "elif guard and (error := _error(db, guard)):",
        "elif (error := ''):",
        "`ticker db check` compiles the triggers that older releases made.",
        (f"{CHECKED}test_triggers_of_an_older_release_that_no_longer_compile_are_a_problem",),
    ),
    Mutant(
        "outdated-triggers-are-not-named",
        CHECKS,
        "if not guard.is_tracked and",
        "if False and",
        "`ticker db check` warns about triggers that cannot follow a renamed column.",
        (f"{CHECKED}test_triggers_of_an_older_release_work_and_are_named_until_they_are_installed_again",),
    ),
    Mutant(
        "dropped-tables-pass-the-check",
        CHECKS,
        "for type_ in sorted({*guards, *tables}):",
        "for type_ in sorted(tables):",
        "`ticker db check` names owners whose table is gone.",
        (f"{CHECKED}test_a_table_that_is_gone_is_named_with_what_to_do",),
    ),
    Mutant(
        "orphans-that-were-not-listed-are-removed",
        "ticker/registration/orphans.py",
        ' AND owner_id = ANY (%s)"',
        ' AND coalesce(%s::text[] IS NOT NULL, true)"',
        "`ticker owners --orphans --remove` deletes the tasks of the owners that it lists, and no others.",
        (f"{CHECKED}test_orphans_are_listed_and_their_tasks_removed_and_no_others",),
    ),
    Mutant(
        "owners-that-are-back-lose-their-tasks",
        CHECKS,
        'elif not _error(db, guard):\n            yield guard.type, f"{of_type} AND NOT EXISTS (SELECT FROM {guard.table} o WHERE {guard.id} = t.owner_id)"',
        "elif not _error(db, guard):\n            yield guard.type, of_type",
        "Only tasks whose owner has no row are orphans.",
        (f"{CHECKED}test_an_orphan_whose_row_is_back_keeps_its_tasks",),
    ),
)
