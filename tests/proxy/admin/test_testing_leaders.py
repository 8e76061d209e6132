"""Tests requests to move a leader. Leaders of a real Kafka move in the end-to-end tests."""

import pytest

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig
from kafka_quota_proxy.proxy.admin.requests import RefusedError
from kafka_quota_proxy.proxy.admin.testing_leaders import LeaderMove, move_leader, read_move
from tests.support.quota_page import LISTENER


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "send an object"),
        ({"partition": 1}, "send an object"),
        ({"topic": "\ud800"}, "topic: .* is not the name of a topic"),
        ({"topic": "orders", "partition": -1}, "partition must be a whole number from 0"),
        ({"topic": "orders", "leader": "2"}, "leader must be a whole number from 0"),
        ({"topic": "orders", "leader": True}, "leader must be"),
        ({"topic": "orders", "to": 2}, "'to' is not a key; the keys are topic, partition, leader"),
    ],
)
def test_moves_that_make_no_sense_are_refused(given: object, message: str) -> None:
    with pytest.raises(RefusedError, match=message):
        read_move(given)
    assert read_move({"topic": "orders"}) == LeaderMove("orders", 0, None)
    assert read_move({"topic": "orders", "partition": 3, "leader": 2}) == LeaderMove("orders", 3, 2)


def test_cluster_that_is_away_is_named() -> None:
    away = Listener(name="a", bind=LISTENER.bind, upstream=Address(host="127.0.0.1", port=1))

    with pytest.raises(RefusedError, match=r"the cluster does not answer: .*127\.0\.0\.1:1") as refused:
        move_leader(ProxyConfig(listeners=(away,)), LeaderMove("orders", 0, None))
    assert refused.value.status == "502 Bad Gateway"
