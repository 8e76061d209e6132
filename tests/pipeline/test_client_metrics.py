"""The names and labels are those that the JMX exporter 1.0.1 gave metrics of Kafka 4.3 under each rule file."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.pipeline.client_metrics import (
    NAME_PATTERN,
    OPTIONS,
    RATE,
    THROTTLE,
    ClientMetric,
    Measured,
    broker_of,
    instance_of,
    is_throttle_time,
    of_labels,
)
from kafka_quota_proxy.proxy.quota.sanitize import sanitize

PRODUCED = Measured("produce", RATE)
ODD_CLIENT_ID = 'my:app "1", x=*?'
QUOTED = r'"my:app \"1\", x=\*\?"'
ODD_USER = "CN=bob, OU=x y"
ENCODED = "CN%3Dbob%2C%20OU%3Dx%20y"


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("kafka_server_Produce_byte_rate", {"user": "alice"}, ClientMetric(PRODUCED, "alice", "")),
        ("kafka_server_Produce_byte_rate", {"client_id": "etl"}, ClientMetric(PRODUCED, "", "etl")),
        (
            "kafka_server_fetch_throttle_time",
            {"user": ENCODED, "client_id": QUOTED},
            ClientMetric(Measured("fetch", THROTTLE), ODD_USER, ODD_CLIENT_ID),
        ),
        (
            "kafka_server_quota_byte_rate",
            {"resource": "Produce", "user": "alice", "clientId": "100%25"},
            ClientMetric(PRODUCED, "alice", "100%25"),  # Kafka does not encode client-ids
        ),
        (
            "kafka_server_quota_byte_rate",  # in older copies of the example the first of two rules takes the user
            {"resource": f"Produce, user={ENCODED}", "clientId": "etl"},
            ClientMetric(PRODUCED, ODD_USER, "etl"),
        ),
        (
            "kafka_server_Request_request_time",
            {"user": "alice"},
            ClientMetric(Measured("request", RATE), "alice", ""),
        ),
        ("kafka_server_Produce_byte_rate", {"user": "", "client_id": ""}, ClientMetric(PRODUCED, "", "")),
        ("my_rate", {"user": "alice"}, ClientMetric(PRODUCED, "alice", "")),
        ("kafka_server_quota_byte_rate", {"resource": "LeaderReplication"}, None),
        ("kafka_server_Request_byte_rate", {"user": "alice"}, None),
        ("kafka_server_Request_exempt_request_time", {}, None),
        ("kafka_server_BrokerTopicMetrics_OneMinuteRate", {"name": "BytesInPerSec"}, None),
    ],
)
def test_series_are_recognised_by_name_and_labels(
    name: str, labels: dict[str, str], expected: ClientMetric | None
) -> None:
    assert of_labels({"__name__": name, **labels}, {"my_rate": PRODUCED}) == expected


@given(user=st.text(min_size=1), client_id=st.text(min_size=1))
def test_every_name_survives_the_way_through_an_exporter(user: str, client_id: str) -> None:
    quoted = re.sub(r'[\\"*?]', r"\\\g<0>", client_id).replace("\n", "\\n")

    labels = {"__name__": "kafka_server_Fetch_byte_rate", "user": sanitize(user), "client_id": f'"{quoted}"'}
    found = of_labels(labels, {})

    assert found == ClientMetric(Measured("fetch", RATE), user, client_id)


def test_prometheus_can_select_the_names() -> None:
    names = [
        "kafka_server_Produce_byte_rate",
        "kafka_server_fetch_byte_rate",
        "kafka_server_request_request_time",
        "kafka_server_quota_throttle_time",
    ]

    assert [name for name in names if not re.fullmatch(NAME_PATTERN, name)] == []
    assert re.fullmatch(NAME_PATTERN, "kafka_server_brokertopicmetrics_bytesin_total") is None


def test_the_brokers_node_id_and_instance_are_labels() -> None:
    assert broker_of({"broker_id": "3", "instance": "kafka-3:9404"}) == 3
    assert broker_of({"broker": "kafka-3:9092"}) is None
    assert instance_of({"instance": "kafka-3:9404"}) == "kafka-3:9404"
    assert instance_of({}) == "(no instance)"


def test_names_for_own_rules() -> None:
    assert list(OPTIONS) == [
        "produce_rate", "produce_throttle", "fetch_rate", "fetch_throttle", "request_time", "request_throttle",
    ]  # fmt: skip
    own = {"waits": OPTIONS["produce_throttle"], "throttle_time": OPTIONS["produce_rate"]}
    assert [is_throttle_time(name, own) for name in ("waits", "throttle_time", "kafka_server_Fetch_throttle_time")] == [
        True, False, True,
    ]  # fmt: skip
