"""`ticker.testing.Kit`: the user's functions in this process, under the rules of production, on the kit's clock."""

import asyncio
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from rq import Queue

import ticker
from tests.factories import MINUTE, SECOND
from tests.sentences import sentence
from ticker.errors import BadInput
from ticker.testing import Kit, Servers
from wrappers import NOTHING_TO_DO, Run

BERLIN_AT_SIX = {  # after 30 March 00:00 UTC: summer time begins on the 31st in 2024, and had begun in 2040
    2024: [timedelta(hours=5), timedelta(hours=28)],
    2040: [timedelta(hours=4), timedelta(hours=28)],
}


def outcomes(runs):
    return [str(run.outcome) for run in runs]


@pytest.mark.slow
def test_an_interval_runs_at_its_times_and_only_then_does_time_move(kit, function):
    seen = []

    @function("mail.fetch")
    def fetch(mailbox):
        seen.append((mailbox, datetime.now(UTC), time.time()))
        return mailbox

    zero = kit.now
    ticker.register(kit.db, "mail.fetch", every="1m", kwargs={"mailbox": 7})
    runs = kit.run_due(until="3m")
    times = [zero + number * MINUTE for number in range(4)]
    assert seen == [(7, at, at.timestamp()) for at in times]
    assert [(str(run.outcome), run.result, run.started_at) for run in runs] == [("succeeded", 7, at) for at in times]
    assert kit.now == datetime.now(UTC) == zero + 3 * MINUTE
    assert kit.run_due(until="59s") == []


@pytest.mark.slow
@pytest.mark.parametrize("year", [2024, 2040])
def test_a_test_begins_at_any_time(kit, function, year):
    function("report")(lambda: None)
    kit.move(to=datetime(year, 3, 30, tzinfo=UTC))
    ticker.register(kit.db, "report", cron="0 6 * * *", zone="Europe/Berlin")
    runs = kit.run_due(until="2d", tick="1h")
    begin = datetime(year, 3, 30, tzinfo=UTC)
    assert [run.started_at - begin for run in runs] == BERLIN_AT_SIX[year]


@pytest.mark.slow
def test_a_start_soon_after_a_late_one_is_dropped(kit, function):
    zero = kit.now

    @function("mail.fetch")
    def fetch():
        kit.move(to=zero + 90 * SECOND)
        assert kit.tick() == 1
        kit.move(by="10s")

    ticker.register(kit.db, "mail.fetch", every="1m", tolerance="5s", first=zero + 30 * SECOND)
    kit.move(by="30s")
    assert kit.tick() == 1
    kit.move(to=zero + 88 * SECOND)
    [begun] = kit.work(at_most=1)
    kit.move(by="1s")
    [dropped] = kit.work()
    assert outcomes([begun, dropped]) == ["succeeded", "dropped"]
    assert (dropped.reason, dropped.checked_last_run) == ("too_early", zero + 88 * SECOND)


@pytest.mark.slow
def test_the_ticker_ticks_while_a_function_takes_its_time(kit, function):
    function("slow")(lambda: kit.move(by="25s"))
    zero = kit.now
    ticker.register(kit.db, "slow", every="20s", box="5s", tolerance="1s")
    runs = kit.run_due(until="40s", tick="10s")
    assert [run.started_at for run in runs] == [zero, zero + 25 * SECOND]
    assert kit.now == zero + 50 * SECOND


@pytest.mark.slow
def test_a_failing_function_is_attempted_again(kit, function):
    results = iter([ValueError("no answer"), ValueError("no answer"), None])

    @function("mail.fetch")
    def fetch():
        if error := next(results):
            raise error

    ticker.register(kit.db, "mail.fetch", every="1h", retries=2)
    runs = kit.run_due(until="59m", tick="2m")
    assert [(str(run.outcome), run.attempt) for run in runs] == [("failed", 1), ("failed", 2), ("succeeded", 3)]
    assert runs[0].reason == "ValueError: no answer"


