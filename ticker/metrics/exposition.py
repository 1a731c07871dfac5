"""Collects the figures of ticks, formats figures for Prometheus, and serves them.

Only this module imports the Prometheus library, which is an extra. Without the extra, its import raises
ConfigurationError.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from ticker import small_server
from ticker.daemon.tick_job import counts
from ticker.engine.jobs import EPOCH
from ticker.engine.passes import Report
from ticker.errors import ConfigurationError
from ticker.metrics.families import BY_NAME, TICKS, Figures, Histogram
from ticker.metrics.servers import Servers
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

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._durations = Histogram(TICKS)
        self._counts = counts(Report(EPOCH))
        self._failures = 0
        self._last: datetime | None = None

    def ticked(self, report: Report | None, seconds: float) -> None:
        with self._lock:
            if report is None:
                self._failures += 1
                return
            self._last = report.now
            self._durations.add(seconds)
            for name, count in counts(report).items():
                self._counts[name] += count

    def figures(self) -> Figures:
        with self._lock:
            return {
                "ticker_tick_last_timestamp_seconds": {(): self._last.timestamp()} if self._last else {},
                "ticker_tick_duration_seconds": {(): self._durations.read()},
                "ticker_tick_failures_total": {(): self._failures},
                **{f"ticker_tick_{name}_total": {(): count} for name, count in self._counts.items()},
            }


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
    ticks, servers = Ticks(), Servers(settings)

    def page(accept: str) -> tuple[int, str, bytes]:
        content, media_type = text({**ticks.figures(), **servers.figures()}, accept)
        return 200, media_type, content

    with small_server.serving("metrics", host, port, {PATH: page}) as url:
        log.info("metrics at %s%s", url, PATH, extra={"event": "metrics_served"})
        yield ticks
