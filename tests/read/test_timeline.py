"""One task over a stretch of time: what is drawn of it, in which track and row, and the picture of it as SVG."""

import re
from datetime import timedelta
from itertools import pairwise
from uuid import uuid4
from xml.etree import ElementTree

import pytest

import ticker
from tests.factories import MINUTE, NINE, SECOND, a_drop, a_run, an_event, ticked
from tests.harness import command
from tests.sentences import sentence
from ticker import clock
from ticker.cli.records import timeline as timeline_command
from ticker.errors import BadInput, UnknownTask
from ticker.read import svg, timeline

pytestmark = pytest.mark.slow

HOUR = timedelta(hours=1)
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(autouse=True)
def at_nine(environ):
    """Whatever asks for the time is told nine o'clock."""
    with clock.use(lambda: NINE):
        yield


@pytest.fixture
def task(db):
    """A task of every minute, of two hours ago, that is due next in 12 seconds."""
    made = ticker.register(db, "mail.fetch", owner="mail_channels:5", every=60, tolerance=5)
    db.execute("UPDATE ticker.tasks SET created_at = %s, next_run = %s", [NINE - 2 * HOUR, NINE + 12 * SECOND])
    return made


@pytest.fixture
def eventful(db, task):
    """Of five minutes: a success that had waited, a failure, a drop, a retry to come, a run at work, one that waits."""
    a_run(db, task, occurrence=NINE - 5 * MINUTE, started_at=NINE - 4.5 * MINUTE, ended_at=NINE - 4 * MINUTE)
    failed = a_run(db, task, occurrence=NINE - 3 * MINUTE, outcome="failed", reason="OSError: no route", retried=True)
    a_drop(db, task, "too_early", occurrence=NINE - 2 * MINUTE, checked_at=NINE - 100 * SECOND,
           checked_last_run=NINE - 140 * SECOND)  # fmt: skip
    a_run(db, task, kind="retry", parent_id=failed, attempt=2, occurrence=NINE - 3 * MINUTE, due_at=NINE + 30 * SECOND,
          state="planned", outcome=None, started_at=None, ended_at=None, checked_at=None)  # fmt: skip
    a_run(db, task, occurrence=NINE - MINUTE, state="running", outcome=None, ended_at=None, until=NINE + 10 * SECOND,
          token=str(uuid4()))  # fmt: skip
    db.execute("UPDATE ticker.tasks SET waiting = ARRAY[%s::timestamptz]", [NINE - 20 * SECOND])
    return task


def drawn(db, task, since=10 * MINUTE):
    """Each track's marks as (row, kind, begin, end), in seconds from now, in the order of their begins."""
    found = timeline.of(db, task.id, since=since)
    return {
        track: sorted(((row, mark.kind, seconds(mark.begin), seconds(mark.end)) for row, mark in placed), key=lambda m: m[2:])
        for track, placed in timeline.tracks(found).items()
    }  # fmt: skip


def seconds(instant):
    return (instant - NINE).total_seconds()


def words(db, task, kind, since=10 * MINUTE):
    placed = timeline.tracks(timeline.of(db, task.id, since=since)).values()
    return [mark.words for track in placed for _, mark in track if mark.kind == kind]


# ------------------------------------------------------------------------------------------------------- the tracks


def test_each_lane_shows_its_part_of_what_became_of_the_occurrences(db, eventful):
    assert drawn(db, eventful) == {
        "due": [(0, "due", -300, -300), (0, "due", -180, -180), (0, "due", -120, -120), (0, "due", -60, -60),
                (0, "due", -20, -20), (0, "next", 12, 12), (0, "next", 30, 30), (0, "next", 72, 72), (0, "next", 132, 132)],
        "queue": [(0, "wait", -300, -270), (0, "wait", -120, -100), (0, "wait", -20, 0)],
        "worker": [(0, "run", -270, -240), (0, "bad", -180, -179), (0, "drop", -100, -100), (0, "run", -60, 0)],
    }  # fmt: skip


def test_what_has_not_ended_goes_on(db, eventful):
    tracks = timeline.tracks(timeline.of(db, eventful.id, since=10 * MINUTE))
    goes_on = [(mark.kind, seconds(mark.begin)) for placed in tracks.values() for _, mark in placed if mark.goes_on]
    assert goes_on == [("wait", -20), ("run", -60)]


def test_a_mark_says_why(db, eventful):
    assert words(db, eventful, "bad") == [
        sentence("timeline.failed", at="08:57:00", took="1 s", box="30 s", error="OSError: no route")
    ]
    [drop] = words(db, eventful, "drop")
    assert sentence(
        "timeline.too_early", at="08:58:20", since="40 s", last="08:57:40", early="15 s", every="60 s"
    ).begins(drop)
    assert words(db, eventful, "wait")[0] == "waited 30 s, from 08:55:00"
    assert words(db, eventful, "next")[0] == sentence("why.due_in", due="09:00:30", span="30 s")


