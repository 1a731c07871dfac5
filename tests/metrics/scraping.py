"""What a scrape says, as Prometheus reads it: each sample by its name and labels, `ticker_drops_total{function="f",...}`."""

from prometheus_client.parser import text_string_to_metric_families

from ticker.metrics import exposition


def samples(text):
    """The value of each."""
    return {
        sample.name + labelled(sample.labels): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labelled(labels):
    return "{" + ",".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}" if labels else ""


def scraped(source):
    """Returns the samples of whatever has figures."""
    text, _ = exposition.text(source.figures())
    return samples(text.decode())


def grown(before, after):
    """The samples that have another value, or are new, and by how much."""
    changes = {name: value - before.get(name, 0) for name, value in after.items()}
    return {name: change for name, change in changes.items() if change}
