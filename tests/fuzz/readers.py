"""Fuzzes each function of ``protocol`` that reads or rewrites requests and responses.

Frames are of any API and version, valid or damaged. Each function must have these properties:

* it raises nothing but a ``ProtocolError``;
* for the first bytes of a frame it returns None, or the same as for the whole frame;
* for a whole frame it returns a result or raises an error, and does not wait for more bytes;
* its result does not depend on the frame's offset or on the bytes around the frame;
* a rewritten frame has a correct size field, and only advertised broker addresses;
* a response that streams keeps its length, and the output is the same for any division into pieces.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kafka_quota_proxy.protocol import (
    api_versions,
    fetch,
    find_coordinator,
    metadata,
    produce,
    record_batches,
    sasl,
    share_fetch,
)
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.api_versions import CEILINGS
from kafka_quota_proxy.protocol.broker_list import replace_front
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.header import RequestHead, read_request_head
from kafka_quota_proxy.protocol.node_endpoints import (
    FIRST_VERSION,
    MAX_HELD_BYTES,
    EndpointHider,
    find_endpoints,
    has_no_endpoints,
    replace_endpoints,
)
from kafka_quota_proxy.protocol.replica_fetch import request as replica_request
from kafka_quota_proxy.protocol.replica_fetch import response as replica_response
from kafka_quota_proxy.protocol.replica_fetch.topics import Entry
from kafka_quota_proxy.protocol.throttle_time import (
    front_throttle_time_offset,
    throttle_time_offset,
    write_throttle_time,
)
from kafka_quota_proxy.proxy.rules.api import VERSIONS
from tests.fuzz import seeds
from tests.fuzz.dialogue import ADVERTISED
from tests.fuzz.messages import PASSWORD
from tests.fuzz.source import Source, cut, damaged, each_frame

_LIMIT: Final = 104_857_600
_THROTTLE_TIME_MS: Final = 0x5EAF00D
MARGINS: Final = (b"", b"\x00", b"\xff\xff\xff\xff", b"before and behind")


def result_of(read: Callable[..., object], *data: object, **more: object) -> object:
    """Return the value of a call, or the reason of the ProtocolError that the call raises."""
    try:
        return read(*data, **more)
    except ProtocolError as error:
        refused = error
    assert PASSWORD.decode() not in str(refused)
    return refused.reason


def _is_whole(frame: bytes) -> bool:
    return len(frame) >= 4 and len(frame) >= 4 + int.from_bytes(frame[:4], signed=True)


# -- requests


@each_frame
def requests(source: Source) -> None:
    """Read the heads and the bodies of requests."""
    api_key = seeds.API_KEYS[source.below(len(seeds.API_KEYS))]
    version, choice = source.below(seeds.versions(api_key)), source.byte()
    frame = seeds.request(api_key, version, choice & 3, choice >> 2 & 3)
    if choice & 0x10:
        frame = damaged(frame, source)
    _read_request(frame, source.below(len(frame) + 1), MARGINS[choice >> 6])


def _read_request(frame: bytes, size: int, margin: bytes) -> None:
    said = result_of(read_request_head, frame, 0, _LIMIT)
    early = result_of(read_request_head, frame[:size], 0, _LIMIT)
    assert early is None or early == said
    data = margin + frame
    head = result_of(read_request_head, data, len(margin), _LIMIT)
    if not isinstance(head, RequestHead):
        assert head == said
        assert head is not None or not _is_whole(frame)
        return
    assert head._replace(body=head.body - len(margin)) == said
    end = len(margin) + 4 + head.size_bytes
    assert head.body <= min(end, len(data))
    _read_body(data, head.body, end, head.api_key, head.api_version, size + len(margin))
    if head.api_key == ApiKey.FETCH and head.api_version <= HIGHEST_VERSION[ApiKey.FETCH]:
        _write_fetch_request(data, len(margin), head.body, head.api_version)


def _read_body(data: bytes, body: int, end: int, api_key: int, version: int, size: int) -> None:
    size = max(size, body)
    if api_key == ApiKey.PRODUCE:
        acks = _read_early(produce.read_acks, data, body, version, end, size)
        if isinstance(acks, int):
            plain = produce.end_of_plain_acks(data, body, version)
            assert plain is None or int.from_bytes(data[plain - 2 : plain], signed=True) == acks
    elif api_key == ApiKey.FETCH:
        _read_early(fetch.read_limits, data, body, version, end, size)
        replica = result_of(fetch.read_replica_id, data, body, min(end, len(data)), version)
        assert isinstance(replica, int | str)
    elif api_key == ApiKey.SHARE_FETCH:
        _read_early(share_fetch.read_limits, data, body, version, end, size)
    elif api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        view = memoryview(data)[body:end]
        name = result_of(sasl.read_handshake, view)
        assert isinstance(name, str)
        assert name.encode() is not None
        result_of(sasl.read_authenticate, view, version)


def _read_early(read: Callable[..., object], data: bytes, body: int, version: int, end: int, size: int) -> object:
    """Return what a reader says of the whole body. It says the same of the first bytes, or waits for more."""
    said = result_of(read, data, body, version, end=end)
    early = result_of(read, data[:size], body, version, end=end)
    assert early is None or early == said
    assert said is not None or end > len(data)
    return said


def _write_fetch_request(data: bytes, position: int, body: int, version: int) -> None:
    """Write a fetch request with fewer partitions and lower limits, and assert that it is read as intended."""
    try:
        said = replica_request.read_request(data, position, body, version)
    except ProtocolError:
        return
    assert said.replica_id == fetch.read_replica_id(data, body, said.end, version)
    chosen = [(partition, partition.max_bytes // 2) for partition in said.partitions[::2]]
    after = replica_request.write_request(data, said, chosen, max_wait_ms=7, max_bytes=said.max_bytes)
    assert int.from_bytes(after[:4]) == len(after) - 4
    again = replica_request.read_request(after, 0, body - position, version)
    assert again[:6] == (said.replica_id, 7, said.min_bytes, said.max_bytes, 0, -1)
    assert [one[:5] for one in again.partitions] == [(*one[:4], limit) for one, limit in chosen]


# -- responses


@each_frame
def responses(source: Source) -> None:
    """Find and replace versions, throttle times, brokers and endpoints in responses."""
    api_key = seeds.API_KEYS[source.below(len(seeds.API_KEYS))]
    version, choice = source.below(seeds.versions(api_key)), source.byte()
    frame = seeds.response(api_key, version, choice & 3)
    if choice & 0x10:
        frame = damaged(frame, source)
    _read_throttle_time(frame, api_key, version)
    reader = _READERS.get(api_key)
    if reader is not None:
        reader(frame, version, source.below(len(frame) + 1), MARGINS[choice >> 6])
    if version >= FIRST_VERSION.get(api_key, seeds.UNKNOWN_API):
        _replace_endpoints(frame, api_key, version)


def _read_throttle_time(frame: bytes, api_key: int, version: int) -> None:
    offset = result_of(throttle_time_offset, frame, api_key, version)
    if isinstance(offset, int) and offset >= 0:
        assert 8 <= offset <= len(frame) - 4
        written = write_throttle_time(frame, api_key, version, _THROTTLE_TIME_MS)
        assert len(written) == len(frame)
        assert written[:offset] + written[offset + 4 :] == frame[:offset] + frame[offset + 4 :]


def _read_produce(frame: bytes, version: int, size: int, margin: bytes) -> None:
    del size, margin  # this function is only used on whole frames
    offset = result_of(produce.throttle_time_offset, frame, version)
    assert not isinstance(offset, int) or 8 <= offset <= len(frame) - 4


def _read_fetch(frame: bytes, version: int, size: int, margin: bytes) -> None:
    said = result_of(front_throttle_time_offset, frame, 0, ApiKey.FETCH, version)
    early = result_of(front_throttle_time_offset, frame[:size], 0, ApiKey.FETCH, version)
    assert early is None or early == said or (isinstance(early, str) and isinstance(said, str))
    assert said is not None or not _is_whole(frame)
    moved = result_of(front_throttle_time_offset, margin + frame, len(margin), ApiKey.FETCH, version)
    assert moved == (said + len(margin) if isinstance(said, int) and said >= 0 else said)
    if version <= HIGHEST_VERSION[ApiKey.FETCH]:
        _write_fetch_response(margin + frame, len(margin), version)


def _write_fetch_response(data: bytes, position: int, version: int) -> None:
    """Write a fetch response with fewer partitions and records, and assert that it is read as intended."""
    try:
        said = replica_response.read_response(data, position, len(data) - position, version)
    except ProtocolError:
        return
    entries, kept = [], said.partitions[::2]
    for one in kept:
        end = record_batches.end_of_whole_batches(data, one.records, one.records_end)
        assert one.records <= end <= one.records_end
        entries.append(Entry(one.topic, replica_response.truncate_partition(data, one, end, version)))
    after = replica_response.write_response(data, position, said, entries, version)
    assert int.from_bytes(after[:4]) == len(after) - 4
    again = replica_response.read_response(after, 0, len(after), version)
    assert again[:3] == (said.throttle_time_ms, said.error_code, 0)
    assert [one[:6] for one in again.partitions] == [one[:6] for one in kept]


def _read_api_versions(frame: bytes, version: int, size: int, margin: bytes) -> None:
    del size, margin
    with suppress(ProtocolError):
        narrowed = api_versions.limit_versions(frame, version)
        assert len(narrowed) == len(frame)
        assert api_versions.limit_versions(narrowed, version) == narrowed
        for entry in api_versions._layout(narrowed, version).entries:
            key, low, high = (int.from_bytes(narrowed[entry + at : entry + at + 2], signed=True) for at in (0, 2, 4))
            assert high <= CEILINGS.get(key, high) or low > CEILINGS[key]
        told = api_versions.advertise_versions(narrowed, version, VERSIONS)
        assert api_versions.advertise_versions(told, version, VERSIONS) == told
        assert int.from_bytes(told[:4]) == len(told) - 4 or told == narrowed


def _read_metadata(frame: bytes, version: int, size: int, margin: bytes) -> None:
    found = _same_anywhere(metadata.find_brokers, frame, version, size, margin)
    if found is not None:
        with suppress(ProtocolError):
            cluster_id = metadata.find_cluster_id(margin + frame, len(margin), found, version)
            assert cluster_id is None or 0 < len(cluster_id.encode()) <= 4 * metadata.MAX_CLUSTER_ID_BYTES
        front = replace_front(margin + frame, len(margin), found, ADVERTISED)
        after = front + frame[found.end - len(margin) :]
        _check_size(after, frame)
        again = metadata.find_brokers(after, 0, version)
        assert again is not None
        _check_told(again.brokers)


def _read_describe_cluster(frame: bytes, version: int, size: int, margin: bytes) -> None:
    found = _same_anywhere(metadata.find_endpoints, frame, version, size, margin)
    if found is not None:
        front = metadata.replace_endpoints(margin + frame, len(margin), found, ADVERTISED)
        after = front + frame[found.brokers.end - len(margin) :]
        _check_size(after, frame)
        again = metadata.find_endpoints(after, 0, version)
        assert again is not None
        _check_told(again.brokers.brokers)
        assert found.endpoint_type == metadata.BROKERS or not again.brokers.brokers


def _read_find_coordinator(frame: bytes, version: int, size: int, margin: bytes) -> None:
    found = _same_anywhere(find_coordinator.find_coordinators, frame, version, size, margin)
    if found is not None:
        after = find_coordinator.replace_coordinators(margin + frame, len(margin), version, found, ADVERTISED)
        assert int.from_bytes(after[:4]) == len(after) - 4
        again = find_coordinator.find_coordinators(after, 0, version)
        assert again is not None
        assert len(again) == len(found)
        _check_told(tuple(one for one in again if one.node_id != find_coordinator.NO_NODE))


def _same_anywhere(find: Callable[[bytes, int, int], Any], frame: bytes, version: int, size: int, margin: bytes) -> Any:  # noqa: ANN401 - three readers, three kinds of answers
    """Return the value of ``find`` for a frame, or None for an error or an incomplete frame.

    Assert that the value does not change if the frame is cut or has other bytes before it.
    """
    said = result_of(find, frame, 0, version)
    early = result_of(find, frame[:size], 0, version)
    # A wrong length may be an error in a whole frame but just incomplete in a part of it, and the reverse.
    assert early is None or early == said or isinstance(said, str)
    assert said is not None or not _is_whole(frame)
    moved = result_of(find, margin + frame, len(margin), version)
    assert isinstance(moved, str) == isinstance(said, str)
    assert (moved is None) == (said is None)
    return None if isinstance(moved, str) else moved


def _check_size(after: bytes, before: bytes) -> None:
    """Assert that the size field differs from the real size by as much as before the rewrite."""
    wrong_by = int.from_bytes(before[:4], signed=True) - (len(before) - 4)
    assert int.from_bytes(after[:4], signed=True) - (len(after) - 4) == wrong_by


def _check_told(brokers: tuple[Any, ...]) -> None:
    for broker in brokers:
        assert (broker.host.encode(), broker.port) == ADVERTISED[broker.node_id]


def _replace_endpoints(frame: bytes, api_key: int, version: int) -> None:
    try:
        for come_bytes in (len(frame), len(frame) // 2):
            has_no_endpoints(b"before" + frame[:come_bytes], 6, len(frame), api_key, version)
        found = find_endpoints(frame, api_key, version)
    except ProtocolError:
        return
    if found is not None:
        after = replace_endpoints(frame, found, ADVERTISED)
        assert int.from_bytes(after[:4]) == len(after) - 4
        again = find_endpoints(after, api_key, version)
        assert again is None or again.size_at < 0 or again.size_at == found.size_at
        _check_told(again.array.brokers if again is not None else ())


_READERS: Final[dict[int, Callable[[bytes, int, int, bytes], None]]] = {
    ApiKey.PRODUCE: _read_produce,
    ApiKey.FETCH: _read_fetch,
    ApiKey.API_VERSIONS: _read_api_versions,
    ApiKey.METADATA: _read_metadata,
    ApiKey.DESCRIBE_CLUSTER: _read_describe_cluster,
    ApiKey.FIND_COORDINATOR: _read_find_coordinator,
}


@each_frame
def streams(source: Source) -> None:
    """Hide the endpoints of responses that stream."""
    keys = tuple(FIRST_VERSION)
    api_key = keys[source.below(len(keys))]
    first = FIRST_VERSION[api_key]
    version, choice = first + source.below(seeds.versions(api_key) - first), source.byte()
    frame = seeds.response(api_key, version, choice & 3)
    if choice & 0x10:
        frame = damaged(frame, source)
    whole, whole_error = _streamed([frame] if frame else [], api_key, version)
    parts, parts_error = _streamed(cut(frame, source), api_key, version)
    assert whole_error == parts_error
    assert parts.startswith(whole) or whole.startswith(parts) if whole_error else parts == whole
    assert len(parts) <= len(frame)
    if not whole_error:
        assert len(whole) == len(frame)
        with suppress(ProtocolError):
            assert find_endpoints(whole, api_key, version) is None


def _streamed(pieces: list[bytes], api_key: int, version: int) -> tuple[bytes, str]:
    hidden = EndpointHider(api_key, version)
    out = b""
    try:
        for piece in pieces:
            out += hidden.feed(piece)
            assert len(hidden._held) <= MAX_HELD_BYTES
        out += hidden.end()
    except ProtocolError as error:
        return out, error.reason
    return out, ""
