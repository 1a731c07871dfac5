"""What keeps a due task from running: one table of the mechanisms, and of what becomes of each kind of work meanwhile.

Each row is a mechanism (`gates`), each column a behaviour (`behaviours`), and each cell what is seen through the public
operations, the real tick, and the real statements of starts and ends. A cell is empty if the mechanism cannot meet that
work, or if another row of the same rule has it.
"""

import re
from typing import Any

import psycopg
import pytest

import ticker
from tests.engine.behaviours import BEHAVIOURS, copy
from tests.engine.gates import Stage
from tests.harness import QUEUE, command
from tests.rights import with_user
from ticker.cli import pauses
from ticker.db import sql
from ticker.db.connections import connect

pytestmark = pytest.mark.slow

TABLE = """
mechanism                    | a due task             | its job                | its older job          | its lost job
it is disabled               | waits                  | dropped: paused        | dropped: paused        | waits
its inactive owner           | due again              | dropped: paused        | dropped: paused        | waits
it is paused                 | waits                  | waits: closed          | dropped: superseded    | waits
all are paused               | waits                  | waits: closed          | dropped: superseded    | waits
its group is paused          | waits                  | waits: closed          | dropped: superseded    | waits
its function is paused       | waits                  | waits: closed          |                        |
its queue is paused          | waits                  | waits: closed          |                        |
its owner type is paused     | waits                  | waits: closed          |                        |
its key is paused            | waits                  | waits: closed          | dropped: superseded    | waits
its key has no place         | waits                  | waits: no_room         | dropped: superseded    | pushed again
its key has no start left    | waits                  | waits: no_room         | dropped: superseded    | pushed again
a hold of its key            | waits                  | waits: no_room         | dropped: superseded    | pushed again
its hours are over           | put off                | starts                 | starts                 | pushed again
its queue is full            | waits                  | starts                 | starts                 | pushed again
no worker knows its function | waits: unknown_here    | waits: unknown_here    | dropped: superseded    | pushed again
a run of it is at work       | dropped: still_running | dropped: still_running | dropped: still_running | pushed again
it is not its turn           | waits                  | starts                 | starts                 | pushed again
# (The triggers of owners read the server's clock, which lies before a play: there, the time has not passed yet.)
# differs: what is disabled drops its jobs; what is paused keeps them. Hours, depths and turns let jobs in the queue
# start.
# differs: behind a gate with places or a rate, hours, a depth, turns or an unknown function, the sweep pushes a lost job
# again.

mechanism                    | its times | its only time | no catch up | clock set back
it is disabled               | no run    | late run      | no run      | in an interval
its inactive owner           | late run  | late run      | missed      |
it is paused                 | late run  | late run      | missed      | in an interval
all are paused               | late run  | late run      | missed      | in an interval
its group is paused          | late run  | late run      | missed      | in an interval
its function is paused       |           |               |             |
its queue is paused          |           |               |             |
its owner type is paused     |           |               |             |
its key is paused            | late run  | late run      | missed      | in an interval
its key has no place         | late run  | late run      | missed      | in an interval
its key has no start left    | late run  | late run      | missed      | later
a hold of its key            | late run  | late run      | missed      | in an interval
its hours are over           |           |               |             | in an interval
its queue is full            | late run  | late run      | missed      | in an interval
no worker knows its function | late run  | late run      | missed      | in an interval
a run of it is at work       | late run  | late run      | missed      | in an interval
it is not its turn           | late run  | late run      | missed      | in an interval
# differs: a time passes without a record while the task is disabled, but not while its owner is inactive.
# (The last two are opened after less than ten minutes. After ten, a turn lets its task go, and an unknown function
# drops it. The triggers of owners read the server's clock, which a play cannot set back.)

mechanism                    | a manual run        | its manual job      | a retry         | a piece
it is disabled               | refused             | dropped: paused     | dropped: paused | dropped: paused
its inactive owner           | refused             | dropped: paused     | dropped: paused | dropped: paused
it is paused                 | starts              | starts              | waits, no_time  | waits, no_time
all are paused               | waits               | waits: closed       | waits, no_time  | waits, no_time
its group is paused          | starts              | starts              | waits, no_time  | waits, no_time
its function is paused       | starts              |                     | waits, no_time  |
its queue is paused          | starts              |                     | waits, no_time  |
its owner type is paused     | starts              |                     | waits, no_time  |
its key is paused            | starts              | starts              | waits, no_time  | waits, no_time
its key has no place         | waits               | waits: no_room      | waits, no_time  | waits, no_time
its key has no start left    | waits               | waits: no_room      | waits, no_time  | waits, no_time
a hold of its key            | waits               | waits: no_room      | waits, no_time  | waits, no_time
its hours are over           | starts              | starts              | starts          | starts
its queue is full            | waits               | starts              | waits, no_time  | waits, no_time
no worker knows its function | waits: unknown_here | waits: unknown_here | waits, starts   | waits, starts
a run of it is at work       | waits               |                     | waits, no_time  | starts
it is not its turn           | starts              | starts              | waits, starts   | starts
# differs: `run_now` refuses what is disabled. Manual runs wait for limits, depths, functions and a pause of all
# tasks, but for nothing else. Hours let retries and pieces start, and turns let pieces start.

mechanism                    | its end writes | a start writes | with a pause           | set forward    | a tick reads
it is disabled               | nothing        | nothing        | waits for both         | at once        | none
its inactive owner           | nothing        | nothing        | waits for both         | at once        | none
it is paused                 | nothing        | nothing        | waits for both         | at once        | none
all are paused               | nothing        | nothing        | waits for both         | at once        | none
its group is paused          | nothing        | nothing        | waits for both         | at once        | none
its function is paused       |                |                |                        |                |
its queue is paused          |                |                |                        |                |
its owner type is paused     |                |                |                        |                |
its key is paused            | nothing        | nothing        | waits for both         | at once        | none
its key has no place         | slots          | slots          | waits for both         | at once        | many
its key has no start left    | nothing        | slots          | waits for both         | at once        | many
a hold of its key            | nothing        | slots          | waits for both         | at once        | many
its hours are over           | nothing        | nothing        | waits for both         | at once        | none
its queue is full            | nothing        | nothing        | waits for both         | at once        | many
no worker knows its function | nothing        | pauses         | waits: unknown_here    | in an interval |
a run of it is at work       | nothing        | nothing        | dropped: still_running | at once        |
it is not its turn           | nothing        | nothing        | waits for both         | at once        | many
# differs: a tick reads due tasks that wait for a limit, a depth or a turn. The others have left the indexes of
# due tasks. (`test_unknown_functions` counts what it reads of those that wait for a worker.)
# differs: the first start of an unknown function writes the row of its wait.
"""

