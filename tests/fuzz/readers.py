"""Any bytes give an answer or one error, in bounded time and memory: of each reader and patcher of what peers send.

Frames are right ones of any API and version, whole or damaged; so are PROXY headers and certificates. Of each reader
this holds:

* nothing but a ``ProtocolError`` comes out;
* what it says of the first bytes of a frame is None, or what it says of all of it;
* a frame that is whole gives an answer or an error: nobody waits for bytes that will not come;
* it says the same wherever the frame lies in its data, and whatever lies around it;
* a frame that is written anew has the size that stands in front of it, and names nobody but who is to be named;
* a response that streams comes out with as many bytes as it went in, the same ones however it is cut.
"""

from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from struct import pack
from typing import Any, Final

from kafka_quota_proxy.config.certificate import CertificateError, validity_of
from kafka_quota_proxy.config.principal_mapping import DEFAULT_RULES, parse_rules
from kafka_quota_proxy.protocol import (
    api_versions,
    describe_cluster,
    fetch,
    find_coordinator,
    metadata,
    produce,
    record_batches,
    replica_fetch,
    sasl,
    share_fetch,
)
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.api_versions import CEILINGS
from kafka_quota_proxy.protocol.broker_list import MAX_CLUSTER_ID_BYTES
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.header import RequestHead, read_request_head, read_response_head
from kafka_quota_proxy.protocol.node_endpoints import (
    FIRST_VERSION,
    MAX_HELD_BYTES,
    EndpointHider,
    find_endpoints,
    has_no_endpoints,
    replace_endpoints,
)
from kafka_quota_proxy.protocol.proxy_protocol import MAX_HEADER_BYTES, read_proxy_header
from kafka_quota_proxy.protocol.throttle_time import (
    front_throttle_time_offset,
    throttle_time_offset,
    write_throttle_time,
)
from kafka_quota_proxy.proxy.client_quotas.api import VERSIONS
from kafka_quota_proxy.proxy.server.tls.principal import user_of_certificate
from tests.fuzz import seeds
from tests.fuzz.dialogue import PASSWORD, TOLD, Stage
from tests.fuzz.source import Source, cut, damaged
from tests.support.certificates import element, name, object_identifier, sequence
from tests.support.java_principals import SUBJECTS
from tests.support.logins import CLIENT_FINAL, CLIENT_FIRST, SERVER_FINAL, SERVER_FIRST, bearer, web_token
from tests.support.wire import Wire

MAX_FRAMES: Final = 64
_LIMIT: Final = 104_857_600
_THROTTLE_TIME_MS: Final = 0x5EAF00D
_MARGINS: Final = (b"", b"\x00", b"\xff\xff\xff\xff", b"before and behind")

_TOKENS: Final = (
    b"\0alice\0" + PASSWORD,
    CLIENT_FIRST,
    CLIENT_FINAL,
    SERVER_FIRST,
    SERVER_FINAL,
    b"n,a=a=2Cb,n=a=2Cb,r=x,tokenauth=true",
    bearer(web_token({"sub": "alice"})),
    bearer(web_token({"sub": ["alice"]})),
    b"n,,m=any,n=alice,r=x",
    b"n,a=alice,\x01host=h\x01auth=Bearer a.e30.\x01\x01",
    b"",
)
_PROXY_HEADERS: Final = (
    b"PROXY TCP4 203.0.113.7 198.51.100.1 56324 9092\r\n",
    b"PROXY TCP6 2001:db8::7 ::ffff:10.0.0.7 56324 9092\r\n",
    b"PROXY TCP6 fe80::1%eth0 fe80::2%eth0 1 2\r\n",
    b"PROXY TCP4 203.0.113.7 198.51.100.1 65536 0\r\n",
    b"PROXY UNKNOWN whatever\r\n",
    b"PROXY TCP6 " + 2 * (b"ffff:" * 7 + b"ffff ") + b"65535 65535\r\n",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(range(12)),
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x21\x00\x28" + bytes(range(36)) + b"\x04\x00\x01x",
    b"\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\xd8" + b"/tmp/socket".ljust(108, b"\x00") * 2,
    b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00",
)


