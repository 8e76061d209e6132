"""The server is a script of answers. ``tests/end_to_end/test_import.py`` asks a real Prometheus."""

from typing import Any

import pytest

from kafka_quota_proxy.pipeline import client_metrics, prometheus_api
from kafka_quota_proxy.pipeline.client_metrics import ClientMetric, Measured
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.prometheus_api import Prometheus, ServerError, answer_of
from kafka_quota_proxy.pipeline.scraped_brokers import ScrapedSeries
from tests.pipeline.scripted_server import Answer, Asked, server

RATE = "kafka_server_Produce_byte_rate"
THROTTLE = "kafka_server_Produce_throttle_time"
STEP_MS = 60_000


def matrix(query: Asked, users: int = 1) -> dict[str, Any]:
    """Answer with a sample of value 1 for each step and user."""
    start, end, step = (float(query[name]) for name in ("start", "end", "step"))
    times = [start + at * step for at in range(int((end - start) / step) + 1)]
    values = [[at_s, "1"] for at_s in times]
    result = [{"metric": {"instance": "a:1", "user": f"user-{at}"}, "values": values} for at in range(users)]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def pieces(address: str, steps: int) -> list[tuple[int, int, int]]:
    """Return the end, the series and the samples of each piece."""
    api = Prometheus(f"http://{address}", pauses_s=())
    found = api.pieces([RATE], "", {}, from_ms=0, until_ms=steps * STEP_MS, step_ms=STEP_MS)
    return [
        (piece.until_ms // STEP_MS, len(answer.series), sum(len(one.samples) for one in answer.series))
        for piece in found
        for answer in piece.answers
    ]


def test_pieces_grow_up_to_a_bounded_number_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "_SAMPLES_AT_ONCE", 150)
    with server(lambda _, query: (200, matrix(query, users=5))) as (address, asked):
        found = pieces(address, 100)

    assert found == [(10, 5, 50), (30, 5, 100), (60, 5, 150), (90, 5, 150), (100, 5, 50)]
    ends = [(float(query["start"]), float(query["end"])) for _, query, _ in asked]
    # The first sample is one step after the start, and no time is asked for twice.
    assert ends == [(60, 600), (660, 1_800), (1_860, 3_600), (3_660, 5_400), (5_460, 6_000)]


def test_a_piece_that_the_server_refuses_is_halved() -> None:
    refusal = {"status": "error", "error": "query processing would load too many samples into memory"}

    def answer(_: str, query: Asked) -> Answer:
        is_long = float(query["end"]) - float(query["start"]) > 2 * 60
        return (422, refusal) if is_long else (200, matrix(query))

    with server(answer) as (address, _):
        found = pieces(address, 6)

    assert [end for end, _, _ in found] == [3, 6]


def test_a_refused_step_is_an_error_with_the_servers_own_words() -> None:
    refusal = {"status": "error", "error": "too many samples"}

    with server(lambda *_: (422, refusal)) as (address, _), pytest.raises(ServerError) as error:
        pieces(address, 6)

    assert str(error.value) == f"http://{address}/api/v1/query_range: 422 Unprocessable Entity: too many samples"


def test_rates_are_means_and_waits_are_maxima_of_a_step() -> None:
    with server(lambda _, query: (200, matrix(query))) as (address, asked):
        api = Prometheus(f"http://{address}/prometheus/")
        list(api.pieces([RATE, THROTTLE], 'env="a"', {}, from_ms=0, until_ms=STEP_MS, step_ms=STEP_MS))

    assert [(path, query["query"]) for path, query, _ in asked] == [
        ("/prometheus/api/v1/query_range", f'avg_over_time({RATE}{{env="a"}}[60000ms])'),
        ("/prometheus/api/v1/query_range", f'max_over_time({THROTTLE}{{env="a"}}[60000ms])'),
    ]


def test_names_are_those_of_the_time() -> None:
    def answer(_: str, query: Asked) -> Answer:
        assert (query["start"], query["end"]) == ("1.000", "2.000")
        return 200, {"data": ["b", "a"]}

    with server(answer) as (address, asked):
        api = Prometheus(f"http://{address}")
        assert api.metric_names('env="a"', 1_000, 2_000) == ["a", "b"]

    assert asked[0][1]["match[]"].endswith(')",env="a"}')