def test_what_overlaps_stands_in_rows_below_each_other_of_which_there_are_few(db, task):
    for number in range(9):
        a_run(db, task, kind="piece", item="1", occurrence=None, due_at=NINE - HOUR / 2, started_at=NINE - (20 - number) * MINUTE,
              ended_at=NINE - 2 * MINUTE, state="ended", parent_id=7)  # fmt: skip
    assert [row for row, *_ in drawn(db, task, HOUR)["worker"]] == [0, 1, 2, 3, 4, 5, 5, 5, 5]
    assert [kind for _, kind, *_ in drawn(db, task, HOUR)["due"] if kind == "due"] == []  # no occurrence of the task


def test_a_drop_by_the_ticker_has_waited_in_no_queue_and_a_run_that_was_lost_before_its_start_went_wrong(db, task):
    a_drop(db, task, "missed", occurrence=NINE - 5 * MINUTE, checked_at=NINE - MINUTE)
    a_run(db, task, kind="manual", occurrence=None, due_at=NINE - 3 * MINUTE, started_at=None, outcome="lost", until=None,
          pushed_at=NINE - 170 * SECOND, checked_at=None, ended_at=NINE - 30 * SECOND)  # fmt: skip
    shown = drawn(db, task)
    assert shown["queue"] == [(0, "wait", -170, -30)]
    assert shown["worker"] == [(0, "drop", -60, -60), (0, "bad", -30, -30)]


