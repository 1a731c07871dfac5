"""How many workers a load needs: durations from histograms, and a simulation of the queue."""

from itertools import islice

import pytest

from ticker.engine.workers import OVERHEAD, Durations, Function, Load, Ticks, durations

TICKS = Ticks(30.0, 0.0)


def tasks(count, every=60.0, due=0.0, is_spread=False):
    return [(due, every, is_spread)] * count


def load(*functions, ticks=TICKS, weight=1.0):
    return Load(functions, ticks, weight)


@pytest.mark.parametrize(
    ("counts", "total"), [([4], 0.1), ([0, 0, 0, 0, 198], 99.0), ([2, 0, 5, 1], 0.9), ([0] * 17 + [3], 12_000.0)]
)
def test_the_mean_of_a_histogram_is_that_of_its_values(counts, total):
    found = durations([(counts, total, False)])
    assert found.count == sum(counts)
    assert found.mean == pytest.approx(total / sum(counts))


def test_each_value_is_in_its_bucket():
    found = durations([([0, 3, 2], 0.4, False)])
    (low, three), (high, two) = found.values
    assert (three, two) == (3, 2) and 0.05 <= low <= 0.1 <= high <= 0.2


def test_runs_that_a_limit_ended_have_a_mean_of_their_own():
    found = durations([([0, 0, 0, 0, 198], 99.0, False), ([0] * 10 + [2], 61.0, True)])
    assert found.hung == (30.5, 2) and found.mean == pytest.approx(0.8)
    assert found.quantile(0.5) == pytest.approx(0.5) and found.quantile(0.999) == 30.5


def test_a_task_that_hangs_hangs_each_time_and_the_others_do_not():
    runs = [[*islice(took, 20)] for took in Durations(((0.5, 198),), (30.5, 2)).of_tasks(200)]
    assert sorted(sum(seconds == 30.5 for seconds in of_task) for of_task in runs) == [0] * 198 + [20] * 2


def test_the_work_of_an_hour_is_that_of_the_measured_mean():
    function = Function(Durations(((1.0, 1), (3.0, 1))), tasks=tasks(100))
    assert load(function).need().average == pytest.approx(100 / 60 * (2 + OVERHEAD))


def test_more_workers_are_needed_than_are_busy_where_all_is_due_at_once():
    """1,000 runs of half a second in five minutes keep 1.7 workers busy. To start within a minute, they take 9."""
    average, enough = load(Function(Durations(((0.5, 1),)), tasks=tasks(1000, 300.0))).need()
    assert (round(average, 1), enough) == (1.7, 9)
    spread = [(number * 0.3, 300.0, True) for number in range(1000)]
    assert load(Function(Durations(((0.5, 1),)), tasks=spread)).need().enough == 2


@pytest.mark.slow
def test_the_slots_of_a_group_count():
    function = Function(Durations(((1.0, 1),)), tasks=tasks(3000), batch=50, concurrency=20)
    assert load(function).need().enough == 3
    assert load(Function(Durations(((1.0, 1),)), tasks=tasks(3000))).need().enough >= 51


def test_another_job_ends_a_group():
    """The process takes no further jobs then, and its worker waits for the slowest run."""
    group = Function(
        Durations(((0.1, 19), (20.0, 1))),
        tasks=[(number / 1000, 60.0, True) for number in range(100)],
        batch=10,
        concurrency=50,
    )
    others = Function(Durations(((0.01, 1),)), tasks=[(number / 50, 60.0, True) for number in range(5)])
    assert load(group).need().enough == 1
    assert load(group, others).need().enough > 1


def test_runs_with_jobs_of_their_own_and_steady_starts_count():
    function = Function(Durations(((2.0, 1),)), steady=1.0, alone=1.0, batch=10, concurrency=10)
    assert load(function).need().average == pytest.approx(0.2 + 2 + OVERHEAD, abs=0.01)


def test_what_a_limit_lets_through_does_not_ask_for_one_more_worker():
    """Four runs at a time keep four workers busy, and the fork in between is what the limit waits for."""
    assert load(Function(Durations(((2.0, 1),)), steady=2.0)).need().enough == 4


def test_a_job_that_lasts_too_long_for_any_number_of_workers_asks_for_no_more():
    """The last task of a batch waits for the others, which no further worker changes."""
    function = Function(Durations(((5.0, 1),)), tasks=tasks(50, 600.0), batch=50)
    assert load(function).need().enough == 1


@pytest.mark.slow
def test_what_the_last_tick_pushes_just_now_is_not_late():
    function = Function(Durations(((0.1, 1),)), tasks=tasks(550, due=-4.0))
    assert load(function, ticks=Ticks(30.0, 26.0)).need().enough == 2


@pytest.mark.slow
def test_a_sample_stands_for_the_whole_table():
    some = Function(Durations(((0.5, 1),)), tasks=[(number * 0.6, 300.0, True) for number in range(500)])
    everything = Function(Durations(((0.5, 1),)), tasks=[(number * 0.006, 300.0, True) for number in range(50_000)])
    sampled, whole = load(some, weight=100.0).need(), load(everything).need()
    assert sampled.average == pytest.approx(whole.average)
    assert abs(sampled.enough - whole.enough) <= 3


@pytest.mark.parametrize("is_spread", [False, True])
@pytest.mark.parametrize(
    ("every", "period", "most"), [(1.0, 30.0, 11), (1.0, 1.0, 301), (10.0, 30.0, 11), (45.0, 30.0, 8)]
)
def test_a_task_runs_once_per_tick_at_most_however_short_its_interval(every, period, most, is_spread):
    runs = Function(Durations(((0.1, 1),)), tasks=tasks(1, every, is_spread=is_spread)).runs(300.0, Ticks(period, 0.0))
    found = [due for due, *_ in islice(runs, 1000)]
    assert most - 4 <= len(found) <= most
    assert len({Ticks(period, 0.0).at(due) for due in found}) == len(found)


def test_without_demand_no_worker_is_needed():
    assert load().need() == load(Function(Durations(((1.0, 1),)))).need() == (0.0, 0)
