"""`ticker.testing.replay`: timing tables through the real tick and start; what differs, and what is refused."""

import ast
import re

import pytest

import ticker
from tests.factories import MINUTE, SECOND
from tests.running import ROOT
from tests.sentences import sentence
from tests.timing_tables import BASE, tables
from ticker.errors import BadInput, UnknownTask
from ticker.testing import replay
from ticker.testing.table import read

EVERY_MINUTE = {"every": "1m", "tolerance": "5s"}
A1 = (("00:30", "tick enqueues A1"), ("00:35", "A1 begins"), ("00:40", "A1 ends"))


@pytest.fixture
def play(kit):
    """Plays rows with a new task that is first due after 30 s."""

    def played(*rows, **fields):
        task = ticker.register(kit.db, "poll", first=kit.now + 30 * SECOND, **(fields or EVERY_MINUTE))
        return replay(kit, task, rows)

    return played


@pytest.fixture
def differences(play):
    """Plays rows of which some differ. Returns the heading and the marked lines of the error."""

    def played(*rows):
        with pytest.raises(AssertionError) as error:
            play(*rows)
        heading, *lines = str(error.value).split("\n")
        return [heading, *(re.sub(" {2,}", " ", line) for line in lines if not line.startswith("  "))]

    return played


FORCED, GIVEN_UP = "A1 is forced to end", "tick enqueues nothing and A1 is dropped"
HEADING = sentence("testing.table_differs")


def differing(*lines):
    return [HEADING, *lines]


