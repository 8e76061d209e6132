"""Tests the line in front of a bucket: which request is next, how many are ahead, and which is woken."""

from weakref import ref

from kafka_quota_proxy.proxy.quota.line import BrokerLines, Line, Place


class Waiting:
    """A connection with a name that waits in a line. Only ``BrokerLines`` may wake it."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def take_turn(self) -> None:
        raise AssertionError("a line wakes connections through its lines only")


def line_of(*names: str) -> tuple[Line, BrokerLines, list[Place]]:
    lines = BrokerLines()
    line = Line(lines)
    places = []
    for name in names:
        places.append(line.take(Waiting(name)))
        line.wait(places[-1])
    return line, lines, places


def names_of(lines: BrokerLines) -> list[str]:
    """Return the names of the connections that were woken since the last call."""
    names = [waiter.name for waiter in lines.woken if isinstance(waiter, Waiting)]
    lines.woken.clear()
    return names


def test_requests_pass_first_come_first_served() -> None:
    line, _, (one, two, three) = line_of("one", "two", "three")

    assert line.first() is one
    line.leave(one)
    assert line.first() is two
    line.leave(three)
    line.leave(two)
    assert line.first() is None
    assert len(line) == 0


def test_leaving_wakes_the_next_request() -> None:
    line, lines, (one, _, three) = line_of("one", "two", "three")

    line.leave(three)
    line.leave(one)

    assert names_of(lines) == ["one", "two"]


def test_connection_is_woken_once_until_it_looks() -> None:
    line, lines, (one, _) = line_of("one", "two")

    line.wake_first()
    line.wake_first()
    assert names_of(lines) == ["one"]

    line.wait(one)
    line.wake_first()
    assert names_of(lines) == ["one"]


def test_connection_keeps_its_place_while_away() -> None:
    line, lines, (one, two, _) = line_of("one", "two", "three")

    line.step_aside(one, back_ms=1_000)
    assert line.first() is two
    assert names_of(lines) == ["two"]
    assert len(line) == 3

    line.wait(one)
    assert line.first() is one


def test_late_connection_stops_counting() -> None:
    line, _, (one, two) = line_of("one", "two")
    line.step_aside(one, back_ms=1_000)

    line.sweep(now_ms=2_999)
    assert line.ahead(two) == 1
    line.sweep(now_ms=4_000)

    assert line.ahead(two) == 0
    assert len(line) == 1


def test_wake_all_wakes_waiting_requests_in_order() -> None:
    line, lines, (_, two, _) = line_of("one", "two", "three")
    line.step_aside(two, back_ms=1_000)

    line.wake_all()
    assert names_of(lines) == ["one", "three"]


def test_only_lines_with_requests_are_listed() -> None:
    line, lines, (one,) = line_of("one")
    assert [*lines.waiting] == [line]

    line.leave(one)

    assert not lines.waiting


def test_mean_amount_follows_the_last_requests() -> None:
    line, _, _ = line_of()

    line.note(800)
    assert line.mean_amount == 800
    line.note(1_600)
    assert line.mean_amount == 900


def test_connections_that_leave_while_the_first_waits_are_forgotten() -> None:
    """Each of them would keep its bytes in memory for as long as the first waits."""
    line, _, places = line_of(*(str(number) for number in range(1_000)))
    owners = [ref(place.owner) for place in places]

    for place in places[1:]:
        line.leave(place)
    first = places[0]
    del place, places

    assert sum(owner() is not None for owner in owners) <= 20
    assert line.first() is first


def test_place_that_was_dropped_from_the_heap_is_found_again_when_its_connection_is_back() -> None:
    line, _, (one, *others) = line_of(*(str(number) for number in range(100)))
    for place in others:
        line.step_aside(place, back_ms=1_000)

    line.wait(others[7])
    line.leave(one)

    assert line.first() is others[7]
