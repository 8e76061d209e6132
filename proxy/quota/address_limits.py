"""How many connections a second each address may create: the rules, without any counts."""

from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address, ip_address
from typing import Final

from kafka_quota_proxy.config.model import DEFAULT, IpRule
from kafka_quota_proxy.proxy.quota.rule_changes import IpChanges

# Kafka's "no limit": Integer.MAX_VALUE.
UNLIMITED_RATE: Final = 2**31 - 1


def canonical(host: str) -> str:
    """Return the one spelling of an address that rules use; an IPv4 address for one that is mapped to IPv6.

    As in Kafka, all of an IPv6 address counts, not a prefix. A host that is no address is returned unchanged.
    """
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


class AddressLimits:
    """The limits of addresses in connections per second. Every ``host`` is ``canonical``."""

    def __init__(self, rules: Iterable[IpRule]) -> None:
        self._limits: dict[str, float] = {}
        self._default: float = UNLIMITED_RATE
        self.update(rules)

    def update(self, rules: Iterable[IpRule]) -> None:
        """Replace all rules."""
        limits = {rule.ip: rule.connection_creation_rate for rule in rules}
        self._default = limits.pop(DEFAULT, UNLIMITED_RATE)
        self._limits = {canonical(str(host)): limit for host, limit in limits.items()}

    def change(self, changes: IpChanges) -> dict[str, bool]:
        """Change single rules, at a cost that does not depend on the others.

        Returns:
            The addresses that a rule has come to name (True) or names no more (False).
        """
        named: dict[str, bool] = {}
        for ip, rule in changes.items():
            if ip is DEFAULT:
                self._default = UNLIMITED_RATE if rule is None else rule.connection_creation_rate
                continue
            host = canonical(str(ip))
            if (host in self._limits) != (rule is not None):
                named[host] = rule is not None
            if rule is not None:
                self._limits[host] = rule.connection_creation_rate
            else:
                self._limits.pop(host, None)
        return named

    @property
    def has_any(self) -> bool:
        """Whether any address has a limit."""
        return bool(self._limits) or self._default < UNLIMITED_RATE

    def __iter__(self) -> Iterator[str]:
        return iter(self._limits)

    def __contains__(self, host: object) -> bool:
        return host in self._limits

    def of(self, host: str) -> float:
        """Return the limit of an address; ``UNLIMITED_RATE`` without one."""
        return self._limits.get(host, self._default)

    def rules(self) -> list[tuple[str, float]]:
        """Return each rule's address, or ``<default>``, and its limit."""
        default = [(str(DEFAULT), self._default)] if self._default < UNLIMITED_RATE else []
        return [*self._limits.items(), *default]
