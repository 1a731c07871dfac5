"""`ticker top` and `ticker list --watch`: what they say, that it fits, and that the terminal is as it was before."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

import ticker
from tests.factories import MINUTE, NINE, SECOND, a_drop, a_run, ticked
from tests.harness import command
from tests.running import PATIENCE, ROOT, until
from tests.sentences import sentence
from ticker import clock
from ticker.cli import fit, render, watching
from ticker.cli import tasks as listing
from ticker.cli import top as screen
from ticker.cli.top import look
from ticker.read.overview import Cause

SIZES = [(80, 24), (200, 50), (40, 12), (20, 3), (8, 1)]
TOKEN = "00000000-0000-0000-0000-000000000001"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
AGE = re.compile(r"ticked \d+s ago")  # by the database's clock, which nothing stops
SETTLED = {"first": NINE + 60 * MINUTE}  # far enough ahead not to be late


@pytest.fixture(autouse=True)
def at_nine(environ):
    """Whatever asks for the time in this process is told nine o'clock."""
    with clock.use(lambda: NINE):
        yield


def make(db, name, **columns):
    """A task of every minute; the columns are written by hand."""
    made = ticker.register(db, name, every=60, tolerance=5, owner="mail_channels:5", **SETTLED)
    assignments = ", ".join(f"{column} = %s" for column in columns)
    if columns:
        db.execute(f"UPDATE ticker.tasks SET {assignments} WHERE id = %s", [*columns.values(), made.id])
    return made


def fail(db, name, failures=3, reason="OSError: no route to host", **columns):
    """A task that fails, with the last of its runs."""
    made = make(db, name, failures=failures, **columns)
    last = a_run(db, made, outcome="failed", reason=reason, occurrence=NINE - MINUTE)
    db.execute("UPDATE ticker.tasks t SET last_run_id = r.id, last_outcome = r.outcome, last_ended_at = r.ended_at"
               " FROM ticker.runs r WHERE r.id = %s AND t.id = r.task_id", [last])  # fmt: skip
    return made


def drop(db, task):
    """The drop of the third timing table, two minutes ago."""
    a_drop(db, task, "too_early", checked_at=NINE - 2 * MINUTE, checked_last_run=NINE - 2 * MINUTE - 28 * SECOND)


@pytest.fixture
def busy(db):
    """Something of everything."""
    ticked(db, 4 * SECOND)
    make(db, "stuck", next_run=NINE - 5 * MINUTE, push_errors=2, push_error="the queue is full",
         push_after=NINE + 10 * SECOND)  # fmt: skip
    make(db, "late", next_run=NINE - 2 * MINUTE)
    fail(db, "broken")
    fail(db, "given_up", failures=9, paused_by="ticker", paused_reason="9 failures", paused_until=NINE + 60 * MINUTE)
    running = make(db, "at.work", next_run=NINE + 48 * SECOND, running_until=NINE + 19 * SECOND, run_token=TOKEN)
    a_run(db, running, occurrence=NINE - 13 * SECOND, started_at=NINE - 12 * SECOND, until=NINE + 19 * SECOND,
          state="running", outcome=None, ended_at=None, token=TOKEN)  # fmt: skip
    drop(db, running)


def drawn(db, width=200, height=50, limit=100):
    return [line.plain.rstrip() for line in screen.draw(look(db, limit), width, height)]


def spaced(line):
    return re.sub(r" {2,}", "  ", line)


# ------------------------------------------------------------------------------------------------------ what it says


