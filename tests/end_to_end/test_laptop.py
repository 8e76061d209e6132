"""The first lines of README.md throttle a client as written, except for the installation and the cluster's address."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final

from tests.end_to_end.support.clients import Librdkafka, create_topic
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.processes import Process, scratch, wait_until

_README: Final = Path(__file__).parents[2] / "README.md"
_LINES: Final = re.compile(r"(kafka-quota-proxy init [^\n]+\n)(kafka-quota-proxy run [^\n]+)\n```")
_THEIR_CLUSTER: Final = "broker1.example.com:9092"
_PROXY: Final = "127.0.0.1:9192"


def test_first_lines_of_the_readme_throttle_an_application(kafka_4: Kafka) -> None:
    lines = _LINES.search(_README.read_text(encoding="utf-8"))
    assert lines, "README.md has no such lines"
    assert lines[0].count(_THEIR_CLUSTER) == 1
    script = "".join(lines.groups()).replace(_THEIR_CLUSTER, kafka_4.broker.listeners[DIRECT].address)
    # The command is in the interpreter's directory, like .venv/bin.
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    topic = create_topic(kafka_4)
    with scratch("laptop") as directory:
        log = directory / "shell.log"
        shell = Process(["sh", "-ec", script], log=log, cwd=directory, env=path)
        try:
            wait_until(lambda: "-> broker 1" in shell.output(), timeout_s=20, what="the broker has its port")
            client = Librdkafka(settings={})
            client.produce(_PROXY, topic, client_id="my-app", count=40_000)
            client.consume(_PROXY, topic, client_id="my-app", count=40_000)
            wait_until(lambda: "client-id='my-app'" in shell.output(), timeout_s=5, what="the log tells of the client")
        finally:
            shell.stop()
