"""Runs the tests of connections with the event loop and with the relay."""

import pytest

from kafka_quota_proxy.proxy.server import server as server_module
from kafka_quota_proxy.proxy.server.clients.relay_sockets import make_sockets
from tests.support.python_sockets import PythonSockets


@pytest.fixture(params=[False, True], ids=["python", "native"])
def relay(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let listeners with ``relay: auto`` use one kind after the other."""
    is_relayed: bool = request.param
    made = (lambda: make_sockets() or PythonSockets()) if is_relayed else (lambda: None)
    monkeypatch.setattr(server_module, "make_sockets", made)
    return is_relayed
