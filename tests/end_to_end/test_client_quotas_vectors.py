"""Kafka's own integration cases for both client quota APIs, at the proxy and at a broker, with equal output.

Numbers are those of the test vectors. V62 leaves out a null type and a null key, which no frame can contain.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.end_to_end.support.artifacts import KAFKA_2_8, KAFKA_3_9, KAFKA_4, KAFKA_4_3, kafka_classpath
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.quota_fleet import Admin
from tests.support.refused_addresses import in_kafkas_words

pytestmark = pytest.mark.proof

_QUOTAS: Final = Path(__file__).parent / "java" / "Quotas.java"
_P, _C, _R, _M = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
_RATE: Final = "connection_creation_rate"
_PAIR: Final = "client-id=c&user=u"
_NOTHING: Final[tuple[str, ...]] = ()
_INVALID: Final = "InvalidRequestException: "


class Step(NamedTuple):
    """A command of ``java/Quotas.java``, and the output that Kafka's test expects, if any."""

    command: str
    says: Sequence[str] | None = None


def _is(entity: str, **limits: float) -> list[str]:
    """Return the output that shows an entity with these limits."""
    return [f"{entity} {{{', '.join(f'{key}={limit}' for key, limit in sorted(limits.items()))}}}"]


def _refused(entity: str, message: str) -> list[str]:
    return [f"{entity} {_INVALID}{message}"]


def _shown(entity: str, **limits: float) -> Step:
    return Step(f"only|{entity}", _is(entity, **limits))


def _set(entity: str, ops: str) -> Step:
    return Step(f"alter|{entity}|{ops}", [f"{entity} done"])


def _checked(entity: str, ops: str) -> Step:
    return Step(f"validate|{entity}|{ops}", [f"{entity} done"])


_OF_USERS: Final = {
    "client-id=client-id-1&user=user-1": 50.5,
    "client-id=client-id-1&user=user-2": 51.51,
    "client-id=client-id-2&user=user-3": 52.52,
    "client-id=client-id-1&user": 53.53,
    "client-id&user=user-1": 54.54,
    "client-id&user=user-3": 55.55,
    "user=user-1": 56.56,
    "user=user-2": 57.57,
    "user=user-3": 58.58,
    "user": 59.59,
    "client-id=client-id-2": 60.6,
}
_OF_IPS: Final = {"ip=1.2.3.4": 10.0, "ip=2.3.4.5": 20.0}
# setupDescribeClientQuotasMatchTest
_MATCHED: Final = Step(
    "alter|"
    + "|".join(
        [f"{entity}|{_R}={limit}" for entity, limit in _OF_USERS.items()]
        + [f"{entity}|{_RATE}={limit}" for entity, limit in _OF_IPS.items()]
    ),
    sorted(f"{entity} done" for entity in (*_OF_USERS, *_OF_IPS)),
)


def _found(command: str, count: int) -> Step:
    """Return a step with a filter that matches this many of the entities in ``_MATCHED``."""
    how, _, parts = command.partition("|")
    wanted = dict(_wanted(part) for part in parts.split("&") if part)
    entities = [
        f"{entity} {{{_R if entity in _OF_USERS else _RATE}={limit}}}"
        for entity, limit in (_OF_USERS | _OF_IPS).items()
        if _matches(dict(_wanted(part) for part in entity.split("&")), wanted, is_strict=how == "only")
    ]
    assert len(entities) == count, (command, entities)
    return Step(command, sorted(entities))


def _wanted(part: str) -> tuple[str, str]:
    entity_type, is_named, name = part.partition("=")
    return (entity_type, f"={name}") if is_named else (entity_type.rstrip("?"), "any" if part.endswith("?") else "")


def _matches(entity: dict[str, str], wanted: dict[str, str], *, is_strict: bool) -> bool:
    if is_strict and (entity.keys() != wanted.keys() or not wanted):
        return False
    return all(key in entity and name in ("any", entity[key]) for key, name in wanted.items())