@pytest.mark.slow
def test_each_thing_stands_in_its_section_with_its_cause(db, busy):
    told, head, alive, *rest = map(spaced, drawn(db))
    assert told == "2 tasks fail; 2 tasks are late: ticker list --state failing"
    assert head == sentence(
        "cli.top_head",
        now="2026-03-01 09:00:00",
        tasks=5,
        late="2 late",
        failing="2 failing",
        paused="1 paused",
        running="1 running",
    )
    assert sentence("cli.top_ticker", pid=7, host="here", ago=re.compile(r"[4-9] s")) == alive
    assert rest == [
        "Late: 2",
        sentence("cli.top_not_pushed", task="1  stuck  mail_channels:5", span="5 min", again="2026-03-01 09:00:10Z"),
        sentence("cli.top_late", task="2  late  mail_channels:5", span="2 min"),
        "Failing: 2",
        sentence("cli.top_given_up", task="4  given_up  mail_channels:5", failures=9, until="2026-03-01 10:00:00Z", error="OSError: no route to host"),
        sentence("cli.top_failing", task="3  broken  mail_channels:5", failures=3, error="OSError: no route to host"),
        "Running: 1",
        sentence("cli.top_running", task="5  at.work  mail_channels:5", span="12 s", box="30 s", late="1 s", due="08:59:47"),
        "Next",
        sentence("cli.top_next_running", task="5  at.work  mail_channels:5", span="48 s", due="09:00:48", every="1m"),
        sentence("cli.top_next_failing", task="3  broken  mail_channels:5", span="1 h", due="10:00:00", every="1m", failures=3),
        sentence("cli.top_drops", number=1),
        sentence("cli.top_drop", at="08:58:00", task="at.work of mail_channels:5", since="28 s", last="08:57:32", early="27 s", every="60 s", tolerance="5 s", earliest="08:58:27"),
    ]  # fmt: skip


def test_where_nothing_is_to_be_told_it_says_so(db):
    lines = drawn(db)
    assert lines[0] == sentence("health.no_ticker_start_one", remedy="ticker run")
    assert lines[1:] == [
        "2026-03-01 09:00:00 UTC  0 tasks",
        "Late: none",
        "Failing: none",
        "Running: none",
        "Next: none",
        sentence("cli.top_drops", number="none"),
    ]


def test_what_is_due_and_not_yet_late_is_pushed_by_the_next_tick(db):
    ticked(db, SECOND)
    make(db, "due", next_run=NINE - 2.6 * SECOND)
    lines = [*map(spaced, drawn(db))]
    assert lines[3] == "Late: none"
    assert sentence("cli.top_due", task="1  due  mail_channels:5", due="08:59:57", every="1m").begins(lines[7])


def test_what_is_next_during_a_pause_is_not_announced_as_a_run(db):
    ticked(db, SECOND)
    make(db, "later", next_run=NINE + 12 * SECOND)
    ticker.pause_all(db, by="ann")
    lines = drawn(db)
    assert "Next: none" in lines and not [line for line in lines if "later" in line]


def test_a_late_task_where_no_ticker_ticks_says_that(db):
    make(db, "late", next_run=NINE - 2 * MINUTE)
    ticked(db, 10 * MINUTE)
    lines = drawn(db)
    assert f"problem: {lines[0]}" == (
        sentence("cli.top_problem_no_tick_within", span="1m30s", pid=7, host="here", ago="10 min", remedy="ticker run")
    )  # fmt: skip
    assert sentence("cli.top_no_ticker_ticks", span="2 min").within(lines[3])


def test_of_several_tickers_it_names_the_one_that_was_heard_of_last(db):
    ticked(db, 30 * SECOND)
    ticked(db, SECOND)
    assert sentence("cli.top_tickers", number=2, pid=7, host="here", ago=re.compile(r"[1-9] s")).begins(drawn(db)[2])


def test_silent_tickers_are_named_beside_the_living_ones(db):
    ticked(db, SECOND)
    ticked(db, 5 * MINUTE)
    assert drawn(db)[2] == sentence(
        "cli.top_one_silent",
        number=1,
        pid=7,
        host="here",
        ago=re.compile("[0-9]+ s"),
        span=re.compile("5 min( [0-9] s)?"),
        rest=re.compile(".*"),
    )
    ticked(db, 10 * MINUTE)
    assert sentence("cli.top_silent_tickers", number=2, pid=7, host="here", span="5 min").within(drawn(db)[2])


@pytest.mark.slow
def test_a_ticker_of_a_slow_rhythm_is_not_silent_before_three_of_its_ticks(db):
    ticked(db, 10 * MINUTE, tick_ms=300_000)
    make(db, "late", next_run=NINE - 15 * MINUTE)
    lines = drawn(db)
    assert sentence("cli.top_ticker_so_far", number=1, pid=7, host="here", span="10 min").begins(lines[2])
    assert sentence("cli.top_not_pushed_yet", span="15 min").within(lines[4])


