"""Runs the commands that documentation pages show in console blocks.

The commands of this project run in the process of the test, and a minimal shell does the rest.
"""

import http.client
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.__main__ import main

_OURS = "kafka-quota-proxy "
_FIRST_LINE = re.compile(r"\$\(head -1 (\S+)\)")


class Console:
    """A minimal shell in the working directory that runs the commands of documentation pages.

    Args:
        monkeypatch: Undoes every ``export`` after the test.
        port: The admin port of the proxy under test, which replaces the port in the pages.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, port: int = 0) -> None:
        self._monkeypatch = monkeypatch
        self._port = port

    def run(self, line: str) -> str:
        """Run a command, and return what it writes to stdout and stderr."""
        if line.startswith("export "):
            self._monkeypatch.setenv(*line.removeprefix("export ").split("="))
            return ""
        if line.startswith("cat "):
            return Path(line.removeprefix("cat ")).read_text()
        if line.startswith("curl "):
            return self._curl(line)
        command, _, file = line.partition(" > ")
        command, _, head = command.partition(" | head -")
        assert command.startswith(_OURS), line
        told = self._ours(command.removeprefix(_OURS))
        if file:
            Path(file).write_text(told)
            return ""
        return "".join(told.splitlines(keepends=True)[: int(head)]) if head else told

    def _ours(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] == "quotas":
            words += ["--url", f"http://127.0.0.1:{self._port}"]
        with StringIO() as told, redirect_stdout(told), redirect_stderr(told):
            main(words)
            return told.getvalue()

    def _curl(self, line: str) -> str:
        line = _FIRST_LINE.sub(lambda found: Path(found[1]).read_text().splitlines()[0], line)
        _, silent, url, *options = shlex.split(line)
        given = list(zip(options[::2], options[1::2], strict=True))
        headers = dict(value.split(": ") for option, value in given if option == "-H")
        (body,) = (value for option, value in given if option == "-d")
        assert (silent, len(headers) + 1) == ("-s", len(given)), line
        host, slash, path = url.removeprefix("http://").partition("/")
        assert host == "127.0.0.1:9308"
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("POST", slash + path, body, headers)
            return connection.getresponse().read().decode()
        finally:
            connection.close()
