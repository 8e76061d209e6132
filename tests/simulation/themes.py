"""What a world is about. A theme makes some actors, faults and settings frequent.

Without themes, each feature would be in few worlds, and two features that matter together in almost none.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from tests.simulation.plan import derived_random

Settings = dict[str, Any]
# A function that changes the drawn settings. Its last argument is the folder for the proxy's files.
Change = Callable[[Random, Settings, str], None]


class Theme(NamedTuple):
    """What is frequent in a world.

    Attributes:
        actors: The kinds of actors that are always there.
        faults: The kinds that most of its faults are of.
        faults_within_ms: When the last fault begins. Busy worlds end early, and later ones would not happen.
        old_share: How many clients have the versions of old libraries.
        acks_zero_share: How many producers want no response.
        broken_share: How many clients have bad habits.
        brokers: How many brokers there may be.
        broker_version: The version of the brokers; None if it is drawn.
        others: How many actors there may be of any kind.
        replication: The number of replicas; None if it is drawn. No more than there are brokers.
        has_newcomers: Whether the partitions begin with records that some replicas do not have.
        sizes: The sizes of records in bytes; empty if they are drawn.
        change: Changes the drawn settings.
    """

    actors: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    faults_within_ms: float = 90_000.0
    old_share: float = 0.1
    acks_zero_share: float = 0.25
    broken_share: float = 0.1
    brokers: tuple[int, ...] = (1, 1, 2, 3)
    broker_version: int | None = None
    others: tuple[int, ...] = (0, 1, 2, 3, 4)
    replication: int | None = None
    has_newcomers: bool = False
    sizes: tuple[int, ...] = ()
    change: Change = lambda *_: None


def _with_limits(*names: str, is_alone: bool = True) -> Change:
    """Return a change that sets low default limits for client-ids. If ``is_alone``, users have no rules."""
    values: Mapping[str, tuple[float, ...]] = {
        "producer_byte_rate": (8_192, 20_480), "consumer_byte_rate": (8_192, 20_480), "request_rate": (2, 10),
        "controller_mutation_rate": (0.5, 2),
    }  # fmt: skip

    def change(random: Random, settings: Settings, folder: str) -> None:
        rule = {"client-id": "<default>", **{name: random.choice(values[name]) for name in names}}
        others = [one for one in settings["quotas"] if "ip" in one or ("user" in one and not is_alone)]
        settings["quotas"] = [rule, *others]

    return change


def _queue(random: Random, settings: Settings, folder: str) -> None:
    settings["fair_call_queue"] = {"max_in_flight": random.choice((1, 1, 2))}
    if random.random() < 0.6:
        settings["fair_call_queue"] |= {"callqueue.capacity": 4, "backoff.enable": True}
    _with_limits("producer_byte_rate", "consumer_byte_rate", is_alone=False)(random, settings, folder)


def _followers(random: Random, settings: Settings, folder: str) -> None:
    settings["replication"] = {}  # drawn later
    settings["quotas"] = settings["quotas"][1:2]  # so that there is enough to copy


def _stored(random: Random, settings: Settings, folder: str) -> None:
    settings["store"] = {"directory": f"{folder}/quotas.d"}
    settings["quotas"] = settings["quotas"][: random.choice((0, 1))]


def _logged(random: Random, settings: Settings, folder: str) -> None:
    settings["usage_log"] = {"directory": folder, "interval": "1s", "proxy": "sim"}
    _with_limits("producer_byte_rate", "consumer_byte_rate")(random, settings, folder)


def _aged(random: Random, settings: Settings, folder: str) -> None:
    for listener in settings["listeners"]:
        if not listener.get("inter_broker"):
            listener |= {"max_connection_age": "5s", "idle_timeout": random.choice(("4s", "20s"))}
    settings["drain_timeout"] = random.choice(("1s", "5s"))
    _with_limits("producer_byte_rate", is_alone=False)(random, settings, folder)


def _counted(random: Random, settings: Settings, folder: str) -> None:
    limit = random.choice(("max_connections", "max_connections_per_ip", "max_connection_creation_rate"))
    number = random.choice((2, 4))
    for listener in settings["listeners"]:
        if not listener.get("inter_broker"):
            listener[limit] = number
    others = [one for one in settings["quotas"] if "user" in one or "ip" in one]
    settings["quotas"] = [{"client-id": "<default>", "connections": random.choice((1, 3))}, *others]


def _small_memory(random: Random, settings: Settings, folder: str) -> None:
    settings["max_buffered"] = "16MiB"


def _observed(random: Random, settings: Settings, folder: str) -> None:
    settings["enforcement"] = random.choice(("observe", "delay", "delay"))
    _with_limits("producer_byte_rate", "consumer_byte_rate", "request_rate")(random, settings, folder)


_MIDDLE: Final = (4_000, 16_384)
_STORE_FAULTS: Final = ("store faulty", "store full", "store slow", "proxy killed", "power lost")
_FOLLOWER_FAULTS: Final = (
    "broker disk lost", "broker crash", "broker stall", "leader move", "replication changed", "replication changed",
    "quotas changed", "connection reset", "follower hangs up", "follower hangs up",
)  # fmt: skip
_BROKER_FAULTS: Final = ("broker stall", "broker crash", "connection cut", "host unreachable", "response cut")

THEMES: Final[Mapping[str, Theme]] = {
    "anything": Theme(),
    "many producers": Theme(
        ("producer",) * 5, sizes=_MIDDLE, change=_with_limits("producer_byte_rate"), brokers=(1, 1, 2)
    ),
    "many consumers": Theme(
        ("producer", *("consumer",) * 4, "group member"), sizes=_MIDDLE, change=_with_limits("consumer_byte_rate"),
        broken_share=0.4, brokers=(1, 1, 2),
    ),
    "share groups": Theme(
        ("producer", *("share member",) * 3), sizes=_MIDDLE, change=_with_limits("consumer_byte_rate"),
        broken_share=0.3, brokers=(1,), broker_version=0,
    ),
    "topic changes": Theme(
        ("topic admin",) * 3, old_share=0.6, change=_with_limits("controller_mutation_rate"), brokers=(1, 2)
    ),
    "followers": Theme(
        ("producer", "producer"), _FOLLOWER_FAULTS, faults_within_ms=3_000.0, brokers=(2, 3, 3), replication=3,
        others=(0, 0, 1, 2), has_newcomers=True, sizes=(1_000, 4_000, 60_000), change=_followers,
    ),
    "queue": Theme(
        ("producer",) * 4, ("broker stall", "slow broker disk", "broker refuses"), change=_queue, sizes=_MIDDLE
    ),
    "stored quotas": Theme(("quota admin",) * 2, _STORE_FAULTS, change=_stored, brokers=(1,)),
    "usage log": Theme(
        ("producer", "producer", "consumer"), ("disk full", "disk faulty", "wall clock set"), change=_logged,
        acks_zero_share=0.5, broken_share=0.4, brokers=(1,), sizes=_MIDDLE,
    ),
    "broken clients": Theme(
        ("producer",) * 3, ("connection reset", "tiny windows"), broken_share=0.8, sizes=(16_384, 100_000),
        change=_with_limits("producer_byte_rate", is_alone=False),
    ),
    "broken brokers": Theme(
        ("producer", "producer", "consumer"), _BROKER_FAULTS, acks_zero_share=0.4, sizes=_MIDDLE,
        change=_with_limits("producer_byte_rate", "consumer_byte_rate"),
    ),
    "drains": Theme(
        ("producer",) * 3, ("proxy restarted", "slow network"), acks_zero_share=0.6, broken_share=0.3, sizes=_MIDDLE,
        change=_aged,
    ),
    "limits on connections": Theme(("stranger", "producer", "producer"), ("no descriptors",), change=_counted),
    "memory": Theme(
        ("producer", "consumer", "consumer"), ("broker stall", "tiny windows"), broken_share=0.6, sizes=(1_000_000,),
        change=_small_memory,
    ),
    "observe and delay": Theme(("producer", "producer", "consumer"), sizes=_MIDDLE, change=_observed),
    "changed rules": Theme(
        ("producer", "producer", "consumer"), ("quotas changed", "settings changed", "queue switched", "file broken"),
        sizes=_MIDDLE, change=_with_limits("producer_byte_rate", "consumer_byte_rate", is_alone=False),
    ),
}  # fmt: skip


def theme_of(seed: int) -> Theme:
    """Return the theme of a seed."""
    return THEMES[derived_random(seed, "theme").choice(list(THEMES))]
