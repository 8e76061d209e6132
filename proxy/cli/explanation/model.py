"""Data classes for a report that explains which quotas apply to a client."""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_quota_proxy.config.model import Enforcement, IpRule, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.proxy.quota.entity import Level, Tags
from kafka_quota_proxy.proxy.rules.model import Entity as StoreEntity


@dataclass(frozen=True, slots=True, kw_only=True)
class AtListener:
    """How one listener of the proxy enforces a client's limit of one kind of quota."""

    listener: str
    enforcement: Enforcement | None  # None for an inter-broker listener, which has no limits
    shaping: Shaping | None  # None for a quota that is not a rate
    max_fetch_bytes: int | None  # the bound on a fetch's max_bytes, or None if there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRule:
    """A rule for the client that does not apply, and the reason why."""

    rule: QuotaRule | IpRule
    level: Level | None  # None for a rule of an address
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which limit applies to the client for one kind of quota, and which rule sets it.

    If no limit applies, ``rule`` is None, and ``why`` may give the reason.
    """

    key: str  # the key of the quota, which is Kafka's or the proxy's own
    rule: QuotaRule | None
    level: Level | None
    limit: float | None  # in the unit of the key
    bucket: Tags
    at_listeners: tuple[AtListener, ...]
    lost: tuple[OtherRule, ...]  # rules that lost to a rule of a more specific level
    times: tuple[str, ...] = ()  # future changes of the rule, in words
    not_now: tuple[OtherRule, ...] = ()  # rules that have expired or are outside their schedules
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IpVerdict:
    """The limit on new connections from an IP address. ``rule`` is None if nothing limits the address."""

    ip: str
    rule: IpRule | None
    lost: tuple[OtherRule, ...]
    times: tuple[str, ...]
    not_now: tuple[OtherRule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of the configuration file and the quotas that clients have set, as they apply at one instant."""

    config: ProxyConfig  # the configuration, with its quotas replaced by the rules that apply
    kafka_sources: Mapping[str, str]  # FILE:LINE of each key under ``kafka``
    timed: Mapping[StoreEntity, QuotaRule | IpRule]  # the rules that change with time, as they were set
    now_ms: int  # Unix time


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The limits that apply to one client, and the rules that set them."""

    user: str
    client_id: str
    charged_user: str  # the user after folding (principals.fold), to which requests are charged
    is_exempt: bool
    verdicts: tuple[Verdict, ...]
    of_ip: IpVerdict | None  # None if no address was given
    nearest: QuotaRule | None = None  # if no rule names the client at any time: the rule that is spelt most like it
