"""`ticker replay`: timing tables from a file, played on a clock that stands still; what differs, what is refused."""

import os
import re
import signal
import threading
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from tests.running import ROOT
from tests.sentences import sentence
from ticker import embedded
from ticker.cli import main
from ticker.engine.jobs import JobSpec
from ticker.engine.ports import JobState, Receipt
from ticker.errors import BadInput
from ticker.read import svg as read_svg
from ticker.replay import chart, play, scratch, shipped, table
from ticker.replay.memory import MemoryQueue

SEED = (ROOT / "tests" / "scenarios" / "timing-tables.md").read_text(encoding="utf-8")
HEAD = "| at | event | next_run | last_run | checked |\n|---|---|---|---|---|\n"
SVG = "{http://www.w3.org/2000/svg}"
SCHEMAS = "SELECT array_agg(nspname ORDER BY nspname) FROM pg_namespace"


def tables(text):
    return {found.name: found for found in table.read(text)}


def timing_table(*rows, settings=""):
    """A file with one table; rows as `00:30 tick enqueues A1 | 01:30`, without the columns that are not compared."""
    cells = [[*re.split(r" +", row, maxsplit=1)[:1], *re.split(r" +", row, maxsplit=1)[1].split(" | ")] for row in rows]
    lines = ["| " + " | ".join([*row, *[""] * (5 - len(row))]) + " |" for row in cells]
    return f"{settings}\n\n## mine\n{HEAD}" + "\n".join(lines) + "\n"


def without_note(text):
    """The seed's tables alone, under settings of ours."""
    return text[text.index("## 1.") : text.index("## Nuntium")]


@pytest.fixture(scope="module")
def there(servers):
    with scratch.scratch({"DATABASE_URL": servers.database_url}) as found:
        yield found


@pytest.fixture(scope="module")
def seeds(there):
    """The shipped tables, played."""
    return [play.play(one, there) for one in table.read(shipped.text("seed-003"))]


@pytest.fixture
def differences(there):
    """Plays a file with one table; what differs, each as line, event and sentences."""

    def played(*rows, settings=""):
        [only] = table.read(timing_table(*rows, settings=settings))
        found = play.play(only, there).differing
        return [(line.number, [str(difference) for difference in line.differences]) for line in found]

    return played


def replay(*words, code=0):
    result = CliRunner().invoke(main, ["replay", *map(str, words)])
    assert result.exit_code == code, (result.exit_code, result.output, result.exception)
    return result.stdout, result.stderr


@pytest.fixture
def file(tmp_path):
    def written(text):
        path = tmp_path / "mine.md"
        path.write_text(text, encoding="utf-8")
        return path

    return written


# ------------------------------------------------------------------------------------------------- the tables shipped


def test_the_tables_that_are_shipped_are_the_seeds():
    [name] = shipped.names()
    ours, theirs = tables(shipped.text(name)), tables(SEED)
    assert {name: [(row.at, row.event, row.expected) for row in one.rows] for name, one in ours.items()} == {
        name: [(row.at, row.event, row.expected) for row in one.rows] for name, one in theirs.items()
    }
    assert len(ours) == 4 and sum(len(one.rows) for one in ours.values()) == 33


@pytest.mark.slow
def test_the_shipped_tables_agree_line_by_line(seeds):
    for played in seeds:
        assert [line.number for line in played.lines] == [row.line for row in played.table.rows]
        assert played.differing == []


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [3, 29])
def test_they_agree_for_every_tolerance_that_they_name(tolerance, there):
    for one in table.read(f"tolerance {tolerance} s\n\n{without_note(SEED)}"):
        assert play.play(one, there).differing == []


