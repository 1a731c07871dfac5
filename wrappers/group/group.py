"""Runs the tasks of one job at the same time, each with its own start, time box and end.

Starts are requested in one statement for all free slots, right before the functions are called. Coroutines run on the
event loop of this process's main thread, and plain functions in one thread each. The worker writes the ends.

The process ends when nothing is at work and no job is expected (`_goes_on`), or is killed at the first deadline (slots.py).
"""

import asyncio
import logging
import math
import signal
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from uuid import uuid4

from ticker.engine import timing
from ticker.engine.jobs import named
from ticker.model import NO_FAILURE, Reason
from wrappers.group.begun import make_task, watch
from wrappers.group.calls import Calls
from wrappers.group.full_keys import FullKeys
from wrappers.group.loop_watch import Watch
from wrappers.group.refill import GivenJob, Pipe, Refill
from wrappers.group.slots import Slots
from wrappers.group.threads import watch_sockets
from wrappers.layers import around, one_of_several
from wrappers.layers.record import leave, log_ended, pending_end
from wrappers.layers.time_box import new_run
from wrappers.pipeline import finish, start
from wrappers.pipeline.context import Answer, Call
from wrappers.pipeline.database import LOCK_PAUSE
from wrappers.pipeline.output import Capture, Output, current_output
from wrappers.sandbox import child_processes, limits, shared_state
from wrappers.sandbox.handoff import PendingEnd

log = logging.getLogger("ticker.run")

LOOK = 1.0  # seconds between two checks for a request to stop, while tasks are unstarted
COLLECT = 0.02  # seconds for which free slots are collected, from the first on, before the next starts are requested


@dataclass
class OpenJob:
    """A job with unstarted tasks, which may be given back after the instant `until` of `limits.now`."""

    until: float
    unstarted: int


