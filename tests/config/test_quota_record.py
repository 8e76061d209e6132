"""Tests that records of the quota topic are read as they were written, and that any other bytes are a fault."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS
from kafka_quota_proxy.config.quota_record import (
    TERMS,
    FaultKind,
    RecordFault,
    Setting,
    decode,
    encode,
)
from kafka_quota_proxy.config.units import UNLIMITED
from tests.support.cases import each_case

RATE = "connection_creation_rate"
NAMES = st.none() | st.just(DEFAULT) | st.text(min_size=1, max_size=20).filter(lambda name: name.isprintable())
IPS = st.just(DEFAULT) | st.ip_addresses().map(str).map(parse_ip)
ENTITIES = st.tuples(NAMES, NAMES).filter(any)
RATES = st.floats(min_value=0.001, max_value=2**31 - 1)
RATE_KEYS = st.sampled_from([key for key in CLIENT_LIMIT_KEYS if key != "connections"])
RECORDS: st.SearchStrategy[Setting] = st.one_of(
    st.builds(
        lambda entity, key, value: Setting(user=entity[0], client_id=entity[1], key=key, value=value),
        ENTITIES, RATE_KEYS, st.none() | st.floats(5e-324, 1.7e308),
    ),
    st.builds(
        lambda entity, value: Setting(user=entity[0], client_id=entity[1], key="connections", value=value),
        ENTITIES, st.none() | st.integers(1, 2**31 - 1),
    ),
    st.builds(lambda ip, value: Setting(ip=ip, key=RATE, value=value), IPS, st.none() | RATES),
    st.builds(
        lambda terms: Setting(user=DEFAULT, key=TERMS, value=terms or None),
        st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.none(), max_size=3),
    ),
)  # fmt: skip
SETTING = b'{"user":"alice","key":"producer_byte_rate"}'


def fault(key: bytes | None, value: bytes | None) -> RecordFault:
    found = decode(key, value)
    assert isinstance(found, RecordFault)
    return found


@each_case(
    "record, key, value",
    [
        (
            Setting(user="alice", client_id="etl", key="producer_byte_rate", value=5242880.0),
            '{"user":"alice","client-id":"etl","key":"producer_byte_rate"}',
            '{"value":5242880.0}',
        ),
        (Setting(user=DEFAULT, key="connections", value=7), '{"user":null,"key":"connections"}', '{"value":7}'),
        (Setting(ip="192.0.2.7", key=RATE, value=2.0), '{"ip":"192.0.2.7","key":"' + RATE + '"}', '{"value":2.0}'),
        (Setting(user="<default>", key=TERMS), '{"user":"<default>","key":"terms"}', None),
        (
            Setting(user="alice", client_id=DEFAULT, key="producer_byte_rate", value=1e300),
            '{"user":"alice","client-id":null,"key":"producer_byte_rate"}',
            '{"value":1e+300}',
        ),
        (Setting(ip=DEFAULT, key=RATE), '{"ip":null,"key":"connection_creation_rate"}', None),
        (
            Setting(client_id="x", key=TERMS, value={"expires": "2030-01-01T00:00:00Z"}),
            '{"client-id":"x","key":"terms"}',
            '{"value":{"expires":"2030-01-01T00:00:00Z"}}',
        ),
        (
            Setting(user="ä\n", client_id=DEFAULT, key="consumer_byte_rate", value=1.0),
            '{"user":"ä\\n","client-id":null,"key":"consumer_byte_rate"}',
            '{"value":1.0}',
        ),
    ],
)
def test_the_format_is_what_is_documented(record: Setting, key: str, value: str | None) -> None:
    data = (key.encode(), None if value is None else value.encode())

    assert encode(record) == data
    assert decode(*data) == record


@given(RECORDS)
def test_an_encoded_record_decodes_to_itself(record: Setting) -> None:
    assert decode(*encode(record)) == record


@each_case("value", [None, b"", b"{}"])
def test_an_empty_value_deletes(value: bytes | None) -> None:
    assert decode(SETTING, value) == Setting(user="alice", key="producer_byte_rate")


@each_case(
    "key",
    [
        None, b"", b"\xff\xfe", b"alice", b"null", b"[]", b'"user"', b"{}", b'{"user":"alice"}', b'{"ip":""}',
        b'{"news":"balance"}',
        b'{"user":""}', b'{"user":7}', b'{"user":true}', b'{"user":["a"]}', b'{"user":NaN}',
        b'{"ip":"a","user":"b"}', b'{"proxy":"p1","ip":"a"}',
        b'{"ip":"host.example"}', b'{"ip":"10.0.0.0/8"}', b'{"ip":"::FFFF:10.0.0.7"}', b'{"ip":"::0","key":"terms"}',
        b'{"user":"a","key":"bad"}', b'{"user":"a","key":null}', b'{"user":"a","key":["terms"]}', b'{"key":"terms"}',
        b'{"ip":"a","key":"producer_byte_rate"}', b'{"user":"a","key":"connection_creation_rate"}',
        b'{"user":"a","key":"' + b"k" * 50_000 + b'"}',
        b'{"proxy":"p1","user":"a"}', b'{"user":"a","news":"balance"}', b'{"user":"\\ud800"}',
        b'{"user":"' + b"a" * 32_768 + b'"}', b'{"user":"' + b"a" * 1_000_000 + b'"}', b"[" * 100_000,
        b'{"user":' + b"[" * 5_000 + b"]" * 5_000 + b"}", b'{"user":' + b"9" * 5_000 + b"}",
    ],
)  # fmt: skip
def test_any_other_key_is_a_fault(key: bytes | None) -> None:
    found = fault(key, b'{"value":1.0}')

    assert found.kind is FaultKind.KEY
    assert len(str(found)) < 300


@each_case(
    "key",
    [
        b'{"user": "a","key":"terms"}', b' {"user":"a","key":"terms"}', b'{"user":"a","key":"terms"}\n',
        b'{"client-id":"b","user":"a","key":"terms"}', b'{"user":"\\u0061","key":"terms"}',
        b'{"user":"b","user":"a","key":"terms"}', b'{"user":"\\u00e4","key":"terms"}',
        b'{"key":"terms","user":"a"}', b'{"user":"a","key":"terms" }', b'\xef\xbb\xbf{"user":"a","key":"terms"}',
        b'{"user":"a\\/b","key":"terms"}',
    ],
)  # fmt: skip
def test_a_key_has_one_form_only(key: bytes) -> None:
    """Compaction would keep a record for each form of a key. Deleting the newer would bring the older back."""
    assert fault(key, b'{"value":1.0}').kind is FaultKind.KEY


@each_case(
    "value",
    [
        b"\xff", b"7", b"[]", b"null", b'"x"', b"{", b'{"value":1', b'{"value":-Infinity}', b'{"a":' * 10_000,
        b'{"value":0}', b'{"value":-1}', b'{"value":true}', b'{"value":null}', b'{"value":{}}', b'{"a":1}',
        b'{"' + b"x" * 50_000 + b'":1}', b'{"\\ud800":1}', b'{"value":1' + b" " * 65_536 + b"}",
        b'{"value":1,"more":1}', b'{"value":1,"value":2}', b'{"value":NaN}', b'{"value":1e999}', b'{"value":"1MiB"}',
        b'{"value":' + b"9" * 400 + b"}", b'{"producer_byte_rate":1.0}',
    ],
)  # fmt: skip
def test_a_setting_is_one_number(value: bytes) -> None:
    found = fault(SETTING, value)

    assert (found.kind, found.about) == (FaultKind.VALUE, Setting(user="alice", key="producer_byte_rate"))
    assert len(str(found)) < 300
    str(found).encode()


@each_case("value", [b'{"value":2147483648}', b'{"value":1.5}', b'{"value":0.5}', b'{"value":true}'])
def test_a_number_of_connections_is_whole(value: bytes) -> None:
    assert fault(b'{"user":"alice","key":"connections"}', value).kind is FaultKind.VALUE


@each_case("value", [b'{"value":7}', b'{"value":[]}', b'{"value":null}', b'{"value":{}}', b'{"expires":1}'])
def test_terms_are_an_object(value: bytes) -> None:
    assert fault(b'{"user":"alice","key":"terms"}', value).kind is FaultKind.VALUE


def test_the_longest_name_of_a_client_is_read() -> None:
    record = Setting(client_id="\x01" * 32_767, user="\x01" * 32_767, key="producer_byte_rate", value=float(UNLIMITED))

    assert decode(*encode(record)) == record


def test_a_record_that_would_not_decode_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="names no entity"):
        encode(Setting(key="producer_byte_rate", value=1.0))
    with pytest.raises(ValueError, match="above 0"):
        encode(Setting(user="a", key="producer_byte_rate", value=0))
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(Setting(user="a", key="producer_byte_rate", value=float("nan")))
    with pytest.raises(ValueError, match="surrogates"):
        encode(Setting(user="\ud800", key="producer_byte_rate", value=1.0))


def test_an_error_shows_a_key_that_is_no_text() -> None:
    assert str(fault(b"\xffa\n", None)) == r"key of '\\xffa\n': byte 0 is not UTF-8"


@given(st.binary(max_size=60) | st.none(), st.binary(max_size=60) | st.none())
@example(b'{"user":"a","key":"producer_byte_rate"}', json.dumps({"value": 10**400}).encode())
def test_decoding_any_bytes_raises_nothing(key: bytes | None, value: bytes | None) -> None:
    found = decode(key, value)

    if not isinstance(found, RecordFault):
        assert decode(*encode(found)) == found


@each_case("depth", [40, 970, 100_000])
def test_a_deeply_nested_value_is_a_fault(depth: int) -> None:
    """Code that walks the value later may have less stack left than the parser."""
    nested = b"[" * depth + b"]" * depth
    for key, value in (
        (b'{"user":"a","key":%s}' % nested, None),
        (b'{"user":"a","key":"terms"}', b'{"value":{"schedule":%s}}' % nested),
        (b'{"user":"a","key":"terms"}', b'{"value":{"schedule":%s}}' % nested.replace(b"[]", b'{"a":{}}')),
    ):
        told = str(fault(key, value))
        assert told.endswith(("is nested too deeply; at most 16 levels are allowed", "bytes, which is too long"))
        assert depth > 40 or "deeply" in told
    # Brackets within a string do not count.
    assert isinstance(decode(b'{"user":"%s","key":"terms"}' % nested[:10_000], None), Setting)


@given(RECORDS, st.data())
def test_decoding_a_damaged_record_raises_nothing(record: Setting, data: st.DataObject) -> None:
    key, value = encode(record)
    halves = [bytearray(key), bytearray(value or b"")]
    for _ in range(data.draw(st.integers(1, 3))):
        half = data.draw(st.sampled_from(halves))
        if half:
            half[data.draw(st.integers(0, len(half) - 1))] = data.draw(st.integers(0, 255))

    found = decode(*map(bytes, halves))

    if not isinstance(found, RecordFault):
        assert decode(*encode(found)) == found
