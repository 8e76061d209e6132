"""Decides how many bytes a consumer's fetch asks for, so that what is charged can be used.

A broker ends a response where ``max_bytes`` ends, also within a batch. The client drops the piece of the batch, but the
piece was charged. So were the bytes around the records. Therefore a fetch asks for so many batches that the piece is
small, for a number of whole batches, or for a single one: if ``max_bytes`` is 1, a broker sends one whole batch
(KIP-74).

``FetchSize`` chooses by the sizes of the batches that the connection has fetched last.
"""

from collections.abc import Iterator
from typing import Final

# A partition's records may end with a piece as well. Clients ask for this many bytes of each, or for more of the whole
# (max.partition.fetch.bytes).
_PARTITION_BYTES: Final = 1 << 20
# How many batches are remembered.
_SAMPLES: Final = 16
# Fewer of them can hardly tell whether all batches have one size.
_FEWEST: Final = 8
# After so many fetches at the limit, two ask for a single batch each, to learn the sizes again.
_LEARNS_AGAIN: Final = 32
_LESSONS: Final = 2
# Numbers of bytes are equally good if they bring whole batches at rates that differ by no more than this factor: for a
# consumer that shares its bucket with others, and for one that is alone and lets nobody wait.
_WORTH: Final = 1.02
_WORTH_ALONE: Final = 1.01
_SINGLE: Final = 1
# So many seconds of the limit may be fetched at the end of a burst. With more, a minute would bring too much.
_BURST_END_S: Final = 0.3
# Room for fewer batches than this is as good as none: a piece of a batch would be much of it.
_MANY: Final = 8
# For how many batches the responses are computed one by one.
_MOST_BATCHES: Final = 128


