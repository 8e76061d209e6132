"""The table of quota kinds: what it says, and that a new row is all that the rest of the program needs."""

import pytest

from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, KIND_OF_KEY, QuotaKind, parse_limit


def test_keys_and_labels_are_unique() -> None:
    assert len(KIND_OF_KEY) == len({kind.label for kind in QuotaKind}) == len(QuotaKind)


def test_requests_are_charged_to_buckets_of_five_kinds() -> None:
    assert [kind.label for kind in BUCKET_KINDS] == ["produce", "fetch", "request", "request_rate", "mutation"]


def test_a_limit_is_parsed_in_the_unit_of_its_kind() -> None:
    assert [parse_limit("producer_byte_rate", "10MiB"), parse_limit("request_percentage", "12.5")] == [10_485_760, 12.5]
    for key, value in (("connections", "20"), ("connections", 0), ("request_rate", "10MiB"), ("request_rate", True)):
        with pytest.raises(UnitError):
            parse_limit(key, value)


def test_a_limit_is_written_as_it_is_parsed() -> None:
    for kind in QuotaKind:
        unit = kind.spec.unit
        for limit in (1, 1_000, 10_485_760, 12_345_678):
            written = unit.written(limit)
            assert parse_limit(kind.key, int(written) if unit.is_whole else written) == limit, (kind.key, written)
