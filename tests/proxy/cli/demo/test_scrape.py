"""Throttle times out of the Prometheus text format."""

import pytest

from kafka_quota_proxy.proxy.cli.demo.errors import ProcessError
from kafka_quota_proxy.proxy.cli.demo.processes import free_ports
from kafka_quota_proxy.proxy.cli.demo.scrape import Throttling, fetch_metrics, throttling

METRICS = """\
# HELP kafka_quota_proxy_throttle_seconds_total Throttle time
# TYPE kafka_quota_proxy_throttle_seconds_total counter
kafka_quota_proxy_throttle_seconds_total{kind="produce",user="",client_id="demo-producer"} 1.25
kafka_quota_proxy_throttle_seconds_total{kind="fetch",user="",client_id="demo-producer"} 0.0
kafka_quota_proxy_throttle_seconds_total{kind="fetch",user="",client_id="other"} 99.0
# HELP kafka_quota_proxy_throttled_requests_total Throttled requests
# TYPE kafka_quota_proxy_throttled_requests_total counter
kafka_quota_proxy_throttled_requests_total{kind="produce",user="",client_id="demo-producer"} 50.0
kafka_quota_proxy_throttled_requests_total{kind="fetch",user="",client_id="other"} 3.0
"""


def test_a_clients_own_throttle_time_is_read_in_milliseconds() -> None:
    assert throttling(METRICS, client_id="demo-producer") == Throttling(throttle_time_ms=1_250, throttled_requests=50)


def test_a_client_without_series_was_not_throttled() -> None:
    assert throttling(METRICS, client_id="demo-consumer") == Throttling()


def test_a_proxy_that_does_not_answer_is_named_by_its_url() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}/metrics"

    with pytest.raises(ProcessError, match=url):
        fetch_metrics(url)
