"""Calls TICKER_HEARTBEAT_URL after good ticks, so that a service outside notices when all tickers are gone."""

import logging
import threading

from ticker.notify.deliver import in_words
from ticker.notify.webhook import Webhook

log = logging.getLogger("ticker")


class Heartbeat:
    """Calls the URL, which is a secret, in a thread of its own, at most once at a time. No tick waits for it."""

    def __init__(self, url: str) -> None:
        self._endpoint = Webhook(url) if url else None
        self._calling = threading.Lock()
        self._fails = False

    def __bool__(self) -> bool:
        """Returns whether there is a URL."""
        return self._endpoint is not None

    def beat(self) -> None:
        if self._calling.acquire(blocking=False):
            threading.Thread(target=self._call, name="ticker-heartbeat", daemon=True).start()

    def _call(self) -> None:
        assert self._endpoint is not None
        try:
            status = self._endpoint.request("GET", b"", {"User-Agent": "rq-ticker", "Connection": "close"})
            self._log("" if 200 <= status < 300 else f"it answered {status}")
        except Exception as error:
            self._log(in_words(error))
        finally:
            self._calling.release()

    def _log(self, problem: str) -> None:
        """Logs when trouble begins or ends, but does not repeat itself."""
        if problem and not self._fails:
            log.warning("TICKER_HEARTBEAT_URL was not reached: %s", problem, extra={"event": "heartbeat_failed"})
        elif self._fails and not problem:
            log.info("TICKER_HEARTBEAT_URL is reached again", extra={"event": "heartbeat_recovered"})
        self._fails = bool(problem)
