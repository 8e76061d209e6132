"""Defines the operator's configuration file as frozen dataclasses, which ``config.load`` creates from YAML.

Times are stored in whole milliseconds, sizes in whole bytes and rates in bytes per second.
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
from kafka_quota_proxy.config.schedule import Ramp, Schedule
from kafka_quota_proxy.config.security import ClientTls, Sasl, SaslMechanism, SecurityProtocol, UpstreamTls
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas
from kafka_quota_proxy.config.units import UNLIMITED

# The longest user or client-id. In Kafka's protocol, the length of a client-id is an int16.
MAX_NAME_BYTES: Final = 32_767
MAX_BUCKETS: Final = 100_000  # of each kind at a broker; buckets with rules of their own do not count
BROKER_PORTS: Final = 100  # how many ports after the bootstrap port are reserved for brokers by default


class Default(Enum):
    """The name ``<default>`` in a rule, which stands for every user or client-id that has no rule of its own."""

    DEFAULT = "<default>"

    def __str__(self) -> str:
        return self.value


DEFAULT: Final = Default.DEFAULT
# A user or client-id in a rule. It is a name, the default entity, or None if the rule does not mention a user or
# client-id.
EntityName = str | Default | None


class Enforcement(Enum):
    """What the proxy does with a client that exceeds its quota."""

    RESPOND = "respond"  # answer at once with throttle_time_ms, then pause reading (Kafka since 2.0, KIP-219)
    DELAY = "delay"  # hold the answer back for the throttle time (Kafka before 2.0)
    OBSERVE = "observe"  # compute and count throttle times, but slow no client down


class Shaping(Enum):
    """How the rate of a client is measured. This determines whether throttled traffic is even or comes in bursts."""

    SAMPLED = "sampled"  # exactly as Kafka does, with a Rate over several windows
    PACED = "paced"  # with a token bucket, so that traffic is even from second to second


class RelayKind(Enum):
    """What reads the sockets of a listener's connections."""

    AUTO = "auto"  # proxy.server.clients.relay, where this program is compiled and the connection allows it
    PYTHON = "python"  # the event loop, as for TLS


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
    """A Kafka cluster behind one listener. The proxy advertises one of its own ports for each broker."""

    bootstrap_servers: tuple[Address, ...]
    advertised_host: str
    first_port: int  # for the broker with node id 0; the broker with node id n has port first_port + n
    last_port: int

    def port_of(self, node_id: int) -> int | None:
        """Return the proxy's port for the broker with this node id, or None if the proxy has no port for it."""
        port = self.first_port + node_id
        return port if self.first_port <= port <= self.last_port else None

    def __str__(self) -> str:
        return ",".join(map(str, self.bootstrap_servers))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyProtocol:
    """The settings of a listener whose connections begin with a PROXY protocol header.

    The header contains the address of the client, and is usually sent by a load balancer in front of the proxy.
    """

    sources: tuple[IPv4Network | IPv6Network, ...] = ()  # networks that may connect; if empty, any may


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A port that clients connect to, in front of one broker (``upstream``) or of a whole ``cluster``."""

    name: str
    bind: Address
    upstream: Address | None = None
    cluster: Cluster | None = None  # exactly one of upstream and cluster is set
    node_id: int | None = None  # of the upstream; if None, the proxy asks the broker for it
    inter_broker: bool = False
    proxy_protocol: ProxyProtocol | None = None  # None: a PROXY protocol header is an error
    max_frame_size_bytes: int = 104_857_600  # Kafka's socket.request.max.bytes
    # For the following six settings, None means that there is no limit.
    max_connections: int | None = 10_000
    max_connections_per_ip: int | None = None
    login_timeout_ms: int | None = 30_000  # for the first request to arrive
    idle_timeout_ms: int | None = None  # brokers have a limit of their own, connections.max.idle.ms
    max_connection_age_ms: int | None = None
    max_connection_creation_rate: int | None = None  # connections per second
    enforcement: Enforcement | None = None
    shaping: Shaping | None = None
    sasl: Sasl = field(default_factory=Sasl)
    client_tls: ClientTls | None = None  # None: plaintext
    upstream_tls: UpstreamTls | None = None
    fair_call_queue: FairCallQueue | None = None  # None: requests are forwarded in order of arrival
    relay: RelayKind = RelayKind.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """The settings of Kafka brokers that the proxy needs, with Kafka's names (``_`` for ``.``) and Kafka's defaults."""

    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    client_quota_metric_value_enable: bool = True
    quota_producer_default: int = UNLIMITED
    quota_consumer_default: int = UNLIMITED
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    num_partitions: int = 1  # for a new topic, if the request to create the topic gives no number
    # New connections per second at each broker. Connections to inter_broker listeners do not count.
    max_connection_creation_rate: int = 2**31 - 1


@dataclass(frozen=True, slots=True, init=False)
class QuotaRule:
    """One rule under ``quotas:`` in the configuration file, which gives limits to a user, a client-id or both.

    At least one of ``user`` and ``client_id`` is set. ``proxy.quota.rule_terms`` computes the limits that apply at a
    given time.
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
        """Create a rule. Limits are given in ``limits`` or by name, as in ``producer_byte_rate=1000.0``."""
        if limit_of_key:
            unknown = limit_of_key.keys() - set(CLIENT_LIMIT_KEYS)
            if unknown:
                raise TypeError(f"{min(unknown)} is not the key of a quota")
            named = {key: limit for key, limit in limit_of_key.items() if limit is not None}
            limits = {**limits, **named} if limits else named
        put = object.__setattr__  # the generated __init__ of a frozen dataclass sets its fields in the same way
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
    """One rule under ``quotas:`` that limits new connections from an IP address.

    The rule for ``<default>`` applies to each address that has no rule of its own.
    """

    ip: str | Default
    connection_creation_rate: float  # connections per second
    expires_ms: int | None = None
    schedule: Schedule | None = None
    ramp: Ramp | None = None
    source: str = ""  # FILE:LINE

    @property
    def limits(self) -> Mapping[str, float]:
        """The rule's only limit, as a mapping from its quota key to connections per second."""
        return {CONNECTION_CREATION_RATE: self.connection_creation_rate}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminClient:
    """The settings of a Kafka client that the proxy itself runs, to read the cluster's state or to use a topic.

    ``ssl_cafile``, ``ssl_certfile`` and ``ssl_keyfile`` are paths of PEM files. A relative path in the configuration
    file starts from the directory of that file, which ``config.load`` has already put in front.
    """

    bootstrap_servers: tuple[Address, ...] = ()  # empty: the upstreams of the inter_broker listeners
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    sasl_mechanism: SaslMechanism | None = None  # this and the next two are set if the protocol has SASL
    sasl_username: str | None = None
    sasl_password_file: str | None = None  # its first line is the password
    ssl_cafile: str | None = None  # None: the system's trusted authorities
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_check_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """The limits on the traffic of replicas that lag behind their leaders."""

    leader_rate: float | None = None  # what each broker behind this proxy sends as a leader
    follower_rate: float | None = None  # what each follower fetches through this proxy, from all leaders together
    leader_replicas: Mapping[str, ThrottledReplicas] | None = None  # by topic; None: all replicas that lag
    follower_replicas: Mapping[str, ThrottledReplicas] | None = None
    from_cluster: bool = False  # True: rates and replicas come from the cluster's dynamic configs
    poll_interval_ms: int = 2_000
    admin_client: AdminClient = field(default_factory=AdminClient)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFiles:
    """Where the usage log is written as JSON Lines. Each proxy writes files of its own."""

    directory: str
    rotate_size_bytes: int = 67_108_864  # a new file is begun at this size
    rotate_interval_ms: int = 300_000  # and also after this time
    retention_size_bytes: int | None = 10_737_418_240  # of all files but the current one; None: keep them all


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTopic:
    """The Kafka topic to which the usage log is written."""

    topic: str = "kafka-quota-usage"
    client: AdminClient = field(default_factory=AdminClient)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLog:
    """The usage log, which records what each bucket was charged in each interval, in files or a topic."""

    to: UsageFiles | UsageTopic
    interval_ms: int = 1_000
    proxy: str | None = None  # its name in the records; None: the host name and the first listener's port


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasFrom:
    """A Kafka topic from which all proxies read their quota rules.

    The topic also says how much of a common limit each single proxy may use. ``config.quota_record`` defines the format
    of its records.
    """

    topic: str = "kafka-quota-store"
    client: AdminClient = field(default_factory=AdminClient)

    def __str__(self) -> str:
        return f"kafka://{','.join(map(str, self.client.bootstrap_servers))}/{self.topic}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasFromBroker:
    """The quotas that the Kafka cluster itself stores. The proxy reads them by DescribeClientQuotas."""

    every_ms: int = 2_000
    client: AdminClient = field(default_factory=AdminClient)  # by default, the brokers of all listeners

    def __str__(self) -> str:
        return "broker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Where the proxy stores quotas that clients change through it: in a directory or in a topic."""

    directory: str | None = None
    topic: QuotasFrom | None = None
    changes_per_second: float | None = 100.0  # changed entities per second, over all clients; None: no limit
    audit_log: str | None = None  # the path of a file; None: changes are only logged

    def __str__(self) -> str:
        return str(self.directory if self.topic is None else self.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admin:
    """The admin port, which serves /metrics, /livez, /readyz and /quotas, and /testing in tests."""

    bind: Address
    metrics_bind: Address | None = None  # a second address, which serves /metrics, /livez and /readyz only
    hosts: tuple[str, ...] = ()  # values of the HTTP header Host that ``bind`` accepts in addition
    quotas_token_file: str | None = None  # a client with the token in this file may change quotas; None: none may


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The format and the level of the log on stderr."""

    format: LogFormat = LogFormat.TEXT
    level: str = "info"  # debug | info | warning | error


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyConfig:
    """The whole configuration of a proxy process."""

    listeners: tuple[Listener, ...]
    upstream_bind: str | None = None  # the local IP address of connections to brokers; None: any
    enforcement: Enforcement = Enforcement.RESPOND
    max_throttle_time_ms: int | None = 25_000
    shaping: Shaping = Shaping.SAMPLED
    burst_ms: int = 1_000
    request_time_scale: float = 1.0  # the request time that brokers measure, divided by the proxy's
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
    testing: bool = False  # whether tests may throttle clients through the admin port
    log: Log = field(default_factory=Log)
