"""`ticker why` and `ticker runs` with `--journal`, `--drops-by` and `--id`: what they print, and how a journal goes on."""

import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.answers import INSTANT, RUN, answer, dropped, refused
from tests.factories import SECOND, ticked
from tests.harness import command as ticker
from tests.running import ROOT, until
from tests.sentences import sentence
from ticker.cli import journal
from ticker.db import connections
from ticker.db.steps import run
from ticker.errors import BadInput
from ticker.read import journal as read_journal
from ticker.read.journal import past

pytestmark = pytest.mark.usefixtures("environ")

NOON = datetime(2026, 3, 1, 12, 2, 3, tzinfo=UTC)
LINE = {
    "at",
    "what",
    "words",
    "task_id",
    "task_name",
    "owner",
    "owner_type",
    "owner_id",
    "due",
    "run",
    "event",
    "subject",
}
SENTENCE = sentence(
    "why.drop_too_early",
    since="28 s",
    last="12:01:35",
    early="27 s",
    every="60 s",
    tolerance="5 s",
    earliest="12:02:30",
)


@pytest.fixture
def drop(db):
    """A task, and the drop of the third table."""
    ticker("add", "mail.fetch", "--owner", "mail_channels:5", "--every", "1m", "--tolerance", "5s")
    dropped(db, 1, "too_early", checked_at=NOON, ended_at=NOON, checked_last_run=NOON - timedelta(seconds=28),
            every_ms=60_000, tolerance_ms=5_000, owner_type="mail_channels", owner_id="5", function="mail.fetch")  # fmt: skip


def lines(*words):
    """What a command prints, with single spaces."""
    return [re.sub(r" +", " ", line) for line in ticker(*words)[0].splitlines()]


# -------------------------------------------------------------------------------------------------------------- why


def test_why_prints_the_arithmetic_and_what_happens_next(db, drop):
    ticked(db, 4 * SECOND)
    head, line, first, second = lines("why", "mail.fetch", "--owner", "mail_channels:5")
    assert head == sentence("cli.why_heading")
    assert (line[:30], line[30:]) == ("2026-03-01 12:02:03 dropped 1 ", SENTENCE)
    assert first == sentence("cli.now_a_ticker_ticked_ago", ago=re.compile("[45] s"))
    assert sentence("cli.next_due_since", since=re.compile(r"[0-9:.]+"), span=re.compile(r"[0-9.]+ s")) == second


def test_why_as_json_has_the_lines_with_their_rows(db, drop):
    told = answer("why", "1")
    assert set(told) == {"task_id", "task", "now", "at", "lines", "then", "next"}
    [line] = told["lines"]
    assert set(line) == LINE and set(line["run"]) == RUN
    assert (line["at"], line["what"], line["words"]) == ("2026-03-01T12:02:03.000000Z", "dropped", SENTENCE)
    assert told["next"][0] == sentence("why.no_ticker", remedy="ticker run")
    assert INSTANT.fullmatch(told["now"]) and told["task"]["state"] == "ok"


def test_why_around_a_time_says_what_was_then_and_what_is_now(db, drop):
    db.execute("UPDATE ticker.tasks SET created_at = '2026-01-01T00:00:00Z'")
    ticker("pause", "1", "--by", "anna", "--reason", "moving house")
    printed = lines("why", "1", "--at", "2026-03-01T12:30:00Z")
    assert SENTENCE.within(printed[1]) and " dropped 1 " in printed[1]
    assert printed[2] == sentence("why.no_ticker_for_a_day")
    assert printed[3] == sentence("cli.now_no_ticker", remedy="ticker run")
    assert printed[4] == sentence(
        "cli.now_paused", by="anna", remedy=re.compile("ticker resume [0-9]+"), reason="moving house"
    )


