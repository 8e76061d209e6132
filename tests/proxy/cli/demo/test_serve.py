"""Runs ``demo --serve`` with a real client, and tests its first lines and its use of ports."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import pytest

from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.cli.demo.runner import fetch_text
from tests.support.process_tree import descendants, is_alive

SERVE = (sys.executable, "-m", "kafka_quota_proxy.proxy", "demo", "--serve")
RATE = 64 * 1024


def test_a_producer_is_throttled_and_ctrl_c_ends_everything(tmp_path: Path) -> None:
    quota = f"client-id=my-app,producer_byte_rate={RATE}"
    # An HTTP proxy of the environment is not for the admin port.
    environment = os.environ | {"http_proxy": "http://127.0.0.1:1", "TMPDIR": str(tmp_path)}
    # Ports that the test chose might be another program's by then.
    command = [*SERVE, "--port", "0", "--admin-port", "0", "--quota", quota]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        # A test that fails must not wait for ever.
        timer = threading.Timer(60, demo.kill)
        timer.start()
        first = _until(demo.stdout, "on demand")
        (bootstrap,) = [line.partition("=")[2].strip() for line in first if "bootstrap.servers=" in line]
        observed = first[-1].split()[3].replace("throttles.", "observed")
        began_s = time.monotonic()
        _produce(bootstrap, kilobytes=200)
        took_s = time.monotonic() - began_s
        throttled = json.loads(fetch_text(observed))
        children = descendants(demo.pid)
        demo.send_signal(signal.SIGINT)
        rest = demo.stdout.read()
        status = demo.wait()
        timer.cancel()

    assert f"Quota: {quota}\n" in first
    # Of 200 KiB, one second's worth of 64 KiB may go at once.
    assert took_s > 1.5
    assert {(one["client_id"], one["reason"]) for one in throttled} == {("my-app", "quota")}
    assert "Traceback" not in rest
    assert status == 130
    assert len(children) == 4, "a guard and a program for the broker and for the proxy"
    assert [pid for pid in children if is_alive(pid)] == []
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_shows_the_table_of_top() -> None:
    ours, theirs = pty.openpty()
    command = [*SERVE, "--port", "0", "--admin-port", "0"]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as demo:
        os.close(theirs)
        timer = threading.Timer(60, demo.kill)
        timer.start()
        shown, has_ended = b"", False
        with suppress(OSError):  # the other side is closed
            while part := os.read(ours, 65_536):
                shown += part
                if b"0 of 0 clients" in shown and not has_ended:
                    has_ended = True
                    demo.send_signal(signal.SIGINT)
        status = demo.wait()
        timer.cancel()
        os.close(ours)

    assert b"client.id=my-app" in shown.partition(b"\x1b[?1049h")[2]
    assert shown.endswith(b"\x1b[?25h\x1b[?1049l")
    assert status == 130


@pytest.mark.parametrize("option", ["--port", "--admin-port"])
def test_a_port_in_use_is_named_with_its_option(capsys: pytest.CaptureFixture[str], option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        arguments = {"--port": "0", "--admin-port": "0"} | {option: str(port)}

        assert main(["demo", "--serve", *(word for pair in arguments.items() for word in pair)]) == 1

    assert f"port {port} is in use: end the program that listens there, or give another port with {option}\n" in (
        capsys.readouterr().err
    )


def _produce(bootstrap: str, *, kilobytes: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "client.id": "my-app"})
    failures: list[object] = []
    for _ in range(kilobytes // 10):
        producer.produce("orders", bytes(10 * 1024), on_delivery=lambda error, _: failures.append(error))
        producer.flush(30)
    assert failures == [None] * (kilobytes // 10)


def _until(lines: Iterable[str], text: str) -> list[str]:
    """Return the lines up to the first one that contains ``text``."""
    found = []
    for line in lines:
        found.append(line)
        if text in line:
            return found
    raise AssertionError(f"no line has {text!r}: {found}")
