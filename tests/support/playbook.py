"""A simulated reader of a quota topic. It reports the events that a test gives to it."""

import asyncio
import threading

from kafka_quota_proxy.proxy.rules.topic.clients import EventHandler, ReaderEvent


class Playbook:
    """Reports events in their order, in a thread."""

    def __init__(self, tell: EventHandler, *told: ReaderEvent) -> None:
        self._tell = tell
        self._told = told
        self.is_stopped = False
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.is_stopped = True

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    async def _run(self) -> None:
        try:
            for one in self._told:
                await self._tell(one)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.errors.append(error)