def test_why_of_what_was_never_there_or_ahead_is_a_sentence(drop):
    assert refused("why", "77", code=1) == sentence("errors.unknown_task_no_record", task=77)
    assert sentence("errors.remedy_owner", remedy="--owner type:id").within(refused("why", "mail.fetch", code=1))
    ahead = sentence("errors.in_the_future", field="at", value="'2100-01-01T00:00:00+00:00'")
    assert ahead.within(refused("why", "1", "--at", "2100-01-01T00:00:00Z"))
    assert sentence("errors.no_time_that_was", field="at", value="'noon'").within(refused("why", "1", "--at", "noon"))
    assert "has no zone" in refused("why", "1", "--at", "2026-01-01T00:00:00")


def test_why_of_a_deleted_owners_task_leads_to_what_is_kept_of_it(drop):
    said = refused("why", "mail.fetch", "--owner", "mail_channels:6", code=1)
    assert sentence("errors.unknown_task_of_owner", task="'mail.fetch'", owner="mail_channels:6").begins(said)
    assert said.endswith("ticker runs --journal --owner mail_channels:6")


@pytest.mark.slow
def test_what_a_function_has_said_cannot_drive_the_terminal(db, drop):
    db.execute("UPDATE ticker.runs SET outcome = 'failed', reason = %s, output = %s, traceback = %s",
               ["\x1b]0;owned\x07\nA", "\x1b[31mred\x1b[0m\nsecond", "\x9b2J"])  # fmt: skip
    db.execute("INSERT INTO ticker.events (task_id, what, by, words) VALUES (1, 'paused', 'ticker', E'\\x1b[2Jgone')")
    for command in (["why", "1"], ["runs", "--journal"], ["runs", "--id", "1"], ["runs", "--journal", "--json"]):
        out = ticker(*command)[0]
        assert not {c for c in out if not c.isprintable()} - {"\n"}, command
    assert "\\x1b[31mred" in ticker("runs", "--id", "1")[0] and "\\x1b[2Jgone" in ticker("why", "1")[0]


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("12:00", NOON.replace(minute=0, second=0)),
        ("9:30:15", NOON.replace(hour=9, minute=30, second=15)),
        ("12:02:04", NOON - timedelta(days=1) + timedelta(seconds=1)),
        ("9:30:15 UTC", NOON.replace(hour=9, minute=30, second=15)),
        ("2026-02-01 00:00:00 UTC", datetime(2026, 2, 1, tzinfo=UTC)),
        ("2h ago", NOON - timedelta(hours=2)),
        ("90", NOON - timedelta(seconds=90)),
        ("2026-02-01T00:00:00+01:00", datetime(2026, 1, 31, 23, tzinfo=UTC)),
    ],
)
def test_a_time_that_was_may_be_written_in_three_ways(text, instant):
    assert past("at", text, NOON) == instant


@pytest.mark.parametrize("text", ["25:00", "9", "x", "", "-2h", "2026-13-01T00:00:00Z", "yesterday"])
def test_what_is_no_time_is_refused(text):
    if text == "9":
        assert past("at", text, NOON) == NOON - timedelta(seconds=9)  # a bare number is seconds, as everywhere
    else:
        with pytest.raises(BadInput, match="at: "):
            past("at", text, NOON)


# ---------------------------------------------------------------------------------------------------------- journal


@pytest.mark.slow
def test_the_journal_prints_one_line_each_with_its_task(db, drop):
    ticker("pause", "1", "--by", "anna", "--reason", "moving")
    head, first, second = lines("runs", "--journal")
    assert head == sentence("cli.journal_heading")
    before = "2026-03-01 12:02:03 dropped 1 mail.fetch mail_channels:5 1 "
    assert first.startswith(before) and first[len(before) :] == SENTENCE
    assert second.endswith(" paused 1 mail.fetch mail_channels:5 by anna: moving")
    assert lines("runs", "--journal", "--reason", "gone") == ["nothing was recorded"]
    assert lines("runs", "--journal", "--since", "1h")[1:] == [second]
    for words in (
        ["1"],
        ["--owner", "mail_channels:5"],
        ["mail.fetch", "--owner", "mail_channels:5"],
    ):
        assert lines("runs", "--journal", *words)[1:] == [first, second]
    assert lines("runs", "--journal", "--outcome", "dropped", "--owner-type", "mail_channels")[1:] == [first]


