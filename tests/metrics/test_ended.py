"""What metrics count and measure, on real servers: each run once, in the right bucket, by its function and no owner."""

import re
from datetime import timedelta

import pytest

import ticker
from tests.factories import MINUTE, NINE, SECOND, a_drop, a_run
from tests.metrics.scraping import grown, scraped
from tests.plans import indexes, plan, read_whole
from ticker import clock
from ticker.db import sql, steps
from ticker.errors import DatabaseUnavailable
from ticker.metrics import ended
from ticker.metrics.ended import Ended
from ticker.metrics.families import BY_NAME
from ticker.read.journal import ENDED, REASONS

pytestmark = pytest.mark.slow

HOUR = timedelta(hours=1)
POLL = 'function="poll"'


@pytest.fixture
def task(db):
    """With B = 30 s and g = 1 s."""
    return ticker.register(db, "poll", every="1m", owner="mail_channels:4711")


@pytest.fixture
def at(monkeypatch):
    """Whatever asks for the time is told an instant."""
    now = [NINE]

    def go(instant):
        now[0] = instant

    with clock.use(lambda: now[0]):
        yield go


@pytest.fixture
def counted(db, at):
    """Looks from NINE on, and reads all that grew since the look before."""
    counts = Ended()
    steps.run(db, counts.look())

    def look(instant):
        at(instant)
        before = plain(counts)
        steps.run(db, counts.look())
        return grown(before, plain(counts))

    return look


def plain(counts):
    """Counts by family and labels; of a histogram, how many values there are."""
    found = {}
    for name, value in scraped(counts).items():
        family, _, labels = name.partition("{")
        if family.endswith(("_total", "_count")):
            found[family.removesuffix("_count"), *re.findall(r'"([^"]*)"', labels)] = value
    return found


# ------------------------------------------------------------------------------------------------------ what is counted


def counters(changes):
    """Without gauges, and without the buckets of histograms."""
    return {name: change for name, change in changes.items() if "_total" in name or "_count" in name or "_sum" in name}


def test_a_run_that_is_played_moves_its_counters_by_one_and_no_others(play, asked):
    ticker.register(play.db, "poll", every="1m", owner="mail_channels:4711")
    play.run(0, "succeeded")
    play.at(60)
    play.tick()
    before = scraped(asked)
    play.at(62.5)
    [taken] = play.take()
    play.at(77.5)
    assert play.end(taken, "failed")
    play.at(110)
    assert counters(grown(before, scraped(asked))) == {
        f'ticker_runs_total{{{POLL},outcome="failed"}}': 1,
        f"ticker_start_delay_seconds_count{{{POLL}}}": 1, f"ticker_start_delay_seconds_sum{{{POLL}}}": 2.5,
        f"ticker_run_duration_seconds_count{{{POLL}}}": 1, f"ticker_run_duration_seconds_sum{{{POLL}}}": 15,
        f"ticker_run_quota_used_ratio_count{{{POLL}}}": 1, f"ticker_run_quota_used_ratio_sum{{{POLL}}}": 0.5,
    }  # fmt: skip


def test_a_drop_that_is_played_moves_one_counter_by_one(play, asked):
    ticker.register(play.db, "poll", every="1m")
    play.run(0, "succeeded")
    play.at(30)
    play.put(next_run=play.now)
    play.tick()
    before = scraped(asked)
    [dropped] = play.take()
    assert dropped.refusal == "too_early"
    play.at(70)
    assert counters(grown(before, scraped(asked)))[f'ticker_drops_total{{{POLL},reason="too_early"}}'] == 1


@pytest.mark.parametrize("outcome", ENDED)
def test_every_outcome_is_counted(db, task, counted, outcome):
    a_run(db, task, outcome=outcome)
    assert counted(NINE + MINUTE)["ticker_runs_total", "poll", outcome] == 1


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_of_a_drop_is_counted_and_no_drop_as_a_run(db, task, counted, reason):
    a_drop(db, task, reason)
    assert counted(NINE + MINUTE) == {("ticker_drops_total", "poll", reason): 1}


