"""Tests how requests are divided into kinds."""

from itertools import product

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.refusal_responses import is_refusable
from kafka_quota_proxy.proxy.fair_queue.request_kind import CONTROL, may_wait, request_kind


def test_requests_that_may_wait() -> None:
    assert may_wait(ApiKey.PRODUCE, acks=-1)
    assert not may_wait(ApiKey.PRODUCE, acks=1)
    assert may_wait(ApiKey.FETCH)
    assert not may_wait(ApiKey.FETCH, is_patient=False)
    assert not may_wait(ApiKey.FETCH, wants_data=False)
    assert may_wait(ApiKey.JOIN_GROUP)
    assert may_wait(ApiKey.SYNC_GROUP)
    assert not may_wait(ApiKey.METADATA)
    assert may_wait(30_000), "an unknown API"


def test_requests_of_a_kind_share_one_object() -> None:
    assert request_kind(ApiKey.PRODUCE, 7, 1) is request_kind(ApiKey.PRODUCE, 7, 1)
    assert request_kind(ApiKey.PRODUCE, 7, 1) != request_kind(ApiKey.PRODUCE, 7, -1)


def test_a_kind_has_the_properties_of_its_api() -> None:
    for api_key, acks in product([*ApiKey, 30_000], [-1, 0, 1]):
        kind, case = request_kind(api_key, 3, acks), (api_key, acks)

        assert kind.api_key == api_key, case
        assert kind.has_answer is not (api_key == ApiKey.PRODUCE and acks == 0), case
        assert kind.may_wait is may_wait(api_key, acks=acks), case
        assert kind.is_control is (api_key in CONTROL), case
        assert kind.is_gathering is (api_key in {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}), case
        is_free = api_key in {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
        assert kind.is_free is is_free, case
        assert kind.is_refusable is is_refusable(api_key, 3, acks=acks), case


def test_only_a_fetch_with_a_wait_time_waits_for_data() -> None:
    waiting = {key for key in ApiKey if request_kind(key, 0).waits_for_data}

    assert waiting == {ApiKey.FETCH, ApiKey.SHARE_FETCH}
    assert not request_kind(ApiKey.FETCH, 0, 1, is_patient=False).waits_for_data
    assert request_kind(ApiKey.FETCH, 0, 1, wants_data=False).waits_for_data
    assert request_kind(ApiKey.FETCH, 0, 1, is_patient=False).is_poll