def test_the_journal_as_json_is_one_document_per_line(db, drop):
    ticker("pause", "1", "--by", "anna")
    first, second = [json.loads(line) for line in ticker("runs", "--journal", "--json")[0].splitlines()]
    assert set(first) == set(second) == LINE
    assert (first["run"]["early_ms"], first["event"], second["event"]["by"]) == (27_000, None, "anna")


def test_a_journal_of_what_excludes_each_other_is_bad_input():
    assert sentence("errors.stands_beside_an_owner", field="owner_type", value="'a'").within(
        refused("runs", "--journal", "--owner", "a:1", "--owner-type", "a")
    )
    assert sentence("errors.stands_beside_the_id", task=1).within(refused("runs", "--journal", "1", "--owner", "a:1"))


@contextmanager
def following(*words):
    """`ticker runs --follow` as a process; its lines as they come, without buffering."""
    process = subprocess.Popen([sys.executable, "-m", "ticker", "runs", "--follow", "--json", *words], cwd=ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_journal_that_is_followed_goes_on_through_a_lost_connection_until_it_is_interrupted(db, drop):
    with following("--limit", "1") as process:
        assert json.loads(process.stdout.readline())["what"] == "dropped"
        ticker("pause", "1", "--by", "anna")
        assert json.loads(process.stdout.readline())["what"] == "paused"
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ticker-cli'"
        until(lambda: db.execute(cut).fetchall(), "its connection is there, and cut")
        ticker("resume", "1")
        assert json.loads(process.stdout.readline())["what"] == "resumed"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert sentence("cli.database_asked_again", setting="DATABASE_URL", error=re.compile(r".+")) == err


def test_a_follower_keeps_its_connection(monkeypatch, db, drop):
    opened, connect = [], connections.connect
    monkeypatch.setattr(journal, "EVERY", 0)
    monkeypatch.setattr(
        connections, "connect", lambda *given, **options: opened.append(1) or connect(*given, **options)
    )
    tail = read_journal.Tail(read_journal.select(db))
    run(db, tail.begin(None, None, 1))
    looks = journal.new_lines(tail)
    assert [next(looks) for _ in range(3)] == [[], [], []] and len(opened) == 1
    looks.close()


def test_a_follower_in_this_process_ends_quietly_when_it_is_interrupted(monkeypatch, drop):
    def interrupted(tail):
        raise KeyboardInterrupt

    monkeypatch.setattr(journal, "new_lines", interrupted)
    assert ticker("runs", "--follow")[1] == ""


# ------------------------------------------------------------------------------------------------------------ drops


def test_drops_are_counted_with_an_example(db, drop):
    dropped(db, 1, "gone", ended_at=NOON)
    dropped(db, 1, "gone", ended_at=NOON)
    head, first, second = lines("runs", "--drops-by", "reason")
    assert head == sentence("cli.drops_heading")
    assert first == sentence("cli.drops_gone", number=2, newest="2026-03-01 12:02:03", task="1 mail.fetch")
    before = "1 too_early 2026-03-01 12:02:03 1 mail.fetch: "
    assert second.startswith(before) and second.removeprefix(before) == SENTENCE
    assert [(one["key"], one["count"]) for one in answer("runs", "--drops-by", "owner")] == [
        ("", 2),
        ("mail_channels:5", 1),
    ]
    assert lines("runs", "--drops-by", "owner")[1].startswith("2 - ")
    assert (
        lines("runs", "--drops-by", "reason", "--since", "1h") == ["no drops"]
        and answer("runs", "--drops-by", "reason", "--since", "1h") == []
    )


def test_a_count_that_is_cut_says_so(db, drop):
    dropped(db, 1, "gone", ended_at=NOON)
    out, err = ticker("runs", "--drops-by", "reason", "--limit", "1")
    assert (len(out.splitlines()), err) == (
        2,
        sentence("cli.warning_more_entries", number=1, remedy="--limit, --since and --until"),
    )
    assert len(answer("runs", "--drops-by", "reason", "--limit", "1")) == 1
    assert ticker("runs", "--drops-by", "reason", "--limit", "10000")[1] == ""


def test_filters_that_exclude_each_other_are_refused(drop):
    assert refused("runs", "--journal", "1", "--owner-type", "feeds") == (
        sentence("errors.does_not_go_with_task", field="owner_type", value="'feeds'", task=1, owner="mail_channels:5")
    )
    assert sentence("errors.of_drops", field="reason", value="'paused'", outcome="failed").within(
        refused("runs", "--outcome", "failed", "--reason", "paused")
    )


def test_an_id_needs_no_owner_and_a_name_may_need_one(drop):
    assert sentence("errors.needs_no_owner").within(refused("runs", "1", "--owner", "mail_channels:6"))
    assert sentence("errors.remedy_owner", remedy="--owner type:id").within(refused("runs", "mail.fetch", code=1))


# --------------------------------------------------------------------------------------------------- one run in full


def test_one_run_in_full_is_printed_with_what_it_printed(db, drop):
    db.execute(
        "UPDATE ticker.runs SET outcome = 'failed', reason = 'OSError: no', started_at = checked_at, retried = true,"
        " output = E'fetched\\t3\\n\\nand more', error_output = 'slow', traceback = E'Traceback\\n  OSError: no'"
    )
    db.execute(
        "INSERT INTO ticker.runs (task_id, task_name, kind, parent_id, attempt, state, due_at, pieces)"
        " VALUES (1, 'mail.fetch', 'retry', 1, 2, 'planned', %s, 1)", [NOON]
    )  # fmt: skip
    db.execute("INSERT INTO ticker.runs (task_id, kind, parent_id, item, state, due_at) VALUES (1, 'piece', 2, '7', 'planned', %s)",
               [NOON])  # fmt: skip
    out = ticker("runs", "--id", "1")[0]
    assert out.endswith(
        "\noutput:\nfetched 3\n\nand more\n\nerror output:\nslow\n\ntraceback:\nTraceback\n  OSError: no\n"
    )
    assert "\nattempts:\n" in out and re.search(r"^attempted again +yes$", out, re.MULTILINE)
    told = answer("runs", "--id", "2")
    assert set(told) == RUN | {"output", "error_output", "attempts", "made"}
    assert ([run["id"] for run in told["attempts"]], [run["item"] for run in told["made"]]) == ([1, 2], [7])
    assert "of run" in ticker("runs", "--id", "3")[0]
    assert sentence("cli.one_piece_to_come").within(ticker("runs", "--id", "2")[0])


def test_a_run_that_is_not_there_and_an_id_beside_a_task_are_refused(drop):
    assert refused("runs", "--id", "77", code=1) == sentence("errors.unknown_run", run=77)
    assert sentence("errors.id_names_one_run", field="--id").within(refused("runs", "1", "--id", "1"))


@pytest.mark.parametrize("words", [("1",), ("--journal",), ("--follow",), ("--drops-by", "reason"), ("--since", "1h")])
def test_one_run_is_shown_without_anything_that_lists(words):
    assert sentence("errors.id_names_one_run", field="--id").within(refused("runs", "--id", "1", *words))


@pytest.mark.parametrize("words", [("1",), ("--journal",), ("--follow",), ("--owner", "a:1"), ("--outcome", "lost")])
def test_drops_are_counted_for_all_tasks(words):
    assert sentence("cli.drops_of_all_tasks").within(refused("runs", "--drops-by", "task", *words))