def _said(read: Callable[..., object], *data: object, **more: object) -> object:
    """Return what a reader says of something: a value, or the reason of its error."""
    try:
        return read(*data, **more)
    except ProtocolError as error:
        refused = error
    assert PASSWORD.decode() not in str(refused)
    return refused.reason


def _is_whole(frame: bytes) -> bool:
    return len(frame) >= 4 and len(frame) >= 4 + int.from_bytes(frame[:4], signed=True)


# -- requests


def requests(source: Source) -> int:
    """Read the heads of requests and what is read of their bodies."""
    frames = 0
    while source.has_more and frames < MAX_FRAMES:
        api_key = seeds.API_KEYS[source.below(len(seeds.API_KEYS))]
        version, choice = source.below(seeds.versions(api_key)), source.byte()
        frame = seeds.request(api_key, version, choice & 3, choice >> 2 & 3)
        if choice & 0x10:
            frame = damaged(frame, source)
        _read_request(frame, source.below(len(frame) + 1), _MARGINS[choice >> 6])
        frames += 1
    return frames


def _read_request(frame: bytes, size: int, margin: bytes) -> None:
    said = _said(read_request_head, frame, 0, _LIMIT)
    early = _said(read_request_head, frame[:size], 0, _LIMIT)
    assert early is None or early == said
    data = margin + frame
    head = _said(read_request_head, data, len(margin), _LIMIT)
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
        acks = _said(produce.read_acks, data, body, version, end=end)
        early = _said(produce.read_acks, data[:size], body, version, end=end)
        # What is a lie in a whole frame may be too short in one that is still coming.
        assert early is None or early == acks or (isinstance(early, str) and isinstance(acks, str))
        assert acks is not None or end > len(data)
        if isinstance(acks, int):
            plain = produce.end_of_plain_acks(data, body, version)
            assert plain is None or int.from_bytes(data[plain - 2 : plain], signed=True) == acks
    elif api_key == ApiKey.FETCH:
        limits = _said(fetch.read_limits, data, body, version, end=end)
        early = _said(fetch.read_limits, data[:size], body, version, end=end)
        assert early is None or early == limits
        assert limits is not None or end > len(data)
        replica = _said(fetch.read_replica_id, data, body, min(end, len(data)), version)
        assert isinstance(replica, int | str)
    elif api_key == ApiKey.SHARE_FETCH:
        limits = _said(share_fetch.read_limits, data, body, version, end=end)
        early = _said(share_fetch.read_limits, data[:size], body, version, end=end)
        assert early is None or early == limits
        assert limits is not None or end > len(data)
    elif api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        view = memoryview(data)[body:end]
        name = _said(sasl.read_handshake, view)
        assert isinstance(name, str)
        assert name.encode() is not None
        _said(sasl.read_authenticate, view, version)


