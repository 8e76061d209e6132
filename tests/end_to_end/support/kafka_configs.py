"""Kafka's own command for configs, several times in one process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from tests.end_to_end.support.artifacts import kafka_classpath
from tests.end_to_end.support.kafka import Kafka

_CONFIGS: Final = Path(__file__).parents[1] / "java" / "Configs.java"


def run_configs(
    kafka: Kafka, version: str, bootstrap_servers: str, *commands: str, expected: Sequence[Sequence[str]] = ()
) -> list[list[str]]:
    """Run commands separated into words by ``|``; return exit status and sorted output lines of each.

    A broker describes a change some milliseconds after its acknowledgement. With ``expected``, the outputs of another
    run, a command is repeated until its output is equal, for two seconds at most.

    A command with ``--bootstrap-server`` goes to that address. Addresses of the others, stack traces and
    empty lines are left out.
    """
    with NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write("\x1e".join("\n".join(lines) for _, *lines in expected))
        file.flush()
        text = kafka.run_java(
            str(_CONFIGS),
            bootstrap_servers,
            file.name if expected else "-",
            *commands,
            classpath=kafka_classpath(version),
            timeout_s=300,
        )
    # A block ends with an empty line, and may contain others; the next block begins with a status.
    blocks = re.split(r"\n\n(?=\d+\n)", text.replace(bootstrap_servers, "BOOTSTRAP"))
    assert len(blocks) == len(commands), text
    outputs = []
    for status, *lines in map(str.splitlines, blocks):
        outputs.append([status, *sorted(line for line in lines if line and not line.startswith("\tat "))])
    return outputs
