"""Tests what an order does to a Fetch response."""

from kafka_quota_proxy.proxy.session.testing.effects import Effects
from tests.protocol.test_fetch_partitions import RECORDS, response


def test_fetch_is_edited_for_an_error_and_to_be_empty() -> None:
    whole = response(11, [("a", 0, RECORDS), ("b", 0, RECORDS)])

    assert not Effects(300, 200, closes=True).edits_fetch
    assert Effects(error_code=6, topics=frozenset({b"b"})).rewritten(whole, 11) == response(
        11, [("a", 0, RECORDS), ("b", 6, b"")]
    )
    assert Effects(is_empty=True).rewritten(whole, 11) == response(11, [("a", 0, b""), ("b", 0, b"")])
    assert Effects(is_empty=True).edits_fetch
    assert Effects(error_code=-1).edits_fetch