@pytest.mark.slow
def test_a_queue_that_nobody_listens_to_is_a_problem_of_the_head(db, queue):
    ticked(db, SECOND)
    make(db, "late", next_run=NINE)
    command("tick")
    assert f"problem: {drawn(db)[0]}" == sentence(
        "cli.top_problem_unattended", number=1, queue="polling", remedy="ticker worker --tasks ... polling"
    )


def test_a_drop_of_a_task_that_has_no_name_any_more_is_told_by_its_id(db):
    a_drop(db, make(db, "x"), "gone", task_name="", owner_type="", owner_id="")
    assert sentence("cli.top_gone", task=1).ends(drawn(db)[-1])


def test_a_task_by_times_of_the_day_says_them_in_words(db):
    ticker.register(db, "report", cron="0 10 * * 1-5")
    db.execute("UPDATE ticker.tasks SET next_run = %s", [NINE + 60 * MINUTE])
    assert spaced(drawn(db)[-2]) == sentence("cli.top_next_cron", task="1  report", span="1 h", due="10:00:00")


def test_a_run_that_began_while_it_looked_is_counted_and_has_no_age_below_zero(db, busy):
    db.execute("UPDATE ticker.runs SET started_at = %s WHERE state = 'running'", [NINE + SECOND / 10])
    seen = look(db, 10)
    counts = replace(seen.overview.counts, running=0)
    lines = [line.plain for line in screen.draw(replace(seen, overview=replace(seen.overview, counts=counts)), 200, 50)]
    assert sentence("cli.top_running_so_far", span="0 s").within(lines[lines.index("Running: 1") + 1])


def test_a_state_with_very_many_tasks_is_not_counted_to_its_end():
    counts = screen.Counts(2_000_000, 100_000, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0)
    assert screen.counted(counts) == sentence("cli.top_counts", tasks="2,000,000", late="100,000", running=7)
    words = sentence("cli.top_counts_of_due_tasks", no_room=1, queue_full=2, turn=3, unknown=4)
    due = screen.Counts(10, 0, 1, 2, 3, 0, 0, 0, 4, 0, 0, 0)
    assert screen.counted(due) == words
    assert replace(counts, tasks=100_001).said("tasks") == "over 100,000"


def test_no_text_of_a_user_drives_the_terminal(db):
    fail(db, "evil", reason="\x1b]0;owned\x07\n\x9b2Jgone\u202e")
    make(db, "paused", next_run=NINE, push_errors=1, push_error="\x1b[31mred")
    text = "\n".join(drawn(db))
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert "\\x1b]0;owned\\x07\\n\\x9b2Jgone\\u202e" in text
    out = command("top", "--once")[0]
    assert not [c for c in out if not c.isprintable() and c != "\n"]


# ------------------------------------------------------------------------------------------------------- that it fits


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_it_fits_every_terminal_and_no_line_is_wrapped(width, height, db, busy):
    for number in range(40):
        fail(
            db, f"a.long.name.of.task.日本語.number.{number}", reason="an error of a length that fits no terminal; " * 9
        )
        drop(db, make(db, f"next.{number}"))
    trouble = "PostgreSQL (DATABASE_URL) does not answer: " + "connection is bad " * 20
    lines = watching.screen(look(db, 100), trouble, screen.draw, 2000, width, height)
    assert len(lines) == height and max(cell_len(line.plain) for line in lines) <= width
    console = Console(width=width, height=height, record=True, file=StringIO(), force_terminal=True)
    console.print(watching.painted(lines))
    assert console.export_text().split("\n")[:-1] == [line.plain for line in lines]


@pytest.mark.slow
def test_the_sections_share_the_room_and_say_what_is_left_out(db, busy):
    for number in range(40):
        fail(db, f"fails.{number}")
    lines = drawn(db, 80, 23)
    assert len(lines) == 23
    assert (
        "Late: 2" in lines and "Failing: 42, the first 6" in lines and sentence("cli.top_drops", number=1).within(lines)
    )


@pytest.mark.slow
def test_more_than_ten_failing_tasks_are_shown_by_cause(db, busy):
    for number in range(12):
        fail(db, f"fails.{number}", cause="OSError: *" if number else "TimeoutError")
    lines = [*map(spaced, drawn(db, 200, 60))]
    begin = lines.index("Failing: 14, by cause")
    names = ", ".join(f"fails.{number} of mail_channels:5" for number in (1, 2, 3))
    assert lines[begin + 1 : begin + 4] == [
        f"11  OSError: *  such as {names}",
        "1  TimeoutError  such as fails.0 of mail_channels:5",
        "Running: 1",
    ]
    assert lines[0] == "14 tasks fail, 11 of them with OSError: *; 2 tasks are late: ticker list --cause 'OSError: *'"