class Group:
    """Runs calls in `concurrency` slots until all have run, were refused or were given back. With a pipe, takes further
    jobs.
    """

    def __init__(self, calls: Sequence[Call], concurrency: int, further_jobs: Pipe | None = None) -> None:
        self.answers: Counter[str] = Counter()
        self._unstarted: deque[Call] = deque()
        self._jobs: dict[str, OpenJob] = {}
        self._template = calls[0]
        self._refill = further_jobs and Refill(further_jobs, self._take_in)
        self._changed = asyncio.Event()
        self._free_at = math.inf  # since this instant of `limits.now`, a slot is free for which no start was requested
        self._at_work: set[asyncio.Task[None]] = set()
        self._slots = Slots(concurrency, kills=calls[0].settings.hard_limit != "off")
        self._keeps_output = calls[0].settings.output == "keep"
        self._asking = ThreadPoolExecutor(1, "ticker-start")
        self._ending = ThreadPoolExecutor(1, "ticker-end")
        self._calls = Calls(concurrency, when_it_ignores=self._close)
        self._is_closing = False  # a run has ignored its soft limit, so the process may be killed soon
        self._has_failed = False  # a start request failed, so nothing new begins
        self._failure: BaseException | None = None  # an error of a run outside its function
        self._is_torn = False  # the event loop ended before the runs
        self._locked_since: dict[int, float] = {}  # by task id
        self._full_keys = FullKeys()
        self._tick = calls[0].settings.tick_ms / 1000
        if not further_jobs:  # a worker of RQ's own class kills this process 60 s after the job's timeout
            self._tick = min(self._tick, timing.RQ_MARGIN)
        self._begun = 0  # since the last look at what cannot begin
        self._looks_at = limits.now() + self._tick
        self._open(calls)

    def work(self) -> str:
        """Runs all calls. Returns the number of calls with each outcome or refusal, as a short text.

        Tasks that cannot begin go back to their rows. Their job ends without them, and the next tick pushes them again.
        """
        signal.alarm(0)  # RQ's, which does not know when the last run began: see slots.py
        child_processes.adopt()
        watch_sockets()
        watch()
        with Capture(self._keeps_output, of_group=True), Watch(), asyncio.Runner() as runner:
            runner.get_loop().set_task_factory(make_task)
            try:
                runner.run(self._work())
            except BaseException:  # the runner now cancels the runs, and the worker records their ends
                self._is_torn = True
                raise
        child_processes.kill()
        self._slots.close()
        return ", ".join(f"{count} {answer}" for answer, count in self.answers.items())

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        if self._refill:
            loop.add_reader(self._refill.fileno(), self._hear, self._refill)
        ours = copy_context()  # the signal may come during a step of a run
        signal.signal(limits.STOP_SIGNAL, lambda *_: loop.call_soon_threadsafe(self._calls.stop, context=ours))
        try:
            await self._work_until_all_have_ended()
        finally:
            signal.signal(limits.STOP_SIGNAL, signal.SIG_IGN)
            if self._refill:  # a job that arrives now stays unread, and its worker puts it back
                loop.remove_reader(self._refill.fileno())

    async def _work_until_all_have_ended(self) -> None:
        while self._goes_on():
            self._changed.clear()
            await self._give_back()
            if self._can_start():
                for begun in await self._start():
                    run = asyncio.create_task(self._run(*begun))
                    self._at_work.add(run)
                    run.add_done_callback(self._note_end)
            if self._goes_on():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._changed.wait()
            if self._failure is not None:
                raise self._failure
            if self._unstarted:
                await asyncio.sleep(min(self._free_at - limits.now(), 0.0) + COLLECT)
        await self._give_back()

    def _goes_on(self) -> bool:
        """Requests a further job if slots are free. Returns whether there is a run, or may be another one."""
        if not self._may_begin():
            return bool(self._at_work)
        if self._refill and self._number_without_a_full_key() < len(self._slots):
            self._refill.ask()
        return bool(self._at_work or self._unstarted or (self._refill and self._refill.is_expected))

    def _hear(self, refill: Refill) -> None:
        refill.take()
        self._changed.set()

    def _note_end(self, run: asyncio.Task[None]) -> None:
        self._at_work.discard(run)
        self._free_at = min(self._free_at, limits.now())
        self._failure = self._failure or (None if run.cancelled() else run.exception())
        self._changed.set()

    def _open(self, calls: Sequence[Call]) -> None:
        self._unstarted.extend(calls)
        self._jobs[calls[0].job_id] = OpenJob(limits.now() + self._tick, len(calls))

    def _take_in(self, job: GivenJob) -> None:
        template = replace(self._template, job_id=job.job_id)
        pairs = zip(job.numbers[::2], job.numbers[1::2], strict=True)
        calls = [
            replace(template, task_id=task_id, occurrence=occurrence, planned=planned, answer=Answer())
            for task_id, number in pairs
            for occurrence, planned in [named(number)]
        ]
        self._open(calls)

    async def _give_back(self) -> None:
        """Gives back the tasks that cannot begin here soon: looks once per tick, and at all tasks once nothing may
        begin.

        Tasks of full keys go back after a tick. Others are kept until slots are free, unless another worker is idle:
        then those go back that have waited for a tick, and that as many starts as in the last tick would not reach.
        """
        now, closes = limits.now(), not self._may_begin()
        if not self._unstarted or not (closes or now > self._looks_at):
            return
        reached, self._begun, self._looks_at = 0 if closes else self._begun, 0, now + self._tick
        others = [call for call in self._unstarted if call.task_id not in self._full_keys][reached:]
        old = {job_id for job_id, job in self._jobs.items() if closes or now > job.until}
        await self._write_back(
            [call for call in self._unstarted if call.task_id in self._full_keys and call.job_id in old], Reason.NO_ROOM
        )
        await self._write_back([call for call in others if call.job_id in old], Reason.NO_SLOT, if_idle=not closes)

    async def _write_back(self, calls: Sequence[Call], reason: Reason, if_idle: bool = False) -> None:
        """Gives calls back, with `if_idle` only if another worker is idle. What cannot be written now stays unstarted."""
        if not calls:
            return
        try:
            back = await asyncio.get_running_loop().run_in_executor(
                self._asking, start.give_back, calls, reason, if_idle
            )
        except Exception as error:
            log.warning("%s tasks were not given back: %s", len(calls), error, extra={"event": "give_back_failed"})
            return
        gone = {id(call) for call in back}
        self._unstarted = deque(call for call in self._unstarted if id(call) not in gone)
        for call in back:
            self._locked_since.pop(call.task_id, None)
            self._full_keys.forget(call.task_id)
            self._let_go(call.job_id)

    def _let_go(self, job_id: str, number: int = 1) -> None:
        """Notes that this many tasks of the job are no longer unstarted. A job without unstarted tasks ends in RQ."""
        job = self._jobs[job_id]
        job.unstarted -= number
        if job.unstarted == 0:
            del self._jobs[job_id]
            if self._refill:
                self._refill.let_go(job_id)

    async def _start(self) -> list[tuple[int, Call, Output]]:
        """Requests a start for each free slot. Returns the slots, calls and outputs of the tasks that may begin."""
        self._free_at = math.inf
        if not (calls := self._next_calls(len(self._slots))):
            return []
        tokens = [str(uuid4()) for _ in calls]
        slots = self._slots.take([(call.task_id, token) for call, token in zip(calls, tokens, strict=True)])
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self._asking, start.ask_all, calls, tokens)
        except Exception as error:  # the slots stay taken: the worker ends the runs that may have started
            log.warning(
                "nothing new begins in this process, because a start request failed: %s",
                error,
                extra={"event": "start_failed"},
            )
            self._has_failed = True
            for call in calls:
                self._let_go(call.job_id)
            return []
        refused = {
            call.task_id: answer
            for call, answer in zip(calls, answers, strict=True)
            if isinstance(answer, start.NoRoom)
        }
        self._full_keys.note((call.task_id for call in calls), refused)
        settled = [self._settle(*judged) for judged in zip(slots, calls, answers, strict=True)]
        return [begun for begun in settled if begun is not None]

    def _settle(
        self, slot: int, call: Call, answer: Call | start.NoRoom | str | None
    ) -> tuple[int, Call, Output] | None:
        """Begins a run that may start in its slot. Otherwise frees the slot, and keeps the call if it may start later."""
        locked_since = self._locked_since.pop(call.task_id, limits.now())
        if isinstance(answer, Call) and answer.start is not None:
            run = call.task_id, answer.start.token, answer.start.run_id
            output = Output(slot)  # discards the output of an earlier run in this slot
            hard = answer.deadline - answer.since
            shared_state.write_names(call.job_id, *answer.start.names, slot)
            self._slots.begin(slot, *run, soft_at=answer.at(1 / 4), deadline=answer.deadline, hard_limit=hard)
            self._let_go(call.job_id)
            self._begun += 1
            return slot, answer, output
        self._slots.give_back(slot)
        if isinstance(answer, start.NoRoom):
            self._unstarted.append(call)
        elif answer is None and limits.now() - locked_since < start.PATIENCE:
            self._locked_since[call.task_id] = locked_since
            self._unstarted.append(call)
        else:
            self._let_go(call.job_id)
            if answer is None:
                log.warning(
                    "task=%s did not begin: its row was locked for over %.0f s",
                    call.task_id,
                    start.PATIENCE,
                    extra={"event": "start_delayed"},
                )
            self.answers["locked" if answer is None else str(answer).partition(":")[0]] += 1
        return None

    def _next_calls(self, number: int) -> list[Call]:
        """Takes up to this number of unstarted calls of different tasks whose keys may have room."""
        calls: dict[int, Call] = {}
        later = []
        chosen: Counter[str] = Counter()
        while self._unstarted and len(calls) < number:
            call = self._unstarted.popleft()
            if call.task_id in calls or not self._full_keys.admit(call.task_id, chosen):
                later.append(call)
            else:
                calls[call.task_id] = call
        self._unstarted.extendleft(reversed(later))
        return [*calls.values()]

    async def _run(self, slot: int, call: Call, output: Output) -> None:
        begun = call.start
        assert begun is not None
        if self._keeps_output:
            current_output.set(output)  # in the context of this asyncio task, and of all that it begins
        call, error = replace(call, run=new_run(call)), None
        with one_of_several(call):
            try:
                with around(call):
                    await self._calls.call(slot, call)
            except BaseException as raised:
                error = raised
            if self._is_torn:
                return
            left = pending_end(call, error, *output.close())
            if leave(left) or await self._write(slot, call, left):
                self.answers[log_ended(call, left.end)] += 1
            self._slots.give_back(slot)
            self._full_keys.note_end(begun.limits)
            if error is not None and left.end.outcome not in NO_FAILURE:
                raise error

    async def _write(self, slot: int, call: Call, left: PendingEnd) -> bool:
        """Writes an end from this process. Returns False if it changes nothing, or cannot be written."""
        self._slots.returned(slot)
        write = partial(finish.write, call.database, left, until=call.deadline)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._ending, write)
        except Exception as error:
            log.warning(
                "the end of task=%s could not be written: %s", call.task_id, error, extra={"event": "end_delayed"}
            )
            return False

    def _number_without_a_full_key(self) -> int:
        return sum(call.task_id not in self._full_keys for call in self._unstarted)

    def _pause(self) -> float | None:
        """Returns the seconds until the next start may be requested, if no run ends before."""
        if not self._unstarted:
            return None if self._at_work else LOOK
        if not self._can_start():
            return LOOK
        rows_are_locked = LOCK_PAUSE
        return min(max(self._full_keys.pause(call.task_id for call in self._unstarted), rows_are_locked), LOOK)

    def _can_start(self) -> bool:
        return bool(self._unstarted and self._slots and self._may_begin())

    def _may_begin(self) -> bool:
        return not (self._is_closing or self._has_failed or shared_state.is_stopping())

    def _close(self, task_id: int) -> None:
        log.warning(
            "task=%s ignores its soft limit: nothing new begins in this process",
            task_id,
            extra={"event": "soft_limit_ignored"},
        )
        self._is_closing = True
