"""Collects the figures of ticks, formats figures for Prometheus, and serves them.

Only this module imports the Prometheus library, which is an extra. Without the extra, its import raises
ConfigurationError.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from ticker import clock, small_server
from ticker.engine.jobs import ENTRY, EPOCH, JobSpec, micros
from ticker.engine.passes import Report
from ticker.engine.ports import Receipt
from ticker.errors import ConfigurationError
from ticker.metrics.ended import FUNCTIONS_AT_MOST, OTHER
from ticker.metrics.families import BY_NAME, DELAYS, TICKS, Figures, Histogram
from ticker.metrics.servers import Servers
from ticker.queue.rq import RedisQueue
from ticker.settings import Settings

try:
    from prometheus_client import CollectorRegistry, Metric
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector
except ImportError:
    raise ConfigurationError('metrics need prometheus-client: pip install "rq-ticker[metrics]"') from None

log = logging.getLogger("ticker")

PATH = "/metrics"


class Ticks:
    """Observes the ticks of `loop.run`, which reports them, so nothing is queried."""

    def __init__(self, settings: Settings) -> None:
        self._delays = Delays()
        self.queue: RedisQueue = WatchedQueue.of(settings, self._delays)
        self._lock = threading.Lock()
        self._durations = Histogram(TICKS)
        self._counts = Report(EPOCH).counts
        self._failures = self._saved = 0
        self._last: datetime | None = None

    def ticked(self, report: Report | None, seconds: float) -> None:
        with self._lock:
            if report is None:
                self._failures += 1
                return
            self._last = report.now
            self._durations.add(seconds)
            self._saved += report.due.saved
            for name, count in report.counts.items():
                self._counts[name] += count
        self._delays.set_clock(report.now, seconds)

    def figures(self) -> Figures:
        with self._lock:
            return {
                "ticker_tick_last_timestamp_seconds": {(): self._last.timestamp()} if self._last else {},
                "ticker_tick_duration_seconds": {(): self._durations.read()},
                "ticker_tick_failures_total": {(): self._failures},
                **{f"ticker_tick_{name}_total": {(): count} for name, count in self._counts.items()},
                "ticker_polls_saved_total": {(): self._saved},
                "ticker_push_delay_seconds": self._delays.figures(),
            }


class WatchedQueue(RedisQueue):
    """RQ's queues, with a record of the delay of each push."""

    delays: "Delays"

    @classmethod
    def of(cls, settings: Settings, delays: "Delays") -> "WatchedQueue":
        queue = cls.from_settings(settings)
        assert isinstance(queue, WatchedQueue)
        queue.delays = delays
        return queue

    def push(self, specs: Sequence[JobSpec]) -> Sequence[Receipt]:
        receipts = super().push(specs)
        self.delays.note([sent for sent, receipt in zip(specs, receipts, strict=True) if receipt.stored])
        return receipts


class Delays:
    """The delays from occurrences to their pushes, by function. Several push threads may use it at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._histograms: dict[str, Histogram] = {}
        self._ahead: deque[timedelta] = deque(maxlen=10)

    def set_clock(self, began: datetime, seconds: float) -> None:
        """Notes how far the database's clock is ahead of this host's, as seen by a tick that has just ended.

        A tick reads the clock a little after it begins, and some ticks much later. So the smallest of the last ten
        values is used.
        """
        self._ahead.append(began - clock.python_utc() + timedelta(seconds=seconds))

    def note(self, specs: Sequence[JobSpec]) -> None:
        now = micros(clock.now() or clock.python_utc() + min(self._ahead, default=timedelta()))
        with self._lock:
            for sent in specs:
                for occurrence in occurrences(sent):
                    self._of(function(sent)).add(max(now - occurrence, 0) / 1e6)

    def figures(self) -> dict[tuple[str, ...], Any]:
        with self._lock:
            return {(name,): delays.read() for name, delays in self._histograms.items()}

    def _of(self, name: str) -> Histogram:
        label = name if name in self._histograms or len(self._histograms) < FUNCTIONS_AT_MOST else OTHER
        return self._histograms.setdefault(label, Histogram(DELAYS))


def occurrences(sent: JobSpec) -> Sequence[int]:
    """Returns the occurrences of a job in microseconds since 1970. Planned runs have none."""
    return [number for number in sent.args[1::2] if number > 0]


def function(sent: JobSpec) -> str:
    return sent.description if sent.entry == ENTRY else sent.description.rpartition(" x ")[0]


class Scrape(Collector):
    """Figures as the library encodes them."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        for name, values in self._figures.items():
            family = BY_NAME[name]
            of_number = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            kind = HistogramMetricFamily if family.bounds else of_number
            metric = kind(name, family.words, labels=family.labels)
            for labels, value in values.items():
                metric.add_metric(labels, *(value if family.bounds else [value]))
            yield metric


def text(figures: Figures, accept: str = "") -> tuple[bytes, str]:
    """Returns the page and its media type, in the best format that the Accept header allows."""
    registry = CollectorRegistry()
    registry.register(Scrape(figures))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


@contextmanager
def serving(settings: Settings, host: str | None, port: int | None) -> Iterator[Ticks]:
    """Serves all metrics within the block. Yields the observer that must be notified of ticks. Port 0 picks a free
    port.

    Raises ConfigurationError if the port cannot be opened.
    """
    ticks, servers = Ticks(settings), Servers(settings)

    def page(accept: str) -> tuple[int, str, bytes]:
        content, media_type = text({**ticks.figures(), **servers.figures()}, accept)
        return 200, media_type, content

    with small_server.serving("metrics", host, port, {PATH: page}) as url:
        log.info("metrics at %s%s", url, PATH, extra={"event": "metrics_served"})
        yield ticks
