"""Keeps the first and the last bytes of a stream in memory that outlives the writing process.

The worker shares two buffers with its horse (`share`), one per output stream of a run, and empties them before each job
(`begin`). So a run's output survives, however the horse dies. No write waits for I/O, and none can corrupt earlier
bytes. Under a stock worker, the buffers are in the horse's own memory.
"""

import mmap
import threading

from wrappers.sandbox.shared_state import SLOTS

HALF = 32 * 1024  # bytes that are kept from the beginning, and as many from the end
HALF_IN_GROUP = 8 * 1024  # the same for a run in a group
PATIENCE = 0.1  # seconds to wait for another thread's write

_COUNTS = 16  # bytes: two numbers of eight bytes each

Pair = tuple["Ring", "Ring"]


def room(half: int = HALF) -> int:
    """Returns the number of bytes of memory that a ring needs."""
    return _COUNTS + 3 * half


class Ring:
    """The first and the last `half` bytes of what was written, and the number of bytes between them.

    One process writes, in any of its threads. Every process that shares the memory may read, even after the writer was
    killed during a write. The counts are written after the bytes, and the ring is twice as large as the tail that is read. So
    a partial write never overlaps what the counts describe.
    """

    def __init__(self, memory: bytearray | memoryview, half: int = HALF) -> None:
        self._half = half
        self._lie_in(memoryview(memory))

    def _lie_in(self, view: memoryview) -> None:
        half = self._half
        self._counts = view[:_COUNTS].cast("Q")  # bytes written, bytes put into the ring; each stored atomically
        self._head = view[_COUNTS : _COUNTS + half]
        self._ring = view[_COUNTS + half : room(half)]
        self._lock = threading.RLock()  # a signal handler may write during a write

    def write(self, data: bytes | memoryview) -> None:
        """Keeps as many of these bytes as fit. An exception may interrupt the write; earlier bytes stay."""
        lock = self._lock
        held = lock.acquire(blocking=False) or lock.acquire(timeout=PATIENCE)  # the first call takes half the time
        try:
            self._keep(data if len(data) <= self._half else memoryview(data))
        finally:
            if held:
                lock.release()
            else:  # its holder was interrupted before releasing it
                self._lock = threading.RLock()

    def read(self) -> tuple[bytes, int, bytes]:
        """Returns the first bytes, the number of bytes left out after them, and the last bytes. Never raises."""
        written, put = self._counts
        head = bytes(self._head[:written])
        tail = self._last(put, min(put, self._half))
        return head, max(written - len(head) - len(tail), 0), tail

    def empty(self) -> None:
        self._counts[0] = self._counts[1] = 0

    def part(self) -> None:
        """Gives a fork of the writing process a buffer of its own."""
        self._lie_in(memoryview(bytearray(room(self._half))))

    def _keep(self, data: bytes | memoryview) -> None:
        written, put = self._counts
        end = written + len(data)
        if written < self._half:
            first = data[: self._half - written]
            self._head[written : written + len(first)] = first
            data = data[len(first) :]
        last = data[-self._half :]
        self._put(put, last)
        self._counts[0] = end
        self._counts[1] = put + len(last)

    def _put(self, put: int, piece: bytes | memoryview) -> None:
        at = put % len(self._ring)
        fits = len(self._ring) - at
        if len(piece) <= fits:
            self._ring[at : at + len(piece)] = piece
        else:
            self._ring[at:] = piece[:fits]
            self._ring[: len(piece) - fits] = piece[fits:]

    def _last(self, put: int, size: int) -> bytes:
        begin, end = (put - size) % len(self._ring), put % len(self._ring)
        if begin < end or not size:
            return bytes(self._ring[begin : begin + size])
        return bytes(self._ring[begin:]) + bytes(self._ring[:end])


_shared: Pair | None = None
_of_slots: memoryview | None = None  # for the runs of a group; unused pages take no memory


def share() -> None:
    """Creates the shared memory, unless it exists. Later forks of this process inherit it."""
    global _shared, _of_slots
    if _shared is None:
        _of_slots = memoryview(mmap.mmap(-1, SLOTS * 2 * room(HALF_IN_GROUP)))
        memory = memoryview(mmap.mmap(-1, 2 * room()))
        _shared = Ring(memory[: room()]), Ring(memory[room() :])


def begin() -> None:
    """Empties both buffers for a new job."""
    for ring in _shared or ():
        ring.empty()


def pair() -> Pair:
    """Returns the buffers for a run's output and error output, in shared memory if there is any."""
    return _shared or (Ring(bytearray(room())), Ring(bytearray(room())))


def pair_of(slot: int) -> Pair:
    """Returns the buffers of a slot, for a run in a group."""
    size = room(HALF_IN_GROUP)
    memory = (
        memoryview(bytearray(2 * size)) if _of_slots is None else _of_slots[2 * size * slot : 2 * size * (slot + 1)]
    )
    return Ring(memory[:size], HALF_IN_GROUP), Ring(memory[size:], HALF_IN_GROUP)
