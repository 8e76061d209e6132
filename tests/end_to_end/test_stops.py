"""Either signal stops the process while a client waits for a missing answer."""

from __future__ import annotations

import json
import signal
import time
from urllib.error import HTTPError

import pytest

from tests.end_to_end.support.frames import API_VERSIONS, RawClient, raw_client, request
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.sink import proxy_to_sink


def _ask(proxy: Proxy, client: RawClient) -> None:
    client.send_bytes(request(API_VERSIONS, 0, 1, "waiting", b""))
    wait_until(
        lambda: proxy.metrics().total("kafka_quota_proxy_frames_total") == 1, timeout_s=5, what="the request has come"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_logs_the_drain_and_exits_in_time_with_status_0(number: signal.Signals) -> None:
    with proxy_to_sink(drain_timeout="3s") as proxy, raw_client(proxy.port("clients")) as client:
        _ask(proxy, client)
        started_s = time.monotonic()
        proxy.process.signal(number)
        wait_until(lambda: not proxy.is_ready(), timeout_s=2.5, what="the proxy is not ready", poll_s=0.01)
        with pytest.raises(HTTPError) as refusal:
            proxy.admin("/readyz")
        assert json.loads(refusal.value.read())["state"] == "draining"
        with pytest.raises(ConnectionRefusedError), raw_client(proxy.port("clients")):
            pass

        wait_until(lambda: not proxy.process.is_running, timeout_s=10, what="the proxy ends")

        assert 3 <= time.monotonic() - started_s < 8
        assert proxy.process.exit_status == 0
        assert client.is_closed_by_peer()
        assert "stopping: 1 connections did not end in time and were closed" in proxy.log


@pytest.mark.proof
def test_second_signal_ends_the_process_at_once() -> None:
    with proxy_to_sink() as proxy, raw_client(proxy.port("clients")) as client:
        _ask(proxy, client)
        proxy.process.signal(signal.SIGTERM)
        wait_until(lambda: not proxy.is_ready(), timeout_s=5, what="the proxy is not ready")
        proxy.process.signal(signal.SIGINT)

        wait_until(lambda: not proxy.process.is_running, timeout_s=10, what="the proxy ends")

        assert proxy.process.exit_status == 0