def test_every_owner_counts_and_so_does_nobody(db, task, counted):
    for owner_type, owner_id in (("", ""), ("feeds", "1"), ("mail_channels", "2"), ("mail_channels", "3")):
        a_run(db, task, owner_type=owner_type, owner_id=owner_id, kind="manual")
    assert counted(NINE + MINUTE)["ticker_runs_total", "poll", "succeeded"] == 4


@pytest.mark.parametrize("keep", ["all", "problems", "none"])
def test_what_a_task_keeps_is_no_concern_of_the_counts(play, asked, keep):
    """Whatever is not kept goes after two hours."""
    ticker.register(play.db, "poll", every="1m", keep=keep)
    before = scraped(asked)
    play.run(0, "succeeded")
    play.at(40)
    assert grown(before, scraped(asked))[f'ticker_runs_total{{{POLL},outcome="succeeded"}}'] == 1


def test_a_row_that_becomes_visible_late_is_counted_and_none_twice(db, task, counted):
    a_run(db, task, ended_at=NINE + 10 * SECOND)
    assert counted(NINE + 20 * SECOND) == {}
    a_run(db, task, occurrence=NINE + MINUTE, ended_at=NINE + 9 * SECOND)  # its transaction took so long
    assert counted(NINE + 41 * SECOND)["ticker_runs_total", "poll", "succeeded"] == 2
    assert counted(NINE + 50 * SECOND) == {}
    assert counted(NINE + 3 * MINUTE) == {}


def test_a_gap_is_made_up_for_but_not_further_back_than_an_hour(db, task, counted):
    a_run(db, task, ended_at=NINE + 10 * MINUTE)
    a_run(db, task, occurrence=NINE + 100 * MINUTE, ended_at=NINE + 100 * MINUTE)
    assert counted(NINE + 2 * HOUR)["ticker_runs_total", "poll", "succeeded"] == 1


def test_a_clock_that_is_set_back_stops_no_counting(db, task, counted):
    counted(NINE + HOUR)
    assert counted(NINE) == {}
    a_run(db, task, ended_at=NINE + 10 * SECOND)
    assert counted(NINE + MINUTE)["ticker_runs_total", "poll", "succeeded"] == 1


def test_a_look_that_takes_too_long_goes_on_in_the_next_one(db, task, counted, monkeypatch):
    a_run(db, task, ended_at=NINE)
    monkeypatch.setattr(ended, "BUDGET", 0)
    assert counted(NINE + MINUTE) == {}
    monkeypatch.undo()
    assert counted(NINE + MINUTE)["ticker_runs_total", "poll", "succeeded"] == 1


def test_a_statement_that_fails_loses_nothing_and_reads_less_the_next_time(db, task, at, monkeypatch):
    a_run(db, task, ended_at=NINE)
    counts, query, spans = Ended(), ended.query, []
    steps.run(db, counts.look())
    at(NINE + 10 * MINUTE)

    def fails_at_first(name, **values):
        if name == "count_ended":
            spans.append(values["until"] - values["since"])
            if len(spans) == 1:
                raise DatabaseUnavailable("canceling statement due to statement timeout")
        return query(name, **values)

    monkeypatch.setattr(ended, "query", fails_at_first)
    with pytest.raises(DatabaseUnavailable):
        steps.run(db, counts.look())
    steps.run(db, counts.look())
    assert spans[:4] == [MINUTE, MINUTE / 2, MINUTE, MINUTE]
    assert plain(counts)["ticker_runs_total", "poll", "succeeded"] == 1


# --------------------------------------------------------------------------------------------------- what is measured