@pytest.mark.slow
def test_with_a_tolerance_of_35_s_the_third_table_differs_where_the_dropped_job_runs(there):
    played = [play.play(one, there) for one in table.read(f"tolerance 35 s, box 20 s\n\n{without_note(SEED)}")]
    third = played[2]
    first = third.differing[0]
    assert first.number == next(row.line for row in third.table.rows if str(row.event) == "A2 is dropped")
    assert str(first.differences[0]) == sentence(
        "replay.differs", column="event", expected="A2 is dropped", found="A2 begins"
    )
    assert str(first.differences[1]) == sentence("replay.differs", column="last_run", expected="01:35", found="02:03")
    assert sentence("replay.line_differs", line=first.number, expected="A2 is dropped").begins(third.first_difference())
    assert [one.differing for one in (played[0], played[1])] == [[], []]


# ------------------------------------------------------------------------------------------------ what differs, and how

BEGUN = ("00:00 initial state | 00:30", "00:30 tick enqueues A1", "00:35 A1 begins")
TWICE = (*BEGUN, "00:40 A1 ends", "01:30 tick enqueues A2")


@pytest.mark.slow
def test_a_wrong_time_is_named_with_its_column(differences):
    rows = (
        "00:00 initial state | 00:30",
        "00:30 tick enqueues A1 | 01:31 | -",
        "00:35 A1 begins | 01:30 | 00:36 | 00:01",
    )
    assert differences(*rows) == [
        (7, [sentence("replay.differs", column="next_run", expected="01:31", found="01:30")]),
        (
            8,
            [
                sentence("replay.differs", column="last_run", expected="00:36", found="00:35"),
                sentence("replay.differs", column="checked", expected="00:01", found="-"),
            ],
        ),
    ]


def test_a_time_where_there_is_none_and_none_where_there_is_one_differ(differences):
    rows = ("00:00 initial state | 00:30 | -", "00:30 tick enqueues A1 | - | 00:10")
    assert differences(*rows) == [
        (
            7,
            [
                sentence("replay.differs", column="next_run", expected="-", found="01:30"),
                sentence("replay.differs", column="last_run", expected="00:10", found="-"),
            ],
        )
    ]


def test_what_is_left_empty_or_out_is_not_compared(there):
    [only] = table.read(
        "## a\n| AT | Event |\n| --- | :-: |\n| 00:00 | initial  state |\n| 00:30 | tick enqueues A1 |\n"
    )
    assert play.play(only, there).differing == []
    assert [row.expected for row in only.rows] == [{}, {}]


def test_a_drop_that_is_none_is_named(differences):
    assert differences(*TWICE, "01:32 A2 is dropped") == [
        (11, [sentence("replay.differs", column="event", expected="A2 is dropped", found="A2 begins")])
    ]


@pytest.mark.slow
def test_a_run_that_is_dropped_is_named_with_its_reason_and_numbers(differences):
    rows = (*TWICE[:2], "01:00 A1 begins", "01:10 A1 ends", "01:30 tick enqueues A2", "01:31 A2 begins")
    assert differences(*rows) == [
        (
            11,
            [
                sentence(
                    "replay.differs", column="event", expected="A2 begins", found="A2 is dropped: too_early, 24s early"
                )
            ],
        )
    ]


@pytest.mark.slow
def test_a_drop_for_another_reason_differs(differences):
    rows = (*TWICE[:2], "01:00 A1 begins", "01:10 A1 ends", "01:30 tick enqueues A2", "01:31 A2 is dropped: duplicate")
    [(_, [line])] = differences(*rows)
    assert line == sentence(
        "replay.differs",
        column="event",
        expected="A2 is dropped: duplicate",
        found="A2 is dropped: too_early, 24s early",
    )


@pytest.mark.slow
def test_equality_with_the_tolerance_runs(differences):
    rows = (*TWICE[:2], "00:55 A1 begins", "00:56 A1 ends", "01:30 tick enqueues A2")
    assert differences(*rows, "01:50 A2 begins") == []
    assert differences(*rows, "01:49.999 A2 is dropped: too_early") == []