def minutes(at):
    if at is None:
        return "-"
    return "{:02}:{:02}".format(*divmod((at - BASE) // SECOND, 60))


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", ["3s", "29s"])
@pytest.mark.parametrize("name", list(tables()))
def test_the_tables_that_the_rules_were_specified_with_agree(name, tolerance, play):
    rows = [
        (minutes(row.at), row.event, minutes(row.next_run), minutes(row.last_run), minutes(row.checked))
        for row in tables()[name]
    ]
    assert len(play(*rows, every="1m", tolerance=tolerance)) == len(rows)


def test_a_table_that_agrees_returns_what_each_tick_and_start_did(play):
    rows = (("00:30", "tick enqueues A1"), ("01:28", "A1 begins"), ("01:30", "tick enqueues A2"), ("01:40", "A1 ends"))
    assert play(*rows, ("01:41", "A2 is dropped", "02:30")) == [
        "00:30  tick enqueues A1",
        "01:28  A1 begins",
        "01:30  tick enqueues A2",
        "01:40  A1 ends",
        "01:41  A2 is dropped: too_early (42s early)  02:30",
    ]


# ------------------------------------------------------------------------------------------------ what differs, and how


@pytest.mark.slow
def test_wrong_times_are_shown_with_what_they_are(differences):
    rows = (("00:00", "initial state", "00:30", "-"), ("00:30", "tick  enqueues A1", "01:31", "", "00:10"))
    assert differences(*rows, ("00:35", "A1 begins", "-", "00:36", "-")) == differing(
        "- 00:30 tick enqueues A1 01:31 00:10",
        "+ 00:30 tick enqueues A1 01:30 -",
        "- 00:35 A1 begins - 00:36 -",
        "+ 00:35 A1 begins 01:30 00:35 -",
    )


@pytest.mark.slow
def test_a_start_that_does_not_go_as_expected_is_shown_with_its_reason(differences):
    rows = (("00:30", "tick enqueues A1"), ("00:55", "A1 is dropped"), ("00:56", "A1 ends"))
    late = (("01:30", "tick enqueues A2"), ("01:49.999", "A2 begins", "02:30", "01:49.999"))
    assert differences(*rows, *late) == differing(
        "- 00:55 A1 is dropped",
        "+ 00:55 A1 begins",
        "- 01:49.999 A2 begins 02:30 01:49.999",
        "+ 01:49.999 A2 is dropped: too_early (1ms early) 02:30 00:55",
    )


@pytest.mark.slow
def test_the_reason_of_a_drop_is_compared_if_the_row_has_one(differences):
    rows = (("00:30", "tick enqueues A1"), ("01:20", "A1 begins"), ("01:21", "A1 ends"), ("01:30", "tick enqueues A2"))
    assert differences(*rows, ("01:31", "A2 is dropped: duplicate")) == differing(
        "- 01:31 A2 is dropped: duplicate", "+ 01:31 A2 is dropped: too_early (44s early)"
    )


@pytest.mark.slow
def test_equality_with_the_tolerance_runs(play):
    rows = (("00:30", "tick enqueues A1"), ("00:55", "A1 begins"), ("00:56", "A1 ends"), ("01:30", "tick enqueues A2"))
    assert play(*rows, ("01:50", "A2 begins", "02:30", "01:50", "00:55"))[-1].startswith("01:50  A2 begins")


@pytest.mark.slow
def test_ticks_and_the_order_of_the_queue_are_compared(differences):
    rows = (("00:30", "tick enqueues nothing"), ("01:30", "tick enqueues A3"), ("01:31", "A2 begins"))
    assert differences(*rows, ("01:32", "A2 is dropped: still_running")) == differing(
        "- 00:30 tick enqueues nothing",
        "+ 00:30 tick enqueues A1",
        "- 01:30 tick enqueues A3",
        "+ 01:30 tick enqueues A2",
        "- 01:31 A2 begins",
        "+ 01:31 A1 begins",
    )


@pytest.mark.slow
def test_what_cannot_happen_is_told(differences):
    rows = (
        ("00:10", "A1 begins"),
        ("00:10", "A1 ends"),
        *A1[:2],
        ("00:40", FORCED),
        ("00:50", "A1 ends"),
    )
    assert differences(*rows, ("00:51", "A1 ends")) == differing(
        "- 00:10 A1 begins",
        sentence("testing.table_no_job", at="00:10"),
        "- 00:10 A1 ends",
        sentence("testing.table_not_running", at="00:10", job="A1"),
        f"- 00:40 {FORCED}",
        sentence("testing.table_may_run", at="00:40", job="A1", end="01:05"),
        "- 00:51 A1 ends",
        sentence("testing.table_not_running", at="00:51", job="A1"),
    )


@pytest.mark.slow
def test_a_run_may_end_by_itself_at_the_end_of_its_box(kit, play):
    assert play(*A1[:2], ("01:05", "A1 ends"))[-1] == "01:05  A1 ends"
    assert [str(run.outcome) for run in ticker.list_runs(kit.db)] == ["succeeded"]


@pytest.mark.slow
def test_no_run_goes_on_after_its_box(kit, differences):
    assert differences(*A1[:2], ("01:20", "A1 ends")) == differing(
        sentence("testing.table_forced_end", at="01:05", job="A1"),
        "- 01:20 A1 ends",
        sentence("testing.table_not_running", at="01:20", job="A1"),
    )
    assert [str(run.outcome) for run in ticker.list_runs(kit.db)] == ["partial"]


# -------------------------------------------------------------------------------------------------------- other tables


@pytest.mark.slow
def test_a_manual_run_is_pushed_by_the_next_tick_and_touches_no_time(play):
    rows = (
        ("00:10", "run now", "00:30", "-"),
        ("00:20", "run now"),
        ("00:25", "tick enqueues M1", "00:30"),
        ("00:26", "M1 begins", "00:30", "-"),
        ("00:27", "M1 ends"),
        ("00:28", "run now"),
        ("00:30", "tick enqueues M2, A1", "01:30"),
        ("00:31", "M2 begins", "01:30", "-"),
        ("00:32", "M2 ends"),
        ("00:33", "A1 begins", "01:30", "00:33", "-"),
    )
    assert [" ".join(line.split()) for line in play(*rows)] == [" ".join(row) for row in rows]


@pytest.mark.slow
def test_a_job_that_waits_too_long_is_dropped_by_a_tick(play):
    rows = [(f"{minute:02}:30", "tick enqueues nothing") for minute in range(2, 11)]
    first = (("00:30", "tick enqueues A1"), ("01:30", "tick enqueues A2"))
    assert play(*first, *rows, ("11:30", GIVEN_UP), ("11:31", "A2 begins"))[-2:] == [
        f"11:30  {GIVEN_UP}: expired",
        "11:31  A2 begins",
    ]


@pytest.mark.slow
def test_a_table_of_hours_has_any_schedule(kit):
    kit.move(to=BASE.replace(year=2040, hour=0))
    task = ticker.register(kit.db, "report", cron="30 6 * * *", box="30m", kwargs={"days": 1})
    rows = (
        ("06:29:30", "tick enqueues nothing", "06:30:00"),
        ("06:30:00", "tick enqueues A1", "30:30:00"),
        ("06:30:12.5", "A1 begins", "30:30:00", "06:30:12.5"),
        ("07:00:12.5", FORCED, "30:30:00"),
    )
    assert [" ".join(line.split()) for line in replay(kit, task, rows)] == [" ".join(row) for row in rows]


@pytest.mark.slow
def test_the_function_of_the_task_is_not_called_and_stays_registered(kit, function, monkeypatch, tmp_path):
    calls = []
    (tmp_path / "polls_of_replay.py").write_text(
        "from wrappers import task\n\n\n@task('poll')\ndef poll():\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TICKER_TASKS", "polls_of_replay")
    task = ticker.register(kit.db, "poll", every="1m", first=kit.now + 30 * SECOND)
    assert len(replay(kit, task, A1)) == 3
    function("other")(lambda: calls.append(1))
    ticker.unregister(kit.db, task)
    ticker.register(kit.db, "other", every="1m")
    assert len(replay(kit, "other", (("00:00", "tick enqueues A1"), ("00:01", "A1 begins"), ("00:02", "A1 ends")))) == 3
    assert calls == []
    kit.run_due(until=MINUTE // SECOND)
    assert calls == [1]


# ------------------------------------------------------------------------------------------------------------ bad rows

BAD = [
    (("00:30", "A1 beginns"), sentence("testing.table_bad_event", row="rows[1]", event="'A1 beginns'", remedy=re.compile("initial state, .*"))),
    (("00:30", "A0 begins"), sentence("testing.table_bad_event", row="rows[1]", event="'A0 begins'", remedy=re.compile("initial state, .*"))),
    (("0:5", "run now"), sentence("testing.table_bad_time", row="rows[1]", time="'0:5'")),
    (("00:30", "run now", "soon"), sentence("testing.table_bad_time", row="rows[1]", time="'soon'")),
    (("00:09", "run now"), sentence("testing.table_goes_back", row="rows[1]", time="'00:09'")),
    (("00:30",), sentence("testing.table_bad_row", row="rows[1]", value=re.compile(".*00:30.*"))),
    ("00:30 run now", sentence("testing.table_bad_row", row="rows[1]", value="'00:30 run now'")),
]  # fmt: skip


def test_a_bad_row_is_refused_before_anything_is_played(kit):
    task = ticker.register(kit.db, "poll", every="1m")
    for row, said in BAD:
        with pytest.raises(BadInput) as error:
            replay(kit, task, (("00:10", "tick enqueues A1"), row))
        assert said == error.value
    assert ticker.get(kit.db, task).waiting == ()


def test_a_task_that_does_not_exist_is_refused(kit):
    with pytest.raises(UnknownTask):
        replay(kit, "poll", A1)


# ------------------------------------------------------------------------------------------------------- documentation


@pytest.mark.slow
def test_the_page_shows_the_difference_that_its_last_row_makes(play):
    text = (ROOT / "docs/guides/frozen-clock.md").read_text(encoding="utf-8")
    [rows] = re.findall(r"^    rows = (\[.*?^    \])", text, flags=re.DOTALL | re.MULTILINE)
    [last] = re.findall(r"With `(\(.*?\))` as its last row", text)
    [shown] = re.findall(r"^AssertionError: (.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    with pytest.raises(AssertionError) as error:
        play(*ast.literal_eval(rows)[:-1], ast.literal_eval(last))
    assert f"{error.value}\n" == shown


def test_each_event_of_the_page_can_be_read():
    text = (ROOT / "docs/guides/frozen-clock.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.*?`) \|", text[text.index("| event |") :], flags=re.MULTILINE)
    events = [event for cell in cells for event in re.findall("`(.*?)`", cell)]
    assert len(events) == 9 and [row.event for row in read([("00:00", event) for event in events])] == events