def _write_fetch_request(data: bytes, position: int, body: int, version: int) -> None:
    """Leave out and narrow partitions; what is read of the outcome is what was meant."""
    try:
        said = replica_fetch.read_request(data, position, body, version)
    except ProtocolError:
        return
    assert said.replica_id == fetch.read_replica_id(data, body, said.end, version)
    chosen = [(partition, partition.max_bytes // 2) for partition in said.partitions[::2]]
    after = replica_fetch.write_request(data, said, chosen, max_wait_ms=7, max_bytes=said.max_bytes)
    assert int.from_bytes(after[:4]) == len(after) - 4
    again = replica_fetch.read_request(after, 0, body - position, version)
    assert again[:6] == (said.replica_id, 7, said.min_bytes, said.max_bytes, 0, -1)
    assert [one[:5] for one in again.partitions] == [(*one[:4], limit) for one, limit in chosen]


# -- responses


def responses(source: Source) -> int:
    """Find and replace in responses what is found and replaced there."""
    frames = 0
    while source.has_more and frames < MAX_FRAMES:
        api_key = seeds.API_KEYS[source.below(len(seeds.API_KEYS))]
        version, choice = source.below(seeds.versions(api_key)), source.byte()
        frame = seeds.response(api_key, version, choice & 3)
        if choice & 0x10:
            frame = damaged(frame, source)
        _read_response(frame, api_key, version, source.below(len(frame) + 1))
        reader = _READERS.get(api_key)
        if reader is not None:
            reader(frame, version, source.below(len(frame) + 1), _MARGINS[choice >> 6])
        if version >= FIRST_VERSION.get(api_key, seeds.UNKNOWN_API):
            _replace_endpoints(frame, api_key, version)
        frames += 1
    return frames


def _read_response(frame: bytes, api_key: int, version: int, size: int) -> None:
    said = _said(read_response_head, frame, 0, _LIMIT)
    early = _said(read_response_head, frame[:size], 0, _LIMIT)
    assert early is None or early == said
    offset = _said(throttle_time_offset, frame, api_key, version)
    if isinstance(offset, int) and offset >= 0:
        assert 8 <= offset <= len(frame) - 4
        written = write_throttle_time(frame, api_key, version, _THROTTLE_TIME_MS)
        assert len(written) == len(frame)
        assert written[:offset] + written[offset + 4 :] == frame[:offset] + frame[offset + 4 :]


def _read_produce(frame: bytes, version: int, size: int, margin: bytes) -> None:
    del size, margin  # read only where it is whole
    offset = _said(produce.throttle_time_offset, frame, version)
    assert not isinstance(offset, int) or 8 <= offset <= len(frame) - 4


def _read_fetch(frame: bytes, version: int, size: int, margin: bytes) -> None:
    said = _said(front_throttle_time_offset, frame, 0, ApiKey.FETCH, version)
    early = _said(front_throttle_time_offset, frame[:size], 0, ApiKey.FETCH, version)
    assert early is None or early == said or (isinstance(early, str) and isinstance(said, str))
    assert said is not None or not _is_whole(frame)
    moved = _said(front_throttle_time_offset, margin + frame, len(margin), ApiKey.FETCH, version)
    assert moved == (said + len(margin) if isinstance(said, int) and said >= 0 else said)
    if version <= HIGHEST_VERSION[ApiKey.FETCH]:
        _write_fetch_response(margin + frame, len(margin), version)


def _write_fetch_response(data: bytes, position: int, version: int) -> None:
    """Leave out entries, and cut records; what is read of the outcome is what was meant."""
    try:
        said = replica_fetch.read_response(data, position, len(data) - position, version)
    except ProtocolError:
        return
    entries, kept = [], said.partitions[::2]
    for one in kept:
        end = record_batches.end_of_whole_batches(data, one.records, one.records_end)
        assert one.records <= end <= one.records_end
        entries.append(replica_fetch.Entry(one.topic, replica_fetch.truncate_partition(data, one, end, version)))
    after = replica_fetch.write_response(data, position, said, entries, version)
    assert int.from_bytes(after[:4]) == len(after) - 4
    again = replica_fetch.read_response(after, 0, len(after), version)
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
            assert cluster_id is None or 0 < len(cluster_id.encode()) <= 4 * MAX_CLUSTER_ID_BYTES
        front = metadata.replace_brokers(margin + frame, len(margin), found, TOLD)
        after = front + frame[found.end - len(margin) :]
        _check_size(after, frame)
        again = metadata.find_brokers(after, 0, version)
        assert again is not None
        _check_told(again.brokers)


def _read_describe_cluster(frame: bytes, version: int, size: int, margin: bytes) -> None:
    found = _same_anywhere(describe_cluster.find_endpoints, frame, version, size, margin)
    if found is not None:
        front = describe_cluster.replace_endpoints(margin + frame, len(margin), found, TOLD)
        after = front + frame[found.brokers.end - len(margin) :]
        _check_size(after, frame)
        again = describe_cluster.find_endpoints(after, 0, version)
        assert again is not None
        _check_told(again.brokers.brokers)
        assert found.endpoint_type == describe_cluster.BROKERS or not again.brokers.brokers


def _read_find_coordinator(frame: bytes, version: int, size: int, margin: bytes) -> None:
    found = _same_anywhere(find_coordinator.find_coordinators, frame, version, size, margin)
    if found is not None:
        after = find_coordinator.replace_coordinators(margin + frame, len(margin), version, found, TOLD)
        assert int.from_bytes(after[:4]) == len(after) - 4
        again = find_coordinator.find_coordinators(after, 0, version)
        assert again is not None
        assert len(again) == len(found)
        _check_told(tuple(one for one in again if one.node_id != find_coordinator.NO_NODE))


def _same_anywhere(find: Callable[[bytes, int, int], Any], frame: bytes, version: int, size: int, margin: bytes) -> Any:  # noqa: ANN401 - three readers, three kinds of answers
    """Return what a reader says of the frame with something before it; None where it is an error, or too short."""
    said = _said(find, frame, 0, version)
    early = _said(find, frame[:size], 0, version)
    # What is a lie in a whole frame may be too short in one that is still coming, and the other way round.
    assert early is None or early == said or isinstance(said, str)
    assert said is not None or not _is_whole(frame)
    moved = _said(find, margin + frame, len(margin), version)
    assert isinstance(moved, str) == isinstance(said, str)
    assert (moved is None) == (said is None)
    return None if isinstance(moved, str) else moved


def _check_size(after: bytes, before: bytes) -> None:
    """The size in front of a frame is as wrong as it was."""
    wrong_by = int.from_bytes(before[:4], signed=True) - (len(before) - 4)
    assert int.from_bytes(after[:4], signed=True) - (len(after) - 4) == wrong_by


def _check_told(brokers: tuple[Any, ...]) -> None:
    for broker in brokers:
        assert (broker.host.encode(), broker.port) == TOLD[broker.node_id]


def _replace_endpoints(frame: bytes, api_key: int, version: int) -> None:
    try:
        for come_bytes in (len(frame), len(frame) // 2):
            has_no_endpoints(b"before" + frame[:come_bytes], 6, len(frame), api_key, version)
        found = find_endpoints(frame, api_key, version)
    except ProtocolError:
        return
    if found is not None:
        after = replace_endpoints(frame, found, TOLD)
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


def streams(source: Source) -> int:
    """Hide the endpoints of responses that stream."""
    frames = 0
    keys = tuple(FIRST_VERSION)
    while source.has_more and frames < MAX_FRAMES:
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
        frames += 1
    return frames


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


# -- logins


def tokens(source: Source) -> int:
    """Read whom tokens name, and the frames around them."""
    frames = 0
    while source.has_more and frames < MAX_FRAMES:
        choice = source.byte()
        token = _TOKENS[choice % len(_TOKENS)] if choice < 240 else source.take(source.byte())
        if choice & 1:
            token = damaged(b"size" + token, source)[4:]
        for user in (sasl.plain_user(token), sasl.scram_user(token), sasl.oauthbearer_user(token, claim="sub")):
            assert user is None or user.encode()
        assert not (sasl.is_scram_success(token) and sasl.is_scram_failure(token))
        frame = pack(">i", len(token)) + token
        if choice & 2:
            frame = damaged(frame, source)
        size = source.below(len(frame) + 1)
        for read in (sasl.read_token_size, sasl.is_request):
            said, early = (_said(read, some, 0) for some in (frame, frame[:size]))
            assert early is None or early == said
        for version in range(4):
            _said(sasl.read_authenticate_response, frame, version)
        frames += 1
    return frames


# -- headers of the PROXY protocol


def proxy_headers(source: Source) -> int:
    """Read the headers that load balancers send; to the connection behind them not a byte is lost."""
    frames = 0
    while source.has_more and frames < MAX_FRAMES:
        choice = source.byte()
        header = _PROXY_HEADERS[choice % len(_PROXY_HEADERS)] if choice < 248 else source.take(source.byte())
        if choice & 0x10:
            header = damaged(b"size" + header, source)[4:]
        # As much behind it as is too much of any header.
        data = header + (*_MARGINS[:3], bytes(MAX_HEADER_BYTES))[choice >> 5 & 3]
        said = _said(read_proxy_header, data)
        size = source.below(len(data) + 1)
        early = _said(read_proxy_header, data[:size])
        assert early is None or early == said
        if isinstance(said, tuple):
            where, size_bytes = said
            assert 0 < size_bytes <= min(len(data), MAX_HEADER_BYTES)
            assert early is not None or size < size_bytes
            if where is not None:
                assert str(ip_address(where[0])) == where[0]
                assert "%" not in where[0]
                assert 0 <= where[1] <= 65_535
        elif said is None:
            assert len(data) < MAX_HEADER_BYTES
        frames += 1
    return frames


# -- certificates of TLS clients


_RULES: Final = (
    DEFAULT_RULES,
    parse_rules("RULE:^(CN=)?(.*?)(,.*)?$/$2$3 $1/L"),
    parse_rules("RULE:^.*?CN=([^,+]*).*$/$1/U, DEFAULT"),
    parse_rules("RULE:.*/<$0>/"),
)
_OIDS: Final = tuple(sorted({oid for subject, _ in SUBJECTS for part in subject for oid, _, _ in part}))
_STRING_TAGS: Final = tuple(sorted({tag for subject, _ in SUBJECTS for part in subject for _, tag, _ in part}))
_VALUES: Final = tuple(sorted({value for subject, _ in SUBJECTS for part in subject for _, _, value in part}))
_SUBJECTS: Final = tuple(name(subject) for subject, _ in SUBJECTS)
_TIMES: Final = (b"\x17\x0d260101000000Z", b"\x18\x0f20491231235959Z", b"\x17\x0d260230000000Z", b"\x18\x0200", b"")
_SERIAL: Final = element(0x02, b"\x01")
_FRONTS: Final = (element(0xA0, element(0x02, b"\x02")) + _SERIAL, _SERIAL)
# An OID of one byte becomes four characters, a byte of a value three.
_MAX_NAME_GROWTH: Final = 4


def certificates(source: Source) -> int:
    """Read whom certificates name, and when they hold."""
    frames = 0
    while source.has_more and frames < MAX_FRAMES:
        choice = source.byte()
        subject = _SUBJECTS[source.below(len(_SUBJECTS))] if choice < 64 else _subject(source)
        if choice % 8 == 4:
            subject = damaged(b"size" + subject, source)[4:]
        times = [_TIMES[source.below(len(_TIMES))] for _ in range(2)]
        front = _FRONTS[choice % len(_FRONTS)] + sequence() + name([]) + sequence(*times) + subject
        der = sequence(sequence(front), sequence())
        if choice % 8 == 5:
            der = damaged(b"size" + der, source)[4:]
        with suppress(ProtocolError):
            plain = user_of_certificate(der, DEFAULT_RULES)
            assert len(plain) <= _MAX_NAME_GROWTH * len(der)
            assert plain.encode() is not None
        user = _said(user_of_certificate, der, _RULES[choice >> 4 & 3])
        assert isinstance(user, str)
        assert user.encode() is not None
        with suppress(CertificateError):
            begin, end = validity_of(der)
            assert begin.tzinfo is end.tzinfo is not None
        frames += 1
    return frames


def _subject(source: Source) -> bytes:
    """Return a name whose elements are whole, and hold what they may."""
    parts = b""
    for _ in range(source.below(5)):
        attributes = b""
        for _ in range(1 + source.below(3)):
            choice = source.byte()
            known = object_identifier(_OIDS[choice % len(_OIDS)])
            oid = known if choice & 0xC0 else element(0x06, source.take((1, 3, 8, 129)[choice & 3]))
            tag = _STRING_TAGS[choice >> 2 & 31] if choice >> 2 & 31 < len(_STRING_TAGS) else source.byte()
            value = _VALUES[source.below(len(_VALUES))] if choice & 2 else source.take(source.below(24))
            attributes += sequence(oid, element(tag, value))
        parts += element(0x31, attributes)
    return sequence(parts)


# -- a connection's bytes as they are


def garbage(source: Source) -> int:
    """Give a session bytes that nobody has prepared: first the client's, then the broker's."""
    choice = source.byte()
    data = source.take(source.byte() << 1 | 1)
    whole, parts = Stage(Wire()), Stage(Wire())
    whole.from_client([data] if data else [])
    parts.from_client([data[at : at + 1 + choice % 16] for at in range(0, len(data), 1 + choice % 16)])
    assert (whole.error and whole.error.reason) == (parts.error and parts.error.reason)
    assert whole.asked == parts.asked
    answer = source.rest()
    if answer:
        whole.from_broker([answer])
    whole.finish()
    for stage in (whole, parts):
        stage.close()
    return whole.passed_frames