def test_a_tick_that_enqueues_and_one_that_does_not_are_named(differences):
    rows = ("00:00 initial state | 00:30", "00:30 tick enqueues nothing", "01:00 tick enqueues A2")
    assert differences(*rows) == [
        (7, [sentence("replay.differs", column="event", expected="tick enqueues nothing", found="tick enqueues A1")]),
        (8, [sentence("replay.differs", column="event", expected="tick enqueues A2", found="tick enqueues nothing")]),
    ]


@pytest.mark.slow
def test_a_tick_without_a_line_that_enqueues_is_a_line_of_its_own(differences):
    rows = ("00:00 initial state | 00:30", "01:30 tick enqueues A1")
    assert differences(*rows) == [
        (None, [sentence("replay.differs", column="event", expected="nothing", found="tick enqueues A1")]),
        (7, [sentence("replay.differs", column="event", expected="tick enqueues A1", found="tick enqueues A2")]),
    ]
    assert differences(*rows, settings="Ticks as written.") == []


def test_workers_take_jobs_in_the_order_of_the_queue(differences):
    rows = (
        "00:00 initial state",
        "00:30 tick enqueues A1",
        "01:30 tick enqueues A2",
        "01:31 A2 begins",
        "01:32 A1 begins",
    )
    assert differences(*rows) == [
        (9, [sentence("replay.differs", column="event", expected="A2 begins", found="A1 begins")]),
        (10, [sentence("replay.differs", column="event", expected="A1 begins", found="A2 is dropped: still_running")]),
    ]


def test_what_cannot_happen_is_told(differences):
    rows = (
        "00:00 initial state | 00:30",
        "00:10 A1 begins",
        "00:10 A1 ends",
        "00:30 tick enqueues A1",
        "00:31 A1 ends",
    )
    again = ("00:35 A1 begins", "00:40 A1 is forced to end", "00:50 A1 ends", "00:51 A1 ends")
    assert [line for _, [line] in differences(*rows, *again)] == [
        sentence("replay.no_job_waits", column="event", expected="A1 begins"),
        sentence("replay.there_is_none", column="event", expected="A1 ends", job="A1"),
        sentence("replay.has_not_begun", column="event", expected="A1 ends", job="A1"),
        sentence("replay.still_runs", column="event", expected="A1 is forced to end", job="A1", end="01:05"),
        sentence("replay.has_ended", column="event", expected="A1 ends", job="A1", end="00:50"),
    ]


@pytest.mark.slow
def test_no_run_goes_on_behind_its_box(differences):
    assert differences(*BEGUN, "01:05 A1 ends") == []
    assert differences(*BEGUN, "01:20 A1 ends") == [
        (9, [sentence("replay.was_forced_to_end", column="event", expected="A1 ends", job="A1", end="01:05")]),
    ]
    assert differences(*BEGUN, "01:10 tick enqueues nothing", settings="ticks as written") == [
        (None, [sentence("replay.differs", column="event", expected="nothing", found="A1 is forced to end")]),
    ]


# ------------------------------------------------------------------------------------------------- other tables


def test_other_settings_in_hours_minutes_and_seconds(differences):
    rows = (
        "10:00:00 initial state | 10:02:00 | 09:58:30 | 09:58:30",
        "10:02:00 tick enqueues A1 | 10:07:00 | 09:58:30",
        "10:02:59.5 A1 is dropped: too_early | 10:07:00 | 09:58:30 | 09:58:30",
        "10:04:00 tick enqueues nothing",
        "10:08:00 tick enqueues A2 | 10:13:00",
        "10:08:30 A2 begins | 10:13:00 | 10:08:30 | 09:58:30",
        "10:10:00.25 A2 is forced to end",
    )
    settings = "- interval 5 m, tolerance 30 s\n- box 1m30.25s and tick every 2 m; all of it made up."
    assert differences(*rows, settings=settings) == []


