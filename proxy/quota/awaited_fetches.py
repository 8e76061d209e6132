"""Decides how many fetches of one bucket may be at the broker before the sizes of their responses are known.

A fetch is charged for its response, so what it costs is unknown while it is at the broker. If the broker has data, it
answers within some milliseconds. If it has none, it keeps the fetch for as long as the client allows. So a fetch makes
others wait only for as long as a broker with data takes to answer (``answer_ms``). If it has not been answered by then,
it is parked, and holds no other fetch back.
"""

from typing import Final

# When a bucket has owed nothing for this long, its fetches pass freely once one of them turned out to be parked.
CALM_MS: Final = 1_000
_ANY_NUMBER: Final = 1 << 30


class AwaitedFetches:
    """The fetches of one bucket that the broker may answer at any moment, in rounds of ``answer_ms``.

    A round begins with a fetch. While it lasts, other fetches pass if the limit has room for what they and the earlier
    ones of the round will probably bring. If the round ends and no response has used up the limit, the fetches of the
    round are taken for parked. The next round then lets as many more pass as there were before, or any number if the
    bucket has owed nothing for a second. So a crowd behind parked fetches has passed after some rounds, and a crowd in
    front of a full topic brings little at once. A broker that stalls may answer all of them at once when it works
    again, and what they bring is then paid in full.
    """

    __slots__ = ("_expected_bytes", "_left", "_parked", "_until_ms")

    def __init__(self) -> None:
        self._until_ms = 0  # the end of the round
        self._expected_bytes = 0  # what the fetches of the round will probably bring
        self._parked = 0  # how many fetches passed without room and are not answered, unless the limit is used up
        self._left = 0  # how many more fetches may pass in this round without room

    def may_pass(self, amount: int, *, in_flight: int, room: float, now_ms: int) -> bool:
        """Return whether a fetch that will probably bring ``amount`` bytes may be forwarded now. Changes nothing.

        Args:
            amount: The number of bytes.
            in_flight: What all fetches that are not answered will probably bring, parked ones included.
            room: How many more bytes the limit allows. May be negative.
            now_ms: The time.
        """
        expected = min(self._expected_bytes, in_flight)
        return now_ms >= self._until_ms or not expected or self._left > 0 or room >= expected + amount

    def passes(
        self,
        amount: int,
        *,
        in_flight: int,
        room: float,
        owed_until_ms: float,
        answer_ms: int,
        now_ms: int,
    ) -> None:
        """Note that a fetch is forwarded, which will probably bring ``amount`` bytes.

        Args:
            amount: The number of bytes.
            in_flight: As for ``may_pass``.
            room: As for ``may_pass``.
            owed_until_ms: The time at which the bucket last ceased to owe anything.
            answer_ms: How long a broker with data takes to answer.
            now_ms: The time.
        """
        expected = min(self._expected_bytes, in_flight)
        if now_ms >= self._until_ms:
            if not in_flight:
                self._parked = 0
            is_calm = in_flight and now_ms - owed_until_ms >= CALM_MS
            self._left = _ANY_NUMBER if is_calm else max(0, self._parked - 1)
            self._until_ms = now_ms + answer_ms
            expected = 0
        elif expected and room < expected + amount:
            self._left -= 1
        self._expected_bytes = expected + amount
        if room < expected + amount:
            self._parked += 1

    def answered(self, *, owes: bool, answer_ms: int, now_ms: int) -> None:
        """Note that a fetch was answered. ``owes`` says whether the bucket is over its limit now."""
        self._parked = 0 if owes else max(0, self._parked - 1)
        if owes:
            self._left = 0
        self._until_ms = min(self._until_ms, now_ms + answer_ms)

    def held_until_ms(self, *, in_flight: int) -> int:
        """Return the time until which a fetch without room waits, or a past time."""
        return self._until_ms if self._left <= 0 and min(self._expected_bytes, in_flight) else 0
