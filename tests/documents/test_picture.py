"""The animated picture of the README: it parses, needs nothing from elsewhere, and shows what the demo prints today."""

import re
import xml.etree.ElementTree as ET

import pytest

from tests.demo.narration import NARRATION
from tests.documents import picture
from tests.documents.picture import COLUMNS, COMMAND, ROWS, Camera, Frame, Screen, cut, drawn, fold, shown
from tests.sentences import sentence
from ticker.demo import main
from ticker.demo.evidence import LEGEND, PROMISES

SVG = "{http://www.w3.org/2000/svg}"
FILM, STILL = picture.FOLDER / "demo.svg", picture.FOLDER / "demo-still.svg"
TIME, SPAN = re.compile(r"[\d:.]{12}"), re.compile(r"[\d.]+ s")
DROP = sentence(
    "why.line_too_early", at=TIME, since=SPAN, last=TIME, early=SPAN, every=SPAN, tolerance=SPAN, earliest=TIME
)
ANSWERS = (
    DROP,
    sentence("why.line_succeeded", at=TIME, late=SPAN, due=TIME, took=SPAN, box=SPAN),
    sentence("why.line_waiting", at=TIME, late=SPAN),
)
ATTEMPT = sentence("why.took", took=SPAN, box=SPAN)
UNPUSHED = sentence("why.enough_jobs", count=re.compile(r"\d+"), first=TIME, last=TIME, most=2)
MAILBOXES = ("support", "sales", "shop", "archive", "legacy")


def frames_of(text: str) -> list[list[str]]:
    """Returns the lines of each frame, unfolded."""
    return [
        ["".join(line.itertext()) for line in frame.iter(f"{SVG}text")]
        for frame in ET.fromstring(text).iterfind(f".//{SVG}g[@class='film']/{SVG}g")
    ]