def test_the_settings_above_a_table_go_over_those_of_the_file():
    text = f"Interval 2 m. Prose.\n\n## a\nbox 10 s\n{HEAD}| 00:00 | initial state | | | |\n## b\n{HEAD}| 00:00 | initial state | | | |\n"
    text += f"## c\ninterval 90, tolerance 0, tick every 500ms\n\n{HEAD}| 00:00 | initial state | | | |\n"
    assert {name: str(found.timing) for name, found in tables(text).items()} == {
        "a": sentence("replay.timing", interval="2m", tolerance="6s", box="10s", tick="30s"),
        "b": sentence("replay.timing", interval="2m", tolerance="6s", box="1m", tick="30s"),
        "c": sentence("replay.timing", interval="1m30s", tolerance="0s", box="45s", tick="500ms"),
    }


def test_prose_other_tables_and_blocks_are_passed_over():
    text = f"# title\nhere the\ninterval 10 s is prose\n```\n## x\n{HEAD}```\n## none\n| case | given |\n|---|---|\n| a | b |\n\n"
    [only] = table.read(f"{text}## mine\r\n{HEAD}| 00:00 | initial state | | | |\n")
    assert (only.name, only.timing.every) == ("mine", 60_000)


def test_a_manual_run_is_pushed_by_the_next_tick_and_touches_no_time(differences):
    rows = (
        "00:00 initial state | 01:00 | -", "00:10 run now | 01:00 | -", "00:20 run now", "00:30 tick enqueues M1 | 01:00",
        "00:31 M1 begins | 01:00 | - | -", "00:35 run now", "00:40 M1 ends | 01:00 | -", "00:50 run now",
        "01:00 tick enqueues M2, A1 | 02:00", "01:01 M2 begins", "01:02 M2 ends", "01:03 A1 begins | 02:00 | 01:03 | -",
    )  # fmt: skip
    assert differences(*rows) == []


@pytest.mark.slow
def test_a_job_that_waits_too_long_is_given_up_by_a_tick_or_by_a_start(differences):
    told = ["A1", "A2", *["nothing"] * 10]  # two jobs of the task wait
    rows = [
        "00:00 initial state | 00:30",
        *(f"{minute:02}:30 tick enqueues {what}" for minute, what in enumerate(told)),
    ]
    by_a_start = ["10:31 A1 is dropped: expired", "10:32 A2 begins"]
    assert differences(*rows[:-1], *by_a_start, settings="tick every 60 s") == []
    given_up, begins = "11:30 A1 is dropped: expired | 12:30 | - | -", "11:31 A2 begins"
    assert differences(*rows, given_up, begins, settings="tick every 60 s") == []
    without_row = [
        (None, [sentence("replay.differs", column="event", expected="nothing", found="A1 is dropped: expired")])
    ]
    assert differences(*rows, begins, settings="tick every 60 s") == without_row


def test_a_table_whose_first_run_lies_far_ahead_keeps_it(differences):
    rows = ("00:00 initial state | 05:00 | -", "04:30 tick enqueues nothing | 05:00", "05:00 tick enqueues A1 | 06:00")
    assert differences(*rows) == []


# ------------------------------------------------------------------------------------------------------ bad files

