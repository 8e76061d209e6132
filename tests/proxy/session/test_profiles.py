"""A profile is kept for the next request, unless its head is long or its version unknown."""

from __future__ import annotations

import pytest

from kafka_quota_proxy.config.model import QuotaRule
from tests.support.attack_world import Client, World
from tests.support.frames import produce_request


@pytest.mark.parametrize(
    ("client_id", "version", "is_kept"), [("etl", 7, True), ("e" * 2_000, 7, False), ("etl", 99, False)]
)
def test_profile_is_kept(client_id: str, version: int, is_kept: bool) -> None:
    client = Client(World(QuotaRule(client_id="etl", producer_byte_rate=1e6)))

    client.send(produce_request(client_id=client_id, version=version, size_bytes=4_000))

    profile = client.session.state.requests.profile
    assert (profile is not None) == is_kept
    assert profile is None or profile.client_id == client_id.encode()
