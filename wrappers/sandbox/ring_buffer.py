"""The first and the last bytes of a stream, in memory that outlives the process that writes.

The worker shares two of them with the horse that it forks (`share`), one for each output of a run, and empties them
before each (`begin`). So what a run had written is there when its horse is dead, whatever killed it: no write waits for
anything, and none can leave what was kept before in pieces. Under a stock worker they lie in the horse's own memory.
"""

import mmap
import threading

HALF = 32 * 1024  # bytes of the beginning that are kept, and as many of the end
PATIENCE = 0.1  # seconds for another thread's write

_COUNTS = 16  # bytes: two numbers of eight

Pair = tuple["Ring", "Ring"]


def room(half: int = HALF) -> int:
    """Returns the bytes of memory that a ring needs."""
    return _COUNTS + 3 * half


class Ring:
    """The first and the last `half` bytes of what was written, and how many bytes lie between.

    One process writes, in any of its threads. Every process that has the memory may read, also after the writer was
    killed in mid-write: counts are written after bytes, and the end goes into a ring of twice the size that is shown,
    so that the piece on its way never lies over what the counts tell of.
    """

    def __init__(self, memory: bytearray | memoryview, half: int = HALF) -> None:
        self._half = half
        self._lie_in(memoryview(memory))

    def _lie_in(self, view: memoryview) -> None:
        half = self._half
        self._counts = view[:_COUNTS].cast("Q")  # bytes written at all, bytes put into the ring; each stored at once
        self._head = view[_COUNTS : _COUNTS + half]
        self._ring = view[_COUNTS + half : room(half)]
        self._lock = threading.RLock()  # a signal's handler may write in the middle of a write

    def write(self, data: bytes | memoryview) -> None:
        """Keeps what it can of these bytes. May be interrupted by an exception: what was kept before stays."""
        lock = self._lock
        held = lock.acquire(blocking=False) or lock.acquire(timeout=PATIENCE)  # the first is quicker by half
        try:
            self._keep(data if len(data) <= self._half else memoryview(data))
        finally:
            if held:
                lock.release()
            else:  # whoever held it was interrupted between taking it and giving it back
                self._lock = threading.RLock()

    def read(self) -> tuple[bytes, int, bytes]:
        """The first bytes, how many were left out behind them, and the last. Whatever the memory holds, it never raises."""
        written, put = self._counts
        head = bytes(self._head[:written])
        tail = self._last(put, min(put, self._half))
        return head, max(written - len(head) - len(tail), 0), tail

    def empty(self) -> None:
        self._counts[0] = self._counts[1] = 0

    def part(self) -> None:
        """In a fork of the writing process: from now on what is written here stays here."""
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


def share() -> None:
    """Makes the memory, unless there is some already; for this process and those that it forks from now on."""
    global _shared
    if _shared is None:
        memory = memoryview(mmap.mmap(-1, 2 * room()))
        _shared = Ring(memory[: room()]), Ring(memory[room() :])


def begin() -> None:
    """For a new job: nothing was written yet."""
    for ring in _shared or ():
        ring.empty()


def pair() -> Pair:
    """Where a run's output and error output go: shared memory where there is some."""
    return _shared or (Ring(bytearray(room())), Ring(bytearray(room())))