START = "| 00:00 | initial state | | | |\n"
MINE = f"## mine\n{HEAD}"
BAD = [
    ("", sentence("replay.no_tables_write", remedy="##")),
    ("Only prose.\n", sentence("replay.no_tables")),
    (f"{HEAD}{START}", sentence("replay.no_heading", line=1, remedy="##")),
    (f"{MINE}{START}\n## mine\n{HEAD}{START}", sentence("replay.second_heading", line=6, heading="'mine'", first=1)),
    (f"{MINE}{START}\n{HEAD}{START}", sentence("replay.second_table", line=6, remedy="##")),
    (f"```\n{MINE}", sentence("replay.endless_block", line=1)),
    (f"interval 60 parsecs\n{MINE}{START}", sentence("replay.no_duration", line=1, field="interval", value="'60parsecs'", remedy=90)),
    (f"interval 0 s\n{MINE}{START}", sentence("replay.under_the_limit", line="line 1", field="interval", value="'0s'", limit="1s")),
    (f"interval 1 m, intervall 2 m\n{MINE}{START}", sentence("replay.no_setting_write", line="line 1", value="'intervall 2 m'", remedy="interval 60 s")),
    (f"interval 1 m\n\ninterval 2 m\n{MINE}{START}", sentence("replay.setting_given_twice", line=3, setting="'interval'", first=1)),
    (f"box 10 s\n\ntolerance 55 s\n{MINE}{START}", sentence("replay.over_the_limit", line=3, field="tolerance", value="'55s'", limit="49s")),
    (f"tolerance 35 s\n{MINE}{START}", sentence("replay.over_the_limit", line=1, field="tolerance", value="'35s'", limit="29s")),
    (f"intervall 2 m\n{MINE}{START}", sentence("replay.no_setting_write", line="line 1", value="'intervall 2 m'", remedy="interval 60 s")),
    (f"Tolerence: 5 s, box 10 s.\n{MINE}{START}", sentence("replay.no_setting_write", line="line 1", value="'Tolerence: 5 s'", remedy="interval 60 s")),
    (f"tolerence 5\n{MINE}{START}", sentence("replay.no_setting_write", line="line 1", value="'tolerence 5'", remedy="interval 60 s")),
    (f"- bocks 5 s\n{MINE}{START}", sentence("replay.no_setting_write", line="line 1", value="'bocks 5 s'", remedy="interval 60 s")),
    (f"tick each 30 s\n{MINE}{START}", sentence("replay.no_setting", line=1, value="'tick each 30 s'")),
    (f"{MINE}{START}\nbox 1 s\n", sentence("replay.settings_below", line=6)),
    ("## a\n| time | event |\n|---|---|\n| 00:00 | initial state |\n", sentence("replay.wrong_head", line=2)),
    ("## a\n| at | event | nextrun |\n|---|---|---|\n", sentence("replay.no_column", line=2, column="'nextrun'")),
    ("## a\n| at | event |\n| 00:00 | initial state |\n", sentence("replay.no_rule", line=2)),
    (MINE, sentence("replay.no_rows", line=2)),
    (f"{MINE}{START}| 00:30 | tick enqueues A1 |\n", sentence("replay.cells", line="line 5", number=2, needed="write 5")),
    (f"{MINE}{START}| 0:3 | tick enqueues A1 | | | |\n", sentence("replay.no_time_write", line=5, time="'0:3'", remedy="MM:SS")),
    (f"{MINE}{START}| 00:30 | tick enqueues A1 | soon | | |\n", sentence("replay.no_time", line=5, time="'soon'")),
    (f"{MINE}{START}| 01:60:00 | run now | | | |\n", sentence("replay.no_time", line=5, time="'01:60:00'")),
    (f"{MINE}{START}| 00:30 | A1 beginnt | | | |\n", sentence("replay.no_event_write", line=5, event="'A1 beginnt'", remedy="initial state, tick")),
    (f"{MINE}{START}| 00:30 | B1 begins | | | |\n", sentence("replay.no_event", line=5, event="'B1 begins'")),
    (f"{MINE}{START}| 00:30 | A1 is dropped: early | | | |\n", sentence("replay.no_reason", line=5, reason="'early'", remedy="gone")),
    (f"{MINE}| 00:30 | run now | | | |\n", sentence("replay.wrong_first_row", line=4, event="'run now'")),
    (f"{MINE}{START}{START}", sentence("replay.first_row_alone", line=5, event="'initial state'")),
    (f"{MINE}{START}| 00:30 | run now | | | |\n| 00:29 | run now | | | |\n", sentence("replay.goes_back", line=6, time="'00:29'", last=5)),
    (f"{MINE}| 00:00 | initial state | - | | |\n", sentence("replay.no_next_run", line=4, time="'-'")),
    (f"{MINE}| 00:00 | initial state | | 00:01 | |\n", sentence("replay.last_run_ahead", line=4, time="'00:01'")),
    (f"{MINE}{START}| 00:30 | tick enqueues A1 | | | |\n| 01:01 | tick enqueues A1 | | | |\n", sentence("replay.no_ticks_time", line=6, time="'01:01'")),
    (f"{MINE}{START}| 20:00:00 | run now | | | |\n", sentence("replay.many_ticks", line="line 2", number=2400, limit=2000)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD, ids=[str(said)[:40] for _, said in BAD])
def test_a_bad_file_is_refused_in_one_sentence_that_names_the_line(text, said, file, monkeypatch):
    monkeypatch.setattr(scratch, "scratch", None)  # no server is asked, so nothing can be left behind
    path = file(text)
    out, err = replay(path, code=2)
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"error: {path}: ") and said.begins(err.removeprefix(f"error: {path}: "))


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "latin.md").write_bytes(b"## a\n\n\xe4")
    (tmp_path / "long.md").write_bytes(b" " * 1_000_001)
    assert sentence("replay.not_utf8", file="latin.md", line=3).within(replay(tmp_path / "latin.md", code=2)[1])
    assert sentence("replay.large_file", limit=1000000).within(replay(tmp_path / "long.md", code=2)[1])
    assert sentence("replay.no_file").within(replay(tmp_path / "none.md", code=2)[1])
    assert sentence("replay.a_directory").within(replay(tmp_path, code=2)[1])


