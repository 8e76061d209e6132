"""Tests that an unexpected exception is logged and counted once, and ends only its own part of the proxy."""

import asyncio
import logging

import pytest

from kafka_quota_proxy.proxy.runtime import isolation
from kafka_quota_proxy.proxy.runtime.isolation import (
    alone,
    attempt,
    internal_errors,
    isolated,
    kept_up,
    persisting,
    repeated,
    report,
    watch,
)
from tests.support.stub_broker import eventually, on_uvloop

pytestmark = pytest.mark.usefixtures("has_faults")


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_AGAIN_S", 0.01)
    isolation._logged.clear()
    internal_errors.clear()


class Faulty:
    """Raises in its first ``faults`` calls."""

    def __init__(self, faults: int = 1) -> None:
        self.faults = faults
        self.calls = self.failed = 0

    def fail(self) -> None:
        self.failed += 1

    def _work(self) -> int:
        self.calls += 1
        if self.calls <= self.faults:
            raise ValueError("a fault")
        return self.calls

    async def work(self) -> int:
        await asyncio.sleep(0)
        return self._work()

    @isolated
    def isolated(self) -> int:
        return self._work()

    @repeated
    def repeated(self) -> None:
        self._work()


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.exc_info]


def test_a_failing_method_ends_its_object() -> None:
    one = Faulty()

    assert (one.isolated(), one.failed) == (None, 1)
    assert (one.isolated(), one.failed) == (2, 1)
    assert sum(internal_errors.values()) == 1


@on_uvloop
async def test_failing_repeated_work_is_retried_until_it_succeeds() -> None:
    one = Faulty(2)

    one.repeated()
    await eventually(lambda: one.calls == 3)

    assert sum(internal_errors.values()) == 2


@on_uvloop
async def test_a_failing_coroutine_ends_no_other() -> None:
    one = Faulty()

    assert await alone(one.work, fail=one.fail) is None
    assert one.failed == 1
    assert await alone(one.work, fail=one.fail) == 2
    assert one.failed == 1


@on_uvloop
async def test_failing_work_that_must_go_on_is_restarted() -> None:
    coroutine, thread = Faulty(2), Faulty(2)

    await kept_up(coroutine.work)
    await asyncio.to_thread(persisting(thread._work))

    assert (coroutine.calls, thread.calls, sum(internal_errors.values())) == (3, 3, 4)


@on_uvloop
async def test_an_exception_in_any_loop_callback_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    one = Faulty()
    loop = asyncio.get_running_loop()
    watch(loop)

    loop.call_soon(one._work)
    await eventually(lambda: internal_errors)

    assert len(tracebacks(caplog)) == 1
    assert "a fault" in caplog.text


@on_uvloop
async def test_cancellation_is_not_reported() -> None:
    tasks = [
        asyncio.ensure_future(alone(lambda: asyncio.sleep(9))),
        asyncio.ensure_future(kept_up(lambda: asyncio.sleep(9))),
    ]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert all(task.cancelled() for task in tasks)
    assert not internal_errors


def test_repeated_errors_of_one_line_log_few_tracebacks_and_are_all_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = Faulty(100)
    for _ in range(101):
        attempt(one._work)

    assert one.calls == 101
    assert len(tracebacks(caplog)) == 10
    assert sum(internal_errors.values()) == 100


def test_an_error_is_counted_under_the_part_of_the_program_that_was_called(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    space: dict[str, object] = {"__name__": "kafka_quota_proxy.proxy.rules.topic.topic_reader"}
    exec("def outer(work): work()", space)  # noqa: S102 - a frame of that module
    try:
        space["outer"](Faulty()._work)  # type: ignore[operator]
    except ValueError as error:
        report(error, "rules of %s are late", "a topic")

    assert internal_errors == {"rules.topic_reader": 1}
    assert caplog.messages == ["internal error in rules.topic_reader: rules of a topic are late"]
