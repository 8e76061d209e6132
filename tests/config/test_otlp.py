"""Tests the keys of the section ``otlp``."""

import pytest

from kafka_quota_proxy.config.errors import ConfigError
from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.config.otlp import Otlp, parse_endpoint
from tests.support.cases import each_case

LISTENERS = "listeners: [{name: clients, bind: 0.0.0.0:9092, upstream: 127.0.0.1:19092}]\n"


def section(text: str) -> Otlp | None:
    return load_bytes(f"{LISTENERS}otlp: {text}\n".encode(), file="f.yaml").config.otlp


def test_the_metrics_are_sent_once_a_minute_by_default_and_nowhere_without_the_section() -> None:
    assert section("{endpoint: 'http://collector:4318'}") == Otlp(endpoint="http://collector:4318", interval_ms=60_000)
    assert section("null") is None


@each_case("url", ["http://127.0.0.1:4318/", "https://[::1]:4318", "http://prometheus:9090/api/v1/otlp"])
def test_an_endpoint_is_a_base_url(url: str) -> None:
    assert parse_endpoint(url) == url.removesuffix("/")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "otlp.endpoint: is missing; write the base URL of the receiver, such as http://127.0.0.1:4318"),
        ("{endpoint: 'collector:4318'}", "'collector:4318' is not the base URL of a receiver"),
        ("{endpoint: 'grpc://collector:4317'}", "is not the base URL of a receiver"),
        ("{endpoint: 'http://*:4318'}", "is not the base URL of a receiver"),
        ("{endpoint: 'http://:4318'}", "is not the base URL of a receiver"),
        ("{endpoint: 'http://collector:99999'}", "out of range 0-65535; write the base URL"),
        ("{endpoint: 'http://u:p@collector:4318'}", "has credentials; set the environment variable OTEL_EXPORTER_OTLP"),
        ("{endpoint: 'http://collector:4318/?a=b'}", "must be a base URL without ? and #"),
        ("{endpoint: 'http://collector:4318/v1/metrics'}", "the proxy adds /v1/metrics; leave that out"),
        ("{endpoint: 4318}", "must be a URL, such as http://127.0.0.1:4318"),
        ("{endpoint: 'http://c:4318', interval: 100ms}", "otlp.interval: must be from 1s to 1h"),
        ("{endpoint: 'http://c:4318', interval: 2h}", "otlp.interval: must be from 1s to 1h"),
        ("{endpoint: 'http://c:4318', every: 2s}", "otlp.every: unknown key"),
    ],
)
def test_a_fault_says_what_to_write(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        section(text)

    assert message in str(caught.value)