# ------------------------------------------------------------------------------------------------------ the command


def test_the_shipped_tables_are_listed_without_a_server(monkeypatch, file):
    monkeypatch.setattr(scratch, "scratch", None)
    out, _ = replay("--list")
    assert out.count("seed-003") == 4 and sentence(
        "replay.timing", interval="1m", tolerance="5s", box="30s", tick="30s"
    ).within(out)
    assert replay("seed-003", "--list")[0] == out
    assert "mine" in replay(file(timing_table(*BEGUN)), "--list")[0]
    assert "--list plays nothing" in replay("--list", "--svg", "x.svg", code=2)[1]


@pytest.mark.slow
def test_the_command_plays_the_shipped_tables_and_leaves_the_database_as_it_was(environ, db):
    db.execute("CREATE TABLE ticker.mine AS SELECT 1 AS kept")
    before = db.execute(SCHEMAS).fetchone()
    out, err = replay()
    assert sentence("replay.all_agree", tables=4, lines=33).ends(out) and err == ""
    assert "42    02:03  A2 is dropped          A2 is dropped: too_early, 27s early  ok" in out
    assert chart.LEGEND in out
    assert db.execute(SCHEMAS).fetchone() == before
    assert db.execute("SELECT (SELECT count(*) FROM ticker.tasks), kept FROM ticker.mine").fetchall() == [(0, 1)]
    assert "TICKER_SCHEMA" not in os.environ


@pytest.mark.slow
def test_a_difference_is_exit_code_1_and_the_last_sentence_names_the_first(environ, db, file, tmp_path):
    before = db.execute(SCHEMAS).fetchone()
    picture = tmp_path / "chart.svg"
    out, err = replay(file(timing_table(*BEGUN[:2], "00:35 A1 is dropped")), "--svg", picture, code=1)
    assert sentence("replay.differs_event", expected="A1 is dropped", found="A1 begins").within(out)
    assert err == sentence("replay.error_differs", number="1 of 3", line=8, expected="A1 is dropped", found="A1 begins")
    assert 'data-line="8" class="event differs"' in picture.read_text()
    assert db.execute(SCHEMAS).fetchone() == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_replay_leaves_nothing_behind(number, environ, db, monkeypatch):
    before = db.execute(SCHEMAS).fetchone()

    def interrupted(*_):
        os.kill(os.getpid(), number)
        threading.Event().wait(30)  # the handler runs in this thread, and may be a little late

    monkeypatch.setattr(play, "play", interrupted)
    replay("seed-003", code=130)
    assert db.execute(SCHEMAS).fetchone() == before


