"""Tests that the messages of both client quota APIs are read and written, against the frames of two codecs."""

from contextlib import suppress
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    Alteration,
    Altered,
    AlterRequest,
    AlterResponse,
    Component,
    Described,
    DescribeRequest,
    DescribeResponse,
    EntityParts,
    Op,
    is_client_quotas,
    read_alter_request,
    read_alter_response,
    read_describe_request,
    read_describe_response,
    write_alter_response,
    write_describe_response,
)
from kafka_quota_proxy.protocol.errors import (
    FrameTooSmall,
    MalformedLength,
    ProtocolError,
    TooManyElements,
    TrailingBytes,
    Truncated,
)
from kafka_quota_proxy.protocol.field_reader import MAX_ELEMENTS
from kafka_quota_proxy.protocol.field_writer import framed
from tests.protocol.support.codecs import Codec, codecs
from tests.protocol.support.kio_messages import Untyped, generated_scalar
from tests.support.cases import FEW_EXAMPLES
from tests.support.quota_request_frames import write_alter_request, write_describe_request

KEYS: Final = (DESCRIBE, ALTER)
VERSIONS: Final = (0, 1)
SEEDS = st.integers(0, 2**64)
TEXT = st.text(max_size=40)
NAMES = st.one_of(st.none(), TEXT)
ENTITIES = st.lists(st.tuples(TEXT, NAMES), max_size=3).map(tuple)
NUMBERS = st.floats(allow_nan=False)
INT32S = st.integers(-(2**31), 2**31 - 1)
INT16S = st.integers(-(2**15), 2**15 - 1)


def entity_of(parts: list[Untyped]) -> EntityParts:
    return tuple((part.entity_type, part.entity_name) for part in parts)


def some_client_id(random: Random) -> str | None:
    return random.choice([None, "", str(generated_scalar("string", random))])


# -- requests, against codecs


