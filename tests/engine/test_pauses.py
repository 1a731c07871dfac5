"""Pauses of many tasks, tick by tick: what is due waits for the end of the pause, and then goes within a budget."""

from datetime import timedelta
from functools import partial

import pytest

import ticker
from tests.doubles import NOW, MemoryQueue, MemoryStore
from ticker.db.connections import connect
from ticker.engine.passes import Room
from ticker.engine.ports import Look
from ticker.engine.tick import Pass, TickOptions, apply_pauses, tick

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HALF_A_MINUTE = 30 * SECOND
PERIOD = TickOptions(period=30_000)


@pytest.fixture
def rows():
    store = MemoryStore()
    store.least_budget = 2
    return store


@pytest.fixture
def jobs():
    return MemoryQueue()


def add(rows, count, **columns):
    """So many tasks of ten minutes, the oldest first."""
    return [rows.add_task(every_ms=600_000, next_run=NOW - age * SECOND, **columns) for age in range(count, 0, -1)]


def pushed(rows, jobs, now, options=PERIOD):
    """The tasks that this tick pushes, in order."""
    before = len(jobs.waiting())
    tick(rows, jobs, now, options)
    return [jobs.jobs[id_].args[0] for id_ in jobs.waiting()[before:]]


# ---------------------------------------------------------------------------------------------------- under a pause


def test_a_tick_pushes_no_task_of_a_pause_and_delays_no_other(rows, jobs):
    [paused], [free] = add(rows, 1, group_name="mail"), add(rows, 1)
    rows.add_pause("group", "mail")
    assert pushed(rows, jobs, NOW) == [free]
    assert rows.task(paused).next_run == NOW - SECOND


def test_all_due_tasks_of_a_pause_are_withheld_however_many(rows, jobs):
    ids = add(rows, 5)
    pause = rows.add_pause("all")
    tick(rows, jobs, NOW, TickOptions(batch=2))
    assert {rows.task(id_).pause_id for id_ in ids} == {pause}


def test_a_pass_that_is_to_stop_withholds_nothing_and_lets_nothing_go(rows, jobs):
    [at_gate], pause = add(rows, 1), rows.add_pause("all")
    rows.wait_for_gate(NOW, 0, 10)
    [due] = add(rows, 1)
    rows.end_pause(pause, NOW)
    rows.add_pause("function", "other")
    apply_pauses(Pass(rows, Room(jobs, {}), NOW, TickOptions(stop=lambda: True)))
    assert (rows.task(at_gate).pause_id, rows.task(due).pause_id) == (pause, None)


def test_a_pause_that_is_committed_after_a_tick_has_withheld_what_is_due_holds_for_its_pushes(rows, jobs, monkeypatch):
    add(rows, 2)
    usual = MemoryStore.open_pauses
    monkeypatch.setattr(MemoryStore, "open_pauses", lambda *args: [usual(*args), rows.add_pause("all")][0])
    assert pushed(rows, jobs, NOW) == []


# ----------------------------------------------------------------------------------------------- the end of a pause


def test_after_a_pause_each_tick_lets_its_budget_go_and_those_that_are_due_for_longest_first(rows, jobs):
    ids, pause = add(rows, 5), rows.add_pause("all")
    tick(rows, jobs, NOW, PERIOD)
    rows.end_pause(pause, NOW + MINUTE)
    ticks = [NOW + MINUTE + number * HALF_A_MINUTE for number in range(4)]
    assert [pushed(rows, jobs, now) for now in ticks] == [ids[:2], ids[2:4], ids[4:], []]


def test_a_budget_is_let_go_in_batches(rows, jobs):
    rows.least_budget = 5
    ids, pause = add(rows, 6), rows.add_pause("all")
    tick(rows, jobs, NOW, PERIOD)
    rows.end_pause(pause, NOW + MINUTE)
    assert pushed(rows, jobs, NOW + MINUTE, TickOptions(batch=2, period=30_000)) == ids[:5]


def test_a_pause_that_begins_while_tasks_of_another_still_wait_keeps_them_and_those_that_went(rows, jobs):
    ids, first = add(rows, 4), rows.add_pause("all")
    tick(rows, jobs, NOW, PERIOD)
    rows.end_pause(first, NOW + MINUTE)
    assert pushed(rows, jobs, NOW + MINUTE) == ids[:2]
    second = rows.add_pause("all")
    assert [pushed(rows, jobs, NOW + MINUTE + n * HALF_A_MINUTE) for n in (1, 2)] == [[], []]
    rows.end_pause(second, NOW + 3 * MINUTE)
    assert pushed(rows, jobs, NOW + 3 * MINUTE) == ids[2:]


# --------------------------------------------------------------------------------------------- with the real tables


def operation(play, seconds, operate, *args, **kwargs):
    with play.clock():
        play.at(seconds)
        return operate(play.db, *args, **kwargs)


def pause_at(play, seconds, **scope):
    """The tick behind it withholds what is due."""
    operation(play, seconds, ticker.pause_all, **scope)
    return play.tick()


def resume_at(play, seconds, **scope):
    operation(play, seconds, ticker.resume_all, **scope)
    return play.tick()


@pytest.fixture
def task(play):
    return ticker.register(play.db, "poll", every="1m")


@pytest.mark.slow
def test_a_job_that_met_a_pause_is_pushed_again_after_it_and_starts(play, task):
    play.tick()
    operation(play, 1, ticker.pause_all)
    assert [taken.refusal for taken in play.take()] == ["closed"]
    assert [play.tick().enqueued, play.take()] == [0, []]
    assert resume_at(play, 600).enqueued == 1
    [taken] = play.take()
    assert (taken.refusal, taken.started_at) == (None, play.now)
    assert [run.occurrence for run in play.runs()] == [task.next_run]