_CASES: Final[dict[str, Sequence[Step]]] = {
    "V48 testAlterClientQuotasRequest": [
        Step(f"only|{_PAIR}", _NOTHING),
        _set(_PAIR, f"{_P}=10000&{_C}=20000"),
        _shown(_PAIR, producer_byte_rate=10000.0, consumer_byte_rate=20000.0),
        _set(_PAIR, f"{_P}=15000"),
        _shown(_PAIR, producer_byte_rate=15000.0, consumer_byte_rate=20000.0),
        _set(_PAIR, _P),
        _shown(_PAIR, consumer_byte_rate=20000.0),
        _set(_PAIR, _R),
        _shown(_PAIR, consumer_byte_rate=20000.0),
        _set(_PAIR, f"{_P}=5000"),
        _shown(_PAIR, producer_byte_rate=5000.0, consumer_byte_rate=20000.0),
        _set(_PAIR, f"{_P}=20000&{_C}&{_R}=12.3"),
        _shown(_PAIR, producer_byte_rate=20000.0, request_percentage=12.3),
    ],
    "V49 testAlterClientQuotasRequestValidateOnly": [
        _set("user=u", f"{_P}=20000&{_R}=23.45"),
        *(
            step
            for ops in (f"{_C}=50000", f"{_P}=10000", _R, f"{_P}=10000&{_C}=50000&{_R}")
            for step in (
                _checked("user=u", ops),
                _shown("user=u", producer_byte_rate=20000.0, request_percentage=23.45),
            )
        ),
        Step(f"validate|user=u|{_P}=0", _refused("user=u", f"Quota {_P} must be greater than 0")),
    ],
    "V50 testDescribeClientQuotasMatchPartial": [
        _MATCHED,
        _found("contains|user=user-1", 3),
        _found("contains|user=unknown", 0),
        _found("contains|client-id=client-id-2", 2),
        _found("contains|user", 2),
        _found("contains|ip=1.2.3.4", 1),
        _found("only|user=user-1", 1),
        _found("only|client-id=client-id-2", 1),
        _found("only|user", 1),
        _found("only|ip=1.2.3.4", 1),
        _found("contains|user?", 10),
        _found("only|user?", 4),
        _found("contains|client-id?", 7),
        _found("only|client-id?", 1),
        _found("contains|ip?", 2),
        _found("only|ip?", 2),
        _found("only|client-id?&user?", 6),
        _found("only|client-id&user?", 2),
        _found("contains|user?&client-id=client-id-1", 3),
        _found("contains|", 13),
        _found("only|", 0),
    ],
    "V51 testDescribeClientQuotasMatchExact": [
        _MATCHED,
        *(_found(f"only|{entity}", 1) for entity in (*_OF_USERS, *_OF_IPS)),
        *(
            _found(f"only|{entity}", 0)
            for entity in (
                "client-id=client-id-2&user=user-1",
                "client-id=client-id-1&user=user-3",
                "client-id&user=user-2",
                "user=user-4",
                "client-id=client-id-2&user",
                "client-id=client-id-1",
                "client-id=client-id-3",
            )
        ),
    ],
    "V52 testAlterClientQuotasInvalidRequests": [
        Step(f"alter|user=|{_P}=10000.5", _refused("user=", "Empty user not supported")),
        Step(f"alter|client-id=|{_P}=10000.5", _refused("client-id=", "Empty client-id not supported")),
        Step(f"alter|=name|{_P}=10000.5", _refused("=name", "Unhandled client quota entity type: ")),
        Step(f"alter||{_P}=10000.5", _refused("", "Invalid empty client quota entity")),
        Step("alter|user=u|bad=1", _refused("user=u", "Invalid configuration key bad")),
        Step(f"alter|user=u|{_P}=10000.5", _refused("user=u", f"{_P} cannot be a fractional value.")),
    ],
    "V52 testAlterClientQuotasInvalidEntityCombination": [
        Step(f"alter|ip=1.2.3.4&user=u|{_R}=12.3"),
        Step(f"alter|client-id=c&ip=1.2.3.4|{_R}=12.3"),
        Step(f"alter|ip=1.2.3.4|{_R}=12.3", _refused("ip=1.2.3.4", f"Invalid configuration key {_R}")),
    ],
    "V52 testAlterClientQuotasBadIp": [
        Step(f"alter|ip={name}|{_RATE}=5", _refused(f"ip={name}", f"{name} is not a valid IP or resolvable host."))
        for name in ("not an ip", "RFC2606.invalid")
    ],
    "V52 testDescribeClientQuotasInvalidFilterCombination": [
        Step(f"{how}|{part}&ip=1.2.3.4") for how in ("contains", "only") for part in ("user=u", "client-id=c", "user?")
    ],
    "V52 testClientQuotasUnsupportedEntityTypes": [
        Step("contains|other=name", ["UnsupportedVersionException: Unsupported entity type other"]),
    ],
    "V54 testAlterIpQuotasRequest": [
        _set("ip=1.2.3.4", f"{_RATE}=100"),
        _shown("ip=1.2.3.4", connection_creation_rate=100.0),
        _set("ip=1.2.3.4", f"{_RATE}=150"),
        _set("ip", f"{_RATE}=200"),
        Step("only|ip?", [f"ip {{{_RATE}=200.0}}", f"ip=1.2.3.4 {{{_RATE}=150.0}}"]),
        Step(f"alter|ip|{_RATE}|ip=1.2.3.4|{_RATE}", ["ip done", "ip=1.2.3.4 done"]),
        Step("only|ip?", _NOTHING),
    ],
    "V62 testInvalidEntityTypes": [
        Step(f"alter|foo=x|{_R}=12.3", _refused("foo=x", "Unhandled client quota entity type: foo")),
        Step(f"alter|foo=x&user=u|{_R}=12.3"),
        Step(f"alter|foo=x&ip=1.2.3.4|{_R}=12.3"),
        Step(f"alter||{_R}=12.3"),
        Step("contains|", _NOTHING),
    ],
    "V62 testInvalidQuotaKeys": [
        Step(
            f"alter|user=u|not.a.quota.key=0&{_R}=99.9", _refused("user=u", "Invalid configuration key not.a.quota.key")
        ),
        Step(
            f"alter|user=u|{_R}=99.9&not.a.quota.key=0", _refused("user=u", "Invalid configuration key not.a.quota.key")
        ),
        Step("contains|", _NOTHING),
        Step(
            f"alter|user=u|{_P}=1|user=v|bad=1", ["user=u done", *_refused("user=v", "Invalid configuration key bad")]
        ),
        Step("contains|", _is("user=u", producer_byte_rate=1.0)),
    ],
    "V62 testConfigKeysForEntityType": [
        *(
            _set(entity, f"{_P}=1&{_C}=2&{_R}=3&{_M}=4")
            for entity in ("user=u", "client-id=c", _PAIR, "client-id&user")
        ),
        *(Step(f"alter|{entity}|{_RATE}=1") for entity in ("user=u", "client-id=c", _PAIR)),
        _set("ip=127.0.0.1", f"{_RATE}=1000000"),
        *(Step(f"alter|ip=127.0.0.1|{key}=1") for key in (_P, _C, _R, _M)),
    ],
    "V62 testAlterAndRemove": [
        _set("user=u", f"{_P}=10000&{_C}=20000"),
        _set("user=u", _P),
        _set("user=u", _C),
        Step("contains|", _NOTHING),
        _set("user=u", _C),
    ],
    "V66 testClientQuotasWithDefaultName": [
        _set("client-id=<default>", f"{_P}=20000"),
        Step("only|client-id", _NOTHING),
        _shown("client-id=<default>", producer_byte_rate=20000.0),
    ],
    "V66 testClientQuotasSanitized": [
        _set("user=user with spaces", f"{_P}=20000"),
        _shown("user=user with spaces", producer_byte_rate=20000.0),
    ],
}