# What people read of a task that is due and waits: on the page and in lists, in the API, in which states lists and
# metrics count it, from `why`, and from `why --at`.
# differs: lists select what is outside its hours, but no index counts it.
# differs: of a depth and of a turn, nothing is stored that `why --at` could tell; of limits, what still lasts.
READ = """
it is disabled: page: disabled | api: disabled | counted: inactive | why: disabled: nothing is pushed until it is
    enabled; ticker edit 1 --enable | at: then: disabled from TIME by ann
its inactive owner: page: owner inactive | api: owner_inactive | counted: inactive | why: its owner is inactive:
    nothing is pushed until it is active again | at: then: its owner was inactive from TIME by USER
it is paused: page: paused by ann: it moves | api: paused | counted: paused | why: paused by ann: it moves; ticker
    resume 1 ends it | at: then: paused from TIME by ann: it moves
all are paused: page: paused with all tasks by ann: it moves | api: paused | counted: paused | why: paused with all
    tasks by ann: it moves | at: then: all tasks were paused by ann from TIME: it moves
its group is paused: page: paused with tasks of the group mail by ann: it moves | api: paused | counted: paused |
    why: paused with tasks of the group mail by ann: it moves | at: then: tasks of the group mail were paused by ann
    from TIME: it moves
its function is paused: page: paused with tasks of the function poll by ann: it moves | api: paused | counted:
    paused | why: paused with tasks of the function poll by ann: it moves | at: then: tasks of the function poll
    were paused by ann from TIME: it moves
its queue is paused: page: paused with tasks of the queue polling by ann: it moves | api: paused | counted: paused |
    why: paused with tasks of the queue polling by ann: it moves | at: then: tasks of the queue polling were paused
    by ann from TIME: it moves
its key is paused: page: paused with tasks of the limit imap.* by ann: it moves | api: paused | counted: paused |
    why: paused with tasks of the limit imap.* by ann: it moves | at: then: tasks of the limit imap.* were paused by
    ann from TIME: it moves
its key has no place: page: no room: 2 of 2 runs of imap.a are active | api: no_room | counted: no_room | why: due
    since TIME, for 20 s; it waits because 2 of 2 runs of imap.a are active; the oldest is run 1 of neighbour 1,
    since TIME | at: then: at least 2 runs of imap.a were active, which now allows 2
its key has no start left: page: no room: 2 of 2 starts of imap.a are used up until TIME | api: no_room | counted:
    no_room | why: due since TIME, for 20 s; it waits because 2 of 2 starts of imap.a are used up until TIME
a hold of its key: page: no room: imap.a is closed until TIME (SlowDown) | api: no_room | counted: no_room | why:
    due since TIME, for 20 s; it waits because imap.a is closed until TIME (SlowDown) | at: then: imap.a was
    closed from TIME to TIME (SlowDown)
its hours are over: page: outside its hours 9-17,17:16-23, which begin at TIME | api: outside_hours | counted: outside_hours | why:
    outside its hours 9-17,17:16-23, which begin at TIME; due at TIME, in 21 min | at: then: outside its present hours
    9-17,17:16-23, which began again at TIME
its queue is full: page: queue full: the queue polling had no room at the last tick (TICKER_QUEUE_DEPTH), which left
    1 due task; the next tick looks again | api: queue_full | counted: queue_full | why: due since TIME, for 20 s; it waits
    because the queue polling had no room at the last tick (TICKER_QUEUE_DEPTH), which left 1 due task; the next tick looks again
no worker knows its function: page: unknown function: no worker is known to have its function 'poll' | api:
    unknown_function | counted: unknown_function | why: due since TIME, for 20 s; it waits because no worker is known
    to have its function 'poll' | at: then: no worker was known to have the function poll from TIME
a run of it is at work: page: running | api: running | counted: running waiting | why: run 1 has been running for 30
    s; it is dead by TIME at the latest; 1 job was pushed to the queue polling and has not started; it was due 20 s
    ago; due at TIME, in 9 min 50 s | at: then: run 1 held the task from TIME
it is not its turn: page: waits for its turn: suspected tasks of its function take turns; the next tick looks
    again | api: waits_for_its_turn | counted: waits_for_its_turn | why: it runs alone or with other suspects until
    one of its runs has ended: a run was
    interrupted or lost, and the cause is unknown; due since TIME, for 20 s; it waits because suspected tasks of its
    function take turns; the next tick looks again
"""


