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


def said(
    kafka: Kafka, version: str, bootstrap_servers: str, *commands: str, expected: Sequence[Sequence[str]] = ()
) -> list[list[str]]:
    """Return what each command says, its exit status first; entities in a list come in no order.

    A broker tells of a change some milliseconds after it has acknowledged it: with ``expected``, what another has said
    of the same commands, it is asked for as much until it says so, too, for two seconds at most.

    The words of a command are separated by ``|``; one with ``--bootstrap-server`` among them asks there instead. Where
    the others asked is not told, nor where in its code an error came from, nor lines with nothing on them.
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
    # A block ends with an empty line, and may have others in it; the next begins with a status.
    blocks = re.split(r"\n\n(?=\d+\n)", text.replace(bootstrap_servers, "BOOTSTRAP"))
    assert len(blocks) == len(commands), text
    outputs = []
    for status, *lines in map(str.splitlines, blocks):
        outputs.append([status, *sorted(line for line in lines if line and not line.startswith("\tat "))])
    return outputs
