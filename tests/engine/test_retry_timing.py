"""Random histories of one task on the real statements: when its attempts start, how long they may last, what is counted.

Time goes on by steps that are handed in. A worker takes jobs late, ends them or dies with them; ticks come when they come.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import ticker
from tests.harness import Played, Taken
from ticker.engine import timing
from ticker.model import GOOD
from ticker.tasks.fields import Task

pytestmark = pytest.mark.slow

ENDS = ("succeeded", "nothing_to_do", "failed", "failed", "failed", "timed_out", "killed", "dies")
STEPS = st.lists(
    st.tuples(
        st.floats(0.001, 0.5),  # of the interval
        st.sampled_from(["tick", "tick", "tick and take", "tick and take", "take", "by hand", "end", "end", "end"]),
        st.sampled_from(ENDS),
    ),
    min_size=15,
    max_size=30,
)

TWO_DIE_IN_ONE_TICK = [(0.1, "tick and take", ""), (0.6, "by hand", ""), (0.1, "tick and take", ""), (1.5, "take", "")]


@st.composite
def definitions(draw):
    """Of a task with retries: T + B + g fit into its interval."""
    every = draw(st.integers(2_000, 120_000))
    tolerance = int(every * draw(st.floats(0, 0.6)))
    least, most = sorted(draw(st.tuples(st.integers(1, every), st.integers(1, every))))
    said = {"every": every / 1000, "tolerance": tolerance / 1000, "retries": draw(st.integers(1, 4)),
            "backoff": f"{least}ms..{most}ms"}  # fmt: skip
    room = every - tolerance - timing.grace(every)
    if draw(st.booleans()):
        said["box"] = draw(st.integers(timing.SHORTEST_BOX, room)) / 1000
    return said


@dataclass
class History:
    """What a worker did with the jobs of a task, checked as it goes."""

    play: Played
    task: Task
    alive: list[tuple[Taken, datetime]] = field(default_factory=list)
    attempts: list[Taken] = field(default_factory=list)

    def step(self, what: str, outcome: str) -> None:
        self.alive = [(taken, until) for taken, until in self.alive if self.play.now < until]  # the hard limit
        if "tick" in what:
            self.play.tick()
        if "take" in what:
            self.take()
        if what == "by hand":
            ticker.run_now(self.play.db, self.task)
        if what == "end" and self.alive:
            taken, _ = self.alive.pop()
            if outcome != "dies":
                self.play.end(taken, outcome)

    def take(self) -> None:
        for taken in self.play.take():
            if taken.refusal is None:
                assert self.others(taken) == [], "while another one runs"
                self.started(taken)

    def others(self, taken: Taken) -> list[Taken]:
        return [other for other, until in self.alive if taken.started_at < until]

    def started(self, taken: Taken) -> None:
        grace = timing.span(self.task.grace_ms)
        until = taken.started_at + taken.box + grace
        if taken.kind != "manual":
            assert until <= self.next_start(), "it might be alive when the next start may come"
        if taken.kind == "retry":
            assert taken.box >= min(timedelta(seconds=1), timing.span(self.task.box_ms))
            self.attempts.append(taken)
        self.alive.append((taken, until))

    def next_start(self) -> datetime:
        now = self.play.task()
        return timing.earliest_start(now.last_run, now.every_ms, now.tolerance_ms)


def counted(runs):
    """Succeeded, failed, dropped: as the rows say."""
    outcomes = [run.outcome for run in runs if run.outcome]
    good, dropped = sum(o in GOOD for o in outcomes), outcomes.count("dropped")
    return good, len(outcomes) - good - dropped, dropped


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(definition=definitions(), steps=STEPS)
@example(definition={"every": 2.0, "tolerance": 0.0}, steps=TWO_DIE_IN_ONE_TICK)
def test_no_attempt_meets_another_or_the_next_start_and_the_totals_are_those_of_the_rows(play, definition, steps):
    play.db.execute("TRUNCATE ticker.tasks, ticker.runs, ticker.events")
    play.redis.flushdb()
    play.at(0)
    task = ticker.register(play.db, "poll", **definition)
    history, seconds = History(play, task), 0.0
    for share, what, outcome in steps:
        seconds += share * task.every_ms / 1000
        play.at(seconds)
        history.step(what, outcome)

    play.at(seconds + task.every_ms / 1000)
    play.tick()  # what died is found
    runs, after = play.runs(), play.task()
    assert (after.succeeded, after.failed, after.dropped) == counted(runs)
    of_occurrences = [
        (run.occurrence, run.attempt) for run in runs if run.kind in ("scheduled", "retry") and run.started_at
    ]
    assert len(of_occurrences) == len(set(of_occurrences))
    assert max([run.attempt for run in runs], default=1) <= task.retries + 1
    retried = [run.id for run in runs if run.retried]
    assert len(retried) == len([run for run in runs if run.kind == "retry"])


def test_a_history_has_attempts_to_look_at(play):
    """So that the property above is one of something."""
    task = ticker.register(play.db, "poll", every="1m", retries=2, backoff="1s")
    history = History(play, task)
    for seconds in range(0, 300, 3):
        play.at(seconds)
        history.step("tick and take", "")
        history.step("end", "failed")
    assert len(history.attempts) == 10
    assert (play.task().failures, play.events()) == (5, ["failed"])