def cells() -> list[Any]:
    """The cells of the table, each with its mechanism and its column."""
    found, columns = [], list[str]()
    for line in (line for line in TABLE.split("\n") if line and not line.startswith("#")):
        gate, *row = [cell.strip() for cell in line.split("|")]
        columns = row if gate == "mechanism" else columns
        found += [(gate, column, cell) for column, cell in zip(columns, row, strict=True) if cell and row != columns]
    lines = re.sub(r"\n +", " ", READ).strip().split("\n")
    found += [(line.split(": ", 1)[0], "what people read", line.split(": ", 1)[1]) for line in lines]
    return [
        pytest.param(*cell, id=f"{cell[0]}: {cell[1]}" + f": {cell[2]}" * (cell[1] != "what people read"))
        for cell in found
    ]


@pytest.mark.parametrize(("gate", "behaviour", "expected"), cells())
def test_what_becomes_of(gate, behaviour, expected, play, monkeypatch):
    assert BEHAVIOURS[behaviour](Stage(play, gate, monkeypatch)) == expected


# --------------------------------------------------------------------------- what is the same for all of them


@pytest.mark.parametrize(
    ("gate", "pushed"), [("its group is paused", [1000, 1000, 1201]), ("it is paused", [1201, 1201, 1201])]
)
def test_owners_take_turns_in_the_budget_after_a_pause_of_many(gate, pushed, play, monkeypatch):
    """Every tenth of 1,201 tasks has another owner. A tick that was woken gets no budget of its own."""
    # differs: all pauses of their own end in the first tick after their time, also in one that was woken
    stage = Stage(play, gate, monkeypatch)
    stage.register()
    stage.close()
    copy(stage, 1200, "(n % 10 = 0)::text")
    stage.tick(30)
    stage.play.put(paused_until=stage.play.at(60)) if gate == "it is paused" else stage.open(60)
    seen = []
    for seconds in (60, 61, 90):
        stage.tick(seconds)
        seen.append(stage.play.redis.llen(QUEUE))
    assert seen == pushed
    jobs = [re.search(rb"-t([0-9]+)-", job) for job in stage.play.redis.lrange(QUEUE, 0, 39)]
    owners = dict(stage.db.execute("SELECT id, owner_id FROM ticker.tasks").fetchall())
    assert [owners[int(job[1])] for job in jobs if job].count("true") in (19, 20)


