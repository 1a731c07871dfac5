"""Of what a run writes, the first and the last bytes are there when it is dead; nothing can leave them in pieces."""

import os
import signal
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.running import until
from wrappers.sandbox import ring_buffer
from wrappers.sandbox.ring_buffer import HALF, Ring


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process and its forks share what they print, as a worker and its horse do."""
    monkeypatch.setattr(ring_buffer, "_memory", None)
    ring_buffer.share()


@pytest.mark.slow
@given(st.lists(st.binary(max_size=60)), st.integers(1, 16))
def test_of_any_writes_the_first_and_the_last_bytes_are_kept_and_the_others_counted(writes, half):
    kept = Ring(bytearray(ring_buffer.room(half)), half)
    for data in writes:
        kept.write(data)
    everything = b"".join(writes)
    head, rest = everything[:half], everything[half:]
    assert kept.read() == (head, max(len(rest) - half, 0), rest[-half:])


@pytest.mark.slow
@given(st.lists(st.binary(max_size=60)), st.lists(st.binary(max_size=60)), st.integers(1, 16))
def test_what_is_moved_to_another_buffer_is_there_as_if_it_had_been_written_there(before, moved, half):
    kept, arrived, at_once = (Ring(bytearray(ring_buffer.room(half)), half) for _ in range(3))
    arrived.empty(mark=7)
    for ring, written in ((kept, before), (arrived, moved), (at_once, before + moved)):
        for data in written:
            ring.write(data)
    arrived.move_to(kept)
    assert (kept.read(), arrived.read(), arrived.mark) == (at_once.read(), (b"", 0, b""), 7)


@pytest.mark.slow
@given(st.lists(st.binary(max_size=60)), st.lists(st.binary(max_size=60)), st.integers(1, 16))
def test_the_last_bytes_after_a_mark_are_found_and_the_others_counted(before, after, half):
    kept = Ring(bytearray(ring_buffer.room(half)), half)
    for data in before:
        kept.write(data)
    mark = kept.written
    for data in after:
        kept.write(data)
    everything = b"".join(after)
    assert kept.since(mark, half) == (b"", max(len(everything) - half, 0), everything[-half:])


@given(st.binary(min_size=ring_buffer.room(4), max_size=ring_buffer.room(4)))
def test_whatever_the_memory_holds_it_can_be_read(memory):
    head, left_out, tail = Ring(bytearray(memory), 4).read()
    assert len(head) <= 4 and len(tail) <= 4 and left_out >= 0


def numbers(begin: int, count: int) -> bytes:
    """Eight bytes each, from 0 again after the last of a round."""
    return b"".join((number % A_ROUND).to_bytes(8, "big") for number in range(begin, begin + count))


SIZES = (1, 5, 1000, 4095, 4096, 9000)
A_ROUND = sum(SIZES)


@pytest.mark.slow
def test_a_kill_in_mid_write_leaves_no_byte_of_the_end_in_a_wrong_place(shared):
    """The writer writes 0, 1, 2, ... in pieces of all sizes; what is left are consecutive numbers."""
    kept, _ = ring_buffer.pair()
    pieces = [numbers(sum(SIZES[:place]), size) for place, size in enumerate(SIZES)]

    def write_on() -> None:
        while True:
            for piece in pieces:
                kept.write(piece)

    for _ in range(100):
        kept.empty()
        pid = os.fork()
        if pid == 0:
            write_on()
        until(lambda: kept.read()[1] > 10 * HALF, "some writes")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        head, _, tail = kept.read()
        assert head == numbers(0, HALF // 8)
        assert tail == numbers(int.from_bytes(tail[:8], "big"), HALF // 8)


def test_writes_of_several_threads_are_all_counted_and_none_is_torn():
    kept = Ring(bytearray(ring_buffer.room()))

    def write(letter: bytes) -> None:
        for _ in range(2000):
            kept.write(letter * 99 + b"\n")

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    head, left_out, tail = kept.read()
    assert len(head) + left_out + len(tail) == 4 * 2000 * 100
    assert {(len(line), len(set(line))) for line in tail.split(b"\n")[1:-1]} == {(99, 1)}


def test_a_lock_that_nobody_gives_back_costs_one_wait():
    kept = Ring(bytearray(ring_buffer.room()))
    thread = threading.Thread(target=kept._lock.acquire)
    thread.start()
    thread.join()
    kept.write(b"one")
    assert kept._lock.acquire(blocking=False)
    assert kept.read() == (b"one", 0, b"")
