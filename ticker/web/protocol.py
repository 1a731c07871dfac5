"""HTTP as `ticker web` speaks it: uvicorn's, which by itself waits for the rest of a request's headers for ever."""

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_WITHIN = 10.0
"""Seconds that a client has for the headers of a request, from the connection or the last answer on."""


class Protocol(H11Protocol):
    """Closes a connection on which no request is complete in time, however many bytes of it arrive."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._due = self.loop.call_later(HEADERS_WITHIN, self._close_unless_answering)

    def connection_lost(self, exc: Exception | None) -> None:
        self._due.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._due.cancel()
        self._due = self.loop.call_later(HEADERS_WITHIN, self._close_unless_answering)
        super().on_response_complete()

    def _close_unless_answering(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
