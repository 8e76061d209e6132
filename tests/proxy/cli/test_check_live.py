"""Tests what ``check --live`` finds out from brokers, over real sockets."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from struct import unpack_from

import pytest

from kafka_quota_proxy.proxy.__main__ import main
from tests.support.frames import METADATA, metadata_response, other_response
from tests.support.stub_broker import StubBroker, correlation_id, free_port, on_uvloop, stub_broker

UPSTREAM = "listeners:\n  - name: one\n    bind: 127.0.0.1:{port}\n    upstream: {broker}\nquotas: []\n"
CLUSTER = (
    "listeners:\n  - name: one\n    bind: 127.0.0.1:{port}\n    bootstrap_servers: {broker}\n"
    "    advertised_host: 127.0.0.1\n    broker_ports: 20000-20009\nquotas: []\n"
)


def lists(broker: StubBroker, advertised: Mapping[int, tuple[str, int]]) -> None:
    def script(frame: bytes) -> bytes:
        api_key, version = unpack_from(">hh", frame, 4)
        if api_key != METADATA:
            return other_response(correlation_id(frame))
        return metadata_response(advertised, correlation_id(frame), api_version=version) if advertised else b"\0\0\0\0"

    broker.script = script


async def check(directory: Path, capsys: pytest.CaptureFixture[str], text: str, **values: object) -> tuple[int, str]:
    file = directory / "proxy.yaml"
    file.write_text(text.format(**{"port": free_port(), **values}))
    status = await asyncio.to_thread(main, ["check", "--live", str(file)])
    return status, capsys.readouterr().err.replace(f"{file}:", "")


@pytest.mark.parametrize(
    ("host", "status", "said"),
    [
        ("127.0.0.1", 2, "4: listeners[0].upstream: the broker advertises itself, 127.0.0.1:"),
        ("192.0.2.7", 0, ""),
        ("", 0, "4: listeners[0].upstream: warning: what 127.0.0.1:"),  # it requires a login
    ],
)
@on_uvloop
async def test_an_upstream_is_asked_what_it_advertises(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str, status: int, said: str
) -> None:
    async with stub_broker() as broker:
        lists(broker, {1: (host, broker.address.port)} if host else {})
        found, text = await check(tmp_path, capsys, UPSTREAM, broker=broker.address)
    assert (found, text.startswith(said), bool(text)) == (status, True, bool(said))


@on_uvloop
async def test_brokers_that_are_away_or_have_no_port_are_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    away = f"127.0.0.1:{free_port()}"
    status, said = await check(tmp_path, capsys, UPSTREAM, broker=away)
    assert (status, f"the broker {away} cannot be reached: " in said) == (2, True)

    async with stub_broker() as broker:
        lists(broker, {3: ("broker.invalid", 9092), 40: ("127.0.0.1", broker.address.port)})
        status, said = await check(tmp_path, capsys, CLUSTER, broker=broker.address)
        assert status == 2
        assert "4: listeners[0].bootstrap_servers: the broker broker.invalid:9092 cannot be reached" in said
        assert "6: listeners[0].broker_ports: broker 40 (127.0.0.1:" in said

        lists(broker, {3: ("127.0.0.1", broker.address.port)})
        assert await check(tmp_path, capsys, CLUSTER, broker=broker.address) == (0, "")
