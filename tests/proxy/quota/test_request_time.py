"""Tests how much of a request's time at the broker is charged."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.quota.request_time import Service, ServiceClock, ServiceTime, charged_ns, is_exempt

US = 1_000
MS = 1_000_000


def alone(elapsed_ns: int, *, waits: bool = False, parallel: int = 1) -> int:
    clock = ServiceClock(parallel=parallel)
    service = clock.begin(may_wait=waits, now_ns=7 * MS)
    return clock.end(service, now_ns=7 * MS + elapsed_ns).worked_ns


def test_concurrent_requests_share_work_but_not_hand_over() -> None:
    clock = ServiceClock()
    services = [clock.begin(may_wait=False, now_ns=0) for _ in range(4)]

    times = [clock.end(service, now_ns=800 * US * (1 + number)) for number, service in enumerate(services)]

    # 800 µs are divided by 4 + 4, then by 4 + 3, 4 + 2 and 4 + 1, and rounded down each time.
    shares = [800 * US // parts for parts in (8, 7, 6, 5)]
    assert [time.worked_ns for time in times] == [sum(shares[: number + 1]) for number in range(4)]
    assert times[3].elapsed_ns == 3_200 * US
    assert clock.served == 0


def test_idle_time_is_not_charged() -> None:
    clock = ServiceClock()
    clock.end(clock.begin(may_wait=False, now_ns=0), now_ns=50 * US)

    later = clock.begin(may_wait=False, now_ns=60_000 * MS)

    assert clock.end(later, now_ns=60_000 * MS + 50 * US) == ServiceTime(50 * US, 10 * US)


def test_waiting_fetch_is_charged_for_one_read() -> None:
    assert alone(1_400 * US, waits=True) == 280 * US
    assert alone(500 * MS, waits=True) == 300 * US
    assert alone(30_000 * MS, waits=True) == 300 * US


def test_waiting_fetches_do_not_lower_other_charges() -> None:
    clock = ServiceClock()
    waiting = [clock.begin(may_wait=True, now_ns=0) for _ in range(1_000)]

    asked = clock.begin(may_wait=False, now_ns=10 * MS)

    assert clock.served == 1
    assert clock.end(asked, now_ns=10 * MS + 100 * US).worked_ns == 20 * US
    for service in waiting:
        clock.end(service, now_ns=500 * MS)
    assert clock.served == 0


def test_fetch_has_a_share_until_it_counts_as_waiting() -> None:
    clock = ServiceClock()
    waiting = clock.begin(may_wait=True, now_ns=0)
    asked = clock.begin(may_wait=False, now_ns=0)

    # 1,500 µs are divided by 4 + 2, and 500 µs by 4 + 1.
    assert clock.end(asked, now_ns=2_000 * US).worked_ns == 250 * US + 100 * US
    assert clock.end(waiting, now_ns=2_000 * US).worked_ns == 300 * US


def test_slow_fetch_among_many_is_charged_its_share() -> None:
    clock = ServiceClock()
    others = [clock.begin(may_wait=False, now_ns=0) for _ in range(15)]

    fetch = clock.begin(may_wait=True, now_ns=0)

    assert clock.end(fetch, now_ns=1_000 * US).worked_ns == 50 * US
    assert len(others) == clock.served


def test_bytes_are_charged_in_addition_to_work() -> None:
    time = ServiceTime(elapsed_ns=100 * US, worked_ns=20 * US)

    assert charged_ns(ApiKey.PRODUCE, time, request_bytes=0, response_bytes=0) == 20 * US
    assert charged_ns(ApiKey.PRODUCE, time, request_bytes=1_000_000, response_bytes=0) == 1_120 * US
    assert charged_ns(ApiKey.FETCH, time, request_bytes=0, response_bytes=1_000_000) == 100 * US
    assert charged_ns(ApiKey.METADATA, time, request_bytes=0, response_bytes=10_000) == 70 * US


def test_apis_between_brokers_are_exempt_for_brokers() -> None:
    """Source: Kafka's KafkaApis and RequestHandlerHelper."""
    exempt = {key for key in ApiKey if is_exempt(key, is_broker=True)}

    assert exempt == {
        ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_PARTITION,
    }  # fmt: skip


def test_no_api_is_exempt_for_clients() -> None:
    assert not [key for key in ApiKey if is_exempt(key, is_broker=False)]


steps = st.lists(st.tuples(st.integers(0, 5 * MS), st.booleans(), st.integers(0, 7)), max_size=60)


@given(steps=steps, parallel=st.integers(1, 4))
def test_charges_stay_within_single_cost_and_thread_time(steps: list[tuple[int, bool, int]], parallel: int) -> None:
    """In each step time passes, and one of eight connections begins or ends a request."""
    clock = ServiceClock(parallel=parallel)
    now_ns = worked_ns = 0
    served: dict[int, Service] = {}
    for passed_ns, waits, connection in [*steps, *((0, False, number) for number in range(8))]:
        now_ns += passed_ns
        if connection in served:
            time = clock.end(served.pop(connection), now_ns=now_ns)
            assert 0 <= time.worked_ns <= time.elapsed_ns // 5
            worked_ns += time.worked_ns
        else:
            served[connection] = clock.begin(may_wait=waits, now_ns=now_ns)
    for service in served.values():
        worked_ns += clock.end(service, now_ns=now_ns).worked_ns

    assert clock.served == 0
    # A fetch keeps its share until it counts as waiting, which is at most 1,500 µs.
    assert worked_ns <= now_ns * parallel + len(steps) * 300 * US
