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

# The longest user or client-id. In Kafka's protocol, the length of a client-id is an int16.
MAX_NAME_BYTES: Final = 32_767
# The most buckets of each kind at a broker, without those that rules name.
MAX_BUCKETS: Final = 100_000
# The number of ports for brokers after the bootstrap port, by default.
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
    """The arithmetic that measures a client."""

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
    """All brokers of a cluster; the proxy advertises one of its own ports for each."""

    bootstrap_servers: tuple[Address, ...]
    advertised_host: str
    first_port: int  # of the broker with node id 0; node id n has the n-th port after it
    last_port: int

    def port_of(self, node_id: int) -> int | None:
        """Return a broker's port; None for a node id that has none."""
        port = self.first_port + node_id
        return port if self.first_port <= port <= self.last_port else None

    def __str__(self) -> str:
        return ",".join(map(str, self.bootstrap_servers))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyProtocol:
    """Each connection begins with a PROXY protocol header, which has the address of the client."""

    sources: tuple[IPv4Network | IPv6Network, ...] = ()  # networks that may connect; empty: any


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A port that clients connect to: in front of one broker (``upstream``), or the bootstrap of a ``cluster``."""

    name: str
    bind: Address
    upstream: Address | None = None
    cluster: Cluster | None = None  # one of the two is set
    node_id: int | None = None  # of the upstream; None: the proxy asks the broker when it needs it
    inter_broker: bool = False
    proxy_protocol: ProxyProtocol | None = None  # None: a header is a protocol error
    max_frame_size_bytes: int = 104_857_600  # Kafka's socket.request.max.bytes
    # For these, None is no limit.
    max_connections: int | None = 10_000
    max_connections_per_ip: int | None = None
    login_timeout_ms: int | None = 30_000  # until the first request has come
    idle_timeout_ms: int | None = None  # brokers have their own, connections.max.idle.ms
    max_connection_age_ms: int | None = None
    max_connection_creation_rate: int | None = None  # connections per second
    enforcement: Enforcement | None = None
    shaping: Shaping | None = None
    sasl: Sasl = field(default_factory=Sasl)
    client_tls: ClientTls | None = None  # None: plaintext
    upstream_tls: UpstreamTls | None = None
    fair_call_queue: FairCallQueue | None = None  # None: requests are forwarded in order of arrival


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
    num_partitions: int = 1  # of a new topic, if the request gives no number
    # Connections per second at each broker, without those of inter_broker listeners.
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
    """This program's own Kafka client, which reads cluster state or uses a topic. Files are as in ``ClientTls``."""

    bootstrap_servers: tuple[Address, ...] = ()  # empty: the upstreams of the inter_broker listeners
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    sasl_mechanism: SaslMechanism | None = None  # with name and password; set if the protocol has SASL
    sasl_username: str | None = None
    sasl_password_file: str | None = None  # its first line is the password
    ssl_cafile: str | None = None  # None: the system's trusted authorities
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_check_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationPath:
    """A rate that all matching pairs of brokers share. At least one of the four is set; None matches any."""

    leader: int | None = None  # node ids
    follower: int | None = None
    leader_rack: str | None = None
    follower_rack: str | None = None
    rate: float
    source: str = ""  # FILE:LINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """The rates of replicas that catch up. Without lists, each replica that lags is throttled."""

    leader_rate: float | None = None  # of each broker behind this proxy, as leader
    follower_rate: float | None = None  # of each follower, over all that it fetches through this proxy
    leader_replicas: Mapping[str, ThrottledReplicas] | None = None  # by topic; None: all replicas that lag
    follower_replicas: Mapping[str, ThrottledReplicas] | None = None
    paths: tuple[ReplicationPath, ...] = ()
    from_cluster: bool = False  # True: the four above are None, and the cluster's dynamic configs apply
    poll_interval_ms: int = 2_000
    lease_ms: int | None = 600_000  # how long a throttle without a reassignment applies; None: for ever
    admin_client: AdminClient = field(default_factory=AdminClient)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFiles:
    """The usage log as JSON Lines, in separate files for each proxy."""

    directory: str
    rotate_size_bytes: int = 67_108_864  # a file is complete at this size
    rotate_interval_ms: int = 300_000  # and after this time
    retention_size_bytes: int | None = 10_737_418_240  # of all complete files; None: files are never removed


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTopic:
    """The usage log in a Kafka topic."""

    topic: str = "kafka-quota-usage"
    client: AdminClient = field(default_factory=AdminClient)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLog:
    """The usage of each bucket in each interval. At least one of files and topic is set."""

    interval_ms: int = 1_000
    proxy: str | None = None  # the name in the records; None: host name and port of the first listener
    files: UsageFiles | None = None
    topic: UsageTopic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasFrom:
    """A Kafka topic with rules for all proxies, and shares for single proxies: ``config.quota_record``."""

    topic: str = "kafka-quota-store"
    client: AdminClient = field(default_factory=AdminClient)

    def __str__(self) -> str:
        return f"kafka://{','.join(map(str, self.client.bootstrap_servers))}/{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasFromBroker:
    """The quotas of the brokers' cluster, from DescribeClientQuotas."""

    every_ms: int = 2_000
    client: AdminClient = field(default_factory=AdminClient)  # without bootstrap_servers: the brokers of all listeners

    def __str__(self) -> str:
        return "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The store of quotas that were changed through the proxy: a directory, a topic, or both.

    With a topic, the directory has the last known rules of the topic.
    """

    directory: str | None = None
    topic: QuotasFrom | None = None
    changes_per_second: float | None = 100.0  # changed entities, over all clients; None: any number
    audit_log: str | None = None  # the path of a file; None: changes are only logged

    @property
    def path(self) -> str | None:
        """The directory of the files. Those of a topic are in a subdirectory."""
        if self.directory is None or self.topic is None:
            return self.directory
        return f"{self.directory}/{self.topic.topic}"

    def __str__(self) -> str:
        return str(self.directory if self.topic is None else self.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """The admin port, which serves /metrics, /livez, /readyz and /quotas."""

    bind: Address
    metrics_bind: Address | None = None  # a second address, for /metrics, /livez and /readyz only
    hosts: tuple[str, ...] = ()  # more Host names that bind accepts
    quotas_token_file: str | None = None  # the token in it permits changes of quotas; None: no changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Form and level of the log on stderr."""

    format: LogFormat = LogFormat.TEXT
    level: str = "info"  # debug | info | warning | error


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """The whole file."""

    listeners: tuple[Listener, ...]
    upstream_bind: str | None = None  # the local address of connections to brokers; None: the system's choice
    enforcement: Enforcement = Enforcement.RESPOND
    max_throttle_time_ms: int | None = 25_000
    shaping: Shaping = Shaping.SAMPLED
    burst_ms: int = 1_000
    request_time_scale: float = 1.0  # the brokers' own charge for requests, divided by the proxy's
    max_buckets: int = MAX_BUCKETS  # of each kind at each broker
    drain_timeout_ms: int = 20_000
    max_buffered_bytes: int = 536_870_912  # of data that waits in all connections together
    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    quotas: tuple[QuotaRule, ...] = ()
    ip_quotas: tuple[IpRule, ...] = ()
    quotas_from: QuotasFrom | QuotasFromBroker | None = None  # None: all rules are in the file
    store: Store | None = None  # None: quotas cannot be changed
    principals: Principals = field(default_factory=Principals)
    replication: Replication | None = None  # None: no replica is throttled
    usage_log: UsageLog | None = None  # None: no usage log
    admin: Admin | None = None
    log: Log = field(default_factory=Log)
