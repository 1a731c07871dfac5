"""One history: a storm in which everything may fail, then a calm in which everything must mend by itself."""

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from tests.doubles import INSTALLATION
from tests.simulation.actors import PAUSING, People, Ticker
from tests.simulation.judge import judge
from tests.simulation.limits import CHOICES, drawn
from tests.simulation.ports import Fault
from tests.simulation.record import History
from tests.simulation.verdict import Tables
from tests.simulation.workers import DEATHS, Worker
from tests.simulation.world import SECOND, World
from ticker.engine import jobs
from ticker.engine.timing import WAITING_JOBS

YEAR = 365 * 86_400.0
STORM, LONGEST = 40, 4  # ticks of storm; the longest interval in the calm, in ticks
TIMES = (0, 0, 2, 4, 10)  # the upper bound of an elastic interval, in lower bounds; 0: it is fixed
HOURS = ("9-17", "12:05-12:20", "12:10-11:55")  # most histories begin at 12:00
RESTART = 40.0  # seconds until whatever was dead or frozen at the end of the storm is back
HOW = ("killed before", "killed after", "frozen", "answer lost", "cut")
CALLS = 78  # of a pass; a fault at a call that the pass does not reach strikes nobody


@dataclass
class Result:
    """What one seed gave: counts, and violations in words."""

    seed: int
    counts: Counter[str]
    violations: list[str]
    history: History = field(repr=False)


def play(
    seed: int, tables: Tables, *, size: float = 1.0, steps: bool = True, limits: bool = False, pauses: bool = False
) -> Result:  # fmt: skip
    """The history of this seed; `size` scales its length, `steps=False` leaves the clocks alone.

    With `limits`, most tasks have keys, their runs are long, and their jobs wait: meanwhile, keys are held and limits lowered.
    With `pauses`, there are more tasks, and people pause and resume many of them all the time.
    """
    drama = Drama(seed, tables, size, steps, limits, pauses)
    drama.storm()
    drama.calm()
    return Result(seed, drama.world.counts, judge(drama.world, drama.people, drama.period), drama.world.history)


