"""The explanation of one client's quotas, and the rules that it is computed from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.config.model import Enforcement, IpRule, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity as StoreEntity
from kafka_quota_proxy.proxy.quota.entity import Candidate, Level, Tags

OWN_RULE: Final = "the address has a rule of its own"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtListener:
    """The enforcement of a quota at one listener."""

    listener: str
    enforcement: Enforcement | None  # None: an inter-broker listener, without limits
    shaping: Shaping | None  # None for a quota that is not a rate
    max_fetch_bytes: int | None  # the bound on a fetch's max_bytes; None: no bound


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNow:
    """A rule for the client that does not apply at this time."""

    rule: QuotaRule
    level: Level
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The client's limit in one kind of quota. ``rule`` is None if nothing limits it; ``why`` may give the reason.

    ``times`` describes future changes of the rule, in words.
    """

    key: str  # Kafka's key, or the proxy's own
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
    """The limit of an address. ``rule`` is None if nothing limits it; ``lost`` is the default rule.

    ``not_now`` has the rules that do not apply at this time, with the reasons.
    """

    ip: str
    rule: IpRule | None
    lost: IpRule | None
    times: tuple[str, ...] = ()
    not_now: tuple[tuple[IpRule, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that apply at an instant, from the file and its store.

    Attributes:
        config: The file, with the quotas replaced by these rules.
        kafka_sources: FILE:LINE of each key under ``kafka``.
        timed: The rules that change with time, as they were set.
        now_ms: The instant; Unix time.
    """

    config: ProxyConfig
    kafka_sources: Mapping[str, str]
    timed: Mapping[StoreEntity, QuotaRule | IpRule]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The quotas of one client."""

    user: str
    client_id: str
    charged_user: str  # after folding
    is_exempt: bool
    verdicts: tuple[Verdict, ...]
    of_ip: IpVerdict | None  # None: no address was given


def entity(rule: QuotaRule) -> Mapping[str, str]:
    """Return the entity of a rule, by Kafka's names of entity types."""
    names = {"user": rule.user, "client-id": rule.client_id}
    return {key: str(name) for key, name in names.items() if name is not None}


def number(limit: float | None) -> float:
    """Return a limit as an integer if it is whole; Kafka's number for "unlimited" if there is none."""
    limit = UNLIMITED if limit is None else min(limit, UNLIMITED)
    return int(limit) if limit == int(limit) else limit