class Outputs(NamedTuple):
    """The outputs of all cases at the proxy and at the broker."""

    ours: dict[str, list[list[str]]]
    kafkas: dict[str, list[list[str]]]


@pytest.fixture(
    scope="module",
    params=[*(pytest.param(version, marks=pytest.mark.long) for version in (KAFKA_2_8, KAFKA_3_9, KAFKA_4_3)), KAFKA_4],
)
def outputs(request: pytest.FixtureRequest, kafka_4: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    # The proxy runs first. If it forwarded changes, the broker would show them now.
    left = f"alter|client-id=left|{_P}=1"
    commands = [step.command for steps in _CASES.values() for step in (Step("clear"), *steps)] + ["clear", left]
    broker = kafka_4.listener(DIRECT).address
    settings = {
        "principals": {"admins": ["ANONYMOUS"]},
        "store": {"directory": str(tmp_path_factory.mktemp("store"))},
    }
    with Proxy(settings, kafka_4) as proxy:
        both = f"{proxy.address()},{broker}"
        printed = kafka_4.run_java(str(_QUOTAS), both, *commands, classpath=kafka_classpath(request.param))
        assert proxy.metrics().total("kafka_quota_proxy_quota_changes_total", result="applied") > len(_CASES)
    with Admin(int(broker.rpartition(":")[2])) as admin:
        assert admin.alter((("client-id", "left"),), {_P: None}).error_code == 0
    blocks = [block.splitlines() for block in printed.removesuffix("--\n").split("--\n")]
    assert len(blocks) == 2 * len(commands)
    assert blocks[len(commands) - 1] == ["client-id=left done"]
    assert not any(line.startswith("client-id=left") for line in blocks[len(commands)])
    return Outputs(_by_case(blocks[: len(commands)]), _by_case(blocks[len(commands) :]))


def _by_case(blocks: Sequence[list[str]]) -> dict[str, list[list[str]]]:
    found, at = {}, 0
    for case, steps in _CASES.items():
        found[case] = list(blocks[at + 1 : at + 1 + len(steps)])
        at += 1 + len(steps)
    assert len(blocks) == at + 2
    return found


@pytest.mark.parametrize("case", _CASES)
def test_answers_of_proxy_and_broker_equal_kafkas_expectations(outputs: Outputs, case: str) -> None:
    for step, own, kafkas in zip(_CASES[case], outputs.ours[case], outputs.kafkas[case], strict=True):
        said = [in_kafkas_words(line) for line in own]
        assert said == kafkas, step.command
        assert step.says is None or said == list(step.says), step.command
