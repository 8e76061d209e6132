"""What there is to say of one client, and the rules that it is said by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.config.model import Enforcement, IpRule, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity as StoreEntity
from kafka_quota_proxy.proxy.quota.entity import Candidate, Level, Tags

OF_IPS: Final = "connection_creation_rate"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtListener:
    """What holds for the client at one listener."""

    listener: str
    enforcement: Enforcement | None  # None where brokers come, who are not limited
    shaping: Shaping | None  # None where nothing is measured over time
    max_fetch_bytes: int | None  # what a fetch's max_bytes is lowered to; None where nothing is enforced


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNow:
    """A rule for the client that does not hold at this time."""

    rule: QuotaRule
    level: Level
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What holds for the client in one kind of quota. ``rule`` is None where nothing limits it; ``why`` may say why.

    ``times`` says what will change of the rule, in words.
    """

    key: str  # Kafka's, or ours of the same form
    rule: QuotaRule | None
    level: Level | None
    limit: float | None  # in the unit of the key
    bucket: Tags
    at_listeners: tuple[AtListener, ...]
    lost: tuple[Candidate, ...]
    times: tuple[str, ...] = ()
    not_now: tuple[NotNow, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IpVerdict:
    """What holds for an address. ``rule`` is None where nothing limits it; ``lost`` is that for all others.

    ``not_now`` has rules that do not hold at this time, and why.
    """

    ip: str
    rule: IpRule | None
    lost: IpRule | None
    times: tuple[str, ...] = ()
    not_now: tuple[tuple[IpRule, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The file with the rules that hold at an instant, those of a store among them.

    Attributes:
        config: The file, with them.
        kafka_sources: FILE:LINE of each key under ``kafka``.
        timed: The rules that are not the same at all times, as they were set.
        now_ms: The instant; Unix time.
    """

    config: ProxyConfig
    kafka_sources: Mapping[str, str]
    timed: Mapping[StoreEntity, QuotaRule | IpRule]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All that can be said of one client."""

    user: str
    client_id: str
    charged_user: str  # after folding
    is_exempt: bool
    verdicts: tuple[Verdict, ...]
    of_ip: IpVerdict | None  # None where no address was asked about