def is_allowed(operation, *args, **kwargs):
    try:
        operation(*args, **kwargs)
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


@pytest.mark.parametrize(
    ("role", "may_close_a_key", "may_pause"),
    [
        ("worker", True, False),
        ("ticker", True, False),
        ("application", False, True),
        ("page", False, True),
        ("viewer", False, False),
    ],
)
def test_a_worker_may_hold_a_key_off_but_pause_nothing(role, may_close_a_key, may_pause, play, database_url, roles):
    ticker.limit(play.db, "imap", concurrency=1)
    ticker.register(play.db, "poll", every="1m", limits=["imap"])
    given = {"key": "imap", "run_id": 1, "for_ms": None, "age": 0.0, "now": play.now}
    with connect(with_user(database_url, roles[role])) as connection:
        assert is_allowed(sql.on(connection, "ticker"), "close_key", **given) == may_close_a_key
        assert is_allowed(ticker.pause_all, connection, queue="polling") == may_pause


def test_a_task_that_came_due_after_the_last_tick_says_that_its_queue_was_full_then(play, monkeypatch):
    stage = Stage(play, "its queue is full", monkeypatch)
    stage.close()
    neighbour = stage.neighbour()
    stage.register(35)
    stage.tick(30)
    play.at(40)
    said = [ticker.why(play.db, task).next[-1].partition("it waits because ")[2] for task in (neighbour, stage.task)]
    assert said[0] == said[1] != ""
    ticker.edit(play.db, neighbour, enabled=False)
    stage.tick(41)
    play.at(50)
    assert "which left 1 due task" in ticker.why(play.db, stage.task).next[-1]
    stage.started_after(60)
    assert "the queue" not in " ".join(ticker.why(play.db, stage.task).next[2:])


def test_a_drain_is_over_when_the_last_run_has_ended(play, monkeypatch):
    monkeypatch.setattr(pauses, "LATEST_START", 0.0)
    stage = Stage(play, "all are paused", monkeypatch)
    stage.register(0)
    [taken] = stage.turns(0)
    assert "1 run" in command("pause", "--all", "--wait", "1s", code=1)[1]
    assert stage.play.end(taken, "succeeded")
    command("pause", "--all", "--wait", "1s")
