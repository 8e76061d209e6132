"""The operator's file as frozen values. No I/O, no clock; ``config.load`` makes them from YAML.

Times are whole milliseconds, sizes whole bytes, rates bytes per second, whatever unit the file used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS, CONNECTION_CREATION_RATE
from kafka_quota_proxy.config.ramp import Ramp
from kafka_quota_proxy.config.schedule import Schedule
from kafka_quota_proxy.config.security import ClientTls, Sasl, SaslMechanism, SecurityProtocol, UpstreamTls
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas
from kafka_quota_proxy.config.units import UNLIMITED

# Of a user or a client-id. Kafka's own: an int16 says how long a client-id is.
MAX_NAME_BYTES: Final = 32_767
# How many buckets a broker has at most, of each kind, beside those that rules name.
MAX_BUCKETS: Final = 100_000
# How many ports behind the bootstrap port are the brokers' where a file does not say.
BROKER_PORTS: Final = 100


class Default(Enum):
    """The entity ``<default>``: a template for every user or client-id without a rule of its own."""

    DEFAULT = "<default>"

    def __str__(self) -> str:
        return self.value


DEFAULT: Final = Default.DEFAULT
# A name, the default entity, or (None) not part of the rule.
EntityName = str | Default | None


class Enforcement(Enum):
    """What happens to a client that is over its quota."""

    RESPOND = "respond"  # answer at once with throttle_time_ms, then do not read (Kafka since 2.0, KIP-219)
    DELAY = "delay"  # hold the answer for that time (Kafka before 2.0)
    OBSERVE = "observe"  # compute and count, slow nothing


class Shaping(Enum):
    """Which arithmetic measures a client."""

    SAMPLED = "sampled"  # Kafka's Rate over windows, exact
    PACED = "paced"  # a token bucket, even to the second


class LogFormat(Enum):
    """How log lines are written."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host name or IP literal (without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All brokers of a cluster, each told to clients as a port of this proxy."""

    bootstrap_servers: tuple[Address, ...]
    advertised_host: str
    first_port: int  # of the broker with node id 0; node id n has the n-th port behind it
    last_port: int

    def port_of(self, node_id: int) -> int | None:
        """Return a broker's port; None for a node id that has none."""
        port = self.first_port + node_id
        return port if self.first_port <= port <= self.last_port else None

    def __str__(self) -> str:
        return ",".join(map(str, self.bootstrap_servers))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyProtocol:
    """Each connection begins with a PROXY protocol header, and says there whose it is."""

    sources: tuple[IPv4Network | IPv6Network, ...] = ()  # who may connect; empty: anybody


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One port that clients connect to: in front of one broker (``upstream``), or their bootstrap to a ``cluster``."""

    name: str
    bind: Address
    upstream: Address | None = None
    cluster: Cluster | None = None  # one of the two is set
    node_id: int | None = None  # of the upstream; None: it is found out where it has to be known
    inter_broker: bool = False
    proxy_protocol: ProxyProtocol | None = None  # None: a header is refused like all that is not Kafka's
    max_frame_size_bytes: int = 104_857_600  # Kafka's socket.request.max.bytes
    # Of these None is no limit.
    max_connections: int | None = 10_000
    max_connections_per_ip: int | None = None
    login_timeout_ms: int | None = 30_000  # until the first request has come
    idle_timeout_ms: int | None = None  # brokers have one of their own, connections.max.idle.ms
    max_connection_age_ms: int | None = None
    max_connection_creation_rate: int | None = None  # connections per second
    enforcement: Enforcement | None = None
    shaping: Shaping | None = None
    sasl: Sasl = field(default_factory=Sasl)
    client_tls: ClientTls | None = None  # None: plaintext
    upstream_tls: UpstreamTls | None = None
    fair_call_queue: FairCallQueue | None = None  # None: requests go on as they come


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """Kafka's own broker settings, named by their keys with ``_`` for ``.``, with Kafka's defaults."""

    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    client_quota_metric_value_enable: bool = True
    quota_producer_default: int = UNLIMITED
    quota_consumer_default: int = UNLIMITED
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    num_partitions: int = 1  # what a topic is made with for which no number is asked
    # Connections per second; at each broker in all, without those of inter_broker listeners.
    max_connection_creation_rate: int = 2**31 - 1


@dataclass(frozen=True, slots=True, init=False)
class QuotaRule:
    """One line of ``quotas:``: an entity and its limits. At least one of user and client_id is set.

    From ``expires_ms`` on, and outside its schedule, the rule does not hold: ``proxy.quota.rule_terms``.
    """

    user: EntityName
    client_id: EntityName
    limits: Mapping[str, float] = field(hash=False)  # by keys of ``config.quota_kinds``
    enforcement: Enforcement | None
    shaping: Shaping | None
    expires_ms: int | None  # Unix time
    schedule: Schedule | None
    ramp: Ramp | None
    source: str  # FILE:LINE

    def __init__(
        self,
        *,
        user: EntityName = None,
        client_id: EntityName = None,
        limits: Mapping[str, float] | None = None,
        enforcement: Enforcement | None = None,
        shaping: Shaping | None = None,
        expires_ms: int | None = None,
        schedule: Schedule | None = None,
        ramp: Ramp | None = None,
        source: str = "",
        **limit_of_key: float | None,
    ) -> None:
        """Make a rule. Limits are a mapping, which is not copied, or named: ``producer_byte_rate=1000.0``."""
        if limit_of_key:
            unknown = limit_of_key.keys() - set(CLIENT_LIMIT_KEYS)
            if unknown:
                raise TypeError(f"not the key of a quota: {min(unknown)}")
            named = {key: limit for key, limit in limit_of_key.items() if limit is not None}
            limits = {**limits, **named} if limits else named
        put = object.__setattr__  # as the generated __init__ of a frozen class does
        put(self, "user", user)
        put(self, "client_id", client_id)
        put(self, "limits", {} if limits is None else limits)
        put(self, "enforcement", enforcement)
        put(self, "shaping", shaping)
        put(self, "expires_ms", expires_ms)
        put(self, "schedule", schedule)
        put(self, "ramp", ramp)
        put(self, "source", source)


@dataclass(frozen=True, slots=True, kw_only=True)
class IpRule:
    """One line of ``quotas:`` about an address, or about each address without a rule (``<default>``)."""

    ip: str | Default
    connection_creation_rate: float  # connections per second
    expires_ms: int | None = None
    schedule: Schedule | None = None
    ramp: Ramp | None = None
    source: str = ""  # FILE:LINE

    @property
    def limits(self) -> Mapping[str, float]:
        """Its one limit, by key."""
        return {CONNECTION_CREATION_RATE: self.connection_creation_rate}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminClient:
    """How this program itself speaks to a cluster, to ask it or to write to a topic. Files are as in ``ClientTls``."""

    bootstrap_servers: tuple[Address, ...] = ()  # empty: the upstreams of the inter_broker listeners
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    sasl_mechanism: SaslMechanism | None = None  # given, with name and password, where the protocol has SASL
    sasl_username: str | None = None
    sasl_password_file: str | None = None  # its first line is the password
    ssl_cafile: str | None = None  # None: whom the system trusts
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_check_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationPath:
    """A rate that all pairs of brokers that fit share. At least one of the four is set; None fits any."""

    leader: int | None = None  # node ids
    follower: int | None = None
    leader_rack: str | None = None
    follower_rack: str | None = None
    rate: float
    source: str = ""  # FILE:LINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """What replicas that catch up may take. Where neither lists nor the cluster say which: every one that lags."""

    leader_rate: float | None = None  # of each broker behind this proxy, as leader
    follower_rate: float | None = None  # of each follower, all that it fetches through this proxy
    leader_replicas: Mapping[str, ThrottledReplicas] | None = None  # by topic; None: all that lag, of any topic
    follower_replicas: Mapping[str, ThrottledReplicas] | None = None
    paths: tuple[ReplicationPath, ...] = ()
    from_cluster: bool = False  # then the four above are None, and the cluster's dynamic configs say
    poll_interval_ms: int = 2_000
    lease_ms: int | None = 600_000  # how long a throttle without a reassignment holds; None: for ever
    admin_client: AdminClient = field(default_factory=AdminClient)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFiles:
    """The usage log as JSON Lines, in files of their own for each proxy."""

    directory: str
    rotate_size_bytes: int = 67_108_864  # from which on a file is completed
    rotate_interval_ms: int = 300_000  # and after which
    retention_size_bytes: int | None = 10_737_418_240  # of all complete files; None: none is removed


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTopic:
    """The usage log in a Kafka topic."""

    topic: str = "kafka-quota-usage"
    client: AdminClient = field(default_factory=AdminClient)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLog:
    """Who used how much under which quota, in each interval. At least one of files and topic is set."""

    interval_ms: int = 1_000
    proxy: str | None = None  # the name in the records; None: the host's, and the port of the first listener
    files: UsageFiles | None = None
    topic: UsageTopic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasFrom:
    """A Kafka topic that has rules for every proxy of a fleet, and shares for single ones: ``config.quota_record``."""

    topic: str = "kafka-quota-store"
    client: AdminClient = field(default_factory=AdminClient)

    def __str__(self) -> str:
        return f"kafka://{','.join(map(str, self.client.bootstrap_servers))}/{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasFromBroker:
    """The brokers' own quotas: those of their cluster, as DescribeClientQuotas tells them."""

    every_ms: int = 2_000
    client: AdminClient = field(default_factory=AdminClient)  # no bootstrap_servers: the brokers of all listeners

    def __str__(self) -> str:
        return "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Where quotas are kept that were changed through the proxy: a directory, a topic, or both.

    With a topic the directory has what was known of it last.
    """

    directory: str | None = None
    topic: QuotasFrom | None = None
    changes_per_second: float | None = 100.0  # entities, of whoever changes them; None: any number
    audit_log: str | None = None  # the path of a file; None: who changed what stands in the log alone

    @property
    def path(self) -> str | None:
        """Return where the files are: those of a topic have a directory of their own in the one that is named."""
        if self.directory is None or self.topic is None:
            return self.directory
        return f"{self.directory}/{self.topic.topic}"

    def __str__(self) -> str:
        return str(self.directory if self.topic is None else self.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """Where /metrics, /livez, /readyz and /quotas are served."""

    bind: Address
    metrics_bind: Address | None = None  # here /metrics, /livez and /readyz too, and nothing else
    hosts: tuple[str, ...] = ()  # Host names that bind accepts, besides its own
    quotas_token_file: str | None = None  # who sends what it holds may change quotas there; None: nobody may


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Form and level of the log on stderr."""

    format: LogFormat = LogFormat.TEXT
    level: str = "info"  # debug | info | warning | error


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """The whole file."""

    listeners: tuple[Listener, ...]
    upstream_bind: str | None = None  # the address from which brokers are dialled; None: the system's choice
    enforcement: Enforcement = Enforcement.RESPOND
    max_throttle_time_ms: int | None = 25_000
    shaping: Shaping = Shaping.SAMPLED
    burst_ms: int = 1_000
    request_time_scale: float = 1.0  # what brokers charge for requests, of what is charged for them here without it
    max_buckets: int = MAX_BUCKETS  # of each kind at each broker
    drain_timeout_ms: int = 20_000
    max_buffered_bytes: int = 536_870_912  # of what waits in all connections together
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    quotas: tuple[QuotaRule, ...] = ()
    ip_quotas: tuple[IpRule, ...] = ()
    quotas_from: QuotasFrom | QuotasFromBroker | None = None  # None: the file has them all
    store: Store | None = None  # None: none can be changed
    principals: Principals = field(default_factory=Principals)
    replication: Replication | None = None  # None: no replica is held back
    usage_log: UsageLog | None = None  # None: nothing is logged
    admin: Admin | None = None
    log: Log = field(default_factory=Log)