@pytest.mark.parametrize("codec", codecs("request", DESCRIBE), ids=repr)
@FEW_EXAMPLES
@given(seed=SEEDS)
def test_a_describe_request_is_what_a_codec_writes(codec: Codec, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    message, client_id = codec.generated(random), some_client_id(random)
    frame = codec.frame(message, correlation_id=-3, client_id=client_id)

    request = read_describe_request(frame)

    components = tuple(Component(one.entity_type, one.match_type, one.match) for one in message.components)
    assert request == DescribeRequest(codec.version, -3, components, message.strict)
    assert write_describe_request(request, client_id=client_id) == frame


@pytest.mark.parametrize("codec", codecs("request", ALTER), ids=repr)
@FEW_EXAMPLES
@given(seed=SEEDS)
def test_an_alter_request_is_what_a_codec_writes(codec: Codec, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    message, client_id = codec.generated(random), some_client_id(random)
    # Kafka's own clients write 0 as the value of a limit that they remove.
    for entry in message.entries:
        ops = [codec.changed(op, value=0.0) if op.remove else op for op in entry.ops]
        message = replaced(codec, message, entry, codec.changed(entry, ops=as_list(codec, ops)))
    frame = codec.frame(message, correlation_id=-3, client_id=client_id)

    request = read_alter_request(frame)

    alterations = tuple(
        Alteration(entity_of(one.entity), tuple(Op(op.key, None if op.remove else op.value) for op in one.ops))
        for one in message.entries
    )
    assert request == AlterRequest(codec.version, -3, alterations, message.validate_only)
    assert write_alter_request(request, client_id=client_id) == frame


def as_list(codec: Codec, elements: list[Untyped]) -> Any:  # noqa: ANN401 - of either codec
    return tuple(elements) if repr(codec).startswith("kio") else elements


def replaced(codec: Codec, message: Untyped, old: Untyped, new: Untyped) -> Untyped:
    return codec.changed(message, entries=as_list(codec, [new if one is old else one for one in message.entries]))


# -- responses, against codecs


@pytest.mark.parametrize("codec", codecs("response", DESCRIBE), ids=repr)
@FEW_EXAMPLES
@given(seed=SEEDS)
def test_a_describe_response_is_what_a_codec_writes(codec: Codec, seed: int) -> None:
    message = codec.generated(Random(seed))  # noqa: S311
    frame = codec.frame(message)

    response = read_describe_response(frame, codec.version)

    entries = None
    if message.entries is not None:
        entries = tuple(
            Described(entity_of(one.entity), tuple((value.key, value.value) for value in one.values))
            for one in message.entries
        )
    throttle_time_ms, error_code = codec.get(message, "throttle_time_ms"), codec.get(message, "error_code")
    assert response == DescribeResponse(throttle_time_ms, error_code, message.error_message, entries)
    assert write_describe_response(response, correlation_id=7, api_version=codec.version) == frame


@pytest.mark.parametrize("codec", codecs("response", ALTER), ids=repr)
@FEW_EXAMPLES
@given(seed=SEEDS)
def test_an_alter_response_is_what_a_codec_writes(codec: Codec, seed: int) -> None:
    message = codec.generated(Random(seed))  # noqa: S311
    frame = codec.frame(message)

    response = read_alter_response(frame, codec.version)

    results = tuple(
        Altered(codec.get(one, "error_code"), one.error_message, entity_of(one.entity)) for one in message.entries
    )
    assert response == AlterResponse(codec.get(message, "throttle_time_ms"), results)
    assert write_alter_response(response, correlation_id=7, api_version=codec.version) == frame


# -- what was written is read


@pytest.mark.parametrize("version", VERSIONS)
@FEW_EXAMPLES
@given(
    components=st.lists(st.builds(Component, TEXT, st.integers(-128, 127), NAMES), max_size=4).map(tuple),
    is_strict=st.booleans(),
    correlation_id=INT32S,
)
def test_a_describe_request_that_was_written_is_read(
    version: int, components: tuple[Component, ...], is_strict: bool, correlation_id: int
) -> None:
    request = DescribeRequest(version, correlation_id, components, is_strict)

    assert read_describe_request(write_describe_request(request, client_id=None)) == request


@pytest.mark.parametrize("version", VERSIONS)
@FEW_EXAMPLES
@given(
    alterations=st.lists(
        st.builds(
            Alteration,
            ENTITIES,
            st.lists(st.builds(Op, TEXT, st.one_of(st.none(), NUMBERS)), max_size=4).map(tuple),
        ),
        max_size=4,
    ).map(tuple),
    validate_only=st.booleans(),
)
def test_an_alter_request_that_was_written_is_read(
    version: int, alterations: tuple[Alteration, ...], validate_only: bool
) -> None:
    request = AlterRequest(version, 7, alterations, validate_only)

    assert read_alter_request(write_alter_request(request, client_id="etl")) == request


@pytest.mark.parametrize("version", VERSIONS)
@FEW_EXAMPLES
@given(
    entries=st.one_of(
        st.none(),
        st.lists(
            st.builds(Described, ENTITIES, st.lists(st.tuples(TEXT, NUMBERS), max_size=4).map(tuple)), max_size=4
        ).map(tuple),
    ),
    message=NAMES,
    error_code=INT16S,
)
def test_a_describe_response_that_was_written_is_read(
    version: int, entries: tuple[Described, ...] | None, message: str | None, error_code: int
) -> None:
    response = DescribeResponse(0, error_code, message, entries)

    frame = write_describe_response(response, correlation_id=-1, api_version=version)

    assert read_describe_response(frame, version) == response


@pytest.mark.parametrize("version", VERSIONS)
def test_ten_thousand_entities_with_two_limits_are_less_than_a_megabyte(version: int) -> None:
    """This figure is in docs/how-to/follow-broker-quotas.md."""
    limits = (("producer_byte_rate", 1.0), ("consumer_byte_rate", 2.0))
    entries = tuple(Described((("client-id", f"client-{number}"),), limits) for number in range(10_000))

    frame = write_describe_response(DescribeResponse(0, 0, "", entries), correlation_id=7, api_version=version)

    assert 800_000 < len(frame) < 900_000


# -- any bytes


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_that_are_not_utf_8_survive_a_round_trip(version: int) -> None:
    request = AlterRequest(version, 7, (Alteration((("user", "a\udcffb"),), (Op("\udcfe", 1.0),)),), True)

    frame = write_alter_request(request, client_id=None)

    assert b"a\xffb" in frame
    assert read_alter_request(frame) == request
    results = (Altered(42, "Invalid configuration key \udcfe", request.alterations[0].entity),)
    answer = write_alter_response(AlterResponse(0, results), correlation_id=7, api_version=version)
    assert read_alter_response(answer, version).results == results


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("filling", ["a", "é", "€", "\U0001f980"])
def test_too_long_message_is_cut_between_characters(version: int, filling: str) -> None:
    message = "Empty " + filling * 32_767
    response = AlterResponse(0, (Altered(42, message, ()),))

    frame = write_alter_response(response, correlation_id=7, api_version=version)

    cut = read_alter_response(frame, version).results[0].error_message
    assert cut
    assert message.startswith(cut)
    assert 32_767 - 3 <= len(cut.encode()) <= 32_767


def whole_frames() -> list[tuple[int, int, bytes]]:
    entity = (("user", "alice"), ("client-id", None))
    frames = []
    for version in VERSIONS:
        query = DescribeRequest(version, 7, (Component("user", 0, "alice"), Component("client-id", 2, None)), True)
        frames.append((DESCRIBE, version, write_describe_request(query, client_id="etl")))
        changed = AlterRequest(version, 7, (Alteration(entity, (Op("a", 1.5), Op("b", None))),), False)
        frames.append((ALTER, version, write_alter_request(changed, client_id="etl")))
    return frames


@pytest.mark.parametrize(("api_key", "version", "frame"), whole_frames(), ids=lambda value: str(value)[:6])
def test_request_with_missing_or_extra_bytes_is_refused(api_key: int, version: int, frame: bytes) -> None:
    read: Any = read_describe_request if api_key == DESCRIBE else read_alter_request
    for size in range(4, len(frame)):
        with pytest.raises((Truncated, MalformedLength, FrameTooSmall)):
            read(framed(frame[4:size]))
    with pytest.raises(TrailingBytes):
        read(framed(frame[4:], b"\0"))


@pytest.mark.parametrize("version", VERSIONS)
@FEW_EXAMPLES
@given(data=st.binary(max_size=120))
def test_any_bytes_are_a_message_or_a_protocol_error(version: int, data: bytes) -> None:
    for api_key, read in ((DESCRIBE, read_describe_request), (ALTER, read_alter_request)):
        head = api_key.to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\xff\xff" + bytes(version)
        with suppress(ProtocolError):
            read(framed(head, data))
    for read_response in (read_describe_response, read_alter_response):
        with suppress(ProtocolError):
            read_response(framed(bytes(4 + version), data), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_request_with_too_many_elements_is_refused(version: int) -> None:
    alterations = (Alteration((), ()),) * (MAX_ELEMENTS + 1)
    components = (Component("user", 1, None),) * (MAX_ELEMENTS + 1)

    with pytest.raises(TooManyElements):
        read_alter_request(write_alter_request(AlterRequest(version, 7, alterations, True), client_id=None))
    with pytest.raises(TooManyElements):
        read_describe_request(write_describe_request(DescribeRequest(version, 7, components, True), client_id=None))


def test_client_quota_apis_are_recognised() -> None:
    assert all(is_client_quotas(key, version) for key in KEYS for version in VERSIONS)
    assert [HIGHEST_VERSION[key] for key in KEYS] == [1, 1]
    assert not any(is_client_quotas(key, 2) for key in KEYS)
    assert not any(is_client_quotas(key, 0) for key in ApiKey if key not in KEYS)