class Drama:
    """The cast of one history, and the nemesis."""

    def __init__(
        self, seed: int, tables: Tables, size: float, steps: bool, limits: bool, pauses: bool = False
    ) -> None:  # fmt: skip
        self.world = World(tables, random.Random(seed), History(), hosts=1 + seed % 2)
        draw = self.world.random
        self.period = self.world.period = draw.choice([1.0, 5.0, 30.0])
        self.length = STORM * size * self.period
        self.people = People(self.world)
        self.tickers = [Ticker(self.world, n, self.period) for n in range(draw.randint(1, 3))]
        longest = 0.5 if limits else 0.1
        self.workers = [Worker(self.world, self.people, longest=longest, host=n) for n in range(draw.randint(2, 4))]
        self.world.on_push = self._wake_workers
        self.world.on_tick = lambda: self.people.pauses.judge_tick(self.people.tasks)
        self.world.on_claim = self.people.judge_claim
        self.world.on_grant = lambda now: self.people.pauses.granted(now, self.people.tasks.values())
        self.world.on_open, self.world.on_close = self.people.pauses.opened, self.people.pauses.closed
        self.world.on_let_go = self.people.pauses.went
        self._steps = steps
        self._lag = self.period if limits else 0.3  # seconds until a worker takes a job, at most
        self._acts = 18 if limits else 6
        self._pauses = pauses
        for _ in range(draw.randint(1, 4)):
            every = max(1.0, self.period * draw.choice([0.5, 1, 2, 3, 6, 10]))
            hours = draw.choice(HOURS) if draw.random() < 0.2 else ""
            self.people.register(every, explicit=draw.random() < 0.5, most=every * draw.choice(TIMES), during=hours)
        for key, limit in drawn(draw, self.period).items() if limits else ():
            self.people.declare(key, limit)
        for _ in range(draw.randint(3, 6) if limits else 0):
            every = max(2.0, self.period * draw.choice([1, 2, 3, 6]))
            self.people.register(every, explicit=True, limits=draw.choice(CHOICES), most=every * draw.choice(TIMES))
        for _ in range(draw.randint(3, 8) if pauses and not limits else 0):
            every = self.period * draw.choice([2, 3, 6, 10])
            self.people.register(every, explicit=draw.random() < 0.5, most=every * draw.choice(TIMES))

    def storm(self) -> None:
        draw = self.world.random
        for ticker in self.tickers:
            self.world.after(draw.choice([0.0, draw.uniform(0, self.period)]), ticker.beat)
        for _ in range(draw.randint(1, 12)):
            self.world.after(draw.uniform(0, self.length), self._strike)
        for _ in range(draw.randint(0, self._acts)):
            self.world.after(draw.uniform(0, self.length), self.people.act)
        for _ in range(draw.randint(0, 3)):
            self.world.after(draw.uniform(0, self.length), self._pause_what_waits)
        for _ in range(draw.randint(10, 30) if self._pauses else 0):
            self.world.after(draw.uniform(0, self.length), lambda: self.people.act(PAUSING))
        for _ in range(draw.randint(0, 4) if self._pauses else 0):
            self.world.after(draw.uniform(0, self.length - 2 * self.period), self._pause_during_a_tick)
        self._look_around()
        self.world.run_until(round(self.length * SECOND))

    def calm(self) -> None:
        world = self.world
        world.redis_up = world.postgres_up = True
        world.slow_until = 0
        for ticker in self.tickers:
            ticker.fault, ticker.down_until = None, 0
        for worker in self.workers:
            worker.fault = ""
        world.say("calm")
        world.freeze(RESTART)
        self.people.settle_down(LONGEST * self.period)
        self._work_off()
        self._find_the_dead()
        world.history.calm_from = world.t
        longest = max((spec.longest for spec in self.people.tasks.values() if not spec.deleted), default=0.0)
        world.freeze(5 * longest + 12 * self.period + 5)
        world.history.ended = world.t

    def _work_off(self) -> None:
        """The tasks that have waited for a pause go in turns: one in each tick, at least."""
        world = self.world
        for _ in range(len(self.people.tasks) + 3):
            if all(row.pause_id is None for row in world.tables.task_rows()):
                return
            world.freeze(self.period)
        world.history.complain("L4", "a task still waits for a pause that is over")

    def _find_the_dead(self) -> None:
        """A task with as many jobs of dead workers as may wait is not pushed until one of them is found, or expires."""
        world = self.world
        while any(
            len([due for due in row.waiting if self._is_in_dead_hands(row.id, due)]) == WAITING_JOBS
            for row in world.tables.task_rows()
        ):
            world.freeze(self.period)

    def _is_in_dead_hands(self, task_id: int, due: datetime) -> bool:
        job_id = jobs.job_id(INSTALLATION, task_id, due)
        return job_id in self.world.history.abandoned | self.world.history.popped

    def _pause_what_waits(self) -> None:
        """Jobs pile up for some ticks. Meanwhile, people pause or disable a task that waits, or many tasks."""
        world, draw = self.world, self.world.random
        world.slow_until = max(world.slow_until, world.t + round(3 * self.period * SECOND))
        after = min(draw.uniform(1, 2.9) * self.period, self.length - world.t / SECOND)
        world.after(after, lambda: self.people.act(("pause", "disable", "pause_all")))

    def _pause_during_a_tick(self) -> None:
        """The next pass of a ticker stands still after it has at_gate what is due."""
        draw, seconds = self.world.random, 2 * self.period
        draw.choice(self.tickers).fault = Fault("frozen", "close_pauses", min(seconds, 25.0))
        self.world.after(draw.uniform(0, seconds), lambda: self.people.act(("pause_all",)))

    def _wake_workers(self) -> None:
        for worker in self.workers:
            self.world.after(self.world.random.uniform(0.001, self._lag), worker.wake)

    def _look_around(self) -> None:
        """A worker's wait for a job ends by itself now and then; and S10 is looked at."""
        self._wake_workers()
        for row in self.world.tables.task_rows():
            self.world.history.waits.append((self.world.t, row.id, len(row.waiting)))
        self.world.after(4 * self.period, self._look_around)

    # --------------------------------------------------------------------------------------------------- nemesis

    def _strike(self) -> None:
        kinds = [self._ticker, self._ticker, self._ticker, self._worker, self._worker, self._redis_down,
                 self._postgres_down, self._wipe, self._slow, self._no_tickers]  # fmt: skip
        self.world.random.choice([*kinds, self._step, self._step] if self._steps else kinds)()

    def _ticker(self) -> None:
        draw = self.world.random
        how, seconds = draw.choice(HOW), draw.choice([0.3, 2.0, 8.0, 25.0])
        draw.choice(self.tickers).fault = Fault(how, draw.randint(1, CALLS), seconds)

    def _worker(self) -> None:
        self.world.random.choice(self.workers).fault = self.world.random.choice(DEATHS)

    def _redis_down(self) -> None:
        self._down("redis", "Redis unavailable")

    def _postgres_down(self) -> None:
        self._down("postgres", "PostgreSQL unavailable")

    def _down(self, server: str, kind: str) -> None:
        self.world.fault(kind)
        setattr(self.world, f"{server}_up", False)
        self.world.after(self.world.random.choice([1.0, 10.0, 3 * self.period]), lambda: self._up(server))

    def _up(self, server: str) -> None:
        setattr(self.world, f"{server}_up", True)
        self.world.say(f"{server} is back")

    def _wipe(self) -> None:
        self.world.fault("Redis wiped")
        self.world.history.wipes.append(self.world.t)
        self.world.tables.wipe()

    def _slow(self) -> None:
        self.world.fault("delay in the queue")
        self.world.slow_until = self.world.t + round(self.world.random.uniform(0.5, 8) * self.period * SECOND)

    def _no_tickers(self) -> None:
        self.world.fault("all tickers down")
        for ticker in self.tickers:
            ticker.down_until = self.world.t + round(10 * self.period * SECOND)

    def _step(self) -> None:
        draw = self.world.random
        size = draw.choice([draw.uniform(1, 60), draw.uniform(60, 86_400), draw.uniform(86_400, 10 * YEAR)])
        back = draw.random() < 0.5
        self.world.fault(f"clock set {'back' if back else 'forward'}")
        self.world.set_clock(round((-min(size, YEAR) if back else size) * SECOND))
