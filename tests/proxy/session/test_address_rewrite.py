"""Tests that a session does not show its clients a broker's own address."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from time import perf_counter_ns

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Address, Enforcement, QuotaRule
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.node_endpoints import has_no_endpoints
from kafka_quota_proxy.proxy.session.address_rewrite import ADDRESSED, MOVED, READABLE, Addresses
from tests.protocol.support import kio_messages
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import each_case
from tests.support.frames import api_versions_response, framed, request_header
from tests.support.wire import Wire

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, SHARE_FETCH = 0, 1, 3, 10, 60, 78
INSIDE = "broker.internal"
APIS = [(key, version) for key, version in kio_messages.api_versions() if key in ADDRESSED]


class Told:
    """Records the broker addresses that a session reads. Clients get ``proxy`` and a port for each broker."""

    def __init__(self, *, nodes: range = range(10)) -> None:
        self.seen: list[tuple[Mapping[int, Address], bool]] = []
        self.addresses = Addresses(lambda brokers, is_all, _: self.seen.append((brokers, is_all)))
        self.addresses.advertised |= {node_id: (b"proxy", 9193 + node_id) for node_id in nodes}


@cache
def _response(api_key: int, version: int, *, correlation_id: int = 1, records: bytes = b"") -> bytes:
    """Return a response that has the host INSIDE in all its brokers, coordinators and endpoints."""
    kind = kio_messages.response_class(api_key, version)
    values = {"endpoint_type": 1} if (api_key, version) > (DESCRIBE_CLUSTER, 0) and api_key == DESCRIBE_CLUSTER else {}
    message = _named(kio_messages.example(kind, values, array_length=1))
    if records:
        (topic,) = message.responses
        (partition,) = topic.partitions
        partition = replace(partition, records=records)
        message = replace(message, responses=(replace(topic, partitions=(partition,)),))
    return kio_messages.response_frame(message, correlation_id=correlation_id)


def _named(message: Untyped) -> Untyped:
    """Return a message in which each host is INSIDE."""
    for name in ("brokers", "coordinators", "node_endpoints"):
        if hasattr(message, name):
            message = replace(message, **{name: tuple(replace(each, host=INSIDE) for each in getattr(message, name))})
    return replace(message, host=INSIDE) if hasattr(message, "host") else message


def _asked(wire: Wire, api_key: int, version: int, *, correlation_id: int = 1) -> None:
    """Let the client send a request for this API. Its content does not matter."""
    is_flexible = version >= {PRODUCE: 9, FETCH: 12, METADATA: 9, FIND_COORDINATOR: 3}.get(api_key, 0)
    header = request_header(api_key, version, correlation_id, "etl", is_flexible=is_flexible)
    body = b"\0\0\x01\0\0\0\0" + bytes(40)
    wire.client(framed(header + body))


@each_case("api_key, version", APIS)
def test_responses_contain_no_broker_address(api_key: int, version: int) -> None:
    told = Told()
    wire = Wire(addresses=told.addresses)
    _asked(wire, api_key, version)

    frame = wire.broker(_response(api_key, version))

    assert INSIDE.encode() not in frame
    assert len(frame) == 4 + int.from_bytes(frame[:4])
    names_brokers = api_key not in MOVED or version >= {PRODUCE: 10, FETCH: 16}.get(api_key, 0)
    if names_brokers:
        assert b"proxy" in frame
        assert told.seen == [({3: Address(host=INSIDE, port=3)}, api_key == METADATA)]
    assert wire.session.is_idle


@pytest.mark.parametrize("api_key", [METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER])
def test_a_response_is_held_until_its_addresses_have_come(api_key: int) -> None:
    whole = _response(api_key, HIGHEST_VERSION[api_key])
    for cut in range(4, whole.rindex(INSIDE.encode())):
        told = Told()
        wire = Wire(addresses=told.addresses)
        _asked(wire, api_key, HIGHEST_VERSION[api_key])

        assert wire.broker(whole[:cut]) == b""
        assert told.seen == []


@each_case("api_key, version", APIS)
def test_broker_without_a_port_is_left_out(api_key: int, version: int) -> None:
    wire = Wire(addresses=Told(nodes=range(3)).addresses)
    _asked(wire, api_key, version)

    frame = wire.broker(_response(api_key, version))

    assert INSIDE.encode() not in frame
    assert b"proxy" not in frame


@pytest.mark.parametrize("rule", [None, QuotaRule(client_id=DEFAULT, consumer_byte_rate=1_000.0)])
def test_front_of_a_fetch_response_decides_alike_for_each_cut(rule: QuotaRule | None) -> None:
    front = (1).to_bytes(4) + bytes(11) + b"\2" + bytes(16) + b"\2" + bytes(30) + b"\1" + bytes(4)
    records_bytes = 19_927  # the compact length, one more than the length
    length = bytes([records_bytes & 0x7F | 0x80, records_bytes >> 7 & 0x7F | 0x80, records_bytes >> 14])
    data = framed(front + length + bytes(records_bytes - 1) + bytes(3))  # one topic with one partition
    assert has_no_endpoints(data[:100], 0, len(data), FETCH, 16)

    for cut in range(1, 100):
        wire = Wire(*filter(None, [rule]), addresses=Told().addresses)
        wire.client(framed(request_header(FETCH, 16, 1, "etl", is_flexible=True) + bytes(60)))
        passed = wire.broker(data[:cut], data[cut:100])

        assert wire.session.state.responses.hidden is None, cut
        assert len(passed) == 100


@pytest.mark.parametrize("enforcement", [Enforcement.RESPOND, Enforcement.DELAY])
@pytest.mark.parametrize("piece_bytes", [100, 64 * 1024, 10**6])
def test_throttled_fetch_has_proxy_addresses_and_the_remaining_throttle_time(
    enforcement: Enforcement, piece_bytes: int
) -> None:
    rule = QuotaRule(client_id=DEFAULT, consumer_byte_rate=1_000.0)
    wire = Wire(rule, enforcement=enforcement, addresses=Told().addresses)
    wire.client(framed(request_header(FETCH, 16, 1, "etl", is_flexible=True) + bytes(60)))
    message = _response(FETCH, 16, records=bytes(200_000))

    passed = [wire.broker(message[at : at + piece_bytes]) for at in range(0, len(message), piece_bytes)]
    wire.wait(10**7)
    frame = b"".join(passed) + wire.to_client()

    assert len(frame) == 4 + int.from_bytes(frame[:4])
    told_ms = int.from_bytes(frame[9:13])
    is_told = enforcement is Enforcement.RESPOND
    assert told_ms > 100_000 if is_told else frame[9:13] == message[9:13]
    assert INSIDE.encode() not in frame or (frame.count(b"\x01\x7f") == 1 and piece_bytes < len(message))


def test_large_records_are_forwarded_without_buffering() -> None:
    wire = Wire(addresses=Told().addresses)
    _asked(wire, FETCH, 17)
    message = _response(FETCH, 17, records=bytes(1_000_000))

    passed = [wire.broker(message[at : at + 65_536]) for at in range(0, len(message), 65_536)]

    assert [len(piece) for piece in passed[:-1]] == [65_536] * 15


def test_the_brokers_of_5000_partitions_cost_under_a_tenth_of_a_millisecond() -> None:
    kind = kio_messages.response_class(METADATA, 13)
    message = _named(kio_messages.example(kind, array_length=1))
    (topic,) = message.topics
    message = replace(message, topics=(replace(topic, partitions=topic.partitions * 5_000),))
    wire = Wire(addresses=Told().addresses)
    response = kio_messages.response_frame(message, correlation_id=1)
    durations_ns = []
    for _ in range(100):
        _asked(wire, METADATA, 13)
        started_ns = perf_counter_ns()
        frame = wire.broker(response)
        durations_ns.append(perf_counter_ns() - started_ns)

    assert (INSIDE.encode() in frame, b"proxy" in frame) == (False, True)
    assert len(frame) > 5_000 * 20
    assert min(durations_ns) < 100_000  # the minimum, because other programs may slow this one down


def test_metadata_after_the_brokers_is_forwarded_in_pieces() -> None:
    wire = Wire(addresses=Told().addresses)
    _asked(wire, METADATA, 12)
    message = kio_messages.example(kio_messages.response_class(METADATA, 12), array_length=20)
    frame = kio_messages.response_frame(message, correlation_id=1)

    first = wire.broker(frame[:2_000])
    second = wire.broker(frame[2_000:10_000])

    assert 0 < len(first) < 2_200
    assert second == frame[2_000:10_000]
    assert b"proxy" in first
    rest = wire.broker(frame[10_000:])
    assert len(first + second + rest) == 4 + int.from_bytes(first[:4])


@pytest.mark.parametrize("api_key", [METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER])
def test_unreadable_response_is_not_forwarded(api_key: int) -> None:
    wire = Wire(addresses=Told().addresses)
    _asked(wire, api_key, 2)

    with pytest.raises(ProtocolError):
        wire.broker(framed((1).to_bytes(4) + b"\x7f" * 50))

    assert wire.to_client() == b""


def test_only_readable_versions_are_offered() -> None:
    wire = Wire(addresses=Told().addresses)
    _asked(wire, 18, 0)

    announced = wire.broker(api_versions_response())

    assert announced == api_versions_response(produce_max=13, fetch_max=18)[:-2] + HIGHEST_VERSION[METADATA].to_bytes(2)
    assert {key: READABLE[key] for key in ADDRESSED} == {key: HIGHEST_VERSION[key] for key in ADDRESSED}
