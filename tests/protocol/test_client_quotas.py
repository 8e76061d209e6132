"""Tests that the messages of both client quota APIs are read as they were written."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    Op,
    read_describe_response,
    write_response,
)
from kafka_quota_proxy.protocol.codec import MAX_ELEMENTS
from kafka_quota_proxy.protocol.errors import TooManyElements
from tests.support.cases import FEW_EXAMPLES
from tests.support.quota_request_frames import (
    read_alter_request,
    read_alter_response,
    read_describe_request,
    write_alter_request,
    write_describe_request,
)

KEYS: Final = (DESCRIBE, ALTER)
VERSIONS: Final = (0, 1)
TEXT = st.text(max_size=40)
NAMES = st.one_of(st.none(), TEXT)
ENTITIES = st.lists(st.tuples(TEXT, NAMES), max_size=3).map(tuple)
NUMBERS = st.floats(allow_nan=False)
INT32S = st.integers(-(2**31), 2**31 - 1)
INT16S = st.integers(-(2**15), 2**15 - 1)


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

    frame = write_response(response, correlation_id=-1, api_version=version)

    assert read_describe_response(frame, version) == response


@pytest.mark.parametrize("version", VERSIONS)
def test_ten_thousand_entities_with_two_limits_are_less_than_a_megabyte(version: int) -> None:
    """This figure is in docs/how-to/follow-broker-quotas.md."""
    limits = (("producer_byte_rate", 1.0), ("consumer_byte_rate", 2.0))
    entries = tuple(Described((("client-id", f"client-{number}"),), limits) for number in range(10_000))

    frame = write_response(DescribeResponse(0, 0, "", entries), correlation_id=7, api_version=version)

    assert 800_000 < len(frame) < 900_000


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_that_are_not_utf_8_survive_a_round_trip(version: int) -> None:
    request = AlterRequest(version, 7, (Alteration((("user", "a\udcffb"),), (Op("\udcfe", 1.0),)),), True)

    frame = write_alter_request(request, client_id=None)

    assert b"a\xffb" in frame
    assert read_alter_request(frame) == request
    results = (Altered(42, "Invalid configuration key \udcfe", request.alterations[0].entity),)
    answer = write_response(AlterResponse(0, results), correlation_id=7, api_version=version)
    assert read_alter_response(answer, version).results == results


@pytest.mark.parametrize("version", VERSIONS)
def test_request_with_too_many_elements_is_refused(version: int) -> None:
    alterations = (Alteration((), ()),) * (MAX_ELEMENTS + 1)
    components = (Component("user", 1, None),) * (MAX_ELEMENTS + 1)

    with pytest.raises(TooManyElements):
        read_alter_request(write_alter_request(AlterRequest(version, 7, alterations, True), client_id=None))
    with pytest.raises(TooManyElements):
        read_describe_request(write_describe_request(DescribeRequest(version, 7, components, True), client_id=None))
