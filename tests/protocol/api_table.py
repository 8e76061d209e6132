"""Writes the table of APIs in ``protocol/api.py``, from the message definitions and classes of the newest Kafka.

    make apis

The jar of kafka-clients has the definitions (``common/message/*.json``). Kafka 4.0 removed four APIs, and their
definitions are in the jar of 3.9. Which throttle times a client waits out is in the classes of the responses.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from kafka_quota_proxy.protocol import api
from kafka_quota_proxy.protocol.api import NEVER
from tests.end_to_end.support.artifacts import KAFKA_3_9, KAFKA_4, kafka_classpath
from tests.end_to_end.support.throttles_itself import throttles_itself

_SOURCE: Final = Path(api.__file__)
_DEFINITIONS: Final = "common/message/"
_COMMENT: Final = re.compile(r"^\s*//.*$", re.MULTILINE)
_WORD: Final = re.compile(r"(?<!^)(?=[A-Z])")
_TABLE: Final = re.compile(r"(?:^    [A-Z_]+ = \d+.*\n)+", re.MULTILINE)

_Definition = Mapping[str, Any]


def source() -> str:
    """Return the present text of ``protocol/api.py``."""
    return _SOURCE.read_text(encoding="utf-8")


def updated(text: str) -> str:
    """Return the text of ``protocol/api.py`` with the table of the newest Kafka."""
    return _TABLE.sub("".join(_rows()), text, count=1)


def _rows() -> list[str]:
    first_waited = _first_waited_versions()
    newest, removed = _definitions(KAFKA_4), _definitions(KAFKA_3_9)
    rows = []
    for key in sorted({api_key for api_key, _ in newest}):
        request, response = newest[key, "request"], newest[key, "response"]
        if request["validVersions"] == "none":
            request, response = removed[key, "request"], removed[key, "response"]
        columns = [
            int(request["validVersions"].split("-")[-1]),
            _first(request["flexibleVersions"]),
            _first_throttle_time_in_front(response),
            first_waited.get(key, NEVER),
        ]
        while columns[-1] == NEVER:
            columns.pop()
        name = _WORD.sub("_", request["name"].removesuffix("Request")).upper()
        words = ["NEVER" if column == NEVER else str(column) for column in (key, *columns)]
        rows.append(f"    {name} = {', '.join(words)}\n")
    return rows


def _definitions(version: str) -> dict[tuple[int, str], _Definition]:
    """Return the definitions of a Kafka release's requests and responses, by api_key and type."""
    jar = Path(kafka_classpath(version)).parent / f"kafka-clients-{version}.jar"
    with ZipFile(jar) as files:
        names = [name for name in files.namelist() if name.startswith(_DEFINITIONS) and name.endswith(".json")]
        messages = [json.loads(_COMMENT.sub("", files.read(name).decode())) for name in names]
    return {(message["apiKey"], message["type"]): message for message in messages if "apiKey" in message}


def _first(versions: str) -> int:
    """Return the first version of a range such as ``3+``, ``0-5`` or ``none``."""
    return NEVER if versions == "none" else int(re.split(r"[-+]", versions)[0])


def _first_throttle_time_in_front(response: _Definition) -> int:
    fields = response["fields"]
    return _first(fields[0]["versions"]) if fields and fields[0]["name"] == "ThrottleTimeMs" else NEVER


def _first_waited_versions() -> dict[int, int]:
    first: dict[int, int] = {}
    for (api_key, version), waits in throttles_itself(KAFKA_4).items():
        if waits:
            first[api_key] = min(version, first.get(api_key, version))
    return first


if __name__ == "__main__":
    _SOURCE.write_text(updated(source()), encoding="utf-8")
    sys.stdout.write(f"{_SOURCE} has the APIs of Kafka {KAFKA_4}\n")