@pytest.mark.parametrize(("tasks", "read"), [(2, ""), (5000, " of 2 of them")])
def test_a_cause_says_of_how_many_tasks_the_errors_were_read(tasks, read):
    refused = Cause("OSError: *", tasks, None, (1, 2), (), {"imap.a.example": 2})
    [line] = fit.lines([screen.cause(refused)], 200)
    assert line.plain.rstrip().endswith(f"the last errors{read} name imap.a.example (2)")


def test_rows_are_shared_so_that_none_gets_more_than_another_that_wants_more():
    assert fit.shares([2, 40, 1, 40, 0], 13) == [2, 5, 1, 5, 0]
    assert fit.shares([2, 3], 100) == [2, 3]
    assert fit.shares([2, 3], -4) == [0, 0]


def test_a_cell_that_is_too_long_keeps_its_begin_and_its_end():
    assert fit.cut("ticker_demo_mail.mail_channels:5", 15) == "ticker_…nnels:5"
    assert fit.cut("short", 5) == "short"
    for cells in range(2, 12):
        assert cell_len(fit.cut("日本語日本語日本語", cells)) <= cells


# ---------------------------------------------------------------------------------------------------------- the list


def test_the_list_leaves_columns_out_rather_than_its_state(db, busy):
    tasks = ticker.list_tasks(db)
    wide = [line.plain for line in listing.lines(tasks, 250, 20)]
    assert wide[0].split("  ")[0] == "id" and all(name in wide[0] for name in render.TASK_COLUMNS[1:])
    narrow = [line.plain for line in listing.lines(tasks, 80, 20)]
    assert re.split(r" {2,}", narrow[0].strip()) == ["id", "name", "owner", "next run (UTC)", "state"]
    assert spaced(narrow[2]).startswith("2  late  mail_channels:5  2026-03-01 08:58:00")
    assert all(cell_len(line) <= 80 for line in narrow)


def test_a_list_that_is_longer_than_the_screen_says_so(db, busy):
    lines = [line.plain for line in listing.lines(ticker.list_tasks(db), 120, 4)]
    assert len(lines) == 4 and lines[-1].startswith("and more; filter with --owner, --owner-type")
    assert len(listing.lines(ticker.list_tasks(db), 120, 6)) == 6
    assert [line.plain for line in listing.lines([], 120, 6)] == ["no tasks"]


@pytest.mark.parametrize("words", [["--watch"], ["--watch", "--json"]])
def test_a_list_that_is_watched_needs_a_terminal(words):
    out, err = command("list", *words, code=2)
    assert out == "" and sentence("cli.watch_needs_a_terminal").within(err) and "ticker runs --follow" in err


@pytest.mark.parametrize("words", [["top", "--interval", "0.1s"], ["list", "--watch", "--interval", "2h"]])
def test_an_interval_has_limits(words):
    assert "--interval: " in command(*words, code=2)[1]


# ------------------------------------------------------------------------------------------------------------- once


