"""Formats figures for Prometheus. No other module imports the Prometheus library, which is an extra."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ticker.errors import ConfigurationError
from ticker.metrics.families import BY_NAME, Family, Figures, Histogram, Values

if TYPE_CHECKING:
    from prometheus_client import Metric


def check() -> None:
    """Raises ConfigurationError if the library is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError:
        raise ConfigurationError('metrics need prometheus-client: pip install "rq-ticker[metrics]"') from None


def text(figures: Figures, accept: str = "") -> tuple[bytes, str]:
    """Returns the page and its media type, in the best format that the Accept header allows."""
    check()
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

    class Current(Collector):
        def collect(self) -> "Iterable[Metric]":
            return [metric(BY_NAME[name], values) for name, values in figures.items()]

    registry = CollectorRegistry()
    registry.register(Current())
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


def metric(family: Family, values: Values) -> "Metric":
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    if family.bounds:
        spans = HistogramMetricFamily(family.name, family.words, labels=family.labels)
        for labels, value in values.items():
            assert isinstance(value, Histogram)
            spans.add_metric(labels, buckets(value), value.sum)
        return spans
    kind = CounterMetricFamily if family.name.endswith("_total") else GaugeMetricFamily
    numbers = kind(family.name, family.words, labels=family.labels)
    for labels, value in values.items():
        assert not isinstance(value, Histogram)
        numbers.add_metric(labels, value)
    return numbers


def buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Returns each bound with the number of values up to it."""
    pairs, total = [], 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        total += count
        pairs.append(("+Inf" if bound == float("inf") else str(float(bound)), float(total)))
    return pairs
