"""Tests how a user's priority in the fair call queue is reported and explained."""

from dataclasses import replace
from typing import Any

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue, SchedulerImpl
from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig
from kafka_quota_proxy.proxy.admin.priority_api import report
from kafka_quota_proxy.proxy.server.server import Server

BROKER = Address(host="127.0.0.1", port=19092)
LISTENER = Listener(name="clients", bind=Address(host="127.0.0.1", port=0), upstream=BROKER)


def server_of(settings: FairCallQueue | None) -> Server:
    listener = Listener(name="clients", bind=LISTENER.bind, upstream=BROKER, fair_call_queue=settings)
    return Server(ProxyConfig(listeners=(listener,)))


def said(server: Server, user: str | None, client_id: str = "", ip: str = "") -> list[dict[str, Any]]:
    (queue,) = report(server, principal=user, client_id=client_id, host=ip)
    users: list[dict[str, Any]] = queue["users"]
    return users


def spend(server: Server, **costs: int) -> None:
    calls = server.listeners[0].priorities
    assert calls is not None
    for identity, cost in costs.items():
        calls.scheduler.charge(identity, cost)
    calls.scheduler.sweep()


def why(server: Server, user: str) -> str:
    (one,) = said(server, user)
    text: str = one["why"]
    return text


def test_a_level_is_explained_by_the_share_of_the_cost() -> None:
    server = server_of(FairCallQueue(service_users=frozenset({"mirror"})))
    spend(server, alice=70, bob=20, carol=10, mirror=900)

    users = ("alice", "bob", "carol", "nobody", "mirror")
    assert [why(server, name) for name in users] == [
        "recently it had 70.0% of the cost of all; level 3 is from 50.0%",
        "recently it had 20.0% of the cost of all; level 1 is from 12.5% to below 25.0%",
        "recently it had 10.0% of the cost of all; level 0 is below 12.5%",
        "it has caused no cost recently: a new user is level 0",
        "a service user (decay-scheduler.service-users) is always level 0",
    ]
    assert [said(server, name)[0]["level"] for name in users] == [3, 1, 0, 0, 0]


def test_a_share_that_has_changed_since_the_sweep_and_a_new_user_are_explained() -> None:
    server = server_of(FairCallQueue())
    spend(server, alice=70, bob=30)
    calls = server.listeners[0].priorities
    assert calls is not None
    calls.scheduler.charge("bob", 60)
    assert said(server, "alice")[0]["level"] == 3
    assert why(server, "alice") == (
        "by its share when levels were last set; now it has 31.8% of the cost of all, and level 2 is from 25.0% to "
        "below 50.0%"
    )

    calls.scheduler.charge("dave", 90)
    assert why(server, "dave") == (
        "it is new since the last sweep and has 45.0% of the cost of all; level 2 is from 25.0% to below 50.0%"
    )


def test_one_level_and_a_fifo_queue_are_explained() -> None:
    one_level = server_of(
        FairCallQueue(
            levels=1,
            thresholds=(),
            capacity_weights=(1,),
            multiplexer_weights=(1,),
            backoff_responsetime_thresholds_ms=(10_000,),
        )
    )
    unprioritised = server_of(FairCallQueue(scheduler_impl=SchedulerImpl.DEFAULT))
    spend(one_level, alice=70)
    spend(unprioritised, alice=70)

    assert why(one_level, "alice") == "there is one level only (scheduler.priority.levels)"
    assert why(unprioritised, "alice") == "every user is level 0 (scheduler.impl: default, or callqueue.impl: fifo)"
    assert report(unprioritised, principal="alice", client_id="", host="")[0]["utilisation_floor"] is None


def test_without_a_user_the_costliest_are_listed() -> None:
    server = server_of(FairCallQueue())
    spend(server, **{f"user{number}": number for number in range(1, 30)})

    assert [user["identity"] for user in said(server, None)] == [f"user{number}" for number in range(29, 19, -1)]


def test_a_listener_with_a_queue_lists_its_own_brokers_with_their_slots() -> None:
    other = Address(host="127.0.0.1", port=19093)
    queued = replace(LISTENER, fair_call_queue=FairCallQueue(max_in_flight=7, utilisation_floor=0.25))
    listeners = (
        queued,
        replace(queued, name="others", upstream=other),
        replace(queued, name="as-well"),
        replace(LISTENER, name="free", upstream=other),
    )

    queues = report(Server(ProxyConfig(listeners=listeners)), principal="ANONYMOUS", client_id="etl", host="10.0.0.7")

    assert {queue["listener"]: [broker["upstream"] for broker in queue["brokers"]] for queue in queues} == {
        "clients": [str(BROKER)],
        "others": [str(other)],
        "as-well": [str(BROKER)],
    }
    assert queues[0]["brokers"] == [
        {"upstream": str(BROKER), "queue_sizes": (0, 0, 0, 0), "in_flight": 0, "max_in_flight": 7}
    ]
    assert queues[0]["utilisation_floor"] == 0.25
    assert queues[0]["users"][0]["identity"] == "etl@10.0.0.7"
