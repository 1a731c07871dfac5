"""Extends uvicorn's HTTP protocol with a time limit for the headers of a request."""

from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_WITHIN = 10.0
"""Seconds that a client has for the headers of a request, counted from the connection or from the last answer."""


class Protocol(H11Protocol):
    """Closes a connection if the headers of a request are not complete in time, however many bytes arrive."""

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
        elif self.flow.write_paused:  # the client does not read its answers
            self.transport.abort()
        else:
            self._due = self.loop.call_later(HEADERS_WITHIN, self._close_unless_answering)
