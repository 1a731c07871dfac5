"""One task over a stretch of time: what is drawn of it, in which track and row, and the picture of it as SVG."""

import re
from datetime import timedelta
from itertools import pairwise
from uuid import uuid4
from xml.etree import ElementTree

import pytest

import ticker
from tests.factories import MINUTE, NINE, SECOND, a_drop, a_run, an_event
from tests.sentences import sentence
from ticker import clock
from ticker.read import timeline

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
    tracks = timeline.tracks(ticker.why(db, task.id, limit=100), NINE - since, NINE + since / 4)
    return {
        track: [(row, mark.kind, seconds(mark.begin), seconds(mark.end)) for row, mark in timeline.rows(marks)]
        for track, marks in tracks.items()
    }


def seconds(instant):
    return (instant - NINE).total_seconds()


def words(db, task, kind, since=10 * MINUTE):
    tracks = timeline.tracks(ticker.why(db, task.id), NINE - since, NINE + since / 4)
    return [mark.words for marks in tracks.values() for mark in marks if mark.kind == kind]


# ------------------------------------------------------------------------------------------------------- the tracks


def test_each_lane_shows_its_part_of_what_became_of_the_occurrences(db, eventful):
    assert drawn(db, eventful) == {
        "due": [(0, "due", -300, -300), (0, "due", -180, -180), (0, "due", -120, -120), (0, "due", -60, -60),
                (0, "due", -20, -20), (0, "next", 12, 12), (0, "next", 30, 30), (0, "next", 72, 72), (0, "next", 132, 132)],
        "queue": [(0, "wait", -300, -270), (0, "wait", -120, -100), (0, "wait", -20, 0)],
        "worker": [(0, "run", -270, -240), (0, "bad", -180, -179), (0, "drop", -100, -100), (0, "run", -60, 0)],
    }  # fmt: skip


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
        a_run(db, task, kind="manual", occurrence=None, due_at=NINE - HOUR / 2,
              started_at=NINE - (20 - number) * MINUTE, ended_at=NINE - 2 * MINUTE, state="ended")  # fmt: skip
    assert [row for row, *_ in drawn(db, task, HOUR)["worker"]] == [0, 1, 2, 3, 4, 5, 5, 5, 5]


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


def ahead(db, task, since):
    return [begin for _, kind, begin, _ in drawn(db, task, since)["due"] if kind == "next"]


def test_what_is_paused_has_no_time_ahead(db, task):
    ticker.pause(db, task, by="anna", reason="moving house")
    assert ahead(db, task, HOUR) == []


def test_a_task_that_is_late_is_due_since_then(db, task):
    db.execute("UPDATE ticker.tasks SET next_run = %s", [NINE - MINUTE])
    assert words(db, task, "next", 4 * MINUTE) == [
        sentence("timeline.due_since", due="08:59:00", span="60 s"),
        sentence("why.due_in", due="09:01:00", span="60 s"),
    ]


def test_a_task_that_was_slowed_by_failures_is_drawn_with_its_longer_interval(db, task):
    db.execute("UPDATE ticker.tasks SET stretched_ms = 300000, stretch_ms = 600000")
    assert ahead(db, task, HOUR) == [12, 312, 612]


def test_a_schedule_that_a_hand_has_spoilt_still_shows_when_it_is_due(db, task):
    db.execute("UPDATE ticker.tasks SET kind = 'cron', expression = 'never', every_ms = 0")
    assert ahead(db, task, HOUR) == [12]


# ------------------------------------------------------------------------------------------------------- the picture


def picture(db, task, since=10 * MINUTE, limit=20):
    return ElementTree.fromstring(timeline.svg(ticker.why(db, task.id, limit=limit), since, limit))


def test_the_picture_has_each_mark_with_its_class_and_its_words(db, eventful):
    paths = [path for path in picture(db, eventful).iter(f"{SVG}path") if len(path)]
    marks = [(path.get("class"), path[0].text) for path in paths if path.get("class") != "tl-axis"]
    assert [kind for kind, _ in marks].count("tl-next") == 4
    assert {kind for kind, _ in marks} == {"tl-due", "tl-next", "tl-wait", "tl-run", "tl-bad", "tl-drop"}
    [failed] = [told for kind, told in marks if kind == "tl-bad"]
    assert failed.endswith("OSError: no route")


def test_of_many_occurrences_the_newest_are_drawn_and_the_axis_begins_with_them(db, task):
    for minutes in range(8, 0, -1):
        a_run(db, task, occurrence=NINE - minutes * MINUTE)
    head = {"task": "mail.fetch", "owner": "mail_channels:5", "every": "1m"}
    assert picture(db, task, HOUR)[0].text == sentence("timeline.head", begin="08:00:00", end="09:15:00", **head)
    assert picture(db, task, HOUR, 4)[0].text == sentence("timeline.head", begin="08:56:00", end="09:01:00", **head)


def test_what_has_not_ended_has_a_sign_and_the_line_of_now_its_time(db, eventful):
    root = picture(db, eventful)
    assert [text.text for text in root.iter(f"{SVG}text")].count(">") == 2  # the occurrence that waits, the run at work
    assert "now: 09:00:00 UTC" in [title.text for title in root.iter(f"{SVG}title")]


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
        x, y, width = re.match(r"M([\d.]+) ([\d.]+)(?:m0 \dh([\d.]+))?", path.get("d")).groups(default="0")
        right = float(x) + float(width)
        assert timeline.LEFT <= float(x) <= right <= timeline.WIDTH and 0 <= float(y) <= height
    assert len(root.findall(f"{SVG}text")) > 10  # tracks, labels, the legend


@pytest.mark.parametrize(
    "since", [12 * SECOND, MINUTE, HOUR, timedelta(days=1), timedelta(days=30), timedelta(days=366)]
)
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


def test_nothing_is_written(db, eventful):
    an_event(db, eventful, "failed", NINE - 3 * MINUTE)
    before = db.execute("SELECT sum(xmin::text::bigint) FROM ticker.tasks").fetchone()
    picture(db, eventful, HOUR)
    assert db.execute("SELECT sum(xmin::text::bigint) FROM ticker.tasks").fetchone() == before
