"""Reads metrics as prometheus_client does."""

from collections.abc import Iterable

from prometheus_client.parser import text_string_to_metric_families

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family, write

Scrape = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(families: Iterable[Family]) -> Scrape:
    """Return the value of each sample by its name and labels. None is there twice."""
    text = b"".join(write(families, lambda: None)).decode()
    samples = [
        (sample.name, tuple(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    found = {(name, labels): value for name, labels, value in samples}
    assert len(found) == len(samples)
    return found
