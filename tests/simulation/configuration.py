"""Draws what the operator of a world has set up: the brokers, the proxy's listeners and its file."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from tests.simulation.clients.admin import EntityKey, QuotaChoice
from tests.simulation.themes import Theme

# Longer than the hosts of brokers, so that addresses change the sizes of responses.
PROXY_HOST: Final = "10.0.0.100"
USERS: Final = ("alice", "bob", "carol")
CLIENT_IDS: Final = ("etl", "web", "audit", "")
PASSWORD: Final = "secret"  # noqa: S105 - of users that exist in a simulated world only
ADMIN: Final = "admin"
TOPICS: Final = ("orders", "clicks")
# Of consumers that wait for what hardly ever comes, and of one that has more to read than it may.
IDLE: Final = "web"
LONE: Final = "etl"
_KIB: Final = 1024
# So low that a few requests are more than a quota gives.
_RATES: Final = (8 * _KIB, 12 * _KIB, 20 * _KIB, 60 * _KIB)
STORED: Final[dict[str, tuple[float, ...]]] = {
    "producer_byte_rate": _RATES,
    "consumer_byte_rate": _RATES,
    "request_rate": (2, 10, 50),
    "controller_mutation_rate": (0.5, 2, 10),
}
_FIRST_PORT: Final = 9192
_FIRST_INTERNAL_PORT: Final = 9292
# The port of a broker under its second name, from that under its first.
_SECOND_NAME: Final = -10


class Setup(NamedTuple):
    """What a world consists of, besides its actors.

    Attributes:
        brokers: How many brokers there are. Their node ids begin at 1.
        is_cluster: Whether one listener serves all brokers and rewrites their addresses. Otherwise each broker has a
            listener of its own, whose address it advertises.
        has_login: Whether clients log in with SASL/PLAIN.
        proxy_header: The version of the PROXY protocol header that clients begin with; 0 is none.
        replication: How many replicas a partition has. If it is more than 1, followers fetch through the proxy.
        settings: The proxy's configuration file.
        has_second_names: Whether each broker has a second listener, which reaches it under another name.
    """

    brokers: int
    is_cluster: bool
    has_login: bool
    proxy_header: int
    replication: int
    broker_version: int
    settings: dict[str, Any]
    has_second_names: bool = False

    @property
    def second_port(self) -> int:
        """Return where a broker's port under its second name is, from that under its first. 0 if it has none."""
        return _SECOND_NAME if self.has_second_names else 0

    @property
    def has_store(self) -> bool:
        """Whether quotas can be changed through the proxy."""
        return "store" in self.settings

    @property
    def has_queue(self) -> bool:
        """Whether requests are queued in front of a broker."""
        return "fair_call_queue" in self.settings

    @property
    def bootstrap(self) -> tuple[tuple[str, int], ...]:
        """The addresses that clients know at their start."""
        if self.is_cluster:
            return ((PROXY_HOST, _FIRST_PORT),)
        return tuple((PROXY_HOST, _FIRST_PORT + node_id) for node_id in range(1, self.brokers + 1))

    def node_at(self, port: int) -> int | None:
        """Return the broker behind a port of the proxy; None if that port may lead to several."""
        node_id = port - _FIRST_PORT
        return None if self.is_cluster or not 1 <= node_id <= self.brokers else node_id

    def node_of_cluster_at(self, port: int) -> int | None:
        """Return the broker whose port it is at the listener of a cluster; None if it is another port."""
        node_id = port - _FIRST_PORT - 1  # the first port of broker_ports is that of broker 0
        return node_id if self.is_cluster and 1 <= node_id <= self.brokers else None

    def advertised(self, node_id: int) -> tuple[str, int]:
        """Return the address that a broker advertises to clients."""
        return (f"10.0.1.{node_id}", 9092) if self.is_cluster else (PROXY_HOST, _FIRST_PORT + node_id)

    def inter_broker_route(self, _: int, leader: int) -> tuple[str, int]:
        """Return where a follower finds a leader."""
        return PROXY_HOST, _FIRST_INTERNAL_PORT + leader


