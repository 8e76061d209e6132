"""Addresses that have a limit in a store, whatever they are called there, and which of these limits hold.

A host may have many addresses, and an address many names. A change costs what it changes, whatever else there is.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import IpRule
from kafka_quota_proxy.proxy.quota.rule_changes import Ip, IpChanges

# What hosts are called, and their addresses.
Addresses: TypeAlias = Mapping[str, tuple[str, ...]]


# A change asks for the same one several times on end, and IPv6 takes long to parse.
@lru_cache(maxsize=16)
def literal(name: str) -> str | None:
    """Return an address as rules name it; None: it is none, but the name of a host."""
    try:
        return parse_ip(name)
    except UnitError:
        return None


class EffectiveIpRules:
    """The limits of a store's addresses.

    Args:
        name: Of the store, where a rule's source is told.

    Attributes:
        rules: Those that hold, by address.
        unknown_hosts: Those that have a limit which does not hold, for none of their addresses is known.
    """

    def __init__(self, *, name: str) -> None:
        self.rules: dict[Ip, IpRule] = {}
        self.unknown_hosts: set[str] = set()
        self._name = name
        self._of_file: Collection[Ip] = frozenset()
        self._rates: dict[Ip, float] = {}  # by name
        self._hosts: dict[str, tuple[str, ...]] = {}  # where those are that have a limit
        self._names: dict[Ip, set[Ip]] = {}  # of an address, those that have a limit

    def follow_file(self, addresses: Collection[Ip]) -> None:
        """Take it that these have rules in the operator's file, which go before."""
        touched = {*self._of_file} ^ {*addresses}
        self._of_file = addresses
        self._settle(touched)

    def change(self, name: Ip, rate: float | None, known: Addresses) -> IpChanges:
        """Limit what is called ``name``; return the rules of all addresses that concerns, said again where it is again.

        Args:
            name: An address in any spelling, a host, or the default.
            rate: Connections per second; None: it has no limit any more.
            known: Where hosts are. Of one that is not among them, what was known last.
        """
        before = self._addresses_of(name)
        if rate is None:
            self._rates.pop(name, None)
        else:
            self._rates[name] = rate
        return self._move(name, before, self._found(name, known, before) if rate is not None else ())

    def update_addresses(self, known: Addresses) -> IpChanges:
        """Take it that hosts are there now; return which rules that changes. Those without a limit do not matter."""
        changes: dict[Ip, IpRule | None] = {}
        for host in self._hosts.keys() & known.keys():
            changes |= self._move(host, self._hosts[host], known[host])
        return changes

    def _addresses_of(self, name: Ip) -> tuple[Ip, ...]:
        """Return the addresses that the limit of ``name`` is for by now."""
        if name not in self._rates:
            return ()
        return self._hosts[name] if isinstance(name, str) and name in self._hosts else _spelled(name)

    def _found(self, name: Ip, known: Addresses, before: tuple[Ip, ...]) -> tuple[Ip, ...]:
        return _spelled(name) or (known.get(name) if isinstance(name, str) else None) or before

    def _move(self, name: Ip, before: Iterable[Ip], addresses: tuple[Ip, ...]) -> IpChanges:
        """Take it that a name is for other addresses than before, or for the same in another way."""
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
        """Return the rules of these addresses, also where they are what they were, but for those of the file."""
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
        # Unlike Kafka, where of several names of one address the one counts that was set last, until the next start.
        rate = min(self._rates[name] for name in names)
        return IpRule(ip=address, connection_creation_rate=rate, source=self._name)


def _spelled(name: Ip) -> tuple[Ip, ...]:
    """Return what the name itself says: an address, or the default; nothing of a host."""
    address = literal(name) if isinstance(name, str) else name
    return () if address is None else (address,)
