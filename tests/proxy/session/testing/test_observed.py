"""Tests which throttled responses are kept."""

from itertools import count

from kafka_quota_proxy.proxy.session.testing.observed import BY_QUOTA, MAX_CLIENTS, MAX_OBSERVED, Observed


def add(observed: Observed, client_id: str, throttle_time_ms: int = 5) -> None:
    observed.add(
        0, 7, user="u", client_id=client_id, throttle_time_ms=throttle_time_ms, size_bytes=100, reason=BY_QUOTA
    )


def test_responses_are_found_by_client_id_and_the_oldest_is_first() -> None:
    observed = Observed(count(1_000).__next__)
    add(observed, "a", 1)
    add(observed, "b", 2)
    add(observed, "a", 3)

    assert [(one.time_ms, one.throttle_time_ms) for one in observed.find("a")] == [(1_000, 1), (1_002, 3)]
    assert [one.client_id for one in observed.find()] == ["a", "b", "a"]
    assert list(observed.find("")) == []
    observed.clear()
    assert list(observed.find()) == []


def test_only_the_last_are_kept() -> None:
    observed = Observed(lambda: 0)
    for number in range(MAX_OBSERVED + 1):
        add(observed, str(number))

    assert len(list(observed.find())) == MAX_OBSERVED
    assert next(observed.find()).client_id == "1"


def test_responses_to_each_client_are_counted() -> None:
    observed = Observed(lambda: 0)
    for number in range(MAX_CLIENTS + 1):
        for api_key in (0, 0, 3):
            observed.see(api_key, user="u", client_id=str(number))

    assert len(observed.clients) == MAX_CLIENTS
    assert observed.clients["u", "0"] == {0: 2, 3: 1}
    observed.clear()
    assert observed.clients == {}