def draw(random: Random, folder: Path, theme: Theme) -> Setup:
    """Draw a setup. The proxy keeps its files below ``folder``."""
    brokers = random.choice(theme.brokers)
    is_cluster = random.random() < theme.cluster_share
    has_login = random.random() < theme.login_share
    proxy_header = random.choice((1, 2)) if random.random() < 0.15 else 0
    replication = min(brokers, 2) if random.random() < 0.6 else 1
    if theme.replication is not None:
        replication = min(brokers, theme.replication)
    settings: dict[str, Any] = {"listeners": _listeners(random, brokers, is_cluster, proxy_header, replication)}
    settings |= draw_throttling(random)
    settings["quotas"] = draw_quotas(random, has_login=has_login)
    settings["kafka"] = {"quota.window.num": random.choice((2, 2, 4, 11))}
    settings["principals"] = {"admins": [ADMIN if has_login else "ANONYMOUS"]}
    if random.random() < 0.35:
        settings["fair_call_queue"] = draw_queue(random)
    if random.random() < 0.6:
        settings["store"] = {"directory": str(folder / "quotas.d")}
        if random.random() < 0.3:
            settings["store"]["changes_per_second"] = random.choice((1, 10))
        if random.random() < 0.5:
            settings["store"]["audit_log"] = str(folder / "audit.jsonl")
    if random.random() < 0.5:
        settings["usage_log"] = {"directory": str(folder), "interval": random.choice(("1s", "5s")), "proxy": "sim"}
    if replication > 1 and random.random() < 0.7:
        settings["replication"] = {"leader.replication.throttled.rate": random.choice(_RATES)}
    theme.change(random, settings, str(folder))
    version = random.choice((0, 0, 1, 2)) if theme.broker_version is None else theme.broker_version
    if "replication" in settings:
        settings["replication"] = draw_replication(random)
    # Without logins, because the proxy asks a broker who it is as soon as it reaches it, if it needs no login for that.
    has_second_names = not (is_cluster or has_login) and replication == 1 and random.random() < theme.second_name_share
    if has_second_names:
        settings["listeners"] += [_second_name(listener, at + 1) for at, listener in enumerate(settings["listeners"])]
    return Setup(brokers, is_cluster, has_login, proxy_header, replication, version, settings, has_second_names)


def _second_name(listener: dict[str, Any], node_id: int) -> dict[str, Any]:
    """Return a listener that reaches the broker of another one under its second name."""
    port = _FIRST_PORT + node_id + _SECOND_NAME
    names = {"name": f"second{node_id}", "bind": f"{PROXY_HOST}:{port}", "upstream": f"10.0.4.{node_id}:9092"}
    return listener | names


def draw_replication(random: Random) -> dict[str, Any]:
    """Draw the section ``replication``: rates, and in some files which replicas they are for."""
    settings = _some(random, ("leader.replication.throttled.rate", 0.85, _RATES))
    if random.random() < 0.3 or not settings:
        settings["follower.replication.throttled.rate"] = random.choice(_RATES)
    if random.random() < 0.3:
        listed = {}
        for topic in random.choice((TOPICS, TOPICS[:1], TOPICS[1:])):
            items = [f"{random.randint(0, 2)}:{random.randint(1, 3)}" for _ in range(random.choice((1, 3)))]
            listed[topic] = "*" if random.random() < 0.4 else ",".join(items)
        settings["throttled.replicas"] = listed
    return settings


def _listeners(
    random: Random, brokers: int, is_cluster: bool, proxy_header: int, replication: int
) -> list[dict[str, Any]]:
    limits = _limits(random)
    if proxy_header:
        limits["proxy_protocol"] = True
    found: list[dict[str, Any]] = []
    if is_cluster:
        servers = ",".join(f"10.0.1.{node_id}:9092" for node_id in range(1, brokers + 1))
        found.append(
            {
                "name": "cluster",
                "bind": f"{PROXY_HOST}:{_FIRST_PORT}",
                "bootstrap_servers": servers,
                "broker_ports": f"{_FIRST_PORT + 1}-{_FIRST_PORT + 10}",
                **limits,
            }
        )
    else:
        found += (
            {
                "name": f"b{node_id}",
                "bind": f"{PROXY_HOST}:{_FIRST_PORT + node_id}",
                "upstream": f"10.0.1.{node_id}:9092",
                "node_id": node_id,
                **limits,
            }
            for node_id in range(1, brokers + 1)
        )
    if replication > 1:
        found += (
            {
                "name": f"internal{node_id}",
                "bind": f"{PROXY_HOST}:{_FIRST_INTERNAL_PORT + node_id}",
                "upstream": f"10.0.1.{node_id}:9093",
                "node_id": node_id,
                "inter_broker": True,
            }
            for node_id in range(1, brokers + 1)
        )
    return found


def _limits(random: Random) -> dict[str, Any]:
    return _some(
        random,
        ("idle_timeout", 0.15, ("4s", "20s")),
        ("login_timeout", 0.15, ("1s", "5s")),
        ("max_connection_age", 0.15, ("5s", "20s")),
        ("max_connections", 0.1, (3, 8)),
        ("max_connections_per_ip", 0.1, (2, 5)),
        ("max_connection_creation_rate", 0.1, (2, 10)),
    )


