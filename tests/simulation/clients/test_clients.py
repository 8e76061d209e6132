"""The simulated clients: they behave as the real ones, notice what must not happen, and come to rest."""

import itertools
from collections.abc import Callable

import pytest

from tests.simulation.clients import profiles
from tests.simulation.clients.client import Client
from tests.simulation.clients.consumer import Consumer
from tests.simulation.clients.producer import Load, Producer
from tests.simulation.clients.profiles import Habits, Profile
from tests.simulation.clients.setting import Setting, proxy_header
from tests.simulation.clients.small_broker import SmallBroker
from tests.simulation.clients.stranger import FLOOD, MANNERS, Stranger
from tests.simulation.ledger import FIRST_ID, Entity
from tests.simulation.violation import Violation
from tests.simulation.world import World


def _setting(name: str, profile: Profile = profiles.JAVA, habits: Habits = profiles.HEALTHY) -> Setting:
    entity = Entity("ANONYMOUS", name, "10.0.2.1")
    return Setting(name, profile, entity, entity.host, (("10.0.1.1", 9092),), habits)


def _run(world: World, seconds: float) -> None:
    world.scheduler.run_until(world.clock.now_ns + int(seconds * 1e9))


def test_everything_that_is_produced_is_read() -> None:
    """Each batch is acknowledged once, and the consumer reads each at its offset."""
    for profile in profiles.PROFILES:
        world = World(1)
        broker = SmallBroker(world, partitions=3)
        producer = Producer(world, _setting("p", profile), ["t"], Load((100, 5_000, 1_048_576), 50.0, 3, 40))
        consumer = Consumer(world, _setting("c", profile), ["t"], pause_ms=100.0)
        producer.start()
        consumer.start()
        _run(world, 60)
        assert len(producer.acknowledged) == 40, profile.name
        assert sorted(producer.acknowledged) == sorted(consumer.read), profile.name
        assert not producer.failed
        producer.stop()
        consumer.stop()
        _run(world, 60)
        assert producer.is_done
        assert consumer.is_done
        assert world.scheduler.is_empty, profile.name
        assert len(broker.requests) > 40


def _bad_answers(twist: Callable[[int, list[bytes]], list[bytes]], acks: int = -1) -> str:
    world = World(2)
    broker = SmallBroker(world)
    broker.twist = twist
    producer = Producer(world, _setting("p", profiles.LIBRDKAFKA), ["t"], Load((100,), 0.01, 1, 9), acks=acks)
    producer.start()
    with pytest.raises(Violation) as violation:
        _run(world, 10)
    assert violation.value.check == "answers"
    return violation.value.text


def test_response_that_comes_twice_is_a_violation() -> None:
    """The second one is for no request that waits."""
    text = _bad_answers(lambda api_key, frames: frames * 2 if api_key == profiles.PRODUCE else frames)
    assert "a second response to p#" in text


def test_responses_in_another_order_are_a_violation() -> None:
    """The response to the second request comes first."""
    held: list[bytes] = []

    def swap(api_key: int, frames: list[bytes]) -> list[bytes]:
        if api_key != profiles.PRODUCE:
            return frames
        held.extend(frames)
        if len(held) < 2:
            return []
        swapped, held[:] = held[::-1], []
        return swapped

    assert "out of order" in _bad_answers(swap)


def test_response_that_nobody_has_asked_for_is_a_violation() -> None:
    """Also a response to Produce with acks=0."""
    stray = (4).to_bytes(4) + (7).to_bytes(4)
    text = _bad_answers(lambda api_key, frames: [stray] if api_key == profiles.PRODUCE else frames)
    assert "which nobody has sent" in text
    # The requests before are ApiVersions and Metadata, and ApiVersions again.
    to_the_fourth = (4).to_bytes(4) + (FIRST_ID + 4).to_bytes(4)
    assert "asks for none" in _bad_answers(lambda _, frames: frames or [to_the_fourth], acks=0)


def test_response_that_cannot_be_read_is_a_violation() -> None:
    """A byte too many is an error, unless the broker itself has sent it."""

    def longer(api_key: int, frames: list[bytes]) -> list[bytes]:
        if api_key != profiles.PRODUCE:
            return frames
        return [(len(frame) - 4 + 1).to_bytes(4) + frame[4:] + b"\0" for frame in frames]

    assert "cannot be read" in _bad_answers(longer)


def _gaps_ms(profile: Profile) -> float:
    """Return the longest time between two Produce requests if each response has a throttle time of 3 s."""
    world = World(3)
    broker = SmallBroker(world)
    broker.throttle_ms = 3_000
    producer = Producer(world, _setting("p", profile), ["t"], Load((100,), 10.0, 1, 30))
    producer.start()
    _run(world, 120)
    times = [at_ms for api_key, _, at_ms in broker.requests if api_key == profiles.PRODUCE]
    assert len(producer.acknowledged) == 30
    assert all(
        each.throttle_ms == 3_000 for each in world.ledger.exchanges.values() if each.api_key == profiles.PRODUCE
    )
    return max(later - earlier for earlier, later in itertools.pairwise(times))


def test_throttle_time_is_heeded_by_those_who_heed_it() -> None:
    """Java and franz-go send nothing for 3 s after such a response; the others go on."""
    heeding = [profile.name for profile in profiles.PROFILES if _gaps_ms(profile) > 2_900]
    assert heeding == ["Java", "franz-go"]


