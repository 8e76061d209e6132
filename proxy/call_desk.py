"""Queues in front of brokers, with the loop's clock: who may go on is woken, who keeps a slot too long loses it."""

import asyncio
from time import monotonic_ns
from typing import Protocol, cast

from config.model import FairCallQueue, IdentityProvider
from proxy.account import Listening
from proxy.call_settings import cost, decay_options, dispatcher_options, limit
from proxy.calls import Call, Line, park_due
from proxy.scheduling.decay import DecayScheduler
from proxy.scheduling.dispatcher import Dispatcher


class Waiting(Protocol):
    """Whoever owns a ticket."""

    def take_turn(self) -> None:
        """Go on: it has a slot now."""


class CallScheduler:
    """A listener's: who of its users is in which level.

    Attributes:
        settings: What the file says.
        scheduler: A reload replaces it, and what users have cost goes over.
    """

    def __init__(self, settings: FairCallQueue) -> None:
        self.settings = settings
        self.scheduler = DecayScheduler(decay_options(settings), now_ms=_now_ms())

    def update(self, settings: FairCallQueue) -> None:
        """Go on under other settings."""
        if settings != self.settings:
            before = self.scheduler
            self.settings = settings
            self.scheduler = DecayScheduler(decay_options(settings), now_ms=_now_ms())
            self.scheduler.take_over(before)


class CallDesk:
    """The queue and the slots of one broker, which all listeners in front of it share."""

    def __init__(self, settings: FairCallQueue) -> None:
        self._settings = settings
        self.dispatcher = Dispatcher(dispatcher_options(settings), limit(settings))
        self._watched: dict[Call, int] = {}
        self._is_waking = False
        self._timer: asyncio.TimerHandle | None = None

    def seat(self, listening: Listening, calls: CallScheduler) -> None:
        """Let the connections of ``listening`` wait here from now on, under the settings of ``calls``."""
        settings = calls.settings
        if settings != self._settings:
            self._settings = settings
            self.dispatcher.update(dispatcher_options(settings), limit(settings), monotonic_ns() // 1_000)
            self.wake()
        line = listening.line
        if line is None:
            line = listening.line = Line(
                calls.scheduler,
                self.dispatcher,
                cost(settings),
                identifies_clients=settings.identity_provider is IdentityProvider.USER_CLIENT_ID,
                watched=self._watched,
                wake=self.wake,
            )
            listening.quotas.renew()
        line.scheduler, line.cost = calls.scheduler, cost(settings)
        line.identifies_clients = settings.identity_provider is IdentityProvider.USER_CLIENT_ID

    def dismiss(self, listening: Listening) -> None:
        """Let its connections pass as they come; who waits here is still let through in his turn."""
        if listening.line is not None:
            listening.line = None
            listening.quotas.renew()

    def wake(self) -> None:
        """Have those woken that may go on, once whoever is at work now is done."""
        if not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        for ticket in self.dispatcher.granted():
            cast(Waiting, ticket.owner).take_turn()
        if self._timer is None and self._watched:
            self._look()

    def _look(self) -> None:
        """Take back the slots of those who keep them too long, and look again when the next may."""
        self._timer = None
        now_us = monotonic_ns() // 1_000
        at_us = park_due(self._watched, self.dispatcher, now_us)
        if at_us is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0, at_us - now_us) / 1e6, self._look)
        self.wake()


def _now_ms() -> int:
    return monotonic_ns() // 1_000_000
