"""Tests the tables of APIs, against kio's classes and the JSON files of kafka-python."""

from kio.schema.index import api_key_map, schema_name_map

from kafka_quota_proxy.protocol.api import (
    API_NAMES,
    FIRST_FLEXIBLE_VERSION,
    HIGHEST_VERSION,
    NEVER,
    ApiKey,
    is_flexible,
    response_header_version,
)
from kafka_quota_proxy.protocol.refusal_responses import is_refusable
from kafka_quota_proxy.protocol.throttle_time import has_throttle_time, is_in_front
from kafka_quota_proxy.proxy.session.address_rewrite import ADDRESSED
from kafka_quota_proxy.proxy.session.handlers.table import HANDLERS
from tests.protocol.support import kafka_python_messages, kio_messages
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import each_case


def header_version(schema: type) -> int:
    """Return the version in the module name of a header class, such as ``kio.schema.request_header.v2.header``."""
    return int(schema.__module__.split(".")[-2].removeprefix("v"))


# The APIs of which the proxy reads messages beyond their heads, changes them, or answers requests itself.
AFTER_FIELDS = {key for key in ApiKey if has_throttle_time(key, key.highest_version) and not is_in_front(key)}
REFUSABLE = {key for key in ApiKey if is_refusable(key, HIGHEST_VERSION[key], acks=1)}
READ = sorted({*HANDLERS, *ADDRESSED, *REFUSABLE, *AFTER_FIELDS})
# The newest version of ApiVersions, whose request is forwarded unread. The response is that of version 4.
READ_BEYOND_KIO = {ApiKey.API_VERSIONS: 5}


@each_case("api_key", READ)
def test_each_version_that_is_read_is_one_that_other_tests_read_from_other_codecs(api_key: int) -> None:
    """The table grows with each Kafka. The code that reads a new version of a message is written by hand."""
    newest = max(schema_name_map[api_key_map[api_key]])

    assert HIGHEST_VERSION[api_key] == READ_BEYOND_KIO.get(ApiKey(api_key), newest)


@each_case("api_key", sorted(api_key_map))
def test_the_name_is_kafkas(api_key: int) -> None:
    newest = max(schema_name_map[api_key_map[api_key]])

    assert API_NAMES[api_key] + "Request" == kio_messages.request_class(api_key, newest).__name__


@each_case("api_key, version", kio_messages.api_versions())
def test_each_version_has_the_headers_that_kio_gives_it(api_key: int, version: int) -> None:
    request = kio_messages.request_class(api_key, version)
    response = kio_messages.response_class(api_key, version)

    assert is_flexible(api_key, version) == (header_version(request.__header_schema__) == 2)
    assert response_header_version(api_key, version) == header_version(response.__header_schema__)
    assert is_flexible(api_key, version) == request.__flexible__ == response.__flexible__


@each_case("cls, version", kafka_python_messages.messages("request"))
def test_the_first_flexible_version_is_that_of_kafkas_file(cls: Untyped, version: int) -> None:
    first = cls.json["flexibleVersions"].removesuffix("+")

    assert FIRST_FLEXIBLE_VERSION[cls.API_KEY] == (NEVER if first == "none" else int(first))
    assert is_flexible(cls.API_KEY, version) == cls.flexible_version_q(version)


def test_an_api_versions_response_never_has_tags_in_its_header() -> None:
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in (0, 3, 4, 99)] == [0, 0, 0, 0]


def test_an_unknown_api_is_not_flexible() -> None:
    assert not is_flexible(1_000, 0x7FFF)


def test_a_version_newer_than_the_table_stays_flexible() -> None:
    assert is_flexible(ApiKey.PRODUCE, HIGHEST_VERSION[ApiKey.PRODUCE] + 1)
    assert is_flexible(ApiKey.FETCH, HIGHEST_VERSION[ApiKey.FETCH] + 1)