@pytest.mark.slow
def test_in_a_pipe_it_is_one_plain_text_of_which_nothing_is_cut(db, busy, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    out = command("top")[0]
    again = command("top", "--once")[0]
    assert "\x1b" not in out and AGE.sub("", out) == AGE.sub("", again)
    assert sentence("cli.top_drop_ends", every="60 s", tolerance="5 s", earliest="08:58:27").ends(out.splitlines()[-1])


def test_a_terminal_folds_the_last_column_and_a_pipe_does_not(capsys, monkeypatch):
    rows = [
        fit.row("support@example.org", 1, "it waits because 2 of 2 runs of imap.x are active"),
        fit.row("", 2, "ok"),
    ]
    monkeypatch.setenv("COLUMNS", "50")
    render.print_table(("subject", "id", "why"), rows)
    assert capsys.readouterr().out.splitlines()[1].endswith("it waits because 2 of 2 runs of imap.x are active")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    render.print_table(("subject", "id", "why"), rows)
    folded = [ANSI.sub("", line) for line in capsys.readouterr().out.splitlines()]
    assert folded == [
        "subject              id  why",
        "support@example.org  1   it waits because 2 of 2",
        "                         runs of imap.x are active",
        "                     2   ok",
    ]


def test_a_table_has_the_same_letters_in_a_terminal_as_in_a_pipe(capsys, monkeypatch):
    rows = [fit.row(1, "日本語 [bold]", "e\u0301 \x1b[2J", style="red"), fit.row(22, "= x", "")]
    render.print_table(("id", "name (UTC)", "why"), rows)
    pipe = capsys.readouterr().out.splitlines()
    assert pipe == ["id  name (UTC)     why", "1   日本語 [bold]  e\u0301 \\x1b[2J", "22  = x"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    render.print_table(("id", "name (UTC)", "why"), rows)
    terminal = capsys.readouterr().out.splitlines()
    assert [ANSI.sub("", line) for line in terminal] == pipe and "\x1b[31m" in terminal[1]


@pytest.mark.slow
def test_a_pipe_and_json_load_no_rich(db, busy):
    """Runs every command that prints a table, twice in one process if it has --json."""
    plain = [
        "list",
        "list 1",
        "why 1",
        "runs --journal",
        "runs --drops-by reason",
        "owners",
        "runs",
        "next 1",
        "notify",
        "prune",
    ]
    commands = [*plain, *(f"{words} --json" for words in plain), "top"]
    program = f"""
import sys
from ticker.cli import main
for words in {commands}:
    try:
        main(words.split())
    except SystemExit as end:
        assert not end.code, words
    assert not [name for name in sys.modules if name.partition(".")[0] == "rich"], words
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, timeout=60, check=True)


def test_a_server_that_is_not_there_at_the_start_is_an_error(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://postgres@/x?host=/nowhere")
    assert sentence("cli.error_database", setting="DATABASE_URL").begins(command("top", code=78)[1])


# ----------------------------------------------------------------------------------------------------- on a terminal


class Terminal:
    """A command on a terminal of its own; what it has drawn so far, without what steers."""

    def __init__(self, *words, **environ):
        self.outer, self.inner = os.openpty()
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.inner)
        self.raw = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ticker", *words], cwd=ROOT, stdin=self.inner, stdout=self.inner, stderr=self.inner,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**self.environ(), "TERM": "xterm-256color", **environ},
        )  # fmt: skip

    @staticmethod
    def environ():
        """Ours, but for a size that would outlast the terminal's own: xdist sets one."""
        return {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}

    def read(self):
        while select.select([self.outer], [], [], 0)[0]:
            self.raw += os.read(self.outer, 65_536).decode("utf-8", "replace")
        return ANSI.sub("", self.raw)

    def shows(self, text):
        until(lambda: text in self.read() or self.process.poll() is not None, f"{text!r} on the terminal")
        assert text in self.read(), self.raw

    def press(self, keys):
        os.write(self.outer, keys.encode())

    def end(self):
        """Its exit code; whatever it draws while it ends is read, or it would wait for ever."""
        until(lambda: (self.read(), self.process.poll())[1] is not None, "its end")
        self.read()
        return self.process.wait(PATIENCE)

    @property
    def is_as_before(self):
        return termios.tcgetattr(self.inner) == self.before and self.raw.rindex("\x1b[?1049l") > self.raw.rindex(
            "\x1b[?1049h"
        )


@contextmanager
def terminal(*words, **environ):
    found = Terminal(*words, **environ)
    try:
        yield found
    finally:
        if found.process.poll() is None:
            found.process.kill()
            found.process.wait()
        os.close(found.outer)
        os.close(found.inner)


@pytest.mark.slow
def test_pruning_shows_on_a_terminal_that_it_works(db):
    with terminal("prune") as shown:
        assert shown.end() == 0
        assert shown.read().count("drops=0") > 1  # while it works, and at its end


@pytest.mark.slow
@pytest.mark.parametrize("keys", [pytest.param("q", marks=pytest.mark.smoke), "xq", "\x03"])
@pytest.mark.parametrize("words", [["top"], ["list", "--watch"]])
def test_q_and_ctrl_c_end_it_and_the_terminal_is_as_it_was(words, keys, db):
    make(db, "mail.fetch")
    with terminal(*words) as shown:
        shown.shows("mail.fetch")
        shown.shows("q quits; refreshed every 2 s")
        assert termios.tcgetattr(shown.inner) != shown.before
        shown.press(keys)
        assert shown.end() == 0
        assert shown.is_as_before


@pytest.mark.slow
def test_a_terminal_is_put_in_order_also_when_it_is_ended_from_outside(db):
    with terminal("top") as shown:
        shown.shows("q quits")
        shown.process.send_signal(signal.SIGTERM)
        assert shown.end() == 128 + signal.SIGTERM
        assert shown.is_as_before


@pytest.mark.slow
def test_what_changes_is_drawn_and_a_server_that_goes_away_is_told_and_asked_again(db):
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ticker-cli'"
    with terminal("top", "--interval", "500ms") as shown:
        shown.shows("0 tasks")
        until(lambda: db.execute(cut).fetchall(), "its connection is there, and cut")
        shown.shows("problem: PostgreSQL (DATABASE_URL)")
        make(db, "mail.fetch")
        shown.shows("1 task")
        shown.press("q")
        assert shown.end() == 0


@pytest.mark.slow
def test_a_terminal_that_changes_its_size_is_drawn_anew(db):
    with terminal("list", "--watch") as shown:
        shown.shows("no tasks")
        shown.raw = ""
        fcntl.ioctl(shown.inner, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
        shown.shows("q quits; refreshed every 2 s")  # the last line
        assert "no tasks" in shown.read() and len(shown.read().splitlines()) == 10


@pytest.mark.slow
@pytest.mark.parametrize(("given", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_left_out_where_nobody_wants_them_and_their_words_stay(given, is_coloured, db):
    fail(db, "broken")
    with terminal("top", **given) as shown:
        shown.shows("3 in a row, failed: OSError")
        assert bool(re.search(r"\x1b\[[0-9;]*3[0-7]m", shown.raw)) == is_coloured


@pytest.mark.slow
@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_be_drawn_on_gets_plain_text(term, db):
    with terminal("top", TERM=term) as shown:
        assert shown.end() == 0
        assert "Late: none" in shown.raw and "\x1b" not in shown.raw


# --------------------------------------------------------------------------------------------------------- its parts


def test_the_terminal_is_put_in_order_after_an_error(monkeypatch):
    outer, inner = os.openpty()
    before = termios.tcgetattr(inner)
    with os.fdopen(inner) as stdin, os.fdopen(outer, "wb", buffering=0) as keyboard:
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(ZeroDivisionError), watching.keys() as pressed:
            keyboard.write(b"\x1b[Ax")
            assert pressed(PATIENCE) == "\x1b[Ax"
            assert pressed(0) == ""
            raise ZeroDivisionError
        assert termios.tcgetattr(inner) == before


def test_where_nobody_can_press_keys_nothing_is_pressed(monkeypatch):
    with Path(os.devnull).open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with watching.keys() as pressed:
            assert pressed(0) == ""


def test_a_mistake_in_a_look_ends_it_and_is_not_hidden():
    def mistaken(db):
        raise ZeroDivisionError

    with watching.Looker("first", mistaken, 1) as looker, pytest.raises(ZeroDivisionError):
        until(lambda: looker.state() and False, "its mistake")


def test_a_look_that_hangs_is_told_and_holds_up_nothing(monkeypatch):
    asked, answers = threading.Event(), threading.Event()

    def hangs(db):
        asked.set()
        return answers.wait(PATIENCE) and "second"

    monkeypatch.setattr(watching, "PATIENCE", -10)
    with watching.Looker("first", hangs, 1) as looker:
        assert asked.wait(PATIENCE)
        answer, trouble = looker.state()
        assert answer == "first" and trouble.startswith("no answer for ")
        answers.set()
        until(lambda: looker.state()[0] == "second", "its answer")


def test_the_documentation_names_each_section(db):
    text = (ROOT / "docs/operations/terminal.md").read_text(encoding="utf-8")
    titles = [section.title for section in screen.sections(look(db, 1))]
    table = text[text.index("| section |") :]
    assert re.findall(r"^\| ([A-Z][a-z ]+) \|", table, flags=re.MULTILINE) == titles
