"""Tests which group of the mock the requests of consumer groups go to, without a mock cluster."""

import struct
from typing import Final

import pytest
from kio.schema.offset_fetch.v5.request import OffsetFetchRequest
from kio.serial import entity_reader

from kafka_quota_proxy.proxy.cli.demo.mock_groups import MockGroups

JOIN, HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
REBALANCE_IN_PROGRESS = 27


class Mock:
    """Remembers the delay of the latest rebalance."""

    delay_ms = 0
    topics: Final = {"first": 2, "second": 1}

    def set_rebalance_delay_ms(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms


class Groups:
    """Sends requests of members of the group ``g``. The clock begins at 0, and each request takes no time."""

    def __init__(self) -> None:
        self.mock = Mock()
        self.now_s = 0.0
        self._groups = MockGroups(self.mock, clock=lambda: self.now_s)  # type: ignore[arg-type]

    def join(self, member: str = "", *, as_: str = "", version: int = 5) -> str:
        """Return the name of the group in the mock. The mock's response names the member ``as_``, if given."""
        numbers = struct.pack(">ii", 10_000, 10_000)[: 8 if version >= 1 else 4]
        sent = self._groups.request(_head(JOIN, version) + _string("g") + numbers + _string(member) + b"rest")
        assert isinstance(sent, tuple)
        request, read_response = sent
        if as_:
            response = struct.pack(">iihi", 7, 0, 0, 2) + b"".join(map(_string, ("range", as_, as_))) + b"rest"
            response = response if version >= 2 else response[:4] + response[8:]
            assert read_response(response) == response
        assert request.endswith(numbers + _string(member) + b"rest")
        return _group(request, JOIN, version)

    def ask(self, api_key: int, member: str, *, version: int = 2) -> str | bytes:
        """Return the name of the group in the mock, or the answer."""
        generation = b"" if api_key == LEAVE else struct.pack(">i", 2)
        sent = self._groups.request(_head(api_key, version) + _string("g") + generation + _string(member))
        assert sent is not None
        return sent if isinstance(sent, bytes) else _group(sent[0], api_key, version)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _head(api_key: int, version: int) -> bytes:
    return struct.pack(">hhi", api_key, version, 7) + _string("client")


def _group(request: bytes, api_key: int, version: int) -> str:
    head = _head(api_key, version)
    assert request.startswith(head)
    (size,) = struct.unpack_from(">h", request, len(head))
    return request[len(head) + 2 :][:size].decode()


@pytest.fixture
def groups() -> Groups:
    return Groups()


def test_a_member_that_joins_later_begins_a_round_for_all(groups: Groups) -> None:
    assert groups.ask(HEARTBEAT, "unknown") == "g (round 0)", "the mock answers"
    groups.join(as_="a")
    groups.now_s = 10

    joined = groups.join(as_="b")
    groups.now_s += 3
    told = [groups.ask(HEARTBEAT, "a", version=version) for version in (0, 2)]
    joined_again = groups.join("a", as_="a")

    assert (joined, joined_again) == ("g (round 2)", "g (round 2)")
    assert groups.mock.delay_ms == 4_000
    assert told == [struct.pack(">ih", 7, REBALANCE_IN_PROGRESS), struct.pack(">iih", 7, 0, REBALANCE_IN_PROGRESS)]
    assert groups.ask(HEARTBEAT, "a") == "g (round 2)"


def test_the_rest_joins_again_after_a_member_has_left(groups: Groups) -> None:
    groups.join(as_="a")
    groups.join(as_="b")

    assert groups.ask(LEAVE, "b") == "g (round 1)"
    assert groups.ask(SYNC, "a") == struct.pack(">iihi", 7, 0, REBALANCE_IN_PROGRESS, 0)
    assert groups.join("a", as_="a") == "g (round 2)"
    groups.ask(LEAVE, "a")
    assert groups.join(as_="c") == "g (round 3)"
    assert groups.mock.delay_ms == 500  # nobody else is waited for


def test_an_independent_codec_reads_a_request_for_all_topics() -> None:
    head = _head(9, 5)
    mock_groups = MockGroups(Mock())  # type: ignore[arg-type]

    sent = mock_groups.request(head + _string("g") + struct.pack(">i", -1))

    assert isinstance(sent, tuple)
    parsed, _ = entity_reader(OffsetFetchRequest)(sent[0], len(head))
    assert parsed.topics is not None
    assert parsed.group_id == "g"
    assert [(each.name, each.partition_indexes) for each in parsed.topics] == [("first", (0, 1)), ("second", (0,))]
    again = mock_groups.request(sent[0])
    assert isinstance(again, tuple)
    assert again[0] == sent[0], "a request for some topics passes"
    assert mock_groups.request(_head(8, 2) + _string("g")) is None, "others are not changed"


def test_a_request_that_ends_too_early_is_an_error() -> None:
    whole = _head(JOIN, 5) + _string("g") + struct.pack(">ii", 1, 1) + _string("member")
    for size in range(len(whole)):
        with pytest.raises((struct.error, ValueError)):
            MockGroups(Mock()).request(whole[:size])  # type: ignore[arg-type]