@pytest.mark.slow
def test_an_error_is_raised_on_request_after_it_was_recorded(kit, function):
    function("broken")(lambda: {}["key"])
    ticker.register(kit.db, "broken", every="1m")
    with pytest.raises(KeyError, match="key"):
        kit.run_due(until="10m", raises=True)
    assert outcomes(ticker.list_runs(kit.db)) == ["failed"]


@pytest.mark.slow
def test_an_error_of_a_job_without_a_record_is_always_raised(kit, redis):
    Queue("polling", connection=redis).enqueue("builtins.int", "x")
    with pytest.raises(ValueError, match="invalid literal"):
        kit.work()
    assert kit.work() == []


@pytest.mark.slow
@pytest.mark.parametrize("has_freezegun", [True, False])
def test_the_quota_counts_by_the_clock_of_the_kit(environ, function, monkeypatch, has_freezegun):
    if not has_freezegun:
        monkeypatch.setitem(sys.modules, "freezegun", None)
    with Kit(Servers(environ["DATABASE_URL"], environ["REDIS_URL"], "ticker", empties_tables=False)) as kit:

        @function("endless")
        def endless(run: Run):
            while not run.quota.exceeded:
                kit.move(by=1)

        zero = kit.now
        ticker.register(kit.db, "endless", every="1m", box="20s")
        [run] = kit.run_due(until=0)
        assert (str(run.outcome), run.ended_at) == ("partial", zero + 20 * SECOND)


@pytest.mark.slow
def test_functions_answer_as_in_production(kit, function, caplog):
    @function("coroutine")
    async def coroutine(run: Run):
        await asyncio.sleep(0.001)
        run.checkpoint(5)
        return run.cursor

    function("idle")(lambda: NOTHING_TO_DO)
    for name in ("coroutine", "idle", "unknown"):
        ticker.register(kit.db, name, every="1m")
    runs = kit.run_due(until="0s")
    assert [(run.function, str(run.outcome), run.result) for run in runs] == [
        ("coroutine", "succeeded", 5),
        ("idle", "nothing_to_do", None),
    ]
    assert ticker.get(kit.db, "unknown").wait_reason == "unknown_here" and "name=unknown " in caplog.text
    assert ticker.get(kit.db, "coroutine").cursor == 5


@pytest.mark.slow
def test_a_full_key_keeps_its_task_waiting(kit, function):
    function("poll")(lambda: kit.work())
    ticker.limit(kit.db, "imap.example.org", concurrency=1)
    for name in ("a", "b"):
        ticker.register(kit.db, "poll", name=name, every="1m", limits=["imap.example.org"])
    kit.run_due(until="59s")
    first, second = ticker.list_runs(kit.db)[::-1]
    assert (second.outcome, second.started_at) == ("succeeded", first.started_at + 30 * SECOND)


NO_ZONE = datetime(2026, 1, 1)  # noqa: DTZ001


def test_a_wrong_time_is_refused_in_one_sentence(kit):
    at = {"until": f"{kit.now - SECOND:%F %T%z}", "now": f"{kit.now:%F %T%z}"}
    calls = (
        (sentence("testing.until_passed", **at), lambda: kit.run_due(until=kit.now - SECOND)),
        (sentence("testing.until_no_duration"), lambda: kit.run_due(until="soon")),
        (sentence("testing.until_without_zone"), lambda: kit.run_due(until=NO_ZONE)),
        (sentence("testing.to_without_zone"), lambda: kit.move(to=NO_ZONE)),
        (sentence("testing.to_or_by"), kit.move),
        (sentence("testing.to_and_by"), lambda: kit.move(to=kit.now, by="1s")),
        (sentence("testing.by_below_zero"), lambda: kit.move(by=-1)),
        (sentence("testing.tick_too_short"), lambda: kit.run_due(until="1m", tick="1ms")),
    )
    for said, call in calls:
        with pytest.raises(BadInput) as error:
            call()
        assert said == error.value
