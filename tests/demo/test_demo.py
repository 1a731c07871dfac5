"""The demo: once as a stranger runs it, once interrupted; its chart, and its promises on histories made by hand."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from honcho.environ import parse_procfile
from rich.text import Text

from tests.demo.narration import NARRATION
from tests.documents.recipes import process
from tests.running import ROOT, in_fork, until
from tests.sentences import sentence
from ticker.demo import evidence
from ticker.demo.evidence import Evidence, chart
from ticker.demo.main import WORKER, Processes
from ticker.errors import TickerError
from ticker.model import Kind, Outcome, Reason, RunKind
from ticker.read.entries import JournalEntry
from ticker.read.tasks import RunRecord
from ticker.signals import noted
from ticker.tasks.fields import Task

CLAIMS = (
    sentence("demo.quota"),
    sentence("demo.killed"),
    sentence("demo.nothing_was_lost"),
    sentence("demo.cascade"),
    sentence("demo.dropped"),
    sentence("demo.stored_once"),
    sentence("demo.never_twice"),
)

# ------------------------------------------------------------------------------------------------- the demo itself


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The demo's folder for temporary files, short enough for a socket; and a mark in all its processes."""
    folder = Path("/tmp") / f"t-{uuid4().hex[:8]}"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("MARK_OF_THE_DEMO", str(folder))
    yield folder
    folder.rmdir()  # fails where anything is left