class FetchSize:
    """The batches that one connection fetches, and the number of bytes that its next fetch asks for.

    Attributes:
        batch_bytes: The size of the largest of the last batches, or 0 if none is known.
    """

    __slots__ = (
        "_around_bytes", "_asked", "_best", "_follows_single", "_is_bursty", "_limit", "_oldest", "_samples",
        "_took_ms", "_until_lesson", "_usual_asked", "_usual_cap", "_worth", "batch_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.batch_bytes = 0
        self._samples: list[int] = []  # the sizes of the last batches
        self._around_bytes = -1  # the bytes of a response around its records; -1 if not known yet
        # What was found to be best up to some number of bytes, by that number, which is negative without room for it.
        self._best: dict[int, int] = {}
        # The last answer with room, which is that of most fetches. The cap is -1 if there is none.
        self._usual_cap = -1
        self._usual_asked = 0
        self._asked = 0
        self._oldest = 0  # the place of the sample that is replaced next
        self._took_ms = 0.0  # how long the broker takes to answer, on average
        self._until_lesson = _LEARNS_AGAIN
        self._follows_single = False  # whether the response before ended with a whole batch
        self._is_bursty = False
        self._limit = 0.0
        self._worth = _WORTH_ALONE

    def ask(self, cap_bytes: int, *, room: float, limit: float, is_alone: bool = True, is_bursty: bool = False) -> int:
        """Return for how many bytes a fetch asks.

        Args:
            cap_bytes: The most bytes that it may ask for.
            room: How many more bytes the limit allows. It may be less than ``cap_bytes``.
            limit: How many bytes per second this connection may fetch.
            is_alone: Whether no other connection has the same bucket.
            is_bursty: Whether the consumer fetches in bursts: it has sampled windows for itself.
        """
        worth = _WORTH_ALONE if is_alone else _WORTH
        if limit != self._limit or is_bursty is not self._is_bursty or worth != self._worth:
            self._limit, self._is_bursty, self._worth = limit, is_bursty, worth
            self._forget_best()
        self._follows_single = self._asked == _SINGLE
        if cap_bytes == self._usual_cap and cap_bytes <= room:
            asked = self._usual_asked
        else:
            asked = self._ask(cap_bytes, room, limit)
            if cap_bytes <= room and self._samples:
                self._usual_cap, self._usual_asked = cap_bytes, asked
        self._asked = asked
        return asked

    def _forget_best(self) -> None:
        self._best.clear()
        self._usual_cap = -1

    def _ask(self, cap_bytes: int, room: float, limit: float) -> int:
        has_room = cap_bytes <= room
        if not self._samples:
            return cap_bytes if has_room else _SINGLE
        if not has_room and room >= _MANY * self.batch_bytes:
            cap_bytes, has_room = int(room), True
        if not has_room:
            self._until_lesson -= 1
            if self._until_lesson < -_LESSONS:
                self._until_lesson = _LEARNS_AGAIN
            elif self._until_lesson < 0 or self._around_bytes < 0 or len(self._samples) < _FEWEST:
                return _SINGLE
            # Two seconds of the limit, if that many bytes are needed for most of them to be usable.
            cap_bytes = max(cap_bytes, int(2 * limit))
        most_bytes = min(cap_bytes, _PARTITION_BYTES)
        # Only the highest three bits count, so that little has to be computed anew.
        low_bits = max(0, most_bytes.bit_length() - 3)
        most_bytes = most_bytes >> low_bits << low_bits
        key = most_bytes if has_room else -most_bytes
        best = self._best.get(key, 0)
        if not best:
            best = self._best[key] = self._find_best(most_bytes, limit, has_room=has_room)
        return cap_bytes if has_room and best == _PARTITION_BYTES else best

    def _find_best(self, most_bytes: int, limit: float, *, has_room: bool) -> int:
        """Return the number of bytes up to ``most_bytes`` that brings nearly the most whole batches per second.

        If the limit has room for them, this is the largest such number, for few requests. Otherwise it is the smallest,
        so that the consumers of a bucket take turns quickly, and a lone one of a paced bucket fetches evenly. With
        sampled windows of its own a consumer waits for seconds anyway, until they forget a burst. What the last fetch
        of the burst brings over the limit is paid meanwhile. Without it, four per cent of the quota would be lost.
        """
        rates = {}
        for asked in self._candidates(most_bytes):
            whole, charged, responses = self._responses(asked)
            rates[asked] = whole / max(charged / limit, responses * self._took_ms / 1_000)
        least_rate = max(rates.values()) / self._worth
        good = [asked for asked, rate in rates.items() if rate >= least_rate]
        if has_room:
            return max(good)
        most_bytes = max(min(good), int(limit * _BURST_END_S)) if self._is_bursty else min(good)
        return max(asked for asked in good if asked <= most_bytes)

    def _candidates(self, most_bytes: int) -> Iterator[int]:
        """Yield numbers of bytes to choose from."""
        yield _SINGLE
        batches = 2
        while batches * self.batch_bytes <= most_bytes:
            yield batches * self.batch_bytes
            batches *= 2
        for parts in (16, 4, 1):
            yield max(_SINGLE, most_bytes // parts)
        if self.batch_bytes <= most_bytes:
            yield most_bytes // self.batch_bytes * self.batch_bytes

    def _responses(self, asked: int) -> tuple[float, float, float]:
        """Return what some responses that ask for ``asked`` bytes will have together.

        This is the bytes of whole batches, the bytes that are charged, and the number of responses.
        """
        samples, around = self._samples, max(0, self._around_bytes)
        total = sum(samples)
        if asked * len(samples) > _MOST_BATCHES // 4 * total:
            piece = sum(batch * batch for batch in samples) / total / 2  # on average, if the end is anywhere
            return asked - piece, asked + around, 1.0
        whole = charged = responses = left = draw = 0
        for _ in range(_MOST_BATCHES):
            # A linear congruential generator: a number of bytes may fit the order of the samples by chance.
            draw = (draw * 75 + 74) % 65_537
            batch = samples[draw % len(samples)]
            if batch <= left:
                left -= batch
            else:
                charged += left + around  # the last response ended with a piece of this batch, which is the first now
                responses += 1
                left = max(0, asked - batch)
            whole += batch
        return whole, whole + charged, responses

    def note_response(self, asked_bytes: int, response_bytes: int) -> bool:
        """Return whether a response to a fetch of ``asked_bytes`` probably ends within a batch.

        That is the case if its first batch has at most ``asked_bytes``. If a longer batch than all known comes alone,
        the sizes are learned again soon.
        """
        around_bytes, batch_bytes = self._around_bytes, self.batch_bytes
        records_bytes = response_bytes - around_bytes
        if asked_bytes == _SINGLE or records_bytes < asked_bytes or around_bytes < 0 or not batch_bytes:
            return False
        if records_bytes > asked_bytes and records_bytes > batch_bytes:
            self._until_lesson = min(0, self._until_lesson)
        return asked_bytes % batch_bytes > 0

    @property
    def learns(self) -> bool:
        """Whether ``note_batch`` should be called with the first batch of the response that has arrived."""
        return self._asked == _SINGLE or self._follows_single or not self._samples

    def note_batch(self, batch_bytes: int, response_bytes: int, took_ms: int) -> None:
        """Learn from a response of ``response_bytes`` bytes whose first batch has ``batch_bytes`` bytes.

        The broker has answered after ``took_ms`` ms. If the response before ended within a batch, this is that batch. A
        large batch is cut more often than a small one, so such a batch says nothing about the others.
        """
        self._took_ms += (took_ms + 1 - self._took_ms) / 8 if self._took_ms else took_ms + 1
        if self._asked == _SINGLE:
            around = max(0, response_bytes - batch_bytes)
            if abs(around - self._around_bytes) * 10 > around:
                self._forget_best()
            self._around_bytes = around
        samples = self._samples
        if samples and not self._follows_single:
            return
        if len(samples) < _SAMPLES:
            samples.append(batch_bytes)
        else:
            self._oldest = (self._oldest + 1) % _SAMPLES
            samples[self._oldest] = batch_bytes
        largest = max(samples)
        if largest != self.batch_bytes or len(samples) < _SAMPLES or not self._oldest:
            self.batch_bytes = largest
            self._forget_best()
