"""Keeps connections of the proxy's own out of what the tests of clients count."""

import pytest

from kafka_quota_proxy.proxy.server.brokers import dialer


@pytest.fixture(autouse=True)
def _probes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer, "_PROBE_EVERY_S", 3_600.0)
