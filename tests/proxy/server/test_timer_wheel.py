"""A timer wheel; time is a number."""

from kafka_quota_proxy.proxy.server.timer_wheel import TimerWheel


def test_an_item_is_taken_once_when_it_is_due() -> None:
    wheel: TimerWheel[str] = TimerWheel(now_ms=10_500)
    wheel.add("a", 12_000)
    wheel.add("b", 12_001)

    assert wheel.take(now_ms=11_999) == []
    assert wheel.take(now_ms=12_000) == ["a"]
    assert wheel.take(now_ms=12_999) == []
    assert wheel.take(now_ms=13_000) == ["b"]
    assert wheel.take(now_ms=60_000) == []


def test_take_returns_everything_that_became_due() -> None:
    wheel: TimerWheel[str] = TimerWheel(now_ms=10_000)
    wheel.add("a", 12_000)
    wheel.add("b", 20_000)

    assert wheel.take(now_ms=60_000) == ["a", "b"]


def test_an_item_added_in_the_past_is_due_at_once() -> None:
    wheel: TimerWheel[str] = TimerWheel(now_ms=10_000)
    wheel.take(now_ms=30_000)
    wheel.add("a", 5_000)

    assert wheel.take(now_ms=31_000) == ["a"]


def test_a_discarded_item_is_never_due() -> None:
    wheel: TimerWheel[str] = TimerWheel(now_ms=0)
    second = wheel.add("a", 5_000)
    wheel.discard("a", second)
    wheel.discard("a", second + 1)

    assert wheel.take(now_ms=9_000) == []
    wheel.discard("a", second)
