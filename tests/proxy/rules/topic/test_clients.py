"""Tests that the event loop handles the events of a reader's thread one after the other."""

import asyncio
import threading

import pytest

from kafka_quota_proxy.proxy.rules.topic.clients import (
    EndReached,
    EventHandler,
    ReaderBridge,
    ReaderEvent,
    ReadingBegan,
)
from tests.support.playbook import Playbook
from tests.support.stub_broker import eventually


async def test_the_reader_waits_until_the_loop_has_handled_each_event() -> None:
    heard: list[tuple[str, ReaderEvent]] = []
    thread = threading.current_thread()
    playbooks: list[Playbook] = []

    async def hear(told: ReaderEvent) -> None:
        assert threading.current_thread() is thread
        heard.append(("begins", told))
        for _ in range(1_000):  # long enough for the next event to begin, if it did not wait
            await asyncio.sleep(0)
        heard.append(("ends", told))

    def reader(tell: EventHandler) -> Playbook:
        playbooks.append(Playbook(tell, ReadingBegan(), EndReached()))
        return playbooks[0]

    hearing = ReaderBridge(reader, hear)
    hearing.start()
    await eventually(lambda: len(heard) == 4)
    await hearing.stop()

    assert heard == [
        ("begins", ReadingBegan()),
        ("ends", ReadingBegan()),
        ("begins", EndReached()),
        ("ends", EndReached()),
    ]
    assert (playbooks[0].is_stopped, playbooks[0].errors) == (True, [])


@pytest.mark.usefixtures("has_faults")
async def test_a_handler_error_is_raised_in_the_reader() -> None:
    playbooks: list[Playbook] = []

    async def hear(told: ReaderEvent) -> None:
        raise RuntimeError("a fault")

    def reader(tell: EventHandler) -> Playbook:
        playbooks.append(Playbook(tell, ReadingBegan()))
        return playbooks[0]

    hearing = ReaderBridge(reader, hear)
    hearing.start()
    await eventually(lambda: playbooks[0].errors)
    await hearing.stop()

    assert [str(error) for error in playbooks[0].errors] == ["a fault"]


async def test_a_reader_that_outlives_the_loop_ends() -> None:
    async def hear(told: ReaderEvent) -> None:
        raise AssertionError(told)

    hearing = ReaderBridge(Playbook, hear)
    loop = asyncio.new_event_loop()
    hearing._loop = loop
    loop.close()

    with pytest.raises(asyncio.CancelledError):
        await hearing._hand_over(ReadingBegan())
