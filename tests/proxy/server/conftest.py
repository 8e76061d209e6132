"""Runs the tests of connections with the event loop and with the relay."""

import pytest

from kafka_quota_proxy.config.model import RelayKind
from kafka_quota_proxy.proxy.server import listener_state


@pytest.fixture(params=[RelayKind.PYTHON, RelayKind.NATIVE], ids=lambda kind: kind.value)
def relay(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RelayKind:
    """Let listeners with ``relay: auto`` use one kind after the other."""
    kind: RelayKind = request.param
    monkeypatch.setattr(listener_state, "is_compiled", lambda: kind is RelayKind.NATIVE)
    return kind