def test_a_busy_server_is_asked_again() -> None:
    answers = iter([(503, b"busy"), (502, b""), (200, {"data": ["a"]})])
    with server(lambda *_: next(answers)) as (address, asked):
        assert Prometheus(f"http://{address}", pauses_s=(0, 0)).metric_names("", 0, 1) == ["a"]

    assert len(asked) == 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, b"<h1>no\nentry</h1>"), "401 Unauthorized: <h1>no entry</h1>"),
        ((503, b""), "503 Service Unavailable: no text"),
        ((200, b"<html>"), "the answer is not JSON; is this Prometheus?"),
    ],
)
def test_errors_name_the_place_and_no_password(answer: Answer, said: str) -> None:
    with server(lambda *_: answer) as (address, asked), pytest.raises(ServerError) as error:
        Prometheus(f"http://bob:s%40cret@{address}", pauses_s=(0,)).metric_names("", 0, 1)

    assert str(error.value) == f"http://{address}/api/v1/label/__name__/values: {said}"
    assert {login for _, _, login in asked} == {"Basic Ym9iOnNAY3JldA=="}
    assert len(asked) == (2 if answer[0] == 503 else 1)


def test_a_server_that_is_away_is_an_error_that_names_it() -> None:
    with server(lambda *_: (200, {})) as (address, _):
        pass

    with pytest.raises(ServerError, match=f"http://{address}/api/v1/label/__name__/values: .*refused"):
        Prometheus(f"http://{address}", pauses_s=(0,)).metric_names("", 0, 1)


def test_a_token_is_not_sent_to_where_a_redirect_leads() -> None:
    with (
        server(lambda *_: (200, {"data": []})) as (there, asked_there),
        server(lambda *_: (302, f"http://{there}/")) as (here, asked_here),
    ):
        Prometheus(f"http://{here}", token="secret").metric_names("", 0, 1)  # noqa: S106

    assert asked_here[0][2] == "Bearer secret"
    assert asked_there[0][2] is None


@pytest.mark.parametrize("url", ["prometheus:9090", "file:///etc/passwd", "http://", "http://:secret@"])
def test_another_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError) as error:
        Prometheus(url)

    assert str(error.value) == "--url: is not the address of a server, such as http://prometheus:9090"


ALICE = {"instance": "kafka-1:9404", "user": "alice"}


def document_of(*series: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(series)}}


def test_samples_have_whole_milliseconds_and_numbers() -> None:
    one = {"metric": {"__name__": RATE, **ALICE}, "values": [[1767225600, "NaN"], [1767225615.031, "+Inf"], [1e9, "5"]]}

    found = answer_of(document_of(one), "", {})

    metric = ClientMetric(Measured("produce", client_metrics.RATE), "alice", "")
    samples = [(1767225600000, float("nan")), (1767225615031, float("inf")), (10**12, 5.0)]
    assert str(found.series) == str([ScrapedSeries("kafka-1:9404", {}, metric, samples)])


def test_the_name_of_a_query_replaces_the_one_that_its_functions_removed() -> None:
    one = {"metric": ALICE, "values": [[1, "5"]]}

    assert len(answer_of(document_of(one), RATE, {}).series) == 1
    assert answer_of(document_of(one), "up", {}) == ([], 1)


def test_labels_that_name_no_client_are_kept() -> None:
    labelled = {"metric": {"__name__": RATE, **ALICE, "broker_id": "7", "clientId": "etl", "client": "x"}, "values": []}
    other = {"metric": {"__name__": "up", "instance": "c:1"}, "values": [[1, "1"]]}

    found = answer_of(document_of(labelled, other), "", {})

    assert [one.labels for one in found.series] == [{"broker_id": "7", "client": "x"}]
    assert found.others == 1


@pytest.mark.parametrize(
    "document", [[1, 2], {"status": "success", "data": {}}, document_of({"metric": {}, "values": [[1]]})]
)
def test_another_document_is_refused(document: Any) -> None:  # noqa: ANN401
    with server(lambda *_: (200, document)) as (address, _), pytest.raises(ServerError) as error:
        pieces(address, 1)

    assert str(error.value) == f"http://{address}/api/v1/query_range: the answer is none of Prometheus"
