"""The proxy answers both client quota APIs like the classes of Kafka's controller (``java/ClientQuotas.java``)."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    Alteration,
    AlterRequest,
    AlterResponse,
    Component,
    DescribeRequest,
    DescribeResponse,
    Op,
    read_describe_response,
)
from kafka_quota_proxy.protocol.codec import framed
from kafka_quota_proxy.proxy.rules.alter import MAX_CHANGED_KEYS, decide
from kafka_quota_proxy.proxy.rules.describe import describe
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule
from tests.end_to_end.support.artifacts import KAFKA_4, java, kafka_classpath
from tests.end_to_end.support.processes import run
from tests.support.quota_request_frames import read_alter_response, write_alter_request, write_describe_request
from tests.support.quota_requests import some_alter, some_describe

_NO_ADDRESS: Final = re.compile(r"'([^']*)' is not an IP address; write one such as 10\.0\.0\.7")
_SOURCE: Final = Path(__file__).parent / "java" / "ClientQuotas.java"
_MAIN: Final = "org.apache.kafka.controller.ClientQuotas"
_REQUESTS: Final = 6_000
_REQUESTS_BETWEEN_RESETS: Final = 40
# Size, api_key, api_version, correlation_id and a null client_id. In v1, tags follow.
_HEADER_BYTES: Final = 14


class KafkaClasses:
    """Answers by Kafka's classes."""

    def __init__(self, directory: Path) -> None:
        classpath = kafka_classpath(KAFKA_4)
        run(["javac", "-cp", classpath, "-d", directory, _SOURCE], timeout_s=60)
        command = [java(), "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        command += ["-cp", f"{directory}:{classpath}", _MAIN]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        self._process.communicate(timeout=20)
        assert self._process.returncode == 0

    def forget(self) -> None:
        self._answer("reset")

    def alter(self, request: AlterRequest) -> AlterResponse:
        frame = write_alter_request(request, client_id=None)
        return read_alter_response(self._ask(ALTER, request.api_version, frame), request.api_version)

    def describe(self, request: DescribeRequest) -> DescribeResponse:
        frame = write_describe_request(request, client_id=None)
        return read_describe_response(self._ask(DESCRIBE, request.api_version, frame), request.api_version)

    def _ask(self, api_key: int, version: int, frame: bytes) -> bytes:
        body = frame[_HEADER_BYTES + version :]
        return framed(bytes(4 + version), self._answer(f"{api_key} {version} {body.hex()}"))

    def _answer(self, line: str) -> bytes:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer.endswith("\n"), "Kafka's classes ended; what they said is above"
        return bytes.fromhex(answer)


@pytest.fixture(scope="module")
def kafka_classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClasses]:
    classes = KafkaClasses(tmp_path_factory.mktemp("classes"))
    yield classes
    classes.close()


class Ours:
    """Answers by the proxy's code."""

    def __init__(self) -> None:
        self.rules: dict[Entity, StoredRule] = {}

    def alter(self, request: AlterRequest) -> AlterResponse:
        decision = decide(self.rules, request, {}, self.rules, now_ms=0)
        for entity, rule in decision.changes:
            if rule is None:
                del self.rules[entity]
            else:
                self.rules[entity] = rule
        return AlterResponse(0, decision.results)

    def describe(self, request: DescribeRequest) -> DescribeResponse:
        return describe(self.rules, request)


def without_order(response: AlterResponse | DescribeResponse, request: AlterRequest | DescribeRequest) -> object:
    """Return the response without what follows from Kafka's order of parts and keys, which is that of a HashMap.

    That is also which fault of an entity is named, if there are several. The message for a host name is our own.
    """
    if isinstance(response, AlterResponse) and isinstance(request, AlterRequest):
        found = ((dict(entity), ops) for entity, ops in request.alterations)
        several = {frozenset(names.items()) for names, ops in found if len(names) > 1 or len(ops) > 1}
        return Counter(
            (frozenset(entity), error_code, None if frozenset(entity) in several else _of_kafka(message))
            for error_code, message, entity in response.results
        )
    assert isinstance(response, DescribeResponse)
    entries = Counter((frozenset(one.entity), frozenset(one.values)) for one in response.entries or ())
    return response.error_code, response.error_message, response.entries is None, entries


def _of_kafka(message: str | None) -> str | None:
    """Return the message as Kafka would write it. It resolves names, and has other words for those that fail."""
    return message and _NO_ADDRESS.sub(r"\1 is not a valid IP or resolvable host.", message)


def test_every_answer_equals_that_of_kafkas_classes(kafka_classes: KafkaClasses) -> None:
    random = Random(7)  # noqa: S311 - the same requests in each run
    ours = Ours()
    seen: Counter[str] = Counter()
    request: AlterRequest | DescribeRequest
    for number in range(_REQUESTS):
        if number % _REQUESTS_BETWEEN_RESETS == 0:
            kafka_classes.forget()
            ours = Ours()
        version = random.randrange(2)
        kafkas: AlterResponse | DescribeResponse
        own: AlterResponse | DescribeResponse
        if random.random() < 0.6:
            request = some_alter(random, version)
            kafkas, own = kafka_classes.alter(request), ours.alter(request)
            seen.update(str(result.error_message) for result in own.results)
        else:
            request = some_describe(random, version)
            kafkas, own = kafka_classes.describe(request), ours.describe(request)
            seen[own.error_message or f"{len(own.entries or ())} found"] += 1

        assert without_order(own, request) == without_order(kafkas, request), f"request {number}"

    # Otherwise the test would compare nothing.
    assert len(seen) > 60
    assert seen["None"] > 2_000
    assert seen["2 found"] > 20


def test_too_many_keys_in_one_change_are_refused_as_by_kafka(kafka_classes: KafkaClasses) -> None:
    kafka_classes.forget()
    ours = Ours()
    ops = (Op("producer_byte_rate", 1.0), Op("consumer_byte_rate", 2.0))
    entities = [(("user", f"u{number}"), ("client-id", None)) for number in range(MAX_CHANGED_KEYS // 2)]
    within = AlterRequest(1, 7, tuple(Alteration(entity, ops) for entity in entities), False)
    beyond = within._replace(alterations=(*within.alterations, Alteration((("ip", "not an ip"),), ())))
    one_more = within._replace(alterations=(*within.alterations, Alteration((("user", "u"),), ops[:1])))
    everything = DescribeRequest(1, 7, (Component("user", 2, None),), False)

    for request in (one_more, beyond, within, one_more):
        own, kafkas = ours.alter(request), kafka_classes.alter(request)
        assert without_order(own, request) == without_order(kafkas, request)
        shown, kafkas_shown = ours.describe(everything), kafka_classes.describe(everything)
        assert without_order(shown, everything) == without_order(kafkas_shown, everything)
    assert len(ours.rules) == MAX_CHANGED_KEYS // 2 + 1
