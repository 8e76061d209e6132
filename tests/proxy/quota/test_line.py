"""The line in front of a bucket: who is next, how many are in front, and who is woken."""

from kafka_quota_proxy.proxy.quota.line import BrokerLines, Line, Place


class Waiting:
    """A connection that counts how often it is woken."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def take_turn(self) -> None:
        raise AssertionError("a line wakes connections through its turns only")


def line_of(*names: str) -> tuple[Line, BrokerLines, list[Place]]:
    """Return a line in which connections of these names wait, in this order."""
    turns = BrokerLines()
    line = Line(turns)
    places = []
    for name in names:
        places.append(line.take(Waiting(name)))
        line.wait(places[-1])
    return line, turns, places


def names_of(turns: BrokerLines) -> list[str]:
    """Return which connections have been woken since, and forget them."""
    names = [waiter.name for waiter in turns.woken if isinstance(waiter, Waiting)]
    turns.woken.clear()
    return names


def test_first_come_is_first_served() -> None:
    line, _, (one, two, three) = line_of("one", "two", "three")

    assert line.first() is one
    line.leave(one)
    assert line.first() is two
    line.leave(three)
    line.leave(two)
    assert line.first() is None
    assert len(line) == 0


def test_a_place_that_is_given_back_wakes_the_next() -> None:
    line, turns, (one, _, three) = line_of("one", "two", "three")

    line.leave(three)
    line.leave(one)

    assert names_of(turns) == ["one", "two"]


def test_a_connection_is_woken_once_until_it_has_looked() -> None:
    line, turns, (one, _) = line_of("one", "two")

    line.wake_first()
    line.wake_first()
    assert names_of(turns) == ["one"]

    line.wait(one)
    line.wake_first()
    assert names_of(turns) == ["one"]


def test_a_connection_that_was_away_finds_its_place() -> None:
    line, turns, (one, two, _) = line_of("one", "two", "three")

    line.step_aside(one, back_ms=1_000)
    assert line.first() is two
    assert names_of(turns) == ["two"]
    assert len(line) == 3

    line.wait(one)
    assert line.first() is one


def test_the_number_in_front_falls_with_every_request_that_passes() -> None:
    line, _, (one, two, three) = line_of("one", "two", "three")
    assert [line.ahead(place) for place in (one, two, three, None)] == [0, 1, 2, 3]

    line.leave(one)

    assert [line.ahead(place) for place in (two, three, None)] == [0, 1, 2]


def test_a_connection_that_does_not_come_back_is_counted_no_longer() -> None:
    line, _, (one, two) = line_of("one", "two")
    line.step_aside(one, back_ms=1_000)

    line.sweep(now_ms=2_999)
    assert line.ahead(two) == 1
    line.sweep(now_ms=4_000)

    assert line.ahead(two) == 0
    assert len(line) == 1


def test_a_change_of_rules_wakes_all_that_wait_in_their_order() -> None:
    line, turns, (_, two, _) = line_of("one", "two", "three")
    line.step_aside(two, back_ms=1_000)

    turns.wake_all()
    assert names_of(turns) == ["one", "three"]


def test_an_empty_line_is_not_asked_when_rules_change() -> None:
    line, turns, (one,) = line_of("one")
    line.leave(one)
    names_of(turns)

    turns.wake_all()

    assert names_of(turns) == []


def test_the_size_of_a_request_is_learnt_from_those_before() -> None:
    line, _, _ = line_of()

    line.note(800)
    assert line.mean_amount == 800
    line.note(1_600)
    assert line.mean_amount == 900
