"""Asks Kafka's Java client which throttle times it waits out itself."""

from pathlib import Path
from typing import Final

from tests.end_to_end.support.artifacts import kafka_classpath
from tests.end_to_end.support.quick_java import run_java

_PROGRAM: Final = Path(__file__).parents[1] / "java" / "ThrottlesItself.java"


def throttles_itself(version: str) -> dict[tuple[int, int], bool]:
    """Return for each API and version of a Kafka release whether its client waits for the announced throttle time."""
    lines = run_java(str(_PROGRAM), classpath=kafka_classpath(version)).splitlines()
    return {(int(api_key), int(api_version)): word == "true" for api_key, api_version, word in map(str.split, lines)}
