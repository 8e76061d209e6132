"""Reads the answers of Prometheus' ``/api/v1/query_range`` as series of Kafka's client metrics. Does no I/O."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kafka_quota_proxy.pipeline.client_metrics import Measured, instance_of, of_labels, other_labels
from kafka_quota_proxy.pipeline.scraped_brokers import ScrapedSeries


class Answer(NamedTuple):
    """The client metrics of an answer, and how many other series it has."""

    series: list[ScrapedSeries]
    others: int


class AnswerError(Exception):
    """Raised when a document is not an answer of ``query_range``. The message says why."""


def answer_of(document: Any, own_names: Mapping[str, Measured], *, name: str = "") -> Answer:  # noqa: ANN401  (JSON)
    """Return the content of an answer. ``name`` is the metric if functions of the query have removed it."""
    series: list[ScrapedSeries] = []
    others = 0
    for labels, samples in _matrix(document):
        found = of_labels({"__name__": name, **labels} if name else labels, own_names)
        if found is None:
            others += 1
            continue
        series.append(ScrapedSeries(instance_of(labels), other_labels(labels), found, samples))
    return Answer(series, others)


def _matrix(document: Any) -> Iterator[tuple[dict[str, str], list[tuple[int, float]]]]:  # noqa: ANN401  (JSON)
    try:
        if document["status"] != "success":
            raise AnswerError(f"Prometheus answered with an error: {document.get('error')}")
        if document["data"]["resultType"] != "matrix":
            raise AnswerError(
                f"the result is a {document['data']['resultType']}; save an answer of /api/v1/query_range"
            )
        for one in document["data"]["result"]:
            # Histograms have no "values".
            yield one["metric"], [(round(float(at_s) * 1_000), float(text)) for at_s, text in one.get("values", ())]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise AnswerError("is not an answer of Prometheus' /api/v1/query_range") from error
