"""Tests what a listener counts of its clients."""

from __future__ import annotations

import pytest

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.counters import (
    ACCEPTED,
    MAX_HOSTS,
    MAX_NEWLY_THROTTLED,
    OTHER,
    UNKNOWN_USER,
    Counters,
)
from tests.support.attack_world import Client, World
from tests.support.frames import produce_request


def test_there_is_a_counter_of_frames_for_every_known_api() -> None:
    counters = Counters()

    assert all(counters.frames[api_key] == 0 for api_key in ApiKey)


def test_excess_api_keys_share_one_label() -> None:
    counters = Counters()

    for api_key in range(1_000, 2_000):
        counters.frame(api_key, 0)

    assert len(counters.unknown_apis) == 65
    assert counters.unknown_apis[OTHER] == 1_000 - 64
    assert sum(counters.unknown_apis.values()) == 1_000


def test_errors_and_disconnects_count_by_what_caused_them() -> None:
    counters = Counters()

    counters.protocol_error("tls_on_plaintext")
    counters.disconnect("client_closed")
    counters.disconnect("client_closed")
    counters.disconnect("upstream_lost")

    assert counters.protocol_errors == {"tls_on_plaintext": 1}
    assert counters.disconnects == {"client_closed": 2, "upstream_lost": 1}


def test_mechanism_that_hides_its_users_is_remembered_once() -> None:
    counters = Counters()
    counters.login("PLAIN", ACCEPTED)
    counters.login("GSSAPI", UNKNOWN_USER)
    assert counters.newly_unknown == {"GSSAPI"}

    counters.newly_unknown.clear()
    counters.login("GSSAPI", UNKNOWN_USER)

    assert counters.newly_unknown == set()
    assert counters.logins == {("PLAIN", "accepted"): 1, ("GSSAPI", "unknown"): 2}


def test_throttled_clients_and_their_addresses_are_bounded() -> None:
    counters = Counters()
    manager = ClientQuotaManager(QuotaKind.PRODUCE, [QuotaRule(client_id=DEFAULT, producer_byte_rate=1.0)])
    buckets = [
        manager.bucket(user="ANONYMOUS", client_id=str(number), now_ms=0) for number in range(MAX_NEWLY_THROTTLED + 5)
    ]

    for bucket in buckets:
        counters.throttled(bucket, "10.0.0.1", 1_000, BlockedBy.THROTTLE_TIME, now_ms=0)
    for number in range(100):
        counters.throttled(buckets[0], f"10.0.0.{number}", 1_000, BlockedBy.THROTTLE_TIME, now_ms=0)

    assert list(counters.newly_throttled) == buckets[:-5]
    assert len(counters.newly_throttled[buckets[0]].hosts) == MAX_HOSTS


@pytest.mark.parametrize(
    ("client_id", "version", "is_kept"), [("etl", 7, True), ("e" * 2_000, 7, False), ("etl", 99, False)]
)
def test_profile_is_kept(client_id: str, version: int, is_kept: bool) -> None:
    client = Client(World(QuotaRule(client_id="etl", producer_byte_rate=1e6)))

    client.send(produce_request(client_id=client_id, version=version, size_bytes=4_000))

    profile = client.session.state.requests.profile
    assert (profile is not None) == is_kept
    assert profile is None or profile.client_id == client_id.encode()
