"""What a world is about. A theme makes some actors, faults and settings frequent.

Without themes, each feature would be in few worlds, and two features that matter together in almost none.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from tests.simulation.clients.profiles import BROKEN, DEAF, STALLING, Habits
from tests.simulation.plan import derived_random

_CONNECTION_LIMITS: Final = ("max_connections", "max_connections_per_ip", "max_connection_creation_rate")
_TIMES: Final = ("login_timeout", "max_connection_age", "idle_timeout")
Settings = dict[str, Any]
# A function that changes the drawn settings. Its last argument is the folder for the proxy's files.
Change = Callable[[Random, Settings, str], None]


class Theme(NamedTuple):
    """What is frequent in a world.

    Attributes:
        actors: The kinds of actors that are always there.
        faults: The kinds that most of its faults are of.
        sure_faults: The kinds that happen in each of its worlds that is not calm.
        faults_within_ms: When the last fault begins. Busy worlds end early, and later ones would not happen.
        old_share: How many clients have the versions of old libraries.
        acks_zero_share: How many producers want no response.
        rude_share: How many clients without a login neither ask for versions nor wait for anything.
        broken: The bad habits.
        broken_share: How many clients have them.
        deaf_share: How many clients stop to read for ever on half of their connections.
        fickle_share: How many producers have another client-id in each request.
        calm_share: How many worlds are without faults, so that what holds without them is checked too.
        forgetful_share: How often no client ever returns to the bootstrap addresses, as Java clients before 4.0.
        late_share: How often one of several brokers is down at first, and the proxy is killed meanwhile.
        brokers: How many brokers there may be.
        broker_version: The version of the brokers; None if it is drawn.
        disk_ms: The range of the time that an append takes at each broker.
        latency_ms: The range of the time that a segment takes each way; empty if the network is fast.
        every_ms: The times between the bursts of producers; empty if they are drawn.
        metadata_ms: How long clients know the metadata; None if it is as long as in their libraries.
        batches: How many batches producers send at most; empty if it is drawn.
        idempotent_share: How many producers are idempotent.
        others: How many actors there may be of any kind.
        replication: The number of replicas; None if it is drawn. No more than there are brokers.
        has_newcomers: Whether the partitions begin with records that some replicas do not have.
        full_sizes: Of one of them, the first topic is full of batches of these sizes. Empty if all topics are empty.
        sizes: The sizes of records in bytes; empty if they are drawn.
        cluster_share: How often one listener serves all brokers.
        login_share: How often clients log in.
        second_share: How many clients have the second of the two names of users, and of client-ids.
        second_name_share: How often brokers have a second name, of those worlds that can.
        steady_share: How many producers have something to send for ten seconds.
        plain_store_share: How often administrators of quotas set and remove nothing but one limit of everybody.
        memory_divisor: By how much less memory the proxy may use than its file says. No few clients hold as much as the
            least that a file may say.
        least_ms: How long a world lasts at least.
        most_steps: After how many steps a busy world ends, at the earliest.
        change: Changes the drawn settings.
    """

    actors: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    sure_faults: tuple[str, ...] = ()
    faults_within_ms: float = 2_500.0
    old_share: float = 0.1
    acks_zero_share: float = 0.25
    rude_share: float = 0.1
    broken: Habits = BROKEN
    broken_share: float = 0.1
    deaf_share: float = 0.0
    fickle_share: float = 0.0
    calm_share: float = 0.33
    forgetful_share: float = 0.0
    late_share: float = 0.0
    brokers: tuple[int, ...] = (1, 1, 2, 3)
    broker_version: int | None = None
    others: tuple[int, ...] = (0, 1, 2, 3, 4)
    replication: int | None = None
    disk_ms: tuple[float, float] = (0.0, 0.0)
    latency_ms: tuple[float, float] | tuple[()] = ()
    every_ms: tuple[float, ...] = ()
    metadata_ms: float | None = None
    batches: tuple[int, ...] = ()
    idempotent_share: float = 0.5
    has_newcomers: bool = False
    full_sizes: tuple[tuple[int, ...], ...] = ()
    sizes: tuple[int, ...] = ()
    cluster_share: float = 0.5
    login_share: float = 0.4
    second_share: float = 0.2
    second_name_share: float = 0.1
    steady_share: float = 0.0
    plain_store_share: float = 0.0
    memory_divisor: int = 1
    least_ms: float = 0.0
    most_steps: int = 0
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


def _free(settings: Settings, *names: str, of_listeners: tuple[str, ...] = ()) -> None:
    """Remove settings, and some of each listener."""
    for section, gone in ((settings, names), *((listener, of_listeners) for listener in settings["listeners"])):
        for name in gone:
            section.pop(name, None)


def _topics(random: Random, settings: Settings, folder: str) -> None:
    _with_limits("controller_mutation_rate")(random, settings, folder)
    _free(settings, "max_buckets", "fair_call_queue", of_listeners=_CONNECTION_LIMITS)
    if random.random() < 0.7:  # one bucket for all, also for those without a client-id
        settings["quotas"][0]["user"] = settings["quotas"][0].pop("client-id")


def _impatient(random: Random, settings: Settings, folder: str) -> None:
    _with_limits("producer_byte_rate")(random, settings, folder)
    if random.random() < 0.5:
        for listener in settings["listeners"]:
            if not listener.get("inter_broker"):
                listener["login_timeout"] = "1s"


def _without_queue(random: Random, settings: Settings, folder: str) -> None:
    settings.pop("fair_call_queue", None)
    _with_limits("producer_byte_rate")(random, settings, folder)


def _requests(random: Random, settings: Settings, folder: str) -> None:
    rate = random.choice((2, 10))
    # Nobody has a limit before the login, where there is one.
    users = ("alice", "bob", "carol") if random.random() < 0.5 else ("<default>",)
    settings["quotas"] = [{"user": user, "request_rate": rate} for user in users]


def _low_limit(random: Random, settings: Settings, folder: str) -> None:
    settings.pop("fair_call_queue", None)
    settings["quotas"] = [{"client-id": "<default>", "producer_byte_rate": 8_192}]


def _queue(random: Random, settings: Settings, folder: str) -> None:
    settings["fair_call_queue"] = queue = {"max_in_flight": random.choice((1, 1, 2))}
    if random.random() < 0.6:
        queue |= {"callqueue.capacity": 4, "backoff.enable": random.random() < 0.7}
    if random.random() < 0.7:
        settings["quotas"] = []  # so that nothing but the queue makes requests wait
        return
    _with_limits("producer_byte_rate", "consumer_byte_rate", is_alone=False)(random, settings, folder)


def _levels(random: Random, settings: Settings, folder: str) -> None:
    _unlimited(random, settings, folder)
    settings["fair_call_queue"] = {"max_in_flight": 1}
    _free(settings, of_listeners=("max_connection_age",))


def _refusing_queue(random: Random, settings: Settings, folder: str) -> None:
    """So little fits into the queue that requests are refused, and nothing but the queue makes them wait."""
    _unlimited(random, settings, folder)
    _free(settings, of_listeners=("login_timeout",))  # each way takes long
    settings["fair_call_queue"] = {
        "max_in_flight": 1, "callqueue.capacity": 1, "scheduler.priority.levels": 1, "backoff.enable": True,
    }  # fmt: skip


def _followers(random: Random, settings: Settings, folder: str) -> None:
    settings["replication"] = {}  # drawn later
    settings["quotas"] = settings["quotas"][1:2]  # so that there is enough to copy


def _stored(random: Random, settings: Settings, folder: str) -> None:
    settings["store"] = {"directory": f"{folder}/quotas.d"}
    _with_limits("producer_byte_rate")(random, settings, folder)
    settings["quotas"] = settings["quotas"][: random.choice((0, 0, 0, 1))]
    if random.random() < 0.8:
        settings.pop("fair_call_queue", None)


def _logged_limits(random: Random, settings: Settings, folder: str) -> None:
    settings["usage_log"] = {"directory": folder, "interval": "1s", "proxy": "sim"}
    _with_limits("producer_byte_rate", "consumer_byte_rate")(random, settings, folder)


def _logged(random: Random, settings: Settings, folder: str) -> None:
    _logged_limits(random, settings, folder)
    if random.random() < 0.3:  # buckets without debt are replaced within an interval
        settings["usage_log"]["interval"] = "5s"
        settings["max_buckets"] = random.choice((1, 2))
        settings["quotas"][0]["client-id"] = "etl"


def _aged(random: Random, settings: Settings, folder: str) -> None:
    times = {"max_connection_age": random.choice(("2s", "5s")), "idle_timeout": random.choice(("4s", "20s"))}
    for listener in settings["listeners"]:
        if not listener.get("inter_broker"):
            listener |= times
    settings["drain_timeout"] = random.choice(("1s", "5s"))
    if random.random() < 0.5:
        _with_limits("producer_byte_rate", is_alone=False)(random, settings, folder)
    else:
        settings["quotas"] = []


def _aged_soon(random: Random, settings: Settings, folder: str) -> None:
    _aged(random, settings, folder)
    settings["quotas"] = []
    settings.pop("fair_call_queue", None)
    for listener in settings["listeners"]:
        listener |= {"max_connection_age": "2s"}


def _unlimited(random: Random, settings: Settings, folder: str) -> None:
    settings["quotas"] = []
    _free(settings, "fair_call_queue", of_listeners=(*_CONNECTION_LIMITS, "idle_timeout"))


def _open(random: Random, settings: Settings, folder: str) -> None:
    _unlimited(random, settings, folder)
    _free(settings, of_listeners=("max_connection_age",))


def _counted(random: Random, settings: Settings, folder: str) -> None:
    limit = random.choice(_CONNECTION_LIMITS)
    number = random.choice((2, 4))
    for listener in settings["listeners"]:
        if not listener.get("inter_broker"):
            listener[limit] = number
    others = [one for one in settings["quotas"] if "user" in one or "ip" in one]
    settings["quotas"] = [{"client-id": "<default>", "connections": random.choice((1, 3))}, *others]


def _attacked(random: Random, settings: Settings, folder: str) -> None:
    """Nothing but the quotas holds back who means harm."""
    _free(settings, "fair_call_queue", "max_buckets", "max_buffered", of_listeners=(*_TIMES, *_CONNECTION_LIMITS))
    kinds = ["producer_byte_rate", "consumer_byte_rate"]
    if random.random() < 0.5:
        kinds.append("request_rate")
    _with_limits(*kinds)(random, settings, folder)
    if random.random() < 0.5:  # one bucket for all of a user, whatever their client-ids
        settings["quotas"][0]["user"] = settings["quotas"][0].pop("client-id")


def _small_memory(random: Random, settings: Settings, folder: str) -> None:
    settings["max_buffered"] = "16MiB"
    if random.random() < 0.8:  # as much as the network takes
        settings["quotas"] = [one for one in settings["quotas"] if "ip" in one]


def _ample(random: Random, settings: Settings, folder: str) -> None:
    """Whoever is idle is far from its limit, and whoever has much to read has a low one of its own."""
    _free(settings, "fair_call_queue", "max_buckets", of_listeners=(*_TIMES[:2], *_CONNECTION_LIMITS))
    settings["max_buffered"] = "512MiB"
    settings["quotas"] = [
        {"client-id": "<default>", "consumer_byte_rate": random.choice((61_440, 1_048_576))},
        {"client-id": "etl", "consumer_byte_rate": random.choice((8_192, 20_480, 61_440))},
    ]


def _observed(random: Random, settings: Settings, folder: str) -> None:
    settings["enforcement"] = random.choice(("observe", "delay", "delay"))
    _with_limits("producer_byte_rate", "consumer_byte_rate", "request_rate")(random, settings, folder)


_MIDDLE: Final = (4_000, 16_384)
_STORE_FAULTS: Final = (
    *("store faulty",) * 3, "store full", *("store slow",) * 3, "proxy restarted", "proxy restarted", "proxy killed",
    "power lost", "file takes over", "file takes over",
)  # fmt: skip
_BROKER_FAULTS: Final = (
    "broker stall", "broker crash", "broker cut off", "connection cut", "host unreachable", "response cut", "odd dial",
    "odd response",
    "leader move", "leader move",
)  # fmt: skip
_TOPIC_FAULTS: Final = (
    *("broker cut off",) * 4, "broker crash", "broker crash",
)  # fmt: skip
_LOG_FAULTS: Final = (
    "disk full", "disk faulty", *("wall clock set",) * 4, "quotas changed", *("proxy restarted",) * 2, "broker crash",
    "proxy killed", "proxy killed", "power lost", "power lost",
)  # fmt: skip
_RELOADS: Final = (
    "proxy killed", "proxy restarted", "settings changed", "connection reset", "file broken",
    "broker drops connections",
)  # fmt: skip
_CLUSTER_FAULTS: Final = ("broker refuses", "broker refuses", "leader move")
_FOLLOWER_FAULTS: Final = (
    "broker disk lost", "broker crash", "broker stall", "leader move", "replication changed", "replication changed",
    "quotas changed", "connection reset", "follower hangs up", "follower hangs up",
)  # fmt: skip

_ADVERSARIES_SHARE: Final = 0.04

THEMES: Final[Mapping[str, Theme]] = {
    "anything": Theme(),
    "many producers": Theme(
        ("producer",) * 5, ("broker throttles",), faults_within_ms=2_000.0, sizes=_MIDDLE, change=_impatient,
        brokers=(1, 1, 2), rude_share=0.3,
    ),
    "many consumers": Theme(
        ("producer", *("consumer",) * 4, "group member"), sizes=_MIDDLE, change=_with_limits("consumer_byte_rate"),
        broken_share=0.4, brokers=(1, 1, 2),
    ),
    # A fault while the proxy asks a broker who it is may make two brokers of its two names. A later one may not.
    "second names": Theme(
        ("producer", *("consumer",) * 2),
        ("proxy killed", "proxy restarted", "proxy paused", "connection reset", "broker crash", "broker stall"),
        sizes=_MIDDLE, brokers=(1,), replication=1, cluster_share=0.0,
        login_share=0.0, second_name_share=1.0,
        change=_with_limits("producer_byte_rate", "consumer_byte_rate"),
    ),
    "request rates": Theme(
        ("impostor", "impostor", "producer", "producer"), change=_requests, brokers=(1,), sizes=_MIDDLE, login_share=0.7
    ),
    "crowds": Theme(
        ("crowd",), ("broker cut off",), faults_within_ms=2_500.0, brokers=(2,), others=(0, 1), most_steps=4_000,
        replication=1, broken_share=0.0, cluster_share=0.0, login_share=0.0, least_ms=25_000.0, change=_unlimited,
    ),
    "clusters": Theme(
        ("producer", "producer", "consumer"), _CLUSTER_FAULTS, ("broker moves", "broker refuses"),
        faults_within_ms=2_000.0, others=(0, 0, 1), broker_version=0, calm_share=0.0, acks_zero_share=0.1,
        most_steps=1_800, sizes=(1_000, 4_000), disk_ms=(5.0, 40.0), brokers=(2, 2, 2, 3), cluster_share=1.0,
        login_share=0.8, forgetful_share=0.9, late_share=0.6, replication=1, broken_share=0.0, rude_share=0.0,
        least_ms=10_000.0, change=_open,
    ),
    "share groups": Theme(
        ("producer", *("share member",) * 3), sizes=_MIDDLE, change=_with_limits("consumer_byte_rate"),
        broken_share=0.3, brokers=(1,), broker_version=0,
    ),
    "topic changes": Theme(
        ("topic admin",) * 3, _TOPIC_FAULTS, faults_within_ms=15_000.0, old_share=0.1, rude_share=0.9, login_share=0.0,
        change=_topics, brokers=(1, 1, 2), broker_version=0, others=(0, 0, 1), least_ms=20_000.0,
    ),
    "followers": Theme(
        ("producer", "producer"), _FOLLOWER_FAULTS, ("follower hangs up",), faults_within_ms=3_000.0,
        brokers=(2, 2, 3), replication=3, others=(0, 0, 1, 2), has_newcomers=True,
        sizes=(1_000, 4_000, 60_000), change=_followers,
    ),
    "queue": Theme(
        (*("producer",) * 5, "consumer"), ("slow broker disk", "connection reset", "slow network"), change=_queue,
        sizes=_MIDDLE, brokers=(1, 1, 2), replication=1, disk_ms=(5.0, 40.0), acks_zero_share=0.1,
        deaf_share=0.1,
    ),
    # Several users always have a request that waits, each at its own level.
    "levels": Theme(
        ("producer",) * 6, ("connection reset",), change=_levels, sizes=(500, 2_000), brokers=(1,), replication=1,
        others=(0,), broken_share=0.0, rude_share=0.0, old_share=0.0, acks_zero_share=0.0, cluster_share=0.0,
        disk_ms=(30.0, 80.0), every_ms=(20.0,), batches=(60, 150), least_ms=20_000.0, login_share=1.0,
        second_share=0.5, most_steps=2_000,
    ),
    # One user sends a little all the time. Another sends much, and then nothing for some periods of the queue.
    "steady and bursts": Theme(
        ("steady producer", "late burst producer", *("burst producer",) * 2), ("connection reset",), change=_levels,
        brokers=(1,),
        replication=1, others=(0,), broken_share=0.0, rude_share=0.0, old_share=0.0, cluster_share=0.0,
        disk_ms=(40.0, 100.0), least_ms=44_000.0, login_share=1.0, most_steps=3_000,
    ),
    # The next batch is on its way when a batch is refused, and arrives when the refusal is over.
    "refused batches": Theme(
        ("producer",) * 4, ("slow broker disk",), change=_refusing_queue, sizes=(500, 4_000), brokers=(1,),
        replication=1, others=(0, 1), broken_share=0.0, rude_share=0.0, acks_zero_share=0.0, idempotent_share=0.9,
        latency_ms=(30.0, 150.0), disk_ms=(50.0, 300.0), every_ms=(60.0, 150.0), least_ms=10_000.0,
    ),
    "stored quotas": Theme(
        ("quota admin", "quota admin", "producer", "producer"), _STORE_FAULTS, faults_within_ms=3_000.0,
        change=_stored, brokers=(1,), sizes=_MIDDLE, plain_store_share=0.6, steady_share=0.8, acks_zero_share=0.0,
        others=(0, 0, 1), least_ms=12_000.0, most_steps=1_500,
    ),
    "usage log": Theme(
        ("producer", "producer", "consumer"), _LOG_FAULTS, faults_within_ms=4_000.0, change=_logged,
        acks_zero_share=0.8, broken_share=0.5, rude_share=0.6, fickle_share=0.3, brokers=(1,),
        sizes=(500, 4_000, 16_384),
    ),
    "broken clients": Theme(
        ("producer",) * 4, ("connection reset", "tiny windows"), broken=STALLING, broken_share=0.5,
        sizes=(16_384, 60_000), change=_without_queue, brokers=(1, 1, 2),
    ),
    # A request that is worth more than the longest delay stops in the middle, and others wait for it.
    "halting clients": Theme(
        ("halting producer", *("producer",) * 3), ("wall clock set", "store slow"), broken_share=0.0,
        acks_zero_share=0.0,
        sizes=(500, 4_000), change=_low_limit, brokers=(1,), replication=1, others=(0, 1), second_share=0.0,
        every_ms=(500.0, 2_000.0), batches=(10,), rude_share=0.0, least_ms=10_000.0,
    ),
    "broken brokers": Theme(
        ("producer", "producer", "consumer"), _BROKER_FAULTS, acks_zero_share=0.5, rude_share=0.5, sizes=_MIDDLE,
        brokers=(1, 2, 2), replication=2, change=_logged_limits,
    ),
    "drains": Theme(
        ("producer",) * 3, ("proxy restarted", "slow network"), acks_zero_share=0.6, broken_share=0.2, deaf_share=0.25,
        sizes=_MIDDLE, change=_aged,
    ),
    # Requests with a response and others without one are on their way when a connection is drained.
    "drains and far clients": Theme(
        ("producer",) * 3, ("proxy restarted",), acks_zero_share=0.9, idempotent_share=0.0, rude_share=0.0,
        broken_share=0.0, sizes=(500,), change=_aged_soon, brokers=(1,), others=(0, 1), latency_ms=(80.0, 250.0),
        every_ms=(60.0,), batches=(150,), metadata_ms=300.0, least_ms=10_000.0, login_share=0.0,
        most_steps=2_000, replication=1,
    ),
    "limits on connections": Theme(
        ("stranger", "producer", "producer"), ("no descriptors", "quotas changed", "quotas changed"), change=_counted
    ),
    "memory": Theme(
        (*("producer",) * 2, *("consumer",) * 4), ("broker stall", "broker drops connections"), broken=DEAF,
        broken_share=0.9, least_ms=10_000.0, sizes=(230_000, 1_000_000), memory_divisor=256, change=_small_memory,
    ),
    "observe and delay": Theme(
        ("producer", "producer", *("group member",) * 3), sizes=_MIDDLE, change=_observed, rude_share=0.6,
        login_share=0.0, brokers=(1, 1, 2),
    ),
    "full and idle topics": Theme(
        ("lone consumer", "trickle producer", *("idle consumer",) * 6), _RELOADS, faults_within_ms=8_000.0,
        change=_ample, others=(0,), brokers=(1, 1, 2), replication=1, broken_share=0.0, rude_share=0.0, old_share=0.2,
        second_share=0.0, second_name_share=0.0, acks_zero_share=0.0, least_ms=20_000.0, most_steps=4_000,
        calm_share=0.5,
        full_sizes=(
            (200, 2_000), (1_000,), (1_000, 4_000), (3_000,), (4_000, 16_384), (16_384, 60_000), (200_000,), (500,),
            (500, 60_000),
        ),
    ),
    # Clients that mean harm share their buckets with others, and the rules change meanwhile.
    "adversaries": Theme(
        ("adversary", "adversary", "producer", "producer", "consumer", "group member"),
        ("quotas of others changed", "quotas of others changed", "quotas changed", "settings changed", "file broken"),
        faults_within_ms=20_000.0, sizes=(500, 4_000, 16_384), change=_attacked, brokers=(1,), replication=1,
        others=(0, 1), broken_share=0.0, rude_share=0.0, acks_zero_share=0.1, second_share=0.1, login_share=0.3,
        second_name_share=0.0, least_ms=40_000.0, most_steps=10_000, fickle_share=0.1,
    ),
    "changed rules": Theme(
        ("producer", "producer", "consumer"), ("quotas changed", "settings changed", "queue switched", "file broken"),
        sizes=(4_000, 60_000), change=_with_limits("producer_byte_rate", "consumer_byte_rate", is_alone=False),
    ),
}  # fmt: skip


def theme_name_of(seed: int) -> str:
    """Return the name of a seed's theme."""
    if derived_random(seed, "adversaries").random() < _ADVERSARIES_SHARE:
        return "adversaries"  # drawn apart, so that all other seeds mean what they meant without this theme
    return derived_random(seed, "theme").choice([name for name in THEMES if name != "adversaries"])


def theme_of(seed: int) -> Theme:
    """Return the theme of a seed."""
    return THEMES[theme_name_of(seed)]
