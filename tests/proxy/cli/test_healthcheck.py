"""Tests that ``healthcheck`` asks the address that the configuration file names, and reports what it says."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_quota_proxy.config.load import load_bytes
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.admin.http_server import AdminServer
from kafka_quota_proxy.proxy.cli import healthcheck
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.reloads import Reloads

_LISTENERS = 'listeners: [{{name: clients, bind: "{bind}", upstream: "127.0.0.1:1"}}]\n'


@contextmanager
def admin_port() -> Iterator[int]:
    """Run the admin port of a proxy whose listeners are not bound, so it is alive and not ready."""
    text = f"{_LISTENERS.format(bind='127.0.0.1:0')}admin: {{bind: '127.0.0.1:0'}}\n"
    config = load_bytes(text.encode(), file="proxy.yaml").config
    assert config.admin is not None
    with AdminServer(config.admin, Server(config), Reloads()) as running:
        yield running.port


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def status_of(path: Path, text: str, *options: str) -> int:
    """Write the file, run the command while the event loop answers, and return its exit status."""
    path.write_text(text)  # noqa: ASYNC240 - a few bytes
    return await asyncio.to_thread(main, ["healthcheck", str(path), *options])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "proxy.yaml"


async def test_the_admin_port_of_the_file_is_asked_whatever_else_the_file_has(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with admin_port() as port:
        text = f"shapng: paced\nlisteners: none\nadmin: {{bind: '0.0.0.0:{port}', more: 1}}\n"

        assert await status_of(path, text) == 0
        assert capsys.readouterr().out.startswith(f"http://127.0.0.1:{port}/livez: 200")

        assert await status_of(path, text, "--ready") == 1
        output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"kafka-quota-proxy healthcheck: http://127.0.0.1:{port}/readyz: 503: {{")


@pytest.mark.parametrize(
    ("bind", "asked"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("localhost", "localhost")],  # noqa: S104 - binds nothing
)
def test_without_an_admin_port_the_first_listener_is_connected(
    bind: str, asked: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening() as port:
        path.write_text(_LISTENERS.format(bind=f"{bind}:{port}"))
        assert main(["healthcheck", str(path)]) == 0
        assert capsys.readouterr().out == f"{asked}:{port} accepts connections\n"

    for host, shown in ((bind, asked), ("[::]", "[::1]")):
        path.write_text(_LISTENERS.format(bind=f"{host}:{port}"))
        assert main(["healthcheck", str(path)]) == 1
        assert capsys.readouterr().err.startswith(f"kafka-quota-proxy healthcheck: {shown}:{port}: ")


def test_a_silent_admin_port_is_not_healthy(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(healthcheck, "_TIMEOUT_S", 0.1)
    with listening() as port:
        path.write_text(f"admin: {{bind: '127.0.0.1:{port}'}}\n")

        assert main(["healthcheck", str(path)]) == 1
    assert capsys.readouterr().err == f"kafka-quota-proxy healthcheck: http://127.0.0.1:{port}/livez: timed out\n"


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("a: [", [], "proxy.yaml:1: (yaml): "),
        ("", [], "names no address to ask"),
        ("- 1", [], "names no address to ask"),
        ("admin: {bind: 127.0.0.1}", [], "names no address to ask"),
        (None, [], "proxy.yaml cannot be read: No such file or directory"),
        (_LISTENERS.format(bind="127.0.0.1:1"), ["--ready"], "has no section admin, which --ready needs"),
    ],
)
def test_a_file_without_an_address_is_not_healthy(
    text: str | None, words: list[str], message: str, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        path.write_text(text)

    assert main(["healthcheck", str(path), *words]) == 1
    assert message in capsys.readouterr().err
