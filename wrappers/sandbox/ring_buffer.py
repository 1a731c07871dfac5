"""Keeps the first and the last bytes of a stream in memory that outlives the writing process.

The worker shares two buffers with its horse (`share`), one per output stream of a run, and empties them before each job
(`begin`). So a run's output survives, however the horse dies. No write waits for I/O, and none can corrupt earlier
bytes. Under a stock worker, the buffers are in the horse's own memory.

Two more buffers take in what arrives on the pipes of the file descriptors 1 and 2 (see `output_pipes`).
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
    killed during a write. The counts are written after the bytes, and the ring is twice as large as the tail that is read. So
    a partial write never overlaps what the counts describe.
    """

    def __init__(self, memory: bytearray | memoryview, half: int = HALF) -> None:
        self._half = half
        self._lie_in(memoryview(memory))

    def _lie_in(self, view: memoryview) -> None:
        half = self._half
        # bytes written, bytes put into the ring, a mark, and whether a write is coming; each stored atomically
        self._counts = view[:_COUNTS].cast("Q")
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
        written, put = self._counts[:2]
        head = bytes(self._head[:written])
        tail = self._last(put, min(put, self._half))
        return head, max(written - len(head) - len(tail), 0), tail

    def since(self, mark: int, at_most: int) -> tuple[int, bytes]:
        """Returns the last bytes after the first `mark`, and the number of bytes left out before them. `at_most` is up to `half`."""
        new = max(self.written - mark, 0)
        head, left_out, tail = self.read()
        last = (tail if left_out else head + tail)[-min(new, at_most) :] if new else b""
        return new - len(last), last

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
        return bool(self._counts[3] or self._counts[0])

    def empty(self, mark: int = 0) -> None:
        self._counts[0] = self._counts[1] = 0
        self._counts[2] = mark

    def move_to(self, other: "Ring") -> None:
        """Appends all bytes to another ring with the same `half`, as if they had been written there, and empties this one."""
        head, left_out, tail = self.read()
        other.write(head)
        other._counts[0] += left_out
        other.write(tail)
        self.empty(self.mark)  # last: if the process is killed before, some bytes are there twice, and none is lost

    def part(self) -> None:
        """Gives a fork of the writing process a buffer of its own."""
        self._lie_in(memoryview(bytearray(room(self._half))))

    def _keep(self, data: bytes | memoryview) -> None:
        written, put = self._counts[:2]
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
_arrived: Pair | None = None
_of_slots: memoryview | None = None  # for the runs of a group; unused pages take no memory


def share() -> None:
    """Creates the shared memory, unless it exists. Later forks of this process inherit it."""
    global _shared, _arrived, _of_slots
    if _shared is None:
        _of_slots = memoryview(mmap.mmap(-1, SLOTS * 2 * room(HALF_IN_GROUP)))
        memory = memoryview(mmap.mmap(-1, 4 * room()))
        first, second, third, fourth = (Ring(memory[room() * place : room() * (place + 1)]) for place in range(4))
        _shared, _arrived = (first, second), (third, fourth)


def begin() -> None:
    """Empties the buffers of a run's prints for a new job."""
    for ring in _shared or ():
        ring.empty()


def pair() -> Pair:
    """Returns the buffers for a run's output and error output, in shared memory if there is any."""
    return _shared or (Ring(bytearray(room())), Ring(bytearray(room())))


def arrived() -> Pair:
    """Returns the buffers for what arrives on the pipes of the file descriptors 1 and 2. They exist only in shared memory."""
    assert _arrived is not None
    return _arrived


def pair_of(slot: int) -> Pair:
    """Returns the buffers of a slot, for a run in a group."""
    size = room(HALF_IN_GROUP)
    memory = (
        memoryview(bytearray(2 * size)) if _of_slots is None else _of_slots[2 * size * slot : 2 * size * (slot + 1)]
    )
    return Ring(memory[:size], HALF_IN_GROUP), Ring(memory[size:], HALF_IN_GROUP)
