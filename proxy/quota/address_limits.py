"""Holds the limits on how many connections per second each IP address may create."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from kafka_quota_proxy.config.addresses import canonical
from kafka_quota_proxy.config.model import DEFAULT, Default, IpRule

Ip: TypeAlias = str | Default
# Changed rules by address, of any spelling. None stands for a removed rule.
IpChanges: TypeAlias = Mapping[Ip, IpRule | None]
# Kafka writes "no limit" as Integer.MAX_VALUE.
UNLIMITED_RATE: Final = float(2**31 - 1)


class AddressLimits:
    """The limits on how many connections per second each IP address may create.

    Callers must pass each ``host`` through ``canonical``, which returns the usual form of an address.
    """

    def __init__(self, rules: Iterable[IpRule]) -> None:
        limits = {rule.ip: rule.connection_creation_rate for rule in rules}
        self._default: float = limits.pop(DEFAULT, UNLIMITED_RATE)
        self._limits = {canonical(str(host)): limit for host, limit in limits.items()}

    def copy(self) -> "AddressLimits":
        """Return an object with the same limits."""
        copy = AddressLimits(())
        copy._limits, copy._default = self._limits.copy(), self._default
        return copy

    def swap(self, other: "AddressLimits") -> None:
        """Exchange the limits with those of ``other``. The time that this takes does not depend on their number."""
        self._limits, other._limits = other._limits, self._limits  # noqa: SLF001 - same class
        self._default, other._default = other._default, self._default  # noqa: SLF001 - same class

    def change(self, changes: IpChanges) -> dict[str, bool]:
        """Set or remove the limits of some IP addresses. All other limits stay as they are.

        Return a dictionary that has an entry for each address that had no limit of its own and has one now (True), and
        for each address that lost its own limit (False). The default limit has no entry.
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
        """Whether there is any limit, on a single address or as the default for all addresses."""
        return bool(self._limits) or self._default < UNLIMITED_RATE

    def __iter__(self) -> Iterator[str]:
        return iter(self._limits)

    def __contains__(self, host: object) -> bool:
        return host in self._limits

    def of(self, host: str) -> float:
        """Return the limit of an address, or ``UNLIMITED_RATE`` if no rule applies."""
        return self._limits.get(host, self._default)

    def rules(self) -> list[tuple[str, float]]:
        """Return each rule as an address and its limit. The address of the default rule is ``<default>``."""
        default = [(str(DEFAULT), self._default)] if self._default < UNLIMITED_RATE else []
        return [*self._limits.items(), *default]
