"""Formats figures for Prometheus, and serves them. Only this module imports the Prometheus library, which is an extra.

Without the extra, the import of this module raises ConfigurationError.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ticker import small_server
from ticker.errors import ConfigurationError
from ticker.metrics.families import BY_NAME, Figures
from ticker.metrics.servers import Servers
from ticker.metrics.ticks import Ticks
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
def serving(settings: Settings, host: str | None, port: int) -> Iterator[Ticks]:
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