@pytest.fixture(scope="module")
def frames() -> list[list[str]]:
    return frames_of(FILM.read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", [FILM, STILL], ids=["film", "still"])
def test_it_is_small_and_needs_no_script_no_font_and_no_host(file):
    text = file.read_text(encoding="utf-8")
    assert len(text.encode()) <= 150_000
    assert {element.tag.removeprefix(SVG) for element in ET.fromstring(text).iter()} <= {
        "svg", "title", "style", "rect", "path", "circle", "g", "text", "tspan",
    }  # fmt: skip
    assert re.findall(r"[a-z]+://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]  # the name of the format
    assert not re.search(r"href|url\(|@import|@font-face|\bon[a-z]+=", text)


def test_it_plays_in_less_than_half_a_minute_and_stands_still_for_those_who_want_that(frames):
    text = FILM.read_text(encoding="utf-8")
    [seconds] = re.findall(r"animation:film ([\d.]+)s step-end infinite", text)
    assert 20 <= float(seconds) <= 30
    moves = re.findall(r"[\d.]+%{transform:translateX\((-?\d+)px\)}", text)
    assert [int(move) for move in moves] == [-number * picture.WIDTH for number in range(len(frames))]
    [still] = re.findall(r"reduce\){\.film{animation:none;transform:translateX\(-(\d+)px\)}", text)
    assert frames_of(STILL.read_text(encoding="utf-8")) == [frames[int(still) // picture.WIDTH]]


def test_it_begins_with_the_command_and_what_the_demo_announces(frames):
    assert frames[0] == [COMMAND]
    assert frames[1] == [COMMAND, main.ABOUT.format(promises=len(PROMISES))]


def test_its_charts_have_a_track_for_each_mailbox_and_the_kill_of_a_worker(frames):
    charts = [frame for frame in frames if {COMMAND, LEGEND} <= {*frame}]  # nothing has scrolled away
    assert len(charts) > 15
    for lines in charts:
        above = lines[: lines.index(LEGEND)]
        tracks = [re.fullmatch(r"(\S+) +([-.=q!x]+)", line) for line in above[-len(MAILBOXES) :]]
        assert tuple(track[1] for track in tracks if track) == MAILBOXES
        assert len({len(track[2]) for track in tracks if track}) == 1
    whole = "".join(charts[-1])
    assert all(sign in whole for sign in ("=q", "=!", "x"))


def test_its_sentences_are_those_of_the_demo(frames):
    narration = [line for lines in frames for line in lines if re.match(r"\d\d:\d\d  ", line)]
    assert all(any(one == line for one in NARRATION) for line in narration)
    assert all(one.within(narration) for one in NARRATION)


def test_it_answers_why_with_lines_of_today_and_a_drop_that_adds_up():
    [still] = frames_of(STILL.read_text(encoding="utf-8"))
    [begin] = [i for i, line in enumerate(still) if re.fullmatch(r"\$ ticker why \d+", line)]
    answer = still[begin + 1 :]
    assert all(
        any(one == line for one in ANSWERS) or any(part.within(line) for part in (ATTEMPT, UNPUSHED)) for line in answer
    )
    drops = [line for line in answer if line == DROP]
    assert drops
    for line in drops:
        after, early, interval, tolerance = map(float, re.findall(r"([\d.]+) s ", line))
        assert after + early == pytest.approx(interval - tolerance, abs=0.01)


def test_it_ends_with_every_promise(frames):
    verdicts = [line.partition(":")[0] for line in frames[-1] if line.startswith("ok ")]
    assert verdicts == [f"{'ok':10}  {claim}" for claim in PROMISES]
    assert frames[-1][-1] == sentence("demo.all_held", held=len(PROMISES), promises=len(PROMISES))


# ------------------------------------------------------------------------------------------------- how it is made


def test_a_camera_sees_what_is_printed_and_a_projector_replaces_its_chart():
    from rich.console import Group
    from rich.text import Text

    camera = Camera()
    camera.print("one\ntwo", style="bold red")
    with picture.Projector(console=camera) as live:
        for sign in "-=":
            live.update(Group("", Text.assemble("a ", (sign * 2, "green")), Text("00:04  shop: deleted")))
    camera.print("")
    last = camera.screens[-2]
    assert last.sentences == 1
    assert last.lines[1:] == (
        (("one", "red bold"),),
        (("two", "red bold"),),
        (("", ""),),
        (("a ", ""), ("==", "green")),
        (("00:04  shop: deleted", ""),),
    )
    assert camera.screens[-1].sentences is None


def test_a_long_line_is_folded_between_words_and_keeps_its_text():
    text = "ok          " + "promise " * 30 + "held"
    rows = fold(((text, "green"),))
    assert "".join(row.lstrip("\n ") if i else row for i, (row, _) in enumerate(rows)) == text
    assert all(len(row.strip("\n")) <= COLUMNS + 1 for row, _ in rows)
    assert all(row.startswith("\n" + " " * 12 + "promise") for row, _ in rows[1:])


def test_a_full_screen_scrolls_by_whole_lines():
    lines = [((f"{number}", ""),) for number in range(ROWS + 5)]
    assert shown(lines) == tuple(lines[5:])
    assert shown([*lines, (("word " * 25, ""),), (("", ""),)])[0] == lines[7]


def test_text_in_a_picture_is_escaped():
    assert frames_of(drawn([Frame(((("a < b & c", "dim"),),), 1.0)])) == [["a < b & c"]]


def test_a_film_has_a_frame_for_each_new_sentence_and_each_promise():
    opening = [Screen(0, (((COMMAND, ""),),)), Screen(1, ((("about", ""),),))]
    charts = [Screen(2 + i / 10, (((f"{i}", ""),),), i // 50) for i in range(100)]
    closing = [Screen(12, ((("why", ""),),)), Screen(12, ((("ok", ""),),)), Screen(12, ((("held", ""),),))]
    frames, still = cut([*opening, *charts, *closing])
    assert [frame.seconds for frame in frames if frame.seconds == picture.NEWS] == [picture.NEWS]
    assert frames[still] == Frame(closing[0].lines, picture.ANSWER)
    assert (len(frames) - still, frames[-1].seconds) == (3, picture.HELD)
