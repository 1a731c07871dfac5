"""Interrupts a plain function in its thread at the soft limit of its run.

An exception that one thread raises in another does not reach a call that waits for a socket. So the sockets that the
function opened are shut down, too, which makes the call return.
"""

import ctypes
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from typing import Any
from weakref import WeakSet

from wrappers.sandbox.limits import SoftLimit

_opened: ContextVar["WeakSet[socket.socket] | None"] = ContextVar("ticker_sockets", default=None)


class Interruptible:
    """One call of a function in a thread, which another thread may interrupt."""

    def __init__(self) -> None:
        self.is_interrupted = False
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._has_ended = False
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self._error = SoftLimit

    def __call__(self, function: Callable[[], Any]) -> Any:
        _opened.set(self._sockets)
        self._thread = threading.get_ident()
        try:
            if self.is_interrupted:
                raise self._error
            return function()
        except StopIteration as error:  # a future cannot store it
            raise RuntimeError("the function raised StopIteration") from error
        finally:
            with self._lock:  # after this, nothing is raised in the thread, which will run another function
                self._thread, self._has_ended = None, True

    def interrupt(self, error: type[SoftLimit] = SoftLimit) -> None:
        """Raises the error in the function and shuts down its sockets. If it was not called yet, it never will be."""
        with self._lock:
            self._error = error
            self.is_interrupted |= not self._has_ended
            if self._thread is None:
                return
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(error))
            for opened in list(self._sockets):
                with suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)


@cache
def watch_sockets() -> None:
    """Notes each socket that a function opens from now on, in this process. An audit hook cannot be removed."""
    sys.addaudithook(_note)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.__new__" and (opened := _opened.get()) is not None:
        with suppress(TypeError):  # a socket made in C may not support weak references
            opened.add(arguments[0])