@pytest.mark.parametrize(
    ("lasts", "bound"),
    [(0, "0.1"), (3, "0.1"), (3.001, "0.2"), (15, "0.5"), (30, "1.0"), (30.5, "+Inf")],
)
def test_a_share_of_the_box_lies_in_the_bucket_up_to_which_it_reaches(db, task, asked, at, lasts, bound):
    scraped(asked)
    a_run(db, task, ended_at=NINE + lasts * SECOND)
    at(NINE + 2 * MINUTE)
    found = scraped(asked)
    buckets = [le for le in (*map(str, [x / 10 for x in range(1, 11)]), "+Inf")
               if found[f'ticker_run_quota_used_ratio_bucket{{{POLL},le="{le}"}}']]  # fmt: skip
    assert buckets[0] == bound


def test_a_planned_run_is_measured_from_its_own_times(db, task, asked, at):
    scraped(asked)
    a_run(db, task, kind="retry", due_at=NINE - 9 * SECOND, pushed_at=NINE - 4 * SECOND, started_at=NINE)
    at(NINE + 2 * MINUTE)
    found = scraped(asked)
    assert found[f"ticker_start_delay_seconds_sum{{{POLL}}}"] == 9
    assert found[f"ticker_queue_delay_seconds_sum{{{POLL}}}"] == 4


def test_a_scheduled_run_that_starts_before_its_time_has_no_delay(db, task, asked, at):
    scraped(asked)
    a_run(db, task, started_at=NINE - SECOND)
    at(NINE + 2 * MINUTE)
    found = scraped(asked)
    assert found[f'ticker_start_delay_seconds_bucket{{{POLL},le="0.1"}}'] == 1
    assert found[f"ticker_start_delay_seconds_sum{{{POLL}}}"] == 0


@pytest.mark.parametrize(
    "values", [{"outcome": "lost"}, {"pieces": 3}, {"outcome": "lost", "started_at": None, "until": None}]
)
def test_what_nobody_knows_or_others_measure_has_no_duration(db, task, counted, values):
    a_run(db, task, **values)
    measured = {name for name, *_ in counted(NINE + MINUTE)}
    assert measured.isdisjoint({"ticker_run_duration_seconds", "ticker_run_quota_used_ratio"})
    assert ("ticker_start_delay_seconds" in measured) == ("started_at" not in values)


# -------------------------------------------------------------------------------------------------------------- labels


def test_functions_that_workers_have_announced_are_there_at_zero(db, asked, environ):
    sql.on(db, "ticker")(
        "announce",
        names=["poll", "sum"],
        batches=[1, 1],
        concurrencies=[1, 1],
        repeatables=[False] * 2,
        queues=["polling"],
    )
    found = scraped(asked)
    assert found['ticker_runs_total{function="sum",outcome="failed"}'] == 0
    assert found[f'ticker_drops_total{{{POLL},reason="too_early"}}'] == 0
    assert found[f"ticker_run_duration_seconds_count{{{POLL}}}"] == 0


def test_functions_beyond_the_limit_are_counted_together(db, task, counted, monkeypatch):
    monkeypatch.setattr(ended, "FUNCTIONS_AT_MOST", 1)
    for function in ("poll", "sum", "sum", "max"):
        a_run(db, task, function=function, kind="manual", due_at=NINE)
    found = counted(NINE + MINUTE)
    runs = {key: count for key, count in found.items() if key[0] == "ticker_runs_total"}
    assert sum(runs.values()) == 4
    assert {function for _, function, _ in runs} < {"poll", "sum", "max", "(other)"}
    assert len(runs) == 2


def test_the_plan_walks_through_two_indexes_and_reads_no_table(crowd):
    found = plan(
        crowd, "count_ended", outcomes=ENDED, reasons=REASONS, since=NINE, until=NINE + MINUTE,
        delays=[-1.0], durations=[-1.0], shares=[-1.0],
    )  # fmt: skip
    assert indexes(found) == {"runs_by_outcome", "runs_by_reason"}
    assert read_whole(found) == set()


def test_every_metric_has_the_labels_that_are_allowed():
    assert {label for family in BY_NAME.values() for label in family.labels} == {
        "function",
        "queue",
        "limit",
        "outcome",
        "reason",
    }
