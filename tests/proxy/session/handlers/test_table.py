"""Tests that the table of handlers agrees with the APIs that each handler can read."""

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION
from kafka_quota_proxy.proxy.session.handlers.fetch import FETCH_APIS, FetchHandler
from kafka_quota_proxy.proxy.session.handlers.table import HANDLERS


def test_each_fetch_api_has_the_fetch_handler() -> None:
    assert {api_key for api_key, handler in HANDLERS.items() if handler is FetchHandler} == set(FETCH_APIS)


def test_each_api_with_a_handler_can_be_read() -> None:
    assert set(HANDLERS) <= set(HIGHEST_VERSION)
