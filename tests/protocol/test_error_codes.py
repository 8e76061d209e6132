"""Compares the error codes with those of kio, which are generated from Kafka's own files."""

from kio.schema.errors import ErrorCode

from kafka_quota_proxy.protocol.error_codes import ERROR_CODES


def test_names_and_codes_are_those_of_kafka() -> None:
    assert {name: ErrorCode[name.lower()].value for name in ERROR_CODES} == ERROR_CODES