@pytest.mark.slow
def test_a_pass_under_a_pause_finds_nothing_to_do(play, task):
    pause_at(play, 0)
    assert play.store.look(play.at(600), 0).idle_at == play.now


@pytest.mark.slow
def test_a_pass_does_nothing_but_push_where_tasks_are_due_and_no_pause_is_in_force(play, task):
    store = play.store
    store.clamp(play.now, 100)  # the first pass looks at all rows
    assert store.look(play.now, 0) == Look(only_due_at=play.now)
    operation(play, 0, ticker.pause_all)
    assert store.look(play.now, 0) == Look()
    operation(play, 0, ticker.resume_all)
    assert store.look(play.now, 0) == Look()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [59, 60])
def test_a_pause_with_an_end_ends_by_itself(seconds, play, task):
    operation(play, 0, ticker.pause_all, until=play.begin + MINUTE)
    play.tick()
    assert play.store.next_due(play.now) == 60
    play.at(seconds)
    assert play.tick().enqueued == (seconds == 60)
    assert play.events() == ["paused", *["resumed"] * (seconds == 60)]


@pytest.mark.slow
def test_a_task_that_an_edit_leaves_in_the_pause_waits_again(play):
    task = ticker.register(play.db, "poll", every="1m", group="mail")
    pause_at(play, 0, group="mail")
    operation(play, 1, ticker.edit, task, queue="slow")
    assert play.tick().enqueued == 0
    assert resume_at(play, 2, group="mail").enqueued == 1


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
def test_a_job_that_redis_lost_is_pushed_again_only_after_the_pause(own, play, task, redis):
    play.tick()
    if own:
        operation(play, 1, ticker.pause, task)
    else:
        operation(play, 1, ticker.pause_all)
    redis.flushdb()
    assert play.tick().enqueued == 0
    operation(play, 30, ticker.resume, task) if own else operation(play, 30, ticker.resume_all)
    assert play.tick().enqueued == 1


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("met", [True, False])
@pytest.mark.parametrize("kind", ["cron", "once"])
def test_cron_and_once_make_one_late_run_after_a_pause(kind, met, own, play):
    """Whether their time fell into the pause, or their job had been pushed before it."""
    schedule = {"cron": "* * * * *"} if kind == "cron" else {"at": play.begin + MINUTE}
    with play.clock():
        task = ticker.register(play.db, "poll", **schedule)
    due = (task.next_run - play.begin).total_seconds()
    pause, resume = (
        ((ticker.pause, task), (ticker.resume, task)) if own else ((ticker.pause_all,), (ticker.resume_all,))
    )
    if met:
        play.at(due)
        play.tick()
    operation(play, due + 0.5 if met else due - 1, *pause)
    assert [taken.refusal for taken in play.take()] == ["closed"] * met
    play.at(due + 300.5)
    play.tick()
    operation(play, due + 301, *resume)
    play.tick()
    assert [(taken.refusal, taken.started_at) for taken in play.take()] == [(None, play.now)]
    assert [run.occurrence for run in play.runs()] == [task.next_run]
    after = ticker.get(play.db, task).next_run
    assert after is None if kind == "once" else after > play.now


@pytest.mark.slow
@pytest.mark.parametrize("gate", ["many", "own", "enabled"])
def test_an_interval_task_that_came_due_meanwhile_keeps_its_time_whatever_was_closed(gate, play, task):
    close, open_ = {
        "many": (ticker.pause_all, ticker.resume_all),
        "own": (partial(ticker.pause, task=task), partial(ticker.resume, task=task)),
        "enabled": [partial(ticker.edit, task=task, enabled=enabled) for enabled in (False, True)],
    }[gate]
    operation(play, 0, close)
    for seconds in (0, 300):
        play.at(seconds)
        play.tick()
    operation(play, 600, open_)
    play.tick()
    assert [(taken.refusal, taken.started_at) for taken in play.take()] == [(None, play.now)]
    assert [run.occurrence for run in play.runs()] == [task.next_run]
    assert ticker.get(play.db, task).next_run == play.now + MINUTE


# ------------------------------------------------------------------------------------------ a pass that would be idle


@pytest.mark.slow
def test_a_pass_lets_a_task_go_though_its_pause_is_done(play, task):
    """Another ticker saw no task that waits, and committed that the pause is done, before this one at_gate the task."""
    pause_at(play, 0)
    operation(play, 5, ticker.resume_all)
    play.db.execute("UPDATE ticker.pauses SET done_at = resumed_at")
    play.at(6)
    assert play.tick().enqueued == 1


# ----------------------------------------------------------------------------------------------------------- locks


@pytest.mark.slow
def test_a_tick_does_not_wait_for_a_pause_whose_end_people_are_changing(play, task, database_url):
    operation(play, 0, ticker.pause_all, group="mail", until=play.begin + MINUTE)
    with connect(database_url) as other, other.transaction():
        with play.clock():
            play.at(61)
            ticker.pause_all(other, group="mail")
        assert play.tick().enqueued == 1
    play.at(62)
    assert play.tick().enqueued == 0
    assert [(pause.in_force, pause.until) for pause in ticker.list_pauses(play.db)] == [(True, None)]


@pytest.mark.parametrize(("now", "end"), [(40, 60), (-30, -30)])
def test_a_tick_that_stood_still_leaves_the_end_of_a_pause_and_a_clock_that_was_set_back_moves_it(
    now, end, play, task, store
):
    """What became due between the `now` of such a tick and the end would not wait for the budget."""
    pause_at(play, 10)
    operation(play, 60, ticker.resume_all)
    store.open_pauses(play.at(now))
    [resumed_at] = play.db.execute("SELECT resumed_at FROM ticker.pauses").fetchone()
    assert play.since_begin(resumed_at) == end