@pytest.mark.slow
def test_an_error_in_the_midst_leaves_nothing_behind(environ, db, monkeypatch):
    before = db.execute(SCHEMAS).fetchone()
    monkeypatch.setattr(play, "play", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in replay(code=1)[1]
    assert db.execute(SCHEMAS).fetchone() == before


def test_a_server_that_is_not_there_is_a_matter_of_configuration(environ, monkeypatch, tmp_path):
    monkeypatch.setenv("DATABASE_URL", f"postgresql://nobody@/none?host={tmp_path}")
    assert sentence("errors.database_unavailable", setting="DATABASE_URL").within(replay(code=78)[1])
    monkeypatch.setenv("DATABASE_URL", "mysql://x")
    assert sentence("replay.no_postgresql_url").within(replay(code=78)[1])


@pytest.mark.slow
def test_without_a_database_url_an_embedded_server_is_used(environ, monkeypatch, file):
    given = environ["DATABASE_URL"]
    started = []

    @contextmanager
    def postgres(_environ):
        started.append(given)
        yield SimpleNamespace(url=given)

    monkeypatch.setattr(embedded, "postgres", postgres)
    monkeypatch.setenv("DATABASE_URL", "")
    assert sentence("replay.all_agree_in_one", tables=1, lines=3).ends(replay(file(timing_table(*BEGUN)))[0])
    assert started == [given]


# ------------------------------------------------------------------------------------------------------- the charts


@pytest.mark.slow
def test_the_picture_is_xml_with_a_mark_for_each_event(seeds):
    root = ElementTree.fromstring(chart.svg(seeds))
    marks = [mark for mark in root.iter(f"{SVG}g") if mark.get("class") == "event"]
    lines = [(str(line.number), line.actual) for one in seeds for line in one.lines]
    told = [(mark.get("data-line"), mark.find(f"{SVG}title").text.split(": ", 1)[1]) for mark in marks]
    assert sorted(told) == sorted(lines)
    for kind, count in {"tick": 6, "push": 10, "wait": 10, "run": 3, "forced": 1, "open": 4, "drop": 1}.items():
        shapes = [shape for shape in root.iter() if shape.get("class") == kind]
        assert len(shapes) == count + bool(chart.PAINTS[kind].legend), kind  # each kind is also in the legend


def test_the_picture_marks_what_differs_and_stays_xml_whatever_a_heading_has(there):
    text = timing_table(*BEGUN, "01:10 run now", "01:30 tick enqueues nothing").replace(
        "## mine", '## <&"\x08\x1b[31m]]>'
    )
    played = play.play(table.read(text)[0], there)
    root = ElementTree.fromstring(chart.svg([played]))
    marks = [mark.get("data-line") for mark in root.iter(f"{SVG}g") if mark.get("class") == "event differs"]
    assert marks == ["10", None, None]  # the last one is in the legend
    titles = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "tl-heading"]
    assert titles == [f'<&"\\x08\\x1b[31m]]>: {played.table.timing}']
    told = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "tl-wrong"]
    assert sentence(
        "replay.chart_differs", line=10, at="01:30", expected="tick enqueues nothing", found="tick enqueues M1, A2"
    ).within(told)


def test_a_picture_that_cannot_be_written_is_refused(environ, tmp_path):
    assert sentence("errors.no_folder_that_exists").within(replay("--svg", tmp_path / "none" / "x.svg", code=2)[1])
    assert sentence("errors.is_a_directory").within(replay("--svg", tmp_path, code=2)[1])


