"""Keeps the first and the last bytes of a stream in memory that outlives the writing process.

The worker shares the memory with its horse (`share`): two rings for the output and the error output of a single run,
two small ones for each run of a group, and two for what arrives on the pipes of the file descriptors 1 and 2 (see
`output_pipes`). So a run's output survives, however the horse dies. No write waits for I/O, and none can corrupt
earlier bytes. Under a stock worker, the rings are in the horse's own memory.
"""

import mmap
import threading

from wrappers.sandbox.shared_state import SLOTS

HALF = 32 * 1024  # bytes that are kept from the beginning, and as many from the end
HALF_IN_GROUP = 8 * 1024  # the same for a run in a group
PATIENCE = 0.1  # seconds to wait for another thread's write

_COUNTS = 32  # bytes: four numbers of eight bytes each

Pair = tuple["Ring", "Ring"]


def room(half: int = HALF) -> int:
    """Returns the number of bytes of memory that a ring needs."""
    return _COUNTS + 3 * half


class Ring:
    """The first and the last `half` bytes of what was written, and the number of bytes between them.

    One process writes, in any of its threads. Every process that shares the memory may read, even after the writer was
    killed during a write. The counts are written after the bytes, and the ring is twice as large as the tail that is
    read. So a partial write never overlaps what the counts describe.
    """

    def __init__(self, memory: bytearray | memoryview, half: int = HALF) -> None:
        view = memoryview(memory)
        self._half = half
        # bytes written, bytes put into the ring, a mark, and whether a write is coming; each stored atomically
        self._counts = view[:_COUNTS].cast("Q")
        self._head, self._ring = view[_COUNTS : _COUNTS + half], view[_COUNTS + half : room(half)]
        self._lock = threading.RLock()  # a signal handler may write during a write

    def write(self, data: bytes | memoryview) -> None:
        """Keeps as many of these bytes as fit. An exception may interrupt the write; earlier bytes stay."""
        lock = self._lock
        held = lock.acquire(blocking=False) or lock.acquire(timeout=PATIENCE)  # the first call takes half the time
        try:
            self._keep(data)
        finally:
            if held:
                lock.release()
            else:  # its holder was interrupted before releasing it
                self._lock = threading.RLock()

    def _keep(self, data: bytes | memoryview) -> None:
        half, length = self._half, len(self._ring)
        written, put = self._counts[:2]
        end = written + len(data)
        if len(data) > half:
            data = memoryview(data)
        if written < half:
            first = data[: half - written]
            self._head[written : written + len(first)] = first
            data = data[len(first) :]
        last = data[-half:]
        at = put % length
        fits = length - at
        self._ring[at : at + len(last)] = last[:fits]
        if len(last) > fits:
            self._ring[: len(last) - fits] = last[fits:]
        self._counts[0] = end
        self._counts[1] = put + len(last)

    def read(self) -> tuple[bytes, int, bytes]:
        """Returns the first bytes, the number of bytes left out after them, and the last bytes. Never raises."""
        written, put = self._counts[:2]
        head, size = bytes(self._head[:written]), min(put, self._half)
        begin, end = (put - size) % len(self._ring), put % len(self._ring)
        is_in_one = begin < end or not size
        tail = self._ring[begin : begin + size] if is_in_one else [*self._ring[begin:], *self._ring[:end]]
        return head, max(written - len(head) - size, 0), bytes(tail)

    def since(self, mark: int, at_most: int) -> tuple[bytes, int, bytes]:
        """Reads what was written after the first `mark` bytes: only the last ones, `at_most` up to `half`."""
        new = max(self.written - mark, 0)
        head, left_out, tail = self.read()
        last = (tail if left_out else head + tail)[-min(new, at_most) :] if new else b""
        return b"", new - len(last), last

    @property
    def written(self) -> int:
        """The number of bytes that were written, kept or not."""
        return int(self._counts[0])

    @property
    def mark(self) -> int:
        """A number that is stored with the bytes."""
        return int(self._counts[2])

    def announce(self, is_coming: bool) -> None:
        """Notes for other processes, before a write, that it is coming, and after it that it is done."""
        self._counts[3] = is_coming

    @property
    def has_news(self) -> bool:
        """Whether bytes were written, or are coming."""
        return bool(self._counts[0] or self._counts[3])

    def empty(self, mark: int = 0) -> None:
        self._counts[0] = self._counts[1] = 0
        self._counts[2] = mark

    def move_to(self, other: "Ring") -> None:
        """Moves all bytes to another ring with the same `half`, as if they had been written there."""
        head, left_out, tail = self.read()
        other.write(head)
        other._counts[0] += left_out
        other.write(tail)
        self.empty(self.mark)  # last: if the process is killed before, some bytes are there twice, and none is lost


_memory: memoryview | None = None


def share() -> None:
    """Creates the shared memory, which later forks inherit, unless it exists. Unused pages take no memory."""
    global _memory
    if _memory is None:
        _memory = memoryview(mmap.mmap(-1, 4 * room() + 2 * SLOTS * room(HALF_IN_GROUP)))


def pair(slot: int | None = None) -> Pair:
    """Returns the rings for the output and error output of a single run, or of the run in a slot of a group."""
    if slot is None:
        return _pair(0, HALF)
    return _pair(4 * room() + 2 * slot * room(HALF_IN_GROUP), HALF_IN_GROUP)


def arrived() -> Pair:
    """Returns the rings for what arrives on the pipes of the file descriptors 1 and 2."""
    return _pair(2 * room(), HALF)


def _pair(begin: int, half: int) -> Pair:
    size = room(half)
    memory = memoryview(bytearray(2 * size)) if _memory is None else _memory[begin : begin + 2 * size]
    return Ring(memory[:size], half), Ring(memory[size:], half)