def test_request_without_a_response_ends_the_connection() -> None:
    """After the request's time-out the client connects anew, and sends the batch again."""
    world = World(4)
    broker = SmallBroker(world)
    broker.twist = lambda api_key, frames: [] if api_key == profiles.PRODUCE else frames
    producer = Producer(world, _setting("p"), ["t"], Load((100,), 10.0, 1, 1))
    producer.start()
    _run(world, 29)
    assert producer.waiting_since_ms is not None
    assert world.clock.now_ms - producer.waiting_since_ms > 28_000
    assert not broker.ends[-1].has_ended
    _run(world, 50)
    broker.twist = lambda api_key, frames: frames
    _run(world, 40)
    sent = [at_ms for api_key, _, at_ms in broker.requests if api_key == profiles.PRODUCE]
    assert [round((later - earlier) / 1_000) for earlier, later in itertools.pairwise(sent)] == [30, 30, 30]
    assert [token for _, _, _, token in producer.acknowledged] == ["p-1"]
    assert producer.waiting_since_ms is None


def test_batch_fails_for_good_after_the_delivery_timeout() -> None:
    """The producer keeps trying for two minutes."""
    world = World(5)
    broker = SmallBroker(world)
    broker.error_code = 6
    producer = Producer(world, _setting("p"), ["t"], Load((100,), 10.0, 1, 2))
    producer.start()
    _run(world, 119)
    assert not producer.failed
    _run(world, 5)
    assert sorted(producer.failed) == [("t", 0, "p-1"), ("t", 0, "p-2")]
    assert 100 < len(broker.requests) < 2_000


def test_clients_follow_a_leader() -> None:
    """Producer and consumer go to the other broker when the first says that it leads no longer."""
    world = World(6)
    first, second = SmallBroker(world, 1), SmallBroker(world, 2)
    first.peers = second.peers = {1: first.address, 2: second.address}
    second.leaders = first.leaders
    producer = Producer(world, _setting("p"), ["t"], Load((100,), 100.0, 1, 100))
    consumer = Consumer(world, _setting("c"), ["t"], pause_ms=20.0)
    producer.start()
    consumer.start()
    _run(world, 5)
    second.logs, second.tokens = first.logs, first.tokens
    first.leaders[0] = 2
    first.error_code = 6
    _run(world, 15)
    assert len(second.requests) > 50
    assert len(producer.acknowledged) == 100
    assert sorted(producer.acknowledged) == sorted(consumer.read)


def test_damaged_records_are_a_violation() -> None:
    """The consumer checks each byte of each batch."""
    world = World(7)
    broker = SmallBroker(world)

    def damage(api_key: int, frames: list[bytes]) -> list[bytes]:
        if api_key != profiles.FETCH:
            return frames
        return [
            frame[:-40] + bytes([frame[-40] ^ 1]) + frame[-39:] if len(frame) > 1_000 else frame for frame in frames
        ]

    broker.twist = damage
    Producer(world, _setting("p"), ["t"], Load((1_000,), 100.0, 1, 5)).start()
    Consumer(world, _setting("c"), ["t"], pause_ms=20.0).start()
    with pytest.raises(Violation, match="damaged records"):
        _run(world, 15)


def _troubled(seed: int) -> tuple[bytes, int, int]:
    world = World(seed)
    SmallBroker(world, partitions=2)
    clients: list[Client] = []
    for number, profile in enumerate(profiles.PROFILES):
        setting = _setting(f"p{number}", profile, profiles.BROKEN)
        clients.append(Producer(world, setting, ["t"], Load((100, 5_000, 300_000), 300.0, 2, 60)))
        setting = _setting(f"c{number}", profile, profiles.BROKEN)
        clients.append(Consumer(world, setting, ["t"], pause_ms=200.0))
    for client in clients:
        client.start()
    _run(world, 60)
    for client in clients:
        client.stop()
    _run(world, 200)
    assert [client.setting.name for client in clients if not client.is_done] == []
    assert world.scheduler.is_empty
    done = sum(len(client.acknowledged) for client in clients if isinstance(client, Producer))
    return world.digest.digest(), done, len(world.ledger.exchanges)


def test_broken_clients_come_to_rest_and_a_seed_replays() -> None:
    """Resets, stalls and deaf readers stop nobody for good, and the same seed has the same bytes."""
    digest, done, exchanges = _troubled(8)
    assert done > 200
    assert exchanges > 500
    assert _troubled(8) == (digest, done, exchanges)
    assert _troubled(9)[0] != digest


def test_strangers_come_and_go() -> None:
    """A broker that never answers keeps them until they leave; nothing is left of them after ``stop``."""
    world = World(10)
    broker = SmallBroker(world)
    broker.received = lambda end, data: None  # type: ignore[method-assign]
    strangers = [
        Stranger(world, _setting(f"s{number}"), manner, every_ms=1_000, at_once=20 if manner == FLOOD else 1)
        for number, manner in enumerate(MANNERS)
    ]
    for stranger in strangers:
        stranger.start()
    _run(world, 30)
    assert len(broker.ends) > 400
    for stranger in strangers:
        stranger.stop()
        assert stranger.is_done
        assert stranger.visits
    _run(world, 10)
    assert world.scheduler.is_empty


def test_proxy_header_comes_first() -> None:
    """It claims the client's host, in both versions of the protocol."""
    to = ("10.0.0.1", 9092)
    assert proxy_header(1, "192.0.2.7", 40_000, to) == b"PROXY TCP4 192.0.2.7 10.0.0.1 40000 9092\r\n"
    assert proxy_header(2, "192.0.2.7", 40_000, to)[12:] == bytes.fromhex("2111000cc00002070a0000019c402384")
