"""Works out which of the connection-rate limits that clients set apply to each IP address.

A limit is set for an IP address or for a host name. A limit for a host name applies to all addresses of the host. A
host may have several addresses, and an address several host names. If several limits are set for one address in this
way, the lowest of them applies. The time that a change takes does not depend on the number of limits.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import IpRule
from kafka_quota_proxy.proxy.quota.rule_changes import Ip, IpChanges

# The addresses of hosts, by host name.
Addresses: TypeAlias = Mapping[str, tuple[str, ...]]


# The cache helps because one change parses the same address several times, and IPv6 is slow to parse.
@lru_cache(maxsize=16)
def literal(name: str) -> str | None:
    """Return an IP address in canonical form, or None if ``name`` is a host name."""
    try:
        return parse_ip(name)
    except UnitError:
        return None


class EffectiveIpRules:
    """Holds the limits that are set for addresses and host names, and the rules for addresses that result from them.

    ``name`` is the name of the store. Each rule shows it as its source.

    Attributes:
        rules: The rules that apply, by address.
        unknown_hosts: The hosts whose limit applies to no address, because no address of the host is known.
    """

    def __init__(self, *, name: str) -> None:
        self.rules: dict[Ip, IpRule] = {}
        self.unknown_hosts: set[str] = set()
        self._name = name
        self._of_file: Collection[Ip] = frozenset()
        self._rates: dict[Ip, float] = {}  # the limits by name: an address, a host name or the default
        self._hosts: dict[str, tuple[str, ...]] = {}  # the addresses of each host that has a limit
        self._names: dict[Ip, set[Ip]] = {}  # address -> the names of it that have a limit

    def follow_file(self, addresses: Collection[Ip]) -> None:
        """Set which addresses have rules in the configuration file.

        The limits that clients set do not apply to these addresses, because the rules of the file take precedence.
        """
        touched = {*self._of_file} ^ {*addresses}
        self._of_file = addresses
        self._settle(touched)

    def change(self, name: Ip, rate: float | None, known: Addresses) -> IpChanges:
        """Set the limit of an address or host name.

        A ``rate`` of None removes the limit. ``known`` contains the addresses of hosts. A host that is not in ``known``
        keeps its last known addresses.

        Return the rule of each address to which the limit applied before or applies now, even if the rule is unchanged.
        None stands for an address without a rule. Addresses with a rule in the configuration file are left out.
        """
        before = self._addresses_of(name)
        if rate is None:
            self._rates.pop(name, None)
            return self._move(name, before, ())
        self._rates[name] = rate
        found = known.get(name) if isinstance(name, str) else None
        return self._move(name, before, _spelled(name) or found or before)

    def update_addresses(self, known: Addresses) -> IpChanges:
        """Set the addresses of hosts, and return the new rules of their old and new addresses.

        Ignore hosts without a limit.
        """
        changes: dict[Ip, IpRule | None] = {}
        for host in self._hosts.keys() & known.keys():
            changes |= self._move(host, self._hosts[host], known[host])
        return changes

    def _addresses_of(self, name: Ip) -> tuple[Ip, ...]:
        """Return the addresses to which the limit of ``name`` applies. ``name`` is an IP address or a host name."""
        if name not in self._rates:
            return ()
        return self._hosts[name] if isinstance(name, str) and name in self._hosts else _spelled(name)

    def _move(self, name: Ip, before: Iterable[Ip], addresses: tuple[Ip, ...]) -> IpChanges:
        """Apply the limit of a name to ``addresses`` and no longer to ``before``.

        Return the new rules of all these addresses.
        """
        if isinstance(name, str) and not _spelled(name):
            self._hosts.pop(name, None)
            self.unknown_hosts.discard(name)
            if name in self._rates:
                self._hosts[name] = tuple(address for address in addresses if isinstance(address, str))
                if not addresses:
                    self.unknown_hosts.add(name)
        for address in before:
            self._names[address].discard(name)
        for address in addresses:
            self._names.setdefault(address, set()).add(name)
        return self._settle({*before, *addresses})

    def _settle(self, touched: Iterable[Ip]) -> IpChanges:
        """Update the rules of the ``touched`` addresses.

        Return the new rules of those that have no rule in the file.
        """
        changes: dict[Ip, IpRule | None] = {}
        for address in touched:
            rule = self._rule(address)
            if rule is None:
                self.rules.pop(address, None)
            else:
                self.rules[address] = rule
            if address not in self._of_file:
                changes[address] = rule
        return changes

    def _rule(self, address: Ip) -> IpRule | None:
        names = self._names.get(address)
        if not names:
            self._names.pop(address, None)
            return None
        if address in self._of_file:
            return None
        # In Kafka, the limit that was set last counts, until the broker is started again.
        rate = min(self._rates[name] for name in names)
        return IpRule(ip=address, connection_creation_rate=rate, source=self._name)


def _spelled(name: Ip) -> tuple[Ip, ...]:
    """Return the address ``name`` in canonical form, as a tuple. The tuple is empty if ``name`` is a host name.

    The default entity is returned unchanged.
    """
    address = literal(name) if isinstance(name, str) else name
    return () if address is None else (address,)
