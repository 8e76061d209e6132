"""Writes requests as a troubled client does: in pieces, over seconds, not to their end, or with a reset."""

from collections import deque
from typing import TYPE_CHECKING

from tests.simulation.ledger import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.clients.profiles import Habits
    from tests.simulation.ledger import Exchange
    from tests.simulation.network import End
    from tests.simulation.scheduler import Event
    from tests.simulation.world import World


class Writer:
    """Writes the requests of one connection.

    ``is_busy`` is set while a request is not written to its end: the next has to wait.
    """

    def __init__(
        self,
        world: "World",
        random: "Random",
        end: "End",
        habits: "Habits",
        abort: "Callable[[], None]",
        on_written: "Callable[[], None]",
    ) -> None:
        self.is_busy = False
        self._world = world
        self._random = random
        self._end = end
        self._habits = habits
        self._abort = abort
        self._on_written = on_written
        self._pieces: deque[bytes] = deque()
        self._exchange: Exchange
        self._event: Event | None = None
        self._doom: Event | None = None

    def write(self, frame: bytes, exchange: "Exchange") -> None:
        """Write a request, or a part of it."""
        habits, random = self._habits, self._random
        draw = random.random()
        stalls = habits.stalls if len(frame) >= habits.stalls_from_bytes else 0.0
        if draw < stalls and self._doom is None:
            self._stop_inside(frame, exchange)
            self._world.story.tell(f"{exchange.client} stops in the middle of {exchange!r}")
            self._doom = self._world.call_later(habits.stalls_ms, self._abort)
            return
        draw -= stalls
        if draw < habits.resets and self._doom is None:
            self._reset(frame, exchange)
            return
        draw -= habits.resets
        if draw < habits.dribbles:
            self._exchange = exchange
            exchange.sent_ms = NEVER
            self.is_busy = True
            self._pieces = _pieces(frame, sorted(random.randrange(len(frame)) for _ in range(random.randint(1, 6))))
            self._next_piece()
        elif draw - habits.dribbles < habits.splits:
            for piece in _pieces(frame, [random.randrange(min(40, len(frame))), random.randrange(len(frame))]):
                self._end.write(piece)
        else:
            self._end.write(frame)

    def cancel(self) -> None:
        """Write nothing more."""
        for event in (self._event, self._doom):
            if event is not None:
                event.cancel()
        self._event = self._doom = None
        self._pieces.clear()

    def _stop_inside(self, frame: bytes, exchange: "Exchange") -> None:
        exchange.sent_ms = NEVER
        self.is_busy = True
        self._end.write(frame[: self._random.randrange(len(frame))])

    def _reset(self, frame: bytes, exchange: "Exchange") -> None:
        random = self._random
        if random.random() < 0.5:
            self._stop_inside(frame, exchange)
        else:
            self._end.write(frame)
        self._world.story.tell(f"{exchange.client} resets its connection {exchange.connection} at {exchange!r}")
        # Never at once: the caller is not done with the connection.
        self._doom = self._world.call_later(random.choice((0.0, 0.3, 5.0, 80.0, 1_000.0)), self._abort)

    def _next_piece(self) -> None:
        self._event = None
        self._end.write(self._pieces.popleft())
        if self._pieces:
            delay_ms = self._random.choice((1.0, 50.0, 400.0, 1_500.0))
            self._event = self._world.call_later(delay_ms, self._next_piece)
        else:
            self._exchange.sent_ms = self._world.clock.now_ms
            self.is_busy = False
            if self._exchange.expects_response is False or self._end.is_open:
                self._event = self._world.call_soon(self._on_written)


def _pieces(frame: bytes, cuts: list[int]) -> deque[bytes]:
    pieces: deque[bytes] = deque()
    at = 0
    for cut in [*sorted(cuts), len(frame)]:
        if cut > at:
            pieces.append(frame[at:cut])
            at = cut
    return pieces
