"""The demo: once as a stranger runs it, once interrupted; its mail, its chart, and its verdict on histories made by hand."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from honcho.environ import parse_procfile

from tests.demo.narration import NARRATION
from tests.documents.recipes import process
from tests.running import ROOT, in_fork, until
from tests.sentences import Sentence, sentence
from ticker.demo import application, chart, polls, stage, verdict
from ticker.demo.application import SCHEMA, MailChannel
from ticker.demo.chart import tracks
from ticker.demo.stage import PROCFILE, Processes
from ticker.demo.verdict import Evidence
from ticker.errors import ConfigurationError
from ticker.model import Kind, Outcome, Reason, RunKind
from ticker.read.entries import JournalEntry
from ticker.read.tasks import FullRun, RunRecord
from ticker.read.why import Why
from ticker.tasks.fields import Task

CLAIMS = (
    sentence("demo.quota"),
    sentence("demo.killed"),
    sentence("demo.nothing_was_lost"),
    sentence("demo.cascade"),
    sentence("demo.dropped"),
    sentence("demo.retried"),
    sentence("demo.pieces"),
    sentence("demo.explained"),
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
@pytest.mark.timeout(400)  # a machine that is 8 times as slow needs 220 s
def test_the_demo_passes_its_own_checks_and_leaves_given_servers_as_they_were(environ, db, redis, folder):
    db.execute("CREATE TABLE public.mail_channels AS SELECT 1 AS mine")
    redis.set("mine", 1)
    with start_demo("--seconds", "10") as demo:
        output, _ = demo.communicate()
    assert demo.returncode == 0, output
    verdicts = [line.partition(":")[0] for line in output.splitlines() if re.match("ok |FAILED|not judged", line)]
    # A machine may become too slow while the demo runs; that breaks no promise.
    assert [re.sub("^not judged", "ok        ", line) for line in verdicts] == [
        f"ok          {claim}" for claim in CLAIMS
    ]
    assert sentence("demo.about_to_see").begins(output)
    assert " 10 promises held" in output.splitlines()[-1] or " of 10 promises held, " in output.splitlines()[-1]
    narration = re.findall(r"^\d\d:\d\d  .*", output, flags=re.MULTILINE)
    assert len(narration) >= len(NARRATION) - 1  # a machine that is too slow kills no worker
    assert all(any(one == line for one in NARRATION) for line in narration)
    assert re.search(r"^archive fetch +[-.]*=+q", output, flags=re.MULTILINE)
    assert "INFO ticker" not in output  # logs only with --verbose
    assert "\x1b" not in output  # colours only in a terminal
    assert processes_of(folder) == []
    assert redis.keys() == [b"mine"]
    assert db.execute("SELECT mine FROM public.mail_channels").fetchall() == [(1,)]
    assert db.execute("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'ticker_demo%'").fetchall() == []


@pytest.mark.slow
def test_an_interrupted_demo_leaves_nothing_behind(folder, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    with start_demo("--verbose") as demo:
        assert demo.stdout is not None
        until(lambda: "mail.fetch " in demo.stdout.readline(), "a run ended")
        demo.send_signal(signal.SIGINT)
        demo.send_signal(signal.SIGTERM)
        output, _ = demo.communicate()
    assert output.splitlines()[-1] == sentence("demo.interrupted")
    assert demo.returncode == 130
    assert processes_of(folder) == []


@pytest.mark.slow
def test_a_redis_that_rq_works_in_is_refused(environ, redis):
    redis.sadd("rq:queues", "rq:queue:yours")
    with pytest.raises(ConfigurationError, check=sentence("errors.rq_works_here", setting="REDIS_URL").within):
        stage.refuse_what_is_in_use(environ["DATABASE_URL"], environ["REDIS_URL"])


def test_a_database_with_the_demos_schemas_is_refused(environ, db):
    db.execute(f"CREATE SCHEMA {stage.SCHEMA}")
    with pytest.raises(ConfigurationError, match="DROP SCHEMA ticker_demo CASCADE"):
        stage.refuse_what_is_in_use(environ["DATABASE_URL"], environ["REDIS_URL"])


def test_the_procfile_is_the_one_that_the_demo_runs():
    text = (ROOT / "Procfile").read_text()
    assert (ROOT / "ticker" / "demo" / "Procfile").read_text() == text
    assert {name: line.split(" exec ")[1] for name, line in parse_procfile(text).processes.items()} == PROCFILE
    assert set(PROCFILE) == {"ticker", "worker"}


@pytest.mark.slow
def test_honcho_starts_the_procfile_on_an_empty_database(environ, db):
    db.execute("DROP SCHEMA ticker CASCADE")
    with process(ROOT, sys.executable, "-m", "honcho", "start", TICKER_TICK="1s") as honcho:
        begun = "SELECT to_regclass('ticker.tickers') IS NOT NULL AND to_regclass(%s) IS NOT NULL"
        until(lambda: db.execute(begun, [f"{SCHEMA}.mail_channels"]).fetchone() == (True,), "both have their tables")
        application.main(["add", "127.0.0.1", "1", "ann"])
        ended = "SELECT outcome FROM ticker.runs WHERE state = 'ended'"
        until(lambda: db.execute(ended).fetchone() == ("failed",), "the channel was polled, in vain")
        assert honcho.poll() is None
    db.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


def test_a_process_that_ends_by_itself_is_a_failure_with_its_last_words(tmp_path):
    def body() -> None:
        with closing(Processes(tmp_path, patience=4)) as processes:
            processes.start("one", "sh -c 'echo out of order; exit 7'")
            with pytest.raises(
                ChildProcessError,
                check=sentence("errors.process_ended", process="one", code=7, output="out of order").within,
            ):
                until(processes.check, "it ended")

    assert in_fork(body) == 0  # it becomes a subreaper, which is for good


def test_a_process_that_the_demo_killed_is_no_failure(tmp_path):
    def body() -> None:
        with closing(Processes(tmp_path, patience=4)) as processes:
            processes.start("one", "sleep 1000")
            [process] = processes._running.values()
            processes.kill(process.pid)
            process.wait()
            processes.check()

    assert in_fork(body) == 0


@pytest.mark.slow
def test_no_process_is_left_that_ignores_sigterm_or_left_its_session(tmp_path):
    forever = f"sleep 1000.{uuid4().int}"

    def body() -> None:
        with closing(Processes(tmp_path, patience=0.2)) as processes:
            processes.start("one", f"sh -c \"trap '' TERM; setsid {forever} & {forever}\"")
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


# -------------------------------------------------------------------------------------------------------- the mail


@pytest.fixture
def post() -> Iterator[stage.Post]:
    with stage.Post(pace=1) as post:
        post.delays.clear()
        post.stopped = post._began
        yield post


def channel(post: stage.Post, user: str) -> MailChannel:
    return MailChannel(host="127.0.0.1", port=post.server_address[1], user=user)


def test_a_poll_gets_what_is_new_and_a_message_counts_when_the_client_goes_on(post):
    assert list(polls.new_messages(channel(post, "archive"), after=38)) == [(39, "No. 39"), (40, "No. 40")]
    assert post.retrieved == [("archive", 39), ("archive", 40)]


def test_a_message_of_a_client_that_left_does_not_count(post):
    messages = polls.new_messages(channel(post, "sales"), after=0)
    assert next(messages) == (1, "No. 1")
    messages.close()
    assert list(polls.new_messages(channel(post, "archive"), after=39)) == [(40, "No. 40")]
    assert post.retrieved == [("archive", 40)]


def test_mail_arrives_until_it_is_stopped_and_six_times_as_much_for_the_archive(post, monkeypatch):
    began, post.stopped = post._began, None
    monkeypatch.setattr(stage, "time", SimpleNamespace(monotonic=lambda: began + 2.5))
    assert (post.newest("sales"), post.newest("archive")) == (3, 52)
    post.stopped = began + 1.5
    assert (post.newest("sales"), post.newest("archive")) == (2, 46)


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


def chart_of(tasks: list[Task], runs: list[RunRecord], width: int = 80) -> list[str]:
    return [line.plain for line in tracks(tasks, runs, ZERO, at("02:45"), width)]


def test_lanes_show_waiting_running_and_drops():
    tasks = [a_task(subject="ann", waiting=(at("02:30"),)), a_task(2, subject="bob")]
    killed = replace(A1, id=4, task_id=2, ended_at=at("02:05"), outcome=Outcome.KILLED)
    assert chart_of(tasks, [A1, A2, killed], width=77) == [
        "           00:00     00:25     00:50     01:15     01:40     02:05     02:30",
        "ann fetch  ............--------------------------==---------x..........------",
        "bob fetch  ............--------------------------============!...............",
        chart.LEGEND,
    ]


def test_lanes_have_colours_where_something_went_wrong():
    [_, track, _] = tracks([a_task()], [replace(A1, outcome=Outcome.KILLED)], ZERO, at("02:45"), 80)
    assert {track.plain[span.start] for span in track.spans if "red" in str(span.style)} == {"!"}


def test_a_run_that_starts_before_it_is_due_makes_its_lane_no_longer():
    early = a_run(1, "00:40", started_at="00:30", ended_at="00:33")
    about_to = a_run(2, "02:46", started_at="02:44", state="running", outcome=None)
    [_, early_lane, lane, _] = chart_of([a_task(), a_task(2, subject="bob")], [early, about_to])
    assert len(early_lane) == len(lane)
    assert early_lane.endswith("=")


def test_only_the_signs_of_the_legend_have_their_colours():
    [*_, legend] = tracks([a_task()], [], ZERO, at("02:45"), 80)
    assert (
        "".join(legend.plain[span.start : span.end] for span in legend.spans if "dim" not in str(span.style)) == "-=q!x"
    )


def test_two_ends_in_one_cell_of_a_lane_stand_side_by_side():
    runs = [a_run(1, "00:30", started_at="00:30", ended_at="00:30.1"), a_drop(2, "01:30", "00:30.2", Reason.TOO_EARLY)]
    assert "............=x......" in chart_of([a_task()], runs)[1]


# ----------------------------------------------------------------------------------------------------- the verdict


TWO = (("ann", 1), ("ann", 2))
GOOD = Evidence(delivered=TWO, retrieved=TWO, stored=TWO, tasks={1: a_task()})


def test_what_was_delivered_retrieved_and_stored_once_is_fine():
    assert verdict.stored_once(GOOD) == (True, "2 delivered, 2 stored")


@pytest.mark.parametrize("where", ["stored", "retrieved"])
def test_a_message_that_was_stored_or_retrieved_twice_is_a_failure(where):
    ok, detail = verdict.stored_once(replace(GOOD, **{where: [*TWO, ("ann", 2)]}))
    assert ok is False
    assert detail.endswith("; too often: ann/2")


def test_a_missing_message_is_not_seen_yet():
    ok, detail = verdict.stored_once(replace(GOOD, stored=TWO[:1], retrieved=TWO[:1]))
    assert ok is None
    assert detail == "2 delivered, 1 stored; missing: ann/2"


def test_a_double_does_not_make_up_for_a_missing_one():
    ok, detail = verdict.stored_once(replace(GOOD, stored=[("ann", 1), ("ann", 1)]))
    assert ok is False
    assert detail.endswith("missing: ann/2; too often: ann/1")


def test_a_message_that_was_stored_by_a_run_that_was_killed_next_is_fine():
    assert verdict.stored_once(replace(GOOD, retrieved=TWO[:1]))[0] is True


def test_mail_of_the_deleted_channel_may_stay_in_its_mailbox_and_no_other_may():
    left = replace(GOOD, deletion=("ann", at("02:00"), 0), retrieved=TWO[:1], stored=TWO[:1])
    assert verdict.stored_once(left) == (True, sentence("demo.stored", delivered=2, stored="1 stored", left="1 left"))
    assert not verdict.stored_once(replace(left, deletion=("bob", at("02:00"), 0)))[0]


def test_no_mail_at_all_proves_nothing():
    assert not verdict.stored_once(Evidence())[0]


def test_nothing_expected_is_taken_for_granted():
    assert tuple(verdict.PROMISES) == CLAIMS
    assert [check(GOOD)[0] for check in verdict.PROMISES.values()] == [None] * 8 + [True] * 2
    assert not verdict.seen(GOOD)


@pytest.mark.parametrize(
    ("too_slow", "status"), [(False, "FAILED"), (True, "not judged")], ids=["fast enough", "too slow"]
)
def test_what_was_not_seen_is_not_judged_where_the_machine_was_too_slow(too_slow, status):
    judged = list(verdict.judge(GOOD, too_slow))
    assert [status for status, _ in judged] == [status] * 8 + ["ok"] * 2
    assert sentence("demo.machine_too_slow").within(judged[0][1]) == too_slow


def test_what_was_contradicted_is_a_failure_on_any_machine():
    judged = list(verdict.judge(replace(GOOD, stored=[*TWO, *TWO]), too_slow=True))
    assert judged[8][0] == "FAILED"


def test_a_quiet_machine_has_pace_1_and_a_slow_one_more(monkeypatch):
    monkeypatch.setattr(stage.subprocess, "run", lambda *_, **__: None)
    assert stage.measure_pace() == 1
    clock = iter([10.0, 11.6])
    monkeypatch.setattr(stage, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert stage.measure_pace(starts=5) == pytest.approx(1.6 / 5 / stage.QUIET)


def test_the_run_after_a_partial_one_must_go_on_at_its_cursor():
    first = a_run(
        1, "00:30", started_at="00:30", ended_at="00:55", outcome=Outcome.PARTIAL, result={"after": 0, "up_to": 25}
    )
    resumed = a_run(2, "01:30", started_at="01:30", ended_at="01:50", result={"after": 25, "up_to": 40})
    afresh = a_run(2, "01:30", started_at="01:30", ended_at="01:50", result={"after": 0, "up_to": 40})
    assert verdict.resumed(replace(GOOD, runs=[first, resumed]))[1] == sentence(
        "demo.resumed", channel="ann", first=25, second="26 to 40"
    )
    assert not verdict.resumed(replace(GOOD, runs=[first, afresh]))[0]
    assert not verdict.resumed(replace(GOOD, runs=[first]))[0]
    killed = replace(resumed, id=3, started_at=at("01:10"), result=None, outcome=Outcome.KILLED)
    assert verdict.resumed(replace(GOOD, runs=[first, afresh, killed]))[0] is None  # it may have read on before


@pytest.mark.parametrize(("ended", "ok"), [("00:55", False), ("01:01", True), ("01:10", False)])
def test_a_kill_counts_if_it_was_the_limits(ended, ok):
    run = a_run(1, "00:30", started_at="00:30", ended_at=ended, outcome=Outcome.KILLED)
    assert (verdict.killed(replace(GOOD, runs=[run]))[0] is True) is ok


def test_a_run_whose_worker_was_killed_has_an_end_and_the_next_one_goes_on_there():
    run = a_run(
        1, "00:30", started_at="00:30", ended_at="00:55", outcome=Outcome.PARTIAL, result={"after": 0, "up_to": 25}
    )
    later = a_run(2, "01:30", started_at="01:30", ended_at="01:50", result={"after": 25, "up_to": 40})
    good = replace(GOOD, victim=1, runs=[run, later])
    assert verdict.survived(good) == (True, sentence("demo.survived", channel="ann"))
    assert verdict.survived(replace(good, runs=[replace(run, result=None, outcome=Outcome.LOST), later]))[0]
    assert verdict.survived(replace(good, runs=[replace(run, ended_at=None), later]))[0] is None
    afresh = replace(later, result={"after": 0, "up_to": 40})
    assert verdict.survived(replace(good, runs=[run, afresh])) == (
        False, sentence("demo.started_afresh", channel="ann", stop=25, after=0)
    )  # fmt: skip


def test_a_deleted_channel_has_no_tasks_no_later_runs_and_a_job_that_ended_as_gone():
    gone = a_drop(2, "01:30", "02:03", Reason.GONE)
    good = replace(GOOD, runs=[A1, gone], deletion=("ann", at("02:00"), 0))
    assert verdict.cascaded(good)[0]
    assert not verdict.cascaded(replace(good, runs=[A1]))[0]
    assert not verdict.cascaded(replace(good, runs=[gone, A3]))[0]
    assert not verdict.cascaded(replace(good, deletion=("ann", at("02:00"), 1)))[0]


def test_the_drop_that_came_soonest_after_a_start_is_shown():
    late = a_drop(2, "01:30", "02:29", Reason.TOO_EARLY, checked_last_run=at("01:35"), checked_at="02:29")
    soon = a_drop(3, "01:30", "02:03", Reason.TOO_EARLY, checked_last_run=at("01:35"), checked_at="02:03")
    found = verdict.too_early(replace(GOOD, runs=[late, soon]))
    assert found[1] == sentence("demo.too_early", task="mail.fetch", channel="ann", since="28 s", least="55 s")


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
    assert found[0] == (not wrong)
    assert found[1] == f"2 starts of 1 tasks{wrong}"


def test_a_run_whose_end_is_recorded_late_was_over_with_its_box_and_grace():
    killed = replace(A1, until=at("02:10"), ended_at=at("02:11"))
    runs = [killed, a_run(2, occurrence=None, kind=RunKind.MANUAL, started_at="02:10", ended_at="02:20")]
    assert verdict.kept_apart(replace(GOOD, runs=runs))[0]
    assert not verdict.kept_apart(replace(GOOD, runs=[replace(killed, until=at("02:12")), *runs[1:]]))[0]


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
    assert verdict.retried(replace(GOOD, failed=[good]))[0]
    assert not verdict.retried(replace(GOOD, failed=[replace(good, error_output="")]))[0]
    assert not verdict.retried(replace(GOOD, failed=[replace(good, attempts=(FAILED,))]))[0]


def test_of_five_pieces_one_must_have_failed():
    assert verdict.in_pieces(replace(GOOD, failed=[full(PARENT, pieces=PIECES)]))[0]
    assert not verdict.in_pieces(replace(GOOD, failed=[full(PARENT, pieces=PIECES[:4])]))[0]


def explained(since: str, early: str) -> Sentence:
    return sentence(
        "why.too_early", since=since, last="01:35", early=early, every="60 s", tolerance="5 s", earliest="02:30"
    )


@pytest.mark.parametrize(
    ("words", "ok"),
    [
        (explained(since="28 s", early="27 s"), True),
        (explained(since="28 s", early="26 s"), False),
        (explained(since="29 s", early="26 s"), False),
    ],
)
def test_an_explanation_must_add_up_and_agree_with_the_record(words, ok):
    drop = a_drop(2, "01:30", "02:03", Reason.TOO_EARLY, checked_last_run="01:35", checked_at="02:03")
    drop = replace(drop, checked_last_run=at("01:35"))
    said = [("failed", "ConnectionError: 503"), ("succeeded", "attempt 2 of 3"), ("failed", "5 pieces: 4 done")]
    lines = [JournalEntry(at("02:00"), what, text, 1, "", "", "") for what, text in said]
    lines.append(JournalEntry(at("02:03"), "dropped", f"too_early: {words}", 1, "", "", "", run=drop))
    told = replace(GOOD, whys=[Why(1, None, at("03:00"), None, tuple(lines), (), ())])
    assert (verdict.explained(told)[0] is True) is ok
    assert not verdict.explained(replace(GOOD, whys=[Why(1, None, at("03:00"), None, tuple(lines[1:]), (), ())]))[0]