def test_only_what_reaches_into_the_stretch_is_drawn(db, eventful):
    a_run(db, eventful, occurrence=NINE - HOUR)
    assert [mark[1:] for mark in drawn(db, eventful, 150 * SECOND)["worker"]] == [
        ("drop", -100, -100), ("run", -60, 0),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------ what is ahead


def test_what_is_paused_has_no_time_ahead_and_says_so(db, task):
    ticker.pause(db, task, by="anna", reason="moving house")
    found = timeline.of(db, task.id, since=HOUR)
    assert found.next == () and sentence(
        "cli.next_paused", by="anna", remedy=re.compile("ticker resume [0-9]+"), reason="moving house"
    ).within(found.sentences)


def test_a_task_that_is_late_is_due_since_then(db, task):
    db.execute("UPDATE ticker.tasks SET next_run = %s", [NINE - MINUTE])
    assert words(db, task, "next", 4 * MINUTE) == [
        sentence("timeline.due_since", due="08:59:00", span="60 s"),
        sentence("why.due_in", due="09:01:00", span="60 s"),
    ]


def test_a_task_that_was_slowed_by_failures_is_drawn_with_its_longer_interval(db, task):
    db.execute("UPDATE ticker.tasks SET stretched_ms = 300000, stretch_ms = 600000")
    assert [seconds(at) for at in timeline.of(db, task.id, since=HOUR).next] == [12, 312, 612]


def test_a_schedule_that_a_hand_has_spoilt_still_shows_when_it_is_due(db, task):
    db.execute("UPDATE ticker.tasks SET kind = 'cron', expression = 'never', every_ms = 0")
    assert [seconds(at) for at in timeline.of(db, task.id, since=HOUR).next] == [12]


# ------------------------------------------------------------------------------------------------------- its limits


def test_of_many_runs_the_newest_are_drawn_and_the_axis_begins_with_them(db, task, monkeypatch):
    monkeypatch.setattr(timeline, "RUNS_AT_MOST", 3)
    for minutes in range(1, 9):
        a_run(db, task, occurrence=NINE - minutes * MINUTE)
    found = timeline.of(db, task.id, since=HOUR)
    assert (found.is_cut, seconds(found.begin), len(found.lines)) == (True, -180, 3)


def test_a_task_that_is_gone_is_drawn_from_its_records(db, eventful):
    db.execute("DELETE FROM ticker.tasks")
    found = timeline.of(db, eventful.id, since=10 * MINUTE)
    assert (found.task, found.name, found.owner, found.next) == (None, "mail.fetch", "mail_channels:5", ())
    assert sentence("why.task_is_gone").begins(found.sentences[0])
    assert [mark[1] for mark in drawn(db, eventful)["worker"]] == ["run", "bad", "drop", "drop", "drop"]
    lately = timeline.of(db, eventful.id, since=SECOND).lines  # the deletion reads the real clock
    assert [line.run and line.run.reason for line in lately] == ["gone", "gone"]


def test_a_task_that_never_was_and_a_stretch_that_is_none_are_refused(db, task):
    with pytest.raises(UnknownTask, check=sentence("errors.unknown_task_no_record", task=77).within):
        timeline.of(db, 77, since=HOUR)
    for since in (timedelta(0), SECOND / 2, -HOUR, timedelta(days=367)):
        with pytest.raises(
            BadInput,
            check=sentence(
                "errors.no_span_from_to", field="since", value=re.compile(r".*"), shortest="1 s", longest="366 days"
            ).within,
        ):
            timeline.of(db, task.id, since=since)


def test_another_instant_may_be_the_end_of_the_stretch(db, eventful):
    found = timeline.of(db, eventful.id, since=MINUTE, now=NINE + 10 * SECOND)
    assert (seconds(found.begin), seconds(found.end)) == (-50, 25)


# ------------------------------------------------------------------------------------------------------- the picture


def picture(db, task, since=10 * MINUTE):
    return ElementTree.fromstring(timeline.svg(timeline.of(db, task.id, since=since)))


def test_the_picture_has_each_mark_with_its_class_and_its_words(db, eventful):
    marks = [
        (group.get("class"), group[0].text) for group in picture(db, eventful).iter(f"{SVG}g")
        if group.get("class") and group[0].tag == f"{SVG}title"
    ]  # fmt: skip
    assert [kind for kind, _ in marks].count("tl-next") == 4
    assert {kind for kind, _ in marks} == {"tl-due", "tl-next", "tl-wait", "tl-run", "tl-bad", "tl-drop"}
    [failed] = [told for kind, told in marks if kind == "tl-bad"]
    assert failed.endswith("OSError: no route")


def test_the_picture_needs_no_style_that_a_strict_page_would_refuse(db, eventful):
    for element in picture(db, eventful).iter():
        assert element.tag != f"{SVG}style" and element.tag != f"{SVG}script"
        assert not [name for name in element.attrib if name == "style" or name.startswith("on") or "href" in name]


def test_texts_of_users_cannot_leave_the_picture(db, eventful):
    evil = "</title><script>alert(1)</script>\"'&"
    db.execute("UPDATE ticker.tasks SET name = %s", [evil])
    db.execute("UPDATE ticker.runs SET reason = %s WHERE outcome = 'failed'", [f"{evil}\x1b[31m"])
    root = picture(db, eventful)
    assert root[0].text == sentence(
        "timeline.head", task=evil, owner="mail_channels:5", every="1m", begin="08:50:00", end="09:02:30"
    )
    assert not list(root.iter(f"{SVG}script"))
    assert any(title.text.endswith(f"{evil}\\x1b[31m") for title in root.iter(f"{SVG}title"))


def test_all_of_the_picture_lies_inside_of_it(db, eventful):
    a_run(db, eventful, occurrence=NINE - HOUR, started_at=NINE - HOUR, ended_at=NINE - MINUTE)
    root = picture(db, eventful, 2 * MINUTE)
    height = int(root.get("height"))
    for path in root.iter(f"{SVG}path"):
        x, y = map(float, re.match(r"M([\d.]+) ([\d.]+)", path.get("d")).groups())
        assert svg.LEFT - 5 <= x <= svg.WIDTH and 0 <= y <= height
    for shape in root.iter(f"{SVG}rect"):
        x, y, width = (float(shape.get(name)) for name in ("x", "y", "width"))
        assert svg.LEFT <= x <= x + width <= svg.WIDTH and 0 <= y <= height
    assert len(root.findall(f"{SVG}text")) > 10  # tracks, labels, the legend


@pytest.mark.parametrize("since", [SECOND, MINUTE, HOUR, timedelta(days=1), timedelta(days=30), timedelta(days=366)])
def test_every_stretch_has_a_few_labels_at_round_times(since, db, task):
    labels = [text.text for text in picture(db, task, since).iter(f"{SVG}text") if text.get("text-anchor") == "middle"]
    assert 3 <= len(labels) <= 11 and all(one != other for one, other in pairwise(labels))


@pytest.mark.parametrize("paper", [0.0, 1.0])
def test_every_colour_is_seen_on_black_and_on_white(paper):
    """A contrast of at least 3:1, as WCAG asks of what is no text."""
    for colour in re.findall(r"#([0-9a-f]{6})", " ".join(paint.attributes for paint in timeline.PAINTS.values())):
        parts = [int(colour[place : place + 2], 16) / 255 for place in (0, 2, 4)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
        assert (max(light, paper) + 0.05) / (min(light, paper) + 0.05) >= 3, colour


def test_the_next_sentence_is_in_it_and_nothing_is_written(db, eventful):
    ticked(db, 4 * SECOND)
    an_event(db, eventful, "failed", NINE - 3 * MINUTE)
    before = db.execute("SELECT sum(xmin::text::bigint) FROM ticker.tasks").fetchone()
    found = timeline.of(db, eventful.id, since=HOUR)
    assert sentence("cli.next_a_ticker_ticked").begins(found.sentences[0])
    assert db.execute("SELECT sum(xmin::text::bigint) FROM ticker.tasks").fetchone() == before


# ------------------------------------------------------------------------------------------------------ the command


@pytest.fixture(autouse=True)
def columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "83")  # 75 cells of the chart, each of 10 s


def lines(*words):
    return [line.rstrip() for line in command("timeline", *words)[0].splitlines()]


def test_the_chart_has_lanes_below_an_axis_then_what_went_wrong_and_what_comes_next(db, eventful):
    head, *chart, legend, nothing, names, failed, dropped, first, _, _, _, last = lines("1", "--since", "10m")
    assert head == sentence(
        "timeline.head", task="mail.fetch", owner="mail_channels:5", every="1m", begin="08:50:00", end="09:02:30"
    )
    assert chart == [
        "              08:51             08:54             08:57             09:00",
        "due                                   '           '     '     '   ' |o o   o     o",
        "queue                                 ----              ---       ---",
        "worker                                   ====     !       x   ======>",
    ]
    assert (legend, nothing, names.split()) == (timeline_command.LEGEND, "", ["when", "(UTC)", "what", "why", "run"])
    assert "failed" in failed and "OSError: no route" in failed and "too_early: 40 s after" in dropped
    assert first == sentence("cli.next_no_ticker", remedy="ticker run")
    assert last == sentence("cli.next_due_in", due="09:00:12", span="12 s")


def test_what_is_shorter_than_a_cell_is_still_seen_and_what_is_worse_hides_what_is_better(db, task):
    for seconds_ago in (63, 62, 61):
        due = NINE - seconds_ago * SECOND
        a_run(db, task, occurrence=due, started_at=due + SECOND / 2, ended_at=due + 0.8 * SECOND,
              outcome="killed" if seconds_ago == 62 else "succeeded")  # fmt: skip
    queue, worker = lines("1", "--since", "1h")[3:5]
    assert (queue.split(), worker.split()) == (["queue", ".", "|"], ["worker", "!", "|"])


@pytest.mark.parametrize(("columns", "width"), [("83", 83), ("1", 40), ("9999", 200)])
def test_the_chart_is_as_wide_as_the_terminal_within_reason(columns, width, db, eventful, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    for since in ("1s", "10m", "1d", "366d"):
        chart = lines("1", "--since", since)[1:6]
        assert max(map(len, chart[: chart.index(timeline_command.LEGEND)])) <= width


def test_a_chart_of_too_many_runs_says_so(db, task, monkeypatch):
    monkeypatch.setattr(timeline, "RUNS_AT_MOST", 2)
    for minutes in range(1, 5):
        a_run(db, task, occurrence=NINE - minutes * MINUTE)
    assert sentence("cli.timeline_of_the_last_runs", number=2, remedy="--since").within(lines("1"))


def test_the_picture_goes_into_a_file_or_to_standard_output(db, eventful, tmp_path):
    assert command("timeline", "1", "--svg", str(tmp_path / "one.svg"))[0] == ""
    printed = command("timeline", "mail.fetch", "--owner", "mail_channels:5", "--svg", "-")[0]
    assert (tmp_path / "one.svg").read_text() == printed
    assert ElementTree.fromstring(printed).tag == f"{SVG}svg"


def test_a_picture_that_cannot_be_written_and_a_task_that_is_not_there_are_refused(db, task, tmp_path):
    for words, code, said in [
        (["1", "--svg", str(tmp_path / "none" / "x.svg")], 2, sentence("errors.no_folder_that_exists")),
        (["1", "--svg", str(tmp_path)], 2, sentence("errors.is_a_directory")),
        (["1", "--since", "0"], 2, sentence("errors.about", field="--since")),
        (["1", "--since", "400d"], 2, sentence("errors.about", field="--since")),
        (["mail.fetch"], 1, sentence("errors.remedy_owner", remedy="--owner type:id")),
        (["77"], 1, sentence("errors.unknown_task_no_record", task=77)),
    ]:
        out, err = command("timeline", *words, code=code)
        assert out == "" and said.within(err), words


def test_a_task_that_is_gone_is_drawn_by_its_id(db, eventful):
    db.execute("DELETE FROM ticker.tasks")
    shown = lines("1", "--since", "10m")
    assert shown[0].startswith("mail.fetch of mail_channels:5, from 08:50:00")
    assert sentence("why.task_is_gone").begins(shown[-1])


def test_the_chart_cannot_drive_the_terminal(db, eventful):
    db.execute("UPDATE ticker.runs SET reason = E'\\x1b[2J' || reason WHERE outcome = 'failed'")
    out = command("timeline", "1")[0]
    assert "\\x1b[2J" in out and not [c for c in out if not c.isprintable() and c != "\n"]