def start_demo(*options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "ticker", "demo", *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def processes_of(folder: Path) -> list[str]:
    """Every process with the demo's mark, or that works in its folder, as the embedded servers do."""

    def belongs(process: Path) -> bool:
        try:
            in_folder = str((process / "cwd").readlink()).startswith(str(folder))
            return in_folder or str(folder).encode() in (process / "environ").read_bytes()
        except OSError:
            return False

    return [process.name for process in Path("/proc").glob("[0-9]*") if belongs(process)]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_demo_passes_its_own_checks_and_leaves_the_servers_of_the_environment_alone(environ, db, redis, folder):
    db.execute("CREATE TABLE public.mail_channels AS SELECT 1 AS mine")
    redis.set("mine", 1)
    with start_demo() as demo:
        output, _ = demo.communicate()
    assert demo.returncode == 0, output
    verdicts = [line.partition(":")[0] for line in output.splitlines() if re.match("ok |FAILED|not seen", line)]
    assert verdicts == [f"ok          {claim}" for claim in CLAIMS]
    assert sentence("demo.about_to_see").begins(output)
    assert output.splitlines()[-1] == sentence("demo.all_held", held=len(CLAIMS), promises=len(CLAIMS))
    narration = re.findall(r"^\d\d:\d\d  .*", output, flags=re.MULTILINE)
    assert len(narration) == len(NARRATION)
    assert all(any(one == line for one in NARRATION) for line in narration)
    assert re.search(r"^archive +[-.]*=+q", output, flags=re.MULTILINE)
    assert "INFO ticker" not in output
    assert "\x1b" not in output  # colours only in a terminal
    assert processes_of(folder) == []
    assert redis.keys() == [b"mine"]
    assert db.execute("SELECT mine FROM public.mail_channels").fetchall() == [(1,)]
    assert db.execute("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'ticker_demo%'").fetchall() == []


@pytest.mark.slow
def test_an_interrupted_demo_leaves_nothing_behind(folder, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    with start_demo("--web") as demo:
        assert demo.stdout is not None
        until(lambda: "http://" in demo.stdout.readline(), "all processes are at work")
        demo.send_signal(signal.SIGINT)
        demo.send_signal(signal.SIGTERM)
        output, _ = demo.communicate()
    assert output.splitlines()[-1] == sentence("demo.interrupted")
    assert demo.returncode == 130
    assert processes_of(folder) == []


def test_the_procfile_is_the_one_that_the_demo_runs():
    lines = parse_procfile((ROOT / "Procfile").read_text()).processes
    commands = {name: line.split(" exec ")[1] for name, line in lines.items()}
    assert commands == {"ticker": "ticker run", "worker": f"{WORKER} polling"}


@pytest.mark.slow
def test_honcho_starts_the_procfile_on_an_empty_database(environ, db):
    db.execute("DROP SCHEMA ticker CASCADE")
    with process(ROOT, sys.executable, "-m", "honcho", "start", TICKER_TICK="1s") as honcho:
        until(lambda: db.execute("SELECT to_regclass('ticker.runs')").fetchone() != (None,), "the tables exist")
        begun = "SELECT task_name FROM ticker.runs WHERE started_at IS NOT NULL"
        until(lambda: db.execute(begun).fetchone() == ("mail.fetch",), "the mailbox is polled")
        assert honcho.poll() is None
    db.execute("DROP TABLE public.demo_mail_channels, public.demo_messages CASCADE")


def test_a_process_that_ends_by_itself_is_a_failure_with_its_last_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.py").write_text("print('here', flush=True); raise SystemExit('out of order')")

    def body() -> None:
        with noted([]) as signals, closing(Processes(tmp_path, signals)) as processes:
            processes.start("first", "one")
            said = sentence("errors.process_ended", process="first", code=1, output="out of order")
            with pytest.raises(TickerError, check=said.within):
                processes.wait_for("first", "never said")

    assert in_fork(body) == 0  # it becomes a subreaper, which is for good


def test_a_process_that_the_demo_killed_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.py").write_text("import time; print('here', flush=True); time.sleep(1000)")

    def body() -> None:
        with noted([]) as signals, closing(Processes(tmp_path, signals)) as processes:
            processes.start("first", "one")
            process = processes._running["first"]
            processes.wait_for("first", "here")
            processes.kill("first")
            assert process.wait() == -signal.SIGKILL
            processes.wait()

    assert in_fork(body) == 0


# ------------------------------------------------------------------------------------------------------- the chart

ZERO = datetime(2026, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    minutes, seconds = map(float, text.split(":"))
    return ZERO + timedelta(minutes=minutes, seconds=seconds)


def a_task(id_: int = 1, **values: Any) -> Task:
    given: dict[str, Any] = {
        "id": id_, "name": "mail.fetch", "subject": "ann", "kind": Kind.INTERVAL, "every_ms": 60_000,
        "tolerance_ms": 5_000, "box_ms": 30_000, "grace_ms": 1_000, "created_at": ZERO, "next_run": at("00:30"), "waiting": (),
    }  # fmt: skip
    return Task(**{field.name: None for field in fields(Task)} | given | values)


def a_run(id_: int, occurrence: str | None, **values: Any) -> RunRecord:
    """Times may be given as MM:SS."""
    given: dict[str, Any] = {"id": id_, "task_id": 1, "kind": RunKind.SCHEDULED if occurrence else RunKind.MANUAL,
                             "occurrence": occurrence, "state": "ended", "outcome": Outcome.SUCCEEDED, "reason": ""}  # fmt: skip
    values = dict.fromkeys(RunRecord.__slots__) | given | values
    return RunRecord(**{n: at(v) if n.endswith(("_at", "occurrence")) and v else v for n, v in values.items()})


def a_drop(id_: int, occurrence: str, ended: str, reason: Reason, **values: Any) -> RunRecord:
    return a_run(id_, occurrence, ended_at=ended, outcome=Outcome.DROPPED, reason=reason, **values)


A1 = a_run(1, "00:30", started_at="01:35", ended_at="01:38")
A2 = a_drop(2, "01:30", "02:03", Reason.TOO_EARLY)
A3 = a_run(3, "02:30", started_at="02:56", state="running", outcome=None)


def drawn(tasks: list[Task], runs: list[RunRecord], width: int = 80) -> list[Text]:
    return chart(Evidence({task.id: task for task in tasks}, runs), ZERO, at("02:45"), width)


def chart_of(tasks: list[Task], runs: list[RunRecord], width: int = 80) -> list[str]:
    return [line.plain for line in drawn(tasks, runs, width)]


def test_lanes_show_waiting_running_and_drops():
    tasks = [a_task(subject="ann", waiting=(at("02:30"),)), a_task(2, subject="bob")]
    killed = replace(A1, id=4, task_id=2, ended_at=at("02:05"), outcome=Outcome.KILLED)
    assert chart_of(tasks, [A1, A2, killed], width=71) == [
        "     00:00     00:25     00:50     01:15     01:40     02:05     02:30",
        "ann  ............--------------------------==---------x..........------",
        "bob  ............--------------------------============!...............",
        evidence.LEGEND,
    ]


def test_lanes_have_colours_where_something_went_wrong():
    [_, track, _] = drawn([a_task()], [replace(A1, outcome=Outcome.KILLED)])
    assert {track.plain[span.start] for span in track.spans if "red" in str(span.style)} == {"!"}


def test_a_run_that_starts_before_it_is_due_makes_its_lane_no_longer():
    early = a_run(1, "00:40", started_at="00:30", ended_at="00:33")
    about_to = a_run(2, "02:46", started_at="02:44", state="running", outcome=None)
    [_, early_lane, lane, _] = chart_of([a_task(), a_task(2, subject="bob")], [early, about_to])
    assert len(early_lane) == len(lane)
    assert early_lane.endswith("=")


def test_only_the_signs_of_the_legend_have_their_colours():
    [*_, legend] = drawn([a_task()], [])
    assert (
        "".join(legend.plain[span.start : span.end] for span in legend.spans if "dim" not in str(span.style)) == "-=q!x"
    )


def test_two_ends_in_one_cell_of_a_lane_stand_side_by_side():
    runs = [a_run(1, "00:30", started_at="00:30", ended_at="00:30.1"), a_drop(2, "01:30", "00:30.2", Reason.TOO_EARLY)]
    assert "............=x......" in chart_of([a_task()], runs)[1]


# ---------------------------------------------------------------------------------------------------- the promises

TWO = (("ann", 1), ("ann", 2))
GOOD = Evidence({1: a_task()}, delivered=TWO, stored=TWO)


def test_nothing_expected_is_taken_for_granted():
    assert tuple(evidence.PROMISES) == CLAIMS
    assert [check(Evidence())[0] for check in evidence.PROMISES.values()] == [None] * 6 + [True]


def test_what_was_delivered_and_stored_once_is_fine():
    assert evidence.stored_once(GOOD)[0] is True


@pytest.mark.parametrize(
    ("stored", "ok"), [(TWO[:1], None), ([*TWO, ("ann", 2)], False), ([("ann", 1)] * 2, False)],
    ids=["missing", "too often", "a double does not make up for a missing one"],
)  # fmt: skip
def test_a_message_that_is_missing_is_not_seen_yet_and_a_double_is_a_failure(stored, ok):
    assert evidence.stored_once(replace(GOOD, stored=stored))[0] is ok


@pytest.mark.parametrize("victim", [None, 1], ids=["partial", "its worker was killed"])
def test_the_next_run_must_go_on_where_the_run_stopped(victim):
    check = evidence.resumed if victim is None else evidence.survived
    outcome = Outcome.PARTIAL if victim is None else Outcome.SUCCEEDED
    stopped = {"after": 0, "up_to": 25}
    first = a_run(1, "00:30", started_at="00:30", ended_at="00:55", outcome=outcome, result=stopped)
    next_one = a_run(2, "01:30", started_at="01:30", ended_at="01:50", result={"after": 25, "up_to": 40})
    good = replace(GOOD, victim=victim, runs=[first, next_one])
    assert check(good) == (True, sentence("demo.resumed", channel="ann", first=25, second=26))
    assert check(replace(good, runs=[replace(first, result=None), next_one]))[0]  # it was lost
    assert check(replace(good, runs=[first, replace(next_one, result={"after": 0, "up_to": 40})]))[0] is False
    killed = replace(next_one, started_at=at("01:10"), result=None, outcome=Outcome.KILLED)
    later = replace(next_one, id=3, result={"after": 30, "up_to": 40})
    assert check(replace(good, runs=[first, killed]))[0] is None
    assert check(replace(good, runs=[first, killed, later]))[0]  # the killed one read on before


@pytest.mark.parametrize(("ended", "ok"), [("00:55", None), ("01:01", True)])
def test_a_kill_counts_if_it_was_the_limits(ended, ok):
    run = a_run(1, "00:30", started_at="00:30", ended_at=ended, outcome=Outcome.KILLED)
    assert evidence.killed(replace(GOOD, runs=[run]))[0] is ok


def test_a_deleted_channel_has_no_tasks_and_a_job_that_ended_as_gone():
    good = replace(GOOD, runs=[A1, a_drop(2, "01:30", "02:03", Reason.GONE)], deletion=("ann", 0))
    assert evidence.cascaded(good)[0]
    assert evidence.cascaded(replace(good, runs=[A1]))[0] is None
    assert evidence.cascaded(replace(good, deletion=("ann", 1)))[0] is False


@pytest.mark.parametrize(("second", "ok"), [("02:30", True), ("02:29.999", False)], ids=["equality runs", "too close"])
def test_runs_of_a_task_are_apart(second, ok):
    runs = [A1, a_run(2, "01:30", started_at=second, ended_at="02:40")]
    assert evidence.kept_apart(replace(GOOD, runs=runs))[0] is ok


@pytest.mark.parametrize(("early", "ok"), [("27 s", True), ("26 s", False)])
def test_an_explanation_must_add_up(early, ok):
    drop = a_drop(2, "01:30", "02:03", Reason.TOO_EARLY, checked_last_run="01:35", checked_at="02:03")
    words = sentence(
        "why.too_early", since="28 s", last="01:35", early=early, every="60 s", tolerance="5 s", earliest="02:30"
    )
    line = JournalEntry(at("02:03"), "dropped", f"too_early: {words}", 1, "", "", "", run=drop)
    assert evidence.too_early(replace(GOOD, why=[line])) == (
        ok,
        sentence("demo.too_early", since="28.0 s", least="55.0 s"),
    )
