"""The worker gives jobs to the process of a group. Here, both are in the test's own process."""

import signal
import time

import pytest
from rq.timeouts import HorseMonitorTimeoutException, UnixSignalDeathPenalty

from wrappers.group.refill import GivenJob, Pipe, Refill
from wrappers.rq.open_jobs import alarm_held
from wrappers.sandbox import limits


def test_further_jobs_do_not_put_off_rqs_heartbeat():
    """A busy group gets several jobs per second, and each holds the alarm."""
    with pytest.raises(HorseMonitorTimeoutException), UnixSignalDeathPenalty(1, HorseMonitorTimeoutException):
        end = time.monotonic() + 20
        while time.monotonic() < end:
            with alarm_held():
                pass


def test_an_alarm_that_came_due_in_a_held_block_comes_after_it():
    ends_at = time.monotonic() + 1.1
    reached = False
    with pytest.raises(HorseMonitorTimeoutException), UnixSignalDeathPenalty(1, HorseMonitorTimeoutException):
        with alarm_held():
            while time.monotonic() < ends_at:
                pass
            reached = True
        while True:
            signal.pause()
    assert reached


def test_a_job_with_a_shorter_timeout_does_not_shorten_rqs_alarm():
    pipe, taken = Pipe(), list[GivenJob]()
    pipe.give(GivenJob("b", 31, limits.now() + 91, [1, 1]))
    signal.alarm(500)
    try:
        Refill(pipe, taken.append).take()
    finally:
        left = signal.alarm(0)
        pipe.close()
    assert taken and left > 400
