"""Answers of Prometheus become series of client metrics."""

from typing import Any

import pytest

from kafka_quota_proxy.pipeline.client_metrics import RATE, ClientMetric, Measured
from kafka_quota_proxy.pipeline.prometheus_answer import AnswerError, answer_of
from kafka_quota_proxy.pipeline.scraped_brokers import ScrapedSeries

ALICE = {"instance": "kafka-1:9404", "user": "alice"}
NAME = "kafka_server_Produce_byte_rate"


def answer(*series: dict[str, Any], kind: str = "matrix") -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": list(series)}}


def test_samples_have_whole_milliseconds_and_numbers() -> None:
    one = {"metric": {"__name__": NAME, **ALICE}, "values": [[1767225600, "NaN"], [1767225615.031, "+Inf"], [1e9, "5"]]}

    found = answer_of(answer(one), {})

    metric = ClientMetric(Measured("produce", RATE), "alice", "")
    samples = [(1767225600000, float("nan")), (1767225615031, float("inf")), (10**12, 5.0)]
    assert str(found.series) == str([ScrapedSeries("kafka-1:9404", {}, metric, samples)])


def test_the_name_of_a_query_replaces_the_one_that_its_functions_removed() -> None:
    one = {"metric": ALICE, "values": [[1, "5"]]}

    assert len(answer_of(answer(one), {}, name=NAME).series) == 1
    assert answer_of(answer(one), {}) == ([], 1)


def test_labels_that_name_no_client_are_kept() -> None:
    labelled = {"metric": {"__name__": NAME, **ALICE, "broker_id": "7", "clientId": "etl", "client": "x"}, "values": []}
    other = {"metric": {"__name__": "up", "instance": "c:1"}, "values": [[1, "1"]]}

    found = answer_of(answer(labelled, other), {})

    assert [one.labels for one in found.series] == [{"broker_id": "7", "client": "x"}]
    assert found.others == 1


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"status": "error", "error": "query timed out"}, "Prometheus answered with an error: query timed out"),
        (answer(kind="vector"), "the result is a vector; save an answer of /api/v1/query_range"),
        ([1, 2], "is not an answer of Prometheus' /api/v1/query_range"),
        ({"status": "success", "data": {}}, "is not an answer of Prometheus' /api/v1/query_range"),
        (answer({"metric": {"__name__": NAME}, "values": [[1]]}), "is not an answer of Prometheus'"),
    ],
)
def test_another_document_is_refused(document: Any, fault: str) -> None:  # noqa: ANN401
    with pytest.raises(AnswerError) as error:
        answer_of(document, {})

    assert str(error.value).startswith(fault)
