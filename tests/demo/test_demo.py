"""The demo: once as a stranger runs it, once interrupted; its chart and its verdict on histories made by hand."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from honcho.environ import parse_procfile

from tests.running import ROOT, in_fork, until
from ticker.demo import chart, failures, stage, verdict
from ticker.demo.chart import history, lanes, table
from ticker.demo.evidence import Deletion, Evidence
from ticker.demo.mailbox import Delivery
from ticker.demo.pop3 import Outcome as Retrieved
from ticker.demo.pop3 import Retrieval
from ticker.demo.processes import Processes, ProcessFailed, procfile
from ticker.demo.watch import Push
from ticker.errors import ConfigurationError
from ticker.model import Kind, Outcome, Reason, RunKind, Task
from ticker.read.entries import JournalEntry
from ticker.read.tasks import FullRun, RunRecord
from ticker.read.why import Why

CLAIMS = (
    "a run stopped at its quota, and the next one resumed at its cursor",
    "a function that ignores its quota was killed",
    "a channel deleted with SQL took its tasks along",
    "a job was dropped as too early",
    "a failure kept its output, and its retry succeeded",
    "work was done in pieces, and the one that failed is named",
    "ticker why explains each of them, and its arithmetic is right",
    "every message was retrieved once",
    "every message was stored once",
    "no task ran twice at once, or again before interval - tolerance",
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


def test_the_demo_passes_its_own_checks_and_leaves_given_servers_as_they_were(environ, db, redis, folder):
    db.execute("CREATE TABLE public.mail_channels AS SELECT 1 AS mine")
    redis.set("mine", 1)
    with start_demo("--seconds", "10") as demo:
        output, _ = demo.communicate()
    assert demo.returncode == 0, output
    verdicts = [line.partition(":")[0] for line in output.splitlines() if line.startswith(("ok ", "FAILED"))]
    assert verdicts == [f"ok      {claim}" for claim in CLAIMS]
    assert "MM:SS | event" in output
    assert "| A2 is dropped: too_early |" in output
    assert "| A1 stops at its quota" in output
    assert chart.LEGEND in output
    assert processes_of(folder) == []
    assert redis.keys() == [b"mine"]
    assert db.execute("SELECT mine FROM public.mail_channels").fetchall() == [(1,)]
    assert stage.schemas_in_use(environ["DATABASE_URL"]) == []


def test_an_interrupted_demo_leaves_nothing_behind(folder, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    with start_demo() as demo:
        assert demo.stdout is not None
        until(lambda: "mail.fetch " in demo.stdout.readline(), "a run ended")
        demo.send_signal(signal.SIGINT)
        demo.send_signal(signal.SIGTERM)
        output, _ = demo.communicate()
    assert output.splitlines()[-1] == "interrupted; everything is stopped and removed"
    assert demo.returncode == 130
    assert processes_of(folder) == []


def test_a_redis_that_rq_works_in_is_refused(environ, redis):
    redis.sadd("rq:queues", "rq:queue:yours")
    with pytest.raises(ConfigurationError, match="REDIS_URL: RQ works in this database already"):
        stage.refuse_what_is_in_use(environ["DATABASE_URL"], environ["REDIS_URL"])


def test_a_database_with_the_demos_schemas_is_refused(environ, db):
    db.execute(f"CREATE SCHEMA {stage.TICKERS_SCHEMA}")
    with pytest.raises(ConfigurationError, match="DROP SCHEMA ticker_demo CASCADE"):
        stage.refuse_what_is_in_use(environ["DATABASE_URL"], environ["REDIS_URL"])


def test_the_procfile_is_the_one_that_the_demo_runs():
    text = (ROOT / "Procfile").read_text()
    assert (ROOT / "ticker" / "demo" / "Procfile").read_text() == text
    assert procfile() == parse_procfile(text).processes
    assert set(procfile()) == {"ticker", "worker"}


def test_a_process_that_ends_by_itself_is_a_failure_with_its_log(tmp_path):
    def body() -> None:
        with Processes(tmp_path) as processes:
            processes.start("one", "echo out of order; exit 7")
            with pytest.raises(ProcessFailed, match="one ended by itself, with exit code 7"):
                until(processes.check, "it ended")
            assert processes.tails() == "--- one\nout of order"

    assert in_fork(body) == 0  # it becomes a subreaper, which is for good


def test_no_process_is_left_that_ignores_sigterm_or_left_its_session(tmp_path, monkeypatch):
    monkeypatch.setattr("ticker.demo.processes.PATIENCE", 0.2)
    forever = f"sleep 1000.{uuid4().int}"

    def body() -> None:
        with Processes(tmp_path) as processes:
            processes.start("one", f"trap '' TERM; setsid {forever} & {forever}")
            until(lambda: count_of(forever) == 2, "both sleep")

    assert in_fork(body) == 0
    assert count_of(forever) == 0


def count_of(command: str) -> int:
    def runs_it(process: Path) -> bool:
        try:
            return (process / "cmdline").read_bytes().decode().split("\0")[:-1] == command.split()
        except OSError:
            return False

    return sum(map(runs_it, Path("/proc").glob("[0-9]*")))


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


PUSHES = [
    Push(1, at("00:30"), at("00:30"), at("01:30")),
    Push(1, at("01:30"), at("01:30"), at("02:30")),
    Push(1, at("02:30"), at("02:30"), at("03:30")),
]
A1 = a_run(1, "00:30", started_at="01:35", ended_at="01:38")
A2 = a_drop(2, "01:30", "02:03", Reason.TOO_EARLY)
A3 = a_run(3, "02:30", started_at="02:56", state="running", outcome=None)


def test_the_chart_of_a_late_first_run_is_the_third_timing_table():
    assert table(history(a_task(), PUSHES, [A1, A2, A3]), ZERO) == [
        "MM:SS | event                    | next_run | last_run",
        "------|--------------------------|----------|---------",
        "00:00 | initial state            | 00:30    | -",
        "00:30 | tick enqueues A1         | 01:30    | -",
        "01:30 | tick enqueues A2         | 02:30    | -",
        "01:35 | A1 begins                | 02:30    | 01:35",
        "01:38 | A1 ends                  | 02:30    | 01:35",
        "02:03 | A2 is dropped: too_early | 02:30    | 01:35",
        "02:30 | tick enqueues A3         | 03:30    | 01:35",
        "02:56 | A3 begins                | 03:30    | 02:56",
    ]


def test_a_manual_run_leaves_last_run_alone():
    manual = a_run(2, None, started_at="01:50", ended_at="01:55", outcome=Outcome.PARTIAL)
    rows = table(history(a_task(), PUSHES[:2], [A1, manual]), ZERO)
    assert rows[-2:] == [
        "01:50 | a manual run begins             | 02:30    | 01:35",
        "01:55 | a manual run stops at its quota | 02:30    | 01:35",
    ]


def test_the_chart_leaves_other_tasks_out():
    other = replace(PUSHES[0], task_id=2)
    assert len(history(a_task(), [other], [replace(A1, task_id=2)])) == 1


def test_lanes_show_waiting_running_and_drops():
    tasks = [a_task(subject="ann"), a_task(2, subject="bob")]
    runs = [A1, A2, replace(A1, id=4, task_id=2, ended_at=at("02:05"), outcome=Outcome.KILLED)]
    assert lanes(tasks, PUSHES[:2], runs, ZERO, at("02:45")) == [
        "                00:00     00:25     00:50     01:15     01:40     02:05     02:30",
        "ann mail.fetch  ............--------------------------==---------x................",
        "bob mail.fetch  ......................................============!...............",
        chart.LEGEND,
    ]  # fmt: skip


def test_two_ends_in_one_cell_of_a_lane_stand_side_by_side():
    runs = [a_run(1, "00:30", started_at="00:30", ended_at="00:30.1"), a_drop(2, "01:30", "00:30.2", Reason.TOO_EARLY)]
    assert "............=x......" in lanes([a_task()], [], runs, ZERO, at("02:45"))[1]


# ----------------------------------------------------------------------------------------------------- the verdict


def deliveries(*messages: tuple[str, int]) -> list[Delivery]:
    return [Delivery(user, uid, 0.0, "hello") for user, uid in messages]


def retrieval(user: str, uid: int, outcome: Retrieved = Retrieved.COMPLETE) -> Retrieval:
    return Retrieval(user, uid, 1.0, 2.0, outcome)


TWO = (("ann", 1), ("ann", 2))
GOOD = Evidence(
    deliveries=deliveries(*TWO), retrievals=[retrieval("ann", 1), retrieval("ann", 2)], stored=TWO, tasks=[a_task()]
)


def test_what_was_delivered_retrieved_and_stored_once_is_fine():
    assert str(verdict.retrieved_once(GOOD)) == "ok      every message was retrieved once: 2 delivered, 2 retrieved"
    assert str(verdict.stored_once(GOOD)) == "ok      every message was stored once: 2 delivered, 2 stored"
    assert verdict.settled(GOOD)


def test_a_message_that_was_stored_twice_fails():
    found = verdict.stored_once(replace(GOOD, stored=[*TWO, ("ann", 2)]))
    assert str(found) == "FAILED  every message was stored once: 2 delivered, 3 stored; too often: ann/2"


def test_a_message_that_was_retrieved_twice_fails():
    found = verdict.retrieved_once(replace(GOOD, retrievals=[*GOOD.retrievals, retrieval("ann", 1)]))
    assert str(found) == "FAILED  every message was retrieved once: 2 delivered, 3 retrieved; too often: ann/1"


def test_a_missing_message_fails():
    missing = replace(GOOD, retrievals=GOOD.retrievals[:1], stored=TWO[:1])
    assert str(verdict.retrieved_once(missing)).endswith("2 delivered, 1 retrieved; missing: ann/2")
    assert str(verdict.stored_once(missing)).startswith("FAILED")
    assert not verdict.settled(missing)


def test_a_double_does_not_make_up_for_a_missing_one():
    both = replace(GOOD, retrievals=[retrieval("ann", 1), retrieval("ann", 1)], stored=[("ann", 1), ("ann", 1)])
    for check in (verdict.retrieved_once(both), verdict.stored_once(both)):
        assert not check.ok
        assert check.detail.endswith("missing: ann/2; too often: ann/1")


def test_attempts_that_were_cut_short_are_listed_apart():
    cut = [retrieval("ann", 2, Retrieved.CUT), retrieval("ann", 2, Retrieved.UNCONFIRMED)]
    found = verdict.retrieved_once(replace(GOOD, retrievals=[*cut, *GOOD.retrievals]))
    assert found.ok
    assert found.detail.endswith("; apart: 2 attempts cut short by the end of a run (ann/2 2x)")


def test_a_message_of_which_every_attempt_was_cut_short_is_missing():
    cut = replace(GOOD, retrievals=[retrieval("ann", 1), retrieval("ann", 2, Retrieved.CUT)])
    assert not verdict.retrieved_once(cut).ok


def test_an_unconfirmed_retrieval_counts_if_it_is_the_last_of_its_message():
    last = replace(GOOD, retrievals=[retrieval("ann", 1), retrieval("ann", 2, Retrieved.UNCONFIRMED)])
    assert verdict.retrieved_once(last).ok
    again = replace(GOOD, retrievals=[*GOOD.retrievals, retrieval("ann", 2, Retrieved.UNCONFIRMED)])
    assert not verdict.retrieved_once(again).ok


def test_an_open_retrieval_is_not_settled():
    opened = replace(GOOD, retrievals=[retrieval("ann", 1), retrieval("ann", 2, Retrieved.OPEN)])
    assert not verdict.settled(opened)


def test_mail_of_the_deleted_channel_may_stay_in_its_mailbox_and_no_other_may():
    left = replace(GOOD, deletion=Deletion("ann", at("02:00"), 0), retrievals=GOOD.retrievals[:1], stored=TWO[:1])
    for check in (verdict.retrieved_once(left), verdict.stored_once(left)):
        assert check.ok
        assert check.detail.endswith(", 1 left in the mailbox of the deleted channel")
    assert not verdict.stored_once(replace(left, deletion=Deletion("bob", at("02:00"), 0))).ok


def test_no_mail_at_all_proves_nothing():
    assert not verdict.retrieved_once(Evidence()).ok
    assert not verdict.stored_once(Evidence()).ok


def test_nothing_expected_is_taken_for_granted():
    assert [check.claim for check in verdict.checks(GOOD)] == list(CLAIMS)
    assert [check(GOOD).ok for check in verdict.EXPECTED] == [False] * 7


def test_the_run_after_a_partial_one_must_go_on_at_its_cursor():
    first = a_run(1, "00:30", outcome=Outcome.PARTIAL, result={"after": 0, "up_to": 25})
    resumed = a_run(2, "01:30", result={"after": 25, "up_to": 40})
    afresh = a_run(2, "01:30", result={"after": 0, "up_to": 40})
    assert verdict.resumed(replace(GOOD, runs=[first, resumed])).detail == "ann, up to message 25, then 26 to 40"
    assert not verdict.resumed(replace(GOOD, runs=[first, afresh])).ok
    assert not verdict.resumed(replace(GOOD, runs=[first])).ok


@pytest.mark.parametrize(("ended", "ok"), [("00:55", False), ("01:01", True), ("01:10", False)])
def test_a_kill_counts_if_it_was_the_limits(ended, ok):
    run = a_run(1, "00:30", started_at="00:30", ended_at=ended, outcome=Outcome.KILLED)
    assert verdict.killed(replace(GOOD, runs=[run])).ok is ok


def test_a_deleted_channel_has_no_tasks_no_later_runs_and_a_job_that_ended_as_gone():
    gone = a_drop(2, "01:30", "02:03", Reason.GONE)
    good = replace(GOOD, runs=[A1, gone], deletion=Deletion("ann", at("02:00"), tasks_left=0))
    assert verdict.cascaded(good).ok
    assert not verdict.cascaded(replace(good, runs=[A1])).ok
    assert not verdict.cascaded(replace(good, runs=[gone, A3])).ok
    assert not verdict.cascaded(replace(good, deletion=Deletion("ann", at("02:00"), tasks_left=1))).ok


def test_the_drop_that_came_soonest_after_a_start_is_shown():
    late = a_drop(2, "01:30", "02:29", Reason.TOO_EARLY, checked_last_run=at("01:35"), checked_at="02:29")
    soon = a_drop(3, "01:30", "02:03", Reason.TOO_EARLY, checked_last_run=at("01:35"), checked_at="02:03")
    found = verdict.too_early(replace(GOOD, runs=[late, soon]))
    assert found.detail == "mail.fetch of ann, 28.00 s after the last start; 55.00 s is the least"


@pytest.mark.parametrize(
    ("second", "wrong"),
    [
        ({"started_at": "02:30"}, ""),  # equality runs
        ({"started_at": "02:29.999"}, "; mail.fetch of ann too close"),
        ({"started_at": "01:37", "occurrence": None, "kind": RunKind.MANUAL}, "; mail.fetch of ann at once"),
        ({"started_at": "01:39", "occurrence": None, "kind": RunKind.MANUAL}, ""),
    ],
)
def test_runs_of_a_task_are_apart(second, wrong):
    runs = [A1, a_run(2, **{"occurrence": "01:30", "ended_at": "02:40"} | second)]
    found = verdict.kept_apart(replace(GOOD, runs=runs))
    assert found.ok == (not wrong)
    assert found.detail == f"2 starts of 1 tasks{wrong}"


def test_a_run_whose_end_is_recorded_late_was_over_with_its_box_and_grace():
    killed = replace(A1, until=at("02:10"), ended_at=at("02:11"))
    runs = [killed, a_run(2, occurrence=None, kind=RunKind.MANUAL, started_at="02:10", ended_at="02:20")]
    assert verdict.kept_apart(replace(GOOD, runs=runs)).ok
    assert not verdict.kept_apart(replace(GOOD, runs=[replace(killed, until=at("02:12")), *runs[1:]])).ok


FAILED = a_run(4, "01:30", task_name="feeds.import", outcome=Outcome.FAILED)
AGAIN = a_run(5, None, task_name="feeds.import", kind=RunKind.RETRY, attempt=2)
PIECES = [
    a_run(n, None, kind=RunKind.PIECE, outcome=Outcome.SUCCEEDED if n < 11 else Outcome.FAILED) for n in range(7, 12)
]
PARENT = a_run(6, "01:30", task_name="feeds.refresh", outcome=Outcome.FAILED, reason="1 of 5 pieces failed")


def full(run: RunRecord, *, errors: str = "", attempts: tuple[RunRecord, ...] = (), pieces: Any = ()) -> FullRun:
    return FullRun(run, "", errors, attempts, tuple(pieces))


def test_a_retry_counts_if_the_failure_before_it_kept_its_output():
    good = full(FAILED, errors="503 Service Unavailable", attempts=(FAILED, AGAIN))
    assert failures.retried(replace(GOOD, failed={4: good})).ok
    assert not failures.retried(replace(GOOD, failed={4: replace(good, error_output="")})).ok
    assert not failures.retried(replace(GOOD, failed={4: replace(good, attempts=(FAILED,))})).ok


def test_of_five_pieces_one_must_have_failed():
    assert failures.in_pieces(replace(GOOD, failed={6: full(PARENT, pieces=PIECES)})).ok
    assert not failures.in_pieces(replace(GOOD, failed={6: full(PARENT, pieces=PIECES[:4])})).ok


@pytest.mark.parametrize(
    ("words", "ok"),
    [
        ("28 s after the last start at 01:35, 27 s too early (60 s interval, 5 s tolerance: not before 02:30)", True),
        ("28 s after the last start at 01:35, 26 s too early (60 s interval, 5 s tolerance: not before 02:30)", False),
        ("29 s after the last start at 01:35, 26 s too early (60 s interval, 5 s tolerance: not before 02:30)", False),
    ],
)
def test_an_explanation_must_add_up_and_agree_with_the_record(words, ok):
    drop = a_drop(2, "01:30", "02:03", Reason.TOO_EARLY, checked_last_run="01:35", checked_at="02:03")
    drop = replace(drop, checked_last_run=at("01:35"))
    said = [("failed", "ConnectionError: 503"), ("succeeded", "attempt 2 of 3"), ("failed", "5 pieces: 4 done")]
    lines = [JournalEntry(at("02:00"), what, text, 1, "", "", "") for what, text in said]
    lines.append(JournalEntry(at("02:03"), "dropped", f"too_early: {words}", 1, "", "", "", run=drop))
    told = replace(GOOD, whys={1: Why(1, None, at("03:00"), None, tuple(lines), (), ())})
    assert failures.explained(told).ok is ok
    assert not failures.explained(replace(GOOD, whys={1: Why(1, None, at("03:00"), None, tuple(lines[1:]), (), ())})).ok


def test_the_summary_counts_runs_by_outcome_and_drops_by_reason():
    assert verdict.summary([A1, A1, A2, A3]) == ["runs:  2 succeeded, 1 running", "drops: 1 too_early"]
    assert verdict.summary([]) == ["runs:  none", "drops: none"]
