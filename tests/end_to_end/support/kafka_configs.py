"""Runs several commands of kafka-configs in one Java process."""

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
    """Run commands, and return the exit status and the output lines of each, sorted like the limits in a line.

    ``|`` separates the words of a command. A command may name its own ``--bootstrap-server``. Stack traces and empty
    lines are left out.

    A broker describes a change some milliseconds after its acknowledgement. So ``--describe`` is repeated for up to two
    seconds until its output equals ``expected``, the output of another run.
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
    # Each command's block begins with its status and ends with an empty line. It may contain further empty lines.
    blocks = re.split(r"\n\n(?=\d+\n)", text.replace(bootstrap_servers, "BOOTSTRAP"))
    assert len(blocks) == len(commands), text
    outputs = []
    for status, *lines in map(str.splitlines, blocks):
        outputs.append([status, *sorted(_sorted(line) for line in lines if line and not line.startswith("\tat "))])
    return outputs


def _sorted(line: str) -> str:
    before, are, limits = line.rpartition(" are ")
    return f"{before}{are}{', '.join(sorted(limits.split(', ')))}" if line.startswith("Quota configs for ") else line