@pytest.mark.slow
def test_the_chart_shows_ticks_waiting_jobs_and_what_became_of_them(seeds):
    lines = [f"{name:8}{''.join(text for text, _ in cells)}" for name, cells in chart.text(seeds[2])]
    assert [line.rstrip() for line in lines] == [
        "        00:00     00:30     01:00     01:30     02:00     02:30",
        "ticks             ^A1       '         ^A2       '         ^A3",
        "queue             A1-------------------                   A3------",
        "                                      A2---------",
        "worker                                 A1        xA2 too_early    A3>",
    ]


def test_a_table_of_one_instant_and_one_of_a_year_can_be_drawn(there):
    for row in ("00:00 initial state", "8784:00:00 run now"):
        text = timing_table("00:00 initial state", *([row] if "run" in row else []), settings="ticks as written")
        played = play.play(table.read(text)[0], there)
        ElementTree.fromstring(chart.svg([played]))
        widths = [sum(len(text) for text, _ in cells) for _, cells in chart.text(played)]
        assert max(widths) <= chart.CELLS_AT_MOST + 10


def test_steps_are_round_and_few():
    for seconds in (1, 59, 60, 151, 3600, 86_400, 31_622_400):
        total = timedelta(seconds=seconds)
        assert total / 10 <= read_svg.step(total, 10) <= total


# ------------------------------------------------------------------------------------------------------- hours


@pytest.mark.slow
def test_a_table_may_have_hours(differences):
    rows = (
        "08:00 initial state | 08:30", "08:30 tick enqueues A1 | 09:30", "08:31 A1 begins", "08:32 A1 ends",
        "09:30 tick enqueues A2 | 20:00", "09:31 A2 begins", "09:32 A2 ends", "10:00 tick enqueues nothing",
        "20:00 tick enqueues nothing",
    )  # fmt: skip
    [(line, found)] = differences(*rows, settings="tick every 30 s, during 0:00-0:10,0:20-0:30")
    assert line == 10 and re.fullmatch("next_run: 20:00 expected, 20:[0-5][0-9].* found", found[0])


@pytest.mark.parametrize("during", ["9", "9-17 xyz", "0:00-0:05"])
def test_a_table_with_bad_hours_is_refused_with_its_line(during):
    with pytest.raises(BadInput) as error:
        table.read(timing_table("00:00 initial state", settings=f"tick every 30 s, during {during}"))
    assert error.value.field == "line 1: during"


# ------------------------------------------------------------------------------------------------------- the queue


def test_the_queue_keeps_the_promises_of_the_real_one():
    queue = MemoryQueue()
    one, two = (JobSpec(name, "polling", (1, 2), 60, 60, "") for name in ("t1-1", "t1-2"))
    assert queue.push([one, two, one]) == [Receipt(stored=True), Receipt(stored=True), Receipt(held=True)]
    assert queue.states(["t1-2", "t1-3"]) == [JobState.WAITING, JobState.MISSING]
    queue.forget(["t1-1", "t1-3"])
    assert (queue.take(), queue.take()) == (two, None)
    assert queue.pushed == [one, two]


# -------------------------------------------------------------------------------------------------- the documentation


@pytest.mark.slow
def test_the_example_of_the_documentation_prints_what_stands_there(environ, file):
    text = (ROOT / "docs/guides/replay.md").read_text(encoding="utf-8")
    example = re.search(r"```markdown\n(.*?)```", text, flags=re.DOTALL)[1]
    printed = re.search(r"```console\n\$ ticker replay mine.md\n(.*?)```", text, flags=re.DOTALL)[1]
    out, err = replay(file(example), code=1)
    assert out + err == printed


def test_every_event_of_the_documentation_can_be_read():
    text = (ROOT / "docs/guides/replay.md").read_text(encoding="utf-8")
    for named in re.findall(r"^\| `([^`]+)` \|", text[text.index("| event |") :], flags=re.MULTILINE):
        table.read(f"{MINE}{START}| 00:30 | {named} | | | |\n" if named != "initial state" else f"{MINE}{START}")


def test_bad_input_is_a_value_error():
    with pytest.raises(BadInput):
        table.read("")
