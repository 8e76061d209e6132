"""Tests when a listener's first client is served: once its broker has said who it is, or two seconds after the ask.

The time is a number: the event loop's clock jumps to the next timer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial

import pytest

from kafka_quota_proxy.config.model import Address, ProxyConfig
from kafka_quota_proxy.protocol.errors import Truncated
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.server.brokers import finder as broker_finder
from kafka_quota_proxy.proxy.server.brokers.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.brokers.cluster_query import ClusterDescription
from kafka_quota_proxy.proxy.server.brokers.finder import BrokerFinder
from kafka_quota_proxy.proxy.server.brokers.registry import BrokerRegistry

CONFIG = ProxyConfig(listeners=())
# What a broker does with one ask.
Ask = Callable[[], Awaitable[None]]


class _JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a number, which jumps to the next timer when nothing else is left to do."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._selector.select, select = self._jump, self._selector.select  # type: ignore[attr-defined]
        self._really_select = select

    def time(self) -> float:
        return self.now_s

    def _jump(self, timeout: float | None) -> list[object]:
        self.now_s += timeout or 0.0
        found: list[object] = self._really_select(0)
        return found


def on_numbers(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    def run(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        with asyncio.Runner(loop_factory=_JumpingLoop) as runner:
            runner.run(test(World(monkeypatch), caplog))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def at(host: str) -> Address:
    return Address(host=host, port=9092)


async def answers_after(time_s: float) -> None:
    await asyncio.sleep(time_s)


async def closes() -> None:
    raise ConnectionResetError


async def sends_garbage() -> None:
    raise Truncated("no Metadata response")


@dataclass
class World:
    """Brokers by host. Each has a list of what it does with each ask, the last one again and again.

    A negative node id is one whose broker advertises another address.
    """

    monkeypatch: pytest.MonkeyPatch
    asks: dict[str, list[Ask]] = field(default_factory=dict)
    refuses: set[str] = field(default_factory=set)
    asked_s: list[float] = field(default_factory=list)
    nodes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.monkeypatch.setattr(broker_finder, "describe_cluster", self._describe)
        self.brokers = BrokerRegistry(lambda _: None, lambda _: None)
        self.finder = BrokerFinder(self.brokers, {}, None)

    def add(self, host: str, *asks: Ask, node_id: int = 1) -> Upstream:
        self.asks[host] = list(asks)
        self.nodes[host] = node_id
        return self.brokers.add(Upstream(at(host), lambda: Broker(BrokerQuotas(CONFIG))))

    async def introduce(self, *upstreams: Upstream) -> tuple[bool, float]:
        """Return the result, and how many seconds it took."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        found = await self.finder.introduce("clients", upstreams)
        return found, round(loop.time() - begun_s, 3)

    async def _describe(
        self, address: Address, source: str | None, tls: object, *, on_connected: Callable[[Address | None], None]
    ) -> ClusterDescription:
        self.asked_s.append(round(asyncio.get_running_loop().time(), 3))
        if address.host in self.refuses:
            raise ConnectionRefusedError
        on_connected(None)
        asks = self.asks[address.host]
        node = self.nodes[address.host]
        await (asks.pop(0) if len(asks) > 1 else asks[0])()
        elsewhere = Address(host="elsewhere", port=19092)  # as behind a load balancer
        return ClusterDescription({abs(node): address if node > 0 else elsewhere}, "c", None)


@on_numbers
async def test_a_dial_that_hangs_ends_after_two_seconds(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one = world.add("one")

    async def hang(*_: object, **more: object) -> ClusterDescription:
        await asyncio.sleep(3_600)
        raise AssertionError

    world.monkeypatch.setattr(broker_finder, "describe_cluster", hang)

    assert await world.introduce(one) == (False, 2.0)
    assert not one.is_settled


@on_numbers
async def test_a_broker_that_closes_or_sends_garbage_is_asked_three_times(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = world.add("one", closes), world.add("other", sends_garbage)

    assert await world.introduce(one, other) == (True, 0.6)

    assert world.asked_s == [0.0, 0.0, 0.2, 0.2, 0.4, 0.4]
    assert [upstream.is_settled for upstream in (one, other)] == [True, True]
    assert one.broker is not other.broker
    assert len(caplog.records) == 2


@on_numbers
async def test_two_listeners_of_one_broker_at_once_share_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one, other = world.add("one", partial(answers_after, 0.3)), world.add("other", partial(answers_after, 0.2))

    times = tuple(await asyncio.gather(world.introduce(one), world.introduce(other)))

    assert times == ((True, 0.3), (True, 0.2))
    assert one.broker is other.broker
    assert other.is_settled


@on_numbers
async def test_a_silent_broker_keeps_no_other_listener_waiting(world: World, caplog: pytest.LogCaptureFixture) -> None:
    one, other = (
        world.add("one", partial(answers_after, 60)),
        world.add("other", partial(answers_after, 0.2), node_id=2),
    )

    times = tuple(await asyncio.gather(world.introduce(one), world.introduce(other)))

    assert times == ((True, 2.0), (True, 0.2))


@on_numbers
async def test_a_broker_that_does_not_say_who_it_is_waits_for_what_others_say_of_its_address(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for late_s, took_s in ((0.7, 0.7), (3.0, 2.0)):
        unknown, one, third = (
            world.add("one.", partial(answers_after, 0.1), node_id=-1),
            world.add("one", partial(answers_after, late_s)),
            world.add("third", partial(answers_after, 0.0)),
        )

        times = tuple(await asyncio.gather(*map(world.introduce, (unknown, one, third))))

        assert times == ((True, took_s), (True, took_s), (True, 0.0))
        assert unknown.broker is one.broker
        assert bool(caplog.records) == (late_s > 2)
        if late_s < 2:
            assert one.broker is third.broker


@pytest.mark.usefixtures("has_faults")
@on_numbers
async def test_an_exception_that_nobody_expects_is_no_answer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise RuntimeError("a bug")

    one = world.add("one", fails)
    assert await world.introduce(one) == (True, 0.0)
    assert one.broker.identity is None


@on_numbers
async def test_a_bootstrap_server_that_answers_speaks_for_the_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = world.add("one", partial(answers_after, 0.3)), world.add("other", partial(answers_after, 60))
    answers: list[ClusterDescription] = []

    assert await world.finder.introduce("cluster", [one, other], answers.append)

    assert [list(answer.brokers) for answer in answers] == [[1]]
    assert [upstream.is_settled for upstream in (one, other)] == [True, True]
    assert not caplog.records