def _some(random: Random, *settings: tuple[str, float, Sequence[Any]]) -> dict[str, Any]:
    """Draw settings: the name of each, how often it is there, and its values."""
    return {name: random.choice(values) for name, share, values in settings if random.random() < share}


def draw_throttling(random: Random) -> dict[str, Any]:
    """Draw how clients over their quota are slowed."""
    settings: dict[str, Any] = {
        "enforcement": random.choices(("respond", "delay", "observe"), (14, 5, 1))[0],
        "shaping": random.choice(("sampled", "paced")),
    }
    return settings | _some(
        random,
        ("max_throttle_time", 0.3, ("500ms", "3s")),
        ("drain_timeout", 0.4, ("1s", "5s")),
        ("max_buffered", 0.1, ("16MiB", "20MiB")),
        ("max_buckets", 0.1, (2, 5)),
    )


def draw_quotas(random: Random, *, has_login: bool) -> list[dict[str, Any]]:
    """Draw the section ``quotas`` of the file."""
    users = (*USERS, "<default>") if has_login else ("ANONYMOUS", "<default>")
    found: dict[tuple[str | None, str | None], dict[str, Any]] = {}
    if random.random() < 0.8:
        found[None, "<default>"] = {"client-id": "<default>"} | _rates(random)
    for _ in range(random.choice((0, 1, 2, 3, 5))):
        user = random.choice(users) if random.random() < 0.6 else None
        client_id = random.choice((*CLIENT_IDS[:3], "<default>")) if user is None or random.random() < 0.5 else None
        rule: dict[str, Any] = {"user": user} if user is not None else {}
        if client_id is not None:
            rule["client-id"] = client_id
        found[user, client_id] = rule | _rates(random)
        enforcement = ("enforcement", 0.25, ("respond", "delay", "observe"))
        found[user, client_id] |= _some(random, enforcement, ("shaping", 0.25, ("sampled", "paced")))
    rules = list(found.values())
    if random.random() < 0.1:
        rules.append({"ip": "<default>", "connection_creation_rate": random.choice((1, 5))})
    return rules


def draw_stored(random: Random, *, has_login: bool, plain_share: float = 0.0) -> list[QuotaChoice]:
    """Draw what administrators set. There are few choices, so that few outcomes are open at once.

    With the probability ``plain_share`` it is one limit of everybody, which comes and goes.
    """
    if random.random() < plain_share:
        parts = random.choice(((("client-id", None),), (("user", None),), (("client-id", None), ("user", None))))
        key = random.choice(("producer_byte_rate", "producer_byte_rate", "consumer_byte_rate"))
        return [QuotaChoice(parts, key, (*random.sample(_RATES[:3], 1), None))]
    users: tuple[str | None, ...] = (*USERS, None) if has_login else ("ANONYMOUS", None)
    found: dict[tuple[EntityKey, str], QuotaChoice] = {}
    for _ in range(random.randint(1, 5)):
        has_user = random.random() < 0.6
        entity: list[tuple[str, str | None]] = [("user", random.choice(users))] if has_user else []
        if not has_user or random.random() < 0.4:
            entity.append(("client-id", random.choice((*CLIENT_IDS[:3], None))))
        key = random.choices(list(STORED), (5, 4, 1, 2))[0]
        values = (*random.sample(STORED[key], 2), None)
        found[tuple(entity), key] = QuotaChoice(tuple(entity), key, values)
    return list(found.values())


def _rates(random: Random) -> dict[str, Any]:
    rates = _some(random, ("producer_byte_rate", 0.85, _RATES))
    if random.random() < 0.85 or not rates:
        rates["consumer_byte_rate"] = random.choice(_RATES)
    of_requests = ("request_rate", 0.15, STORED["request_rate"])
    of_topics = ("controller_mutation_rate", 0.6, STORED["controller_mutation_rate"])
    return rates | _some(random, of_requests, of_topics, ("connections", 0.1, (1, 3)))


def draw_queue(random: Random) -> dict[str, Any]:
    """Draw the section ``fair_call_queue``."""
    settings: dict[str, Any] = {"max_in_flight": random.choice((1, 2, "adaptive"))}
    if random.random() < 0.5:
        settings |= {"callqueue.capacity": random.choice((4, 16)), "backoff.enable": True}
    if random.random() < 0.3:
        settings["identity-provider.impl"] = "user-client-id"
    return settings
