"""Faults in the translation of other schedulers' entries, in the plan of an import, and in an export."""

from tests.mutants.mutant import Mutant

DIALECTS, PLAN = "ticker/importing/dialects.py", "ticker/importing/plan.py"
MEANINGS, PLANS = "tests/importing/test_dialects.py::", "tests/importing/test_plan.py::"
TEXTS = "tests/importing/test_json_and_crontab.py::"
MEANING = f"{MEANINGS}test_a_meaning_is_translated"

TRANSLATIONS = (
    Mutant(
        "both-days-become-either-day",
        DIALECTS,
        "(self.days and self.weekdays and not self.either_day)",
        "False",
        "A text in which both days must match becomes a calendar event.",
        (MEANING,),
    ),
    Mutant(
        "either-day-starred",
        DIALECTS,
        "days_starred = not (self.days and self.weekdays)",
        "days_starred = True",
        "A list of days next to weekdays does not begin with a star, which would mean both.",
        (MEANING,),
    ),
    Mutant(
        "second-read-as-year",
        DIALECTS,
        "6: (*STANDARD, SECOND), 7",
        "6: (*STANDARD, YEAR), 7",
        "The sixth field of rq cron is the second.",
        (MEANING,),
    ),
    Mutant(
        "clock-changes-not-compared",
        "ticker/importing/proof.py",
        "    for change in changes:",
        "    for change in changes[:0]:",
        "A translation is also compared at the clock changes of two years.",
        (f"{PLANS}test_the_clock_changes_of_two_years_are_compared",),
    ),
    Mutant(
        "plan-for-everybody-to-read",
        PLAN,
        "0o600",
        "0o644",
        "Only this user may read a plan, which may hold a password.",
        (f"{TEXTS}test_a_plan_writes_its_file_for_this_user_alone_and_no_row",),
    ),
    Mutant(
        "changed-entry-taken",
        PLAN,
        "[entry.found.id][1] == entry.fingerprint",
        '[entry.found.id][1] != ""',
        "An entry that has changed since the plan is not taken.",
        (f"{TEXTS}test_only_what_was_planned_is_taken",),
    ),
    Mutant(
        "first-kept-for-another-interval",
        PLAN,
        "max(first, last + timedelta(",
        "min(first, last + timedelta(",
        "With a decided interval, the first run here is not before the last one there plus this interval.",
        (f"{PLANS}test_the_first_time_is_not_before_the_last_run_there_plus_the_decided_interval",),
    ),
    Mutant(
        "box-cut-silently",
        PLAN,
        "decisions=(*kept, Decision(error.field, str(error))))",
        "decisions=tuple(kept))",
        "A box that does not fit is for the operator to decide.",
        (f"{TEXTS}test_what_does_not_fit_is_to_decide_or_refused",),
    ),
    Mutant(
        "state-set-again",
        "ticker/importing/sources/json_lines.py",
        " and not _tasks(db, found)]",
        "]",
        "A second import leaves the state of a task to the operator.",
        (f"{TEXTS}test_a_second_import_leaves_the_state_to_the_operator",),
    ),
    Mutant(
        "percent-given-to-the-shell",
        "ticker/importing/sources/crontab.py",
        "if _PERCENT.search(line.command):",
        "if False:",
        "A command to which cron passes input is refused.",
        (f"{TEXTS}test_the_commands_of_a_crontab_become_arguments_of_one_function",),
    ),
)  # fmt: skip
